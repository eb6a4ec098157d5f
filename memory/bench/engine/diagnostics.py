"""What a backend says of itself in its own terms once a run is over: for a reader, in no prompt and no score."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from memory.bench.engine.records import ErrorRecord, error_record
from memory.contract.adapter import SupportsNativeQuery
from memory.contract.errors import CapabilityNotSupported
from memory.contract.requests import NativeQueryRequest
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot


async def diagnosed(
    slot: MemorySlot,
    scope: MemoryScope,
    operation: str,
    arguments: Mapping[str, Any],
    *,
    keep_texts: bool,
    clean: Callable[[ErrorRecord], ErrorRecord],
) -> dict[str, Any]:
    """A line of ``diagnostics.jsonl``: the answer of one native query, or why there is none (spec 10.3).

    Args:
        slot, scope: whom to ask about which persona; the slot is open.
        operation, arguments: of the query.
        keep_texts: keep arguments and answer as they are; else the answer's shape alone.
        clean: takes out of an error what must not be published.
    """
    row: dict[str, Any] = {"persona_id": scope.persona_id, "operation": operation}
    start = time.perf_counter()
    try:
        asked = slot.capability(SupportsNativeQuery)
        if asked is None:
            raise CapabilityNotSupported(f"{slot.backend_name} answers no native query")
        request = NativeQueryRequest(scope=scope, operation=operation, arguments=dict(arguments))
        raw = to_jsonable_python((await asked.native_query(request)).raw)
        row |= {"status": "answered", "shape": shape_of(raw)}
        row |= {"arguments": dict(arguments), "raw": raw} if keep_texts else {}
    except Exception as error:  # whatever a diagnosis meets, the figures stand
        status = "not_supported" if isinstance(error, CapabilityNotSupported) else "failed"
        row |= {"status": status, "error": clean(error_record(error)).model_dump()}
    return {**row, "latency_ms": round((time.perf_counter() - start) * 1000, 3)}


def shape_of(raw: Any) -> Any:
    """Numbers, switches and nulls of a native answer and of its fields; of all else how much it is, and no text."""
    return {name: _size_of(value) for name, value in raw.items()} if isinstance(raw, dict) else _size_of(raw)


def _size_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {"fields": len(value)}
    if isinstance(value, list):
        return {"items": len(value)}
    return {"characters": len(value)} if isinstance(value, str) else value
