"""``memslot tools conform``: runs the kit against a configured memory, without pytest."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from memory.contract.errors import InputError
from memory.plugins.console import progress, say
from memory.plugins.installed import prints_on_stderr

commands = typer.Typer(add_completion=False, rich_markup_mode=None)


@commands.command()
def conform(
    config: Annotated[
        Path | None, typer.Argument(help="A configuration; the scope it names is not used.")
    ] = None,
    level: Annotated[
        Literal["core", "full"], typer.Option(help="core: what every memory promises.")
    ] = "full",
    only: Annotated[list[str] | None, typer.Option(help="One spec by its name; may be repeated.")] = None,
    loop: Annotated[
        list[str] | None, typer.Option(help="asyncio or trio; default: both that are installed.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds for each spec.", min=0.1)] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as JSON.")] = False,
    list_specs: Annotated[
        bool, typer.Option("--specs", help="Print what is promised, and play nothing.")
    ] = False,
) -> None:
    """Test a memory with the conformance kit. It lists the promises that the memory keeps, breaks or does not make.

    Each spec runs on an empty store in its own scope. A spec that blocks the event loop for ever ends the command,
    and the stack on stderr names it. Exits with 1 if a promise is broken.
    """
    if not __debug__:
        raise InputError("the kit checks by assert: run it without -O, and without PYTHONOPTIMIZE")
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry
    from memory.testing.contract._run import Report, catalogue, of_level, play
    from memory.testing.contract._spec import specs

    if list_specs:
        say(catalogue(specs().values()).rstrip())
        return
    if config is None:
        raise InputError("name a configuration: memslot tools conform memslot.yaml")
    unknown = sorted(set(only or ()) - specs().keys())
    if unknown:
        raise InputError(f"--only: no spec is called {', '.join(unknown)}; see memslot tools conform --specs")
    settings = load_config(config)
    registry = MemoryAdapterRegistry()
    described = registry.selected(settings)
    shipped = ((row.distribution, row.version) for row in registry.rows() if row.name == described.name)
    versions = {name: version for name, version in shipped if name and version}
    loops = loop or [name for name in ("asyncio", "trio") if name == "asyncio" or find_spec(name)]
    chosen = [specs()[name] for name in only] if only else of_level(level)
    todo = [(spec, name) for name in loops for spec in chosen]
    report = Report(memory=described.name, versions=versions)
    with progress() as advance, prints_on_stderr():
        for result in play(registry, settings, todo, limit):
            report.results.append(result)
            advance("conformance", len(report.results), len(todo))
            if result.outcome == "failed" and not as_json:
                typer.echo(f"FAILED {result.spec} ({result.loop})", err=True)
    if as_json:
        say(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
    else:
        say(report.to_text())
        if not find_spec("trio"):
            say("  on asyncio alone; for both loops: pip install trio")
    if report.failed:
        raise typer.Exit(1)
