"""``memslot init``: a commented configuration, written from the plugin's own options model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from memory.cli.backends import complete_provider
from memory.plugins.console import AsJson, print_json, say


def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")] = Path("memslot.yaml"),
    backend: Annotated[
        str | None,
        typer.Option(
            help="Backend or condition to configure; see 'memslot backends'. Default: mem0.",
            autocompletion=complete_provider,
        ),
    ] = None,
    condition: Annotated[
        str | None,
        typer.Option(
            help="Condition to configure, where a backend has the same name.",
            autocompletion=complete_provider,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="OLD", help="Keep all of this configuration but its provider."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented configuration: every option of the chosen backend, with its default."""
    from memory import ConfigError, InputError
    from memory.cli._asking import ask_required, read_carried
    from memory.cli._template import render
    from memory.doctor.hints import hides_us
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry

    if backend is not None and condition is not None:
        raise InputError("--backend and --condition are both given; one provider is active at a time")
    name = condition or backend or "mem0"
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; give another name, or --force to replace it")
    registry = MemoryAdapterRegistry()
    info = registry.info(name, None if condition is None else "control")
    carried = None if source is None else read_carried(source)
    answers = ask_required(info.options) if source is not None and sys.stdin.isatty() else {}
    text = render(info, carried, answers)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    report: dict[str, str] = {"wrote": str(path)}
    try:
        load_config(path).parse_options(info.options)
    except ConfigError as error:
        report["to be filled in"] = str(error)
    missing = next((row.missing for row in registry.rows() if (row.name, row.kind) == (name, info.kind)), ())
    if missing:
        report["to be installed"] = info.install or ", ".join(missing)
    if hidden := hides_us(Path.cwd(), path.parent):
        report["hidden"] = hidden
    report["next"] = f"memslot doctor {shlex.quote(str(path))}"
    if as_json:
        print_json({key.replace(" ", "_"): text for key, text in report.items()})
        return
    for key, text in report.items():
        say(f"{key} {text}" if key == "wrote" else f"{key}: {text}")
