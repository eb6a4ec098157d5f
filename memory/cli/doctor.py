"""``memslot doctor``: the gates of spec 4.3, each with what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli._group import FAILED, UNUSABLE
from memory.cli._output import STYLES, print_json, say
from memory.cli.backends import AsJson

if TYPE_CHECKING:
    from memory.smoke import GateResult, SmokeReport

__all__ = ["doctor"]

_BEFORE_THE_BACKEND = ("config", "plugin")


def doctor(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file to check.", show_default=False)
    ],
    timeout: Annotated[
        float, typer.Option(help="Longest wait for asynchronous derivation, seconds.", min=0.0)
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Check a configuration against its real backend, gate by gate.

    Uses two synthetic scopes and resets them. Exits with 1 if the backend fails a gate, with 2 if the
    configuration or the plugin cannot be used. A pending gate is no failure, and not green either.
    """
    import anyio

    from memory.registry import MemoryAdapterRegistry
    from memory.smoke import run_gates

    registry = MemoryAdapterRegistry()

    async def check() -> SmokeReport:
        return await run_gates(
            config,
            registry=registry,
            on_gate=None if as_json else _show,
            ready_timeout_s=timeout,
        )

    report = anyio.run(check)
    broken = {row.name: row.error for row in registry.rows() if row.error and row.name != report.provider}
    if as_json:
        print_json({"ok": report.ok, **report.model_dump(mode="json"), "broken_plugins": broken})
    else:
        _conclude(report)
        for problem in broken.values():
            say(f"note: this plugin is broken, and has no part in this: {problem}", "dim")
    failed = [gate.name for gate in report.gates if gate.status == "failed"]
    if failed:
        raise typer.Exit(UNUSABLE if failed[0] in _BEFORE_THE_BACKEND else FAILED)


def _show(gate: GateResult) -> None:
    if gate.status == "skipped":
        return
    took = f" ({gate.latency_ms:.0f} ms)" if gate.latency_ms is not None else ""
    say(f"{gate.status:<8} {gate.name:<13} {gate.evidence}{took}", STYLES[gate.status])
    if gate.fix:
        say(f"{'':<8} {'':<13} fix: {gate.fix}")


def _conclude(report: SmokeReport) -> None:
    by_status: dict[str, list[str]] = {}
    for gate in report.gates:
        by_status.setdefault(gate.status, []).append(gate.name)
    counts = [f"{len(by_status.get('passed', []))} of {len(report.gates)} gates passed"]
    counts += [
        f"{status}: {', '.join(by_status[status])}"
        for status in ("failed", "pending", "skipped")
        if status in by_status
    ]
    say("; ".join(counts))
