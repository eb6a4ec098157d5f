"""``memslot setup``: from nothing to an agent that remembers, by four questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory.cli.backends import complete_provider
from memory.cli.hosts import complete_host
from memory.plugins.console import say


def setup(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")] = Path("memslot.yaml"),
    host: Annotated[
        str | None,
        typer.Option(help="The agent; see 'memslot hosts'. none for no agent.", autocompletion=complete_host),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="The memory; see 'memslot backends'.", autocompletion=complete_provider),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where embedded stores live.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Ask for agent, memory, place and model; write the configuration and the agent's lines, and check them.

    What an option names is not asked.
    """
    from memory import ConfigError, InputError
    from memory.cli._asking import ask_model, ask_required
    from memory.cli._template import render
    from memory.cli.doctor import doctor
    from memory.hosts._table import HOSTS
    from memory.plugins.registry import MemoryAdapterRegistry

    if path.exists() and not force:
        raise ConfigError(f"{path} exists; give another name, or --force to replace it")
    host = host or typer.prompt(f"agent ({', '.join(HOSTS)}, or none)", default="none")
    if host != "none" and host not in HOSTS:
        raise InputError(f"no host {host!r}; there are: {', '.join(HOSTS)}, none")
    backend = backend or typer.prompt("memory ('memslot backends' lists them)", default="mem0")
    info = MemoryAdapterRegistry().info(backend)
    place = data_dir or Path(typer.prompt("directory for its data", default=".memslot"))
    answers = {**ask_model(info.options), **ask_required(info.options)}
    memory = {"scope": {"run_id": "home", "persona_id": "me"}, "data_dir": str(place)}
    path.write_text(render(info, {"memory": memory}, answers), encoding="utf-8")
    say(f"wrote {path}")
    if host != "none":
        _write_host(host, path)
    doctor(context, path)
    say("")
    say("Now say to your agent:  I like oolong tea.")
    say("Start it again, and ask:  Which tea do I like?")


def _write_host(name: str, config: Path) -> None:
    from memory import ConfigError
    from memory.hosts._installing import FOLDERS
    from memory.hosts._table import HOSTS

    host = HOSTS[name]
    if host.distribution and (host.untested or not host.installed):
        say(f"to be installed: {host.untested or host.install}")
    if name in FOLDERS:
        try:
            for line in FOLDERS[name](None).install(config.absolute()):
                say(line)
        except ConfigError as error:
            say(f"to be done: memslot hosts {name} install ({error})")
        return
    program = host.program(str(config.absolute()))
    if program.startswith(("#", "{")):
        typer.echo(program, nl=False)
        return
    file = config.with_name(f"{host.module}_agent.py")
    if file.exists():
        say(f"{file} exists and stays; 'memslot hosts {name}' prints what it would be")
        return
    file.write_text(program, encoding="utf-8")
    say(f"wrote {file}; the lines that end with '# yours' are your model")
