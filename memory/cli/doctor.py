"""``memslot doctor``: the checks of spec 4.3, each with its evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli._anchors import with_section
from memory.cli._group import FAILED, UNUSABLE, tracebacks
from memory.cli.backends import list_memories
from memory.plugins.console import STYLES, AsJson, print_json, say

if TYPE_CHECKING:
    from memory.doctor.report import CheckResult, DoctorReport

_BEFORE_THE_BACKEND = ("config", "plugin")


def doctor(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(help="The YAML file to check; without it, what is installed.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Longest wait for what is derived later, seconds.", min=0.0)
    ] = 30.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also where a check is pending.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a configuration on its real backend, or list all memories.

    It uses two scopes of its own and resets them. Exits with 1 if the backend fails a check, and with 2 if the
    configuration or the plugin cannot be used. A check is pending if its result did not come in time.
    """
    if config is None:
        list_memories(as_json=as_json)
        return
    report = checked(context, config, timeout=timeout, as_json=as_json)
    if strict and report.pending:
        raise typer.Exit(FAILED)


def checked(
    context: typer.Context,
    config: Path,
    *,
    timeout: float = 30.0,
    as_json: bool = False,
    write_s: float | None = None,
) -> DoctorReport:
    """Check a configuration, and show each check. ``write_s`` replaces the configured deadline.

    Raises:
        typer.Exit: a check failed.
    """
    import anyio

    from memory.doctor.runner import Doctor
    from memory.plugins.registry import MemoryAdapterRegistry

    registry = MemoryAdapterRegistry()

    async def check() -> DoctorReport:
        return await Doctor(
            config,
            registry=registry,
            on_check=None if as_json else _show,
            on_begin=None if as_json else show_begin,
            on_error=tracebacks(context),
            ready_timeout_s=timeout,
            write_s=write_s,
        ).run()

    report = anyio.run(check)
    broken = {row.name: row.error for row in registry.rows() if row.error and row.name != report.provider}
    if as_json:
        print_json({"ok": report.ok, **report.model_dump(mode="json"), "broken_plugins": broken})
    else:
        _conclude(report)
        for problem in broken.values():
            say(f"note: this plugin is broken, and has no part in this: {problem}", "dim")
    if report.failed:
        raise typer.Exit(UNUSABLE if report.failed[0] in _BEFORE_THE_BACKEND else FAILED)
    return report


def show_begin(check: str) -> None:
    """Name a check that has begun, on a terminal. The line of its result replaces the name."""
    if sys.stderr.isatty():
        typer.echo(f"{check} ...\r", nl=False, err=True)


def _show(check: CheckResult) -> None:
    took = f" ({check.latency_ms:.0f} ms)" if check.latency_ms is not None else ""
    if check.status == "skipped" and not took:
        return
    evidence = with_section(check.evidence) if check.status == "failed" else check.evidence
    say(f"{check.status:<8} {check.name:<13} {evidence}{took}", STYLES[check.status])
    if check.fix:
        say(f"{'':<8} {'':<13} fix: {check.fix}")


def _conclude(report: DoctorReport) -> None:
    by_status: dict[str, list[str]] = {}
    for check in report.checks:
        by_status.setdefault(check.status, []).append(check.name)
    counts = [f"{len(by_status.get('passed', []))} of {len(report.checks)} checks passed"]
    counts += [
        f"{status}: {', '.join(by_status[status])}"
        for status in ("failed", "pending", "skipped")
        if status in by_status
    ]
    say("; ".join(counts))
