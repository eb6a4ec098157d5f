"""What language models a provider calls within a native call, where its adapter can say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock

_current: ContextVar[LlmUse | None] = ContextVar("memslot_llm_use", default=None)
_lock = Lock()


@dataclass(slots=True)
class LlmUse:
    """Answers of language models, and the tokens they read and wrote; None once an answer did not say."""

    calls: int = 0
    tokens: int | None = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def count_llm_call(tokens: int | None) -> None:
    """Say that a language model was called, for the trace of the native call this belongs to. Any thread may.

    For adapters that declare ``counts_llm_calls``, once for each answer.

    Args:
        tokens: read and written together, as the endpoint said; None where it did not.
    """
    use = _current.get()
    if use is not None:
        with _lock:
            use.calls += 1
            use.tokens = None if use.tokens is None or tokens is None else use.tokens + tokens
