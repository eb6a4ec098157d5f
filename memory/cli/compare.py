"""``memslot compare`` and ``memslot demo``: several providers over the same timeline, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.backends import complete_provider, status_of
from memory.cli.run import Data, Limit, NoDoctor, Out, report, settings_of
from memory.plugins.console import AsJson, print_json, say

if TYPE_CHECKING:
    from memory.bench import Comparison, RunSettings
    from memory.plugins.config import MemslotConfig

DEMO: dict[str, Any] = {
    "memory": {
        "condition": "simple_rag",
        "budget": {"max_tokens": 600, "max_items": None},
        "conditions": {
            "no_memory": {},
            "full_history": {},
            "rolling_summary": {"max_tokens": 600},
            "simple_rag": {},
            "static_profile": {},
            "oracle_ipas": {},
        },
    },
    "run": {
        "timeline": "quickstart",
        "seed": 7,
        "users": 3,
        "sessions": 16,
        "compare": [
            "no_memory",
            "full_history",
            "rolling_summary",
            "simple_rag",
            "static_profile",
            "oracle_ipas",
        ],
    },
}
"""``configs/quickstart.yaml`` for those who installed memslot without a checkout; a test keeps them equal."""


def compare(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG",
            help="The YAML file; providers without a block run with defaults. Or directories of runs.",
            show_default=False,
        ),
    ],
    providers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Providers, in place of run.compare.", show_default=False, autocompletion=complete_provider
        ),
    ] = None,
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    no_doctor: NoDoctor = False,
    as_json: AsJson = False,
) -> None:
    """Run several providers over the same timeline and show them side by side.

    Exits with 1 if one failed or could not begin; the others are run all the same.
    """
    from memory.bench import comparison_configs
    from memory.plugins.config import load_config

    if config.is_dir():
        report([config, *map(Path, providers or ())], as_json=as_json)
        return
    configs = comparison_configs(config, providers or None)
    first = load_config(configs[0])
    settings = settings_of(first, no_doctor=no_doctor, data=data, output=out, limit_questions=limit)
    _compare(context, configs, settings, as_json)


def demo(context: typer.Context, out: Out = None, as_json: AsJson = False) -> None:
    """Play the quickstart with every memory that is installed and needs no key, no server and no network."""
    from memory.bench import comparison_configs
    from memory.plugins.registry import MemoryAdapterRegistry

    started = time.monotonic()
    wanted = DEMO["run"]["compare"]
    rows = {row.name: row for row in MemoryAdapterRegistry().rows()}
    absent = {name: status_of(rows[name]) for name in wanted if name in rows and not rows[name].installed}
    configs = comparison_configs(DEMO, [name for name in wanted if name in rows and name not in absent])
    if not as_json:
        say(
            "Three people state, change and contradict their preferences over 16 sessions; each memory is then "
            "asked for the one in force. Generated data, nothing leaves this machine."
        )
    try:
        _compare(context, configs, settings_of(configs[0], output=out), as_json, left_out=absent)
    finally:
        if not as_json:
            for name, why in absent.items():
                say(f"left out: {name}, which needs: {why}", "yellow")
            say(f"took {time.monotonic() - started:.0f} s", "dim")


def _compare(
    context: typer.Context,
    configs: Sequence[MemslotConfig],
    settings: RunSettings,
    as_json: bool,
    **more: Any,
) -> None:
    from memory.bench import run_many
    from memory.cli._results import comparison_json, end_badly, play, show_comparison

    comparison: Comparison = play(context, run_many, configs, settings)
    if as_json:
        shown = comparison_json(comparison.report, comparison.outcomes, comparison.not_run)
        print_json({**shown, **more})
    else:
        show_comparison(comparison.outcomes, comparison.not_run)
        say(f"report: {comparison.report}")
    end_badly(*comparison.outcomes, comparison=comparison)
