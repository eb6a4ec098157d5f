"""A harness's own :class:`RuntimeAdapter` as an HTTP application, for programs that cannot import it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from memory.runtime.signet import types
from memory.runtime.signet.http import Call
from memory.runtime.signet.types import Refused

LIFECYCLE: tuple[tuple[str, str, type[types.SessionParams]], ...] = (
    ("/api/hooks/session-start", "on_session_start", types.SessionStartParams),
    ("/api/hooks/user-prompt-submit", "on_user_prompt_submit", types.PromptSubmitParams),
    ("/api/hooks/session-end", "on_session_end", types.SessionEndParams),
    ("/api/hooks/pre-compaction", "on_pre_compaction", types.PreCompactionParams),
    ("/api/hooks/compaction-complete", "on_compaction_complete", types.CompactionCompleteParams),
)
"""Path, method of :class:`RuntimeAdapter`, and what it takes."""


def hook(
    adapter: types.RuntimeAdapter, method: str, kind: type[types.WireT]
) -> Callable[[Call], Awaitable[Any]]:
    """A handler that answers a lifecycle request by one method of an adapter."""

    async def answer(call: Call) -> Any:
        if not isinstance(call.body.get("harness"), str):
            raise Refused(400, "harness is required")
        found = await getattr(adapter, method)(types.read(kind, call.body))
        return {} if found is None else found.to_wire()

    answer.__doc__ = f"``{method}`` of the adapter."
    return answer
