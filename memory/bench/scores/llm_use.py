"""What a provider's own language models did in a run, summed from its traces."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.contract.receipts import Trace


@dataclass
class LlmSums:
    """Calls and tokens of a phase; None once a trace does not say."""

    calls: int | None = 0
    tokens: int | None = 0

    def add(self, trace: Trace) -> None:
        """Count one native call."""
        self.calls = None if self.calls is None or trace.llm_calls is None else self.calls + trace.llm_calls
        self.tokens = (
            None if self.tokens is None or trace.llm_tokens is None else self.tokens + trace.llm_tokens
        )


@dataclass
class Phased:
    """Of the writes, with the waits and switches that may finish them, and of the retrievals."""

    ingest: LlmSums = field(default_factory=LlmSums)
    retrieve: LlmSums = field(default_factory=LlmSums)

    def add(self, trace: Trace) -> None:
        """Count one native call where it belongs; a diagnostic query belongs to neither."""
        if trace.operation == "native_query":
            return
        (self.retrieve if trace.operation == "retrieve" else self.ingest).add(trace)
