"""``memslot tools hosts``: the agent frameworks that memslot binds to, and the lines that bind one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from memory.plugins.console import AsJson, print_json, print_table, say


def hosts(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A host, for the lines to paste."),
    ] = None,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[install|uninstall]", help="For hosts with a plugin folder."),
    ] = None,
    config: Annotated[Path, typer.Option(help="The memory's YAML file.")] = Path("memslot.yaml"),
    directory: Annotated[
        Path | None, typer.Option(help="The host's own directory, in place of its usual one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the agents that memslot binds to. With a name, print the lines that bind this agent."""
    from memory import InputError
    from memory.hosts.table import HOSTS

    if name is None:
        rows = [
            {
                "host": host.name,
                "title": host.title,
                "installed": host.installed,
                "tested": f">={host.tested[0]},<{host.tested[1]}" if host.tested else None,
                "install": None if host.installed or not host.distribution else host.install,
                "note": host.untested,
            }
            for host in HOSTS.values()
        ]
        if as_json:
            print_json(rows)
            return
        shown = [
            (
                row["host"] or "-",
                row["installed"] or "-",
                row["tested"] or "-",
                row["note"] or row["install"] or f"memslot tools hosts {row['host']}",
            )
            for row in rows
        ]
        print_table(("host", "installed", "tested", "what to do"), shown)
        return
    if name not in HOSTS:
        raise InputError(f"no host {name!r}; there are: {', '.join(HOSTS)}")
    if action is None:
        _print_program(name, config, as_json)
        return
    from memory.hosts._coding_agents import FOLDERS

    if action not in ("install", "uninstall"):
        raise InputError(f"{action!r} is neither install nor uninstall")
    if name not in FOLDERS:
        raise InputError(f"{name} takes no plugin folder; paste what 'memslot tools hosts {name}' prints")
    folder = FOLDERS[name](directory)
    lines = folder.install(config.absolute()) if action == "install" else folder.uninstall()
    if as_json:
        print_json({"host": name, "action": action, "done": lines})
    else:
        for line in lines:
            say(line)


def _print_program(name: str, config: Path, as_json: bool) -> None:
    from memory.hosts.table import HOSTS

    host = HOSTS[name]
    program = host.program(str(config.absolute()))
    if as_json:
        print_json({"host": name, "install": host.install, "program": program, "note": host.untested})
        return
    if host.distribution and host.installed is None:
        say(f"# {host.install}")
    elif host.untested:
        say(f"# {host.untested}")
    if not config.exists():
        say(f"# {config} does not exist yet: memslot setup {shlex.quote(str(config))}")
    typer.echo(program, nl=False)
