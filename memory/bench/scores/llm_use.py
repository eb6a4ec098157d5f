"""What a provider's own language models did, summed from the traces of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PHASES = ("ingest", "retrieve")


def llm_use(traces: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Calls and tokens by phase; None once a trace does not say.

    The writes, with the waits and switches that may finish them, are ``ingest``; a diagnostic query belongs to
    neither phase.

    Args:
        traces: rows of ``traces.jsonl``.
    """
    sums: dict[str, dict[str, int | None]] = {phase: {"calls": 0, "tokens": 0} for phase in PHASES}
    for trace in traces:
        if trace["operation"] == "native_query":
            continue
        phase = sums["retrieve" if trace["operation"] == "retrieve" else "ingest"]
        for name, found in (("calls", trace["llm_calls"]), ("tokens", trace["llm_tokens"])):
            known = phase[name]
            phase[name] = None if known is None or found is None else known + found
    return sums
