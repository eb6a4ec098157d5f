"""Lists memories (``memslot doctor`` without a file) and shows a resolved configuration (``tools config
show``).

Neither imports an SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memory.plugins.console import AsJson, ConfigFile, complain, print_json, print_table, say

if TYPE_CHECKING:
    from memory.plugins.registry import PluginRow


def status_of(row: PluginRow) -> str:
    """``installed``, or the install command or the error of a plugin that cannot be used."""
    if row.error is not None:
        return f"broken: {row.error}"
    if row.missing:
        return (row.info.install if row.info else "") or f"missing: {', '.join(row.missing)}"
    return "installed"


def list_memories(*, as_json: bool) -> None:
    """Print backends and conditions, and whether each is installed. JSON output adds their capabilities."""
    from memory.plugins.registry import MemoryAdapterRegistry

    rows = MemoryAdapterRegistry().rows()
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    print_table(
        ("name", "kind", "source", "status", "summary"),
        [
            (
                row.name,
                "backend" if row.kind == "architecture" else "condition",
                f"{row.distribution or 'unknown'} {row.version or ''}",
                status_of(row),
                row.info.summary if row.info else "-",
            )
            for row in rows
        ],
    )
    if not rows:
        say("No plugin is installed; reinstall memslot.")


commands = typer.Typer(help="Look at configurations.", rich_markup_mode=None, no_args_is_help=True)


@commands.command()
def show(
    config: ConfigFile,
    as_json: AsJson = False,
) -> None:
    """Show a configuration as it is read. Variables and defaults are filled in, and private values hidden."""
    import yaml

    from memory.bench.engine.matrix import parsed_run
    from memory.plugins.registry import MemoryAdapterRegistry

    registry = MemoryAdapterRegistry()
    loaded = registry.load(config)
    info = registry.selected(loaded)
    options = loaded.parse_options(info.options)
    known = loaded.config_hash(options)
    run = None if loaded.run is None else parsed_run(loaded)
    for place in registry.unread(loaded):
        complain(f"warning: {place}", warning=True)
    resolved = loaded.redacted(options, run)
    kind = "control" if getattr(options, "equivalent_control", None) else info.kind
    label = info.label(options)
    if as_json:
        about = {"provider": loaded.provider, "kind": kind, "label": label, "config_hash": known}
        print_json({**about, "config": resolved})
        return
    typer.echo(f"# {config}: {kind} {label}, config hash {known}")
    typer.echo(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=110), nl=False)
