"""``memslot config show``: what a configuration comes to, secrets hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory.plugins.console import AsJson, complain, print_json

commands = typer.Typer(help="Look at configurations.", rich_markup_mode=None)


@commands.callback()
def _group() -> None:
    """Look at configurations."""


@commands.command()
def show(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file to resolve.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Show a configuration resolved: variables and defaults filled in, everything private hidden."""
    import yaml

    from memory.bench.engine.matrix import parsed_run
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry

    loaded = load_config(config)
    registry = MemoryAdapterRegistry()
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
