"""Counting the calls that an SDK makes by a client of the ``openai`` package."""

from __future__ import annotations

from typing import Any, TypeVar

from memory.adapter._bounded import MAX_ANSWER_BYTES, bounded_answers
from memory.contract.usage import count_llm_call

ClientT = TypeVar("ClientT")
_PATHS = ("/chat/completions", "/responses", "/completions")


def counted_openai(
    client: ClientT, *, max_answer_bytes: int = MAX_ANSWER_BYTES, backend: str = "model", **options: Any
) -> ClientT:
    """A client like this one whose answers of language models are counted, with the tokens that the endpoint says.

    Embeddings and refused calls are not counted.

    Args:
        client: an ``OpenAI`` or ``AsyncOpenAI``, or a class of theirs.
        max_answer_bytes: of one answer, unpacked; a longer one is a :class:`BackendProtocolError`, in the cause of
            the SDK's ``APIConnectionError``.
        backend: for that error.
        options: further ones of its ``with_options``.
    """
    import openai

    http: Any
    if isinstance(client, openai.AsyncOpenAI):
        hooks: list[Any] = [bounded_answers(backend, max_answer_bytes), _note_async]
        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": hooks})
    else:
        hooks = [bounded_answers(backend, max_answer_bytes, wait=False), _note]
        http = openai.DefaultHttpxClient(event_hooks={"response": hooks})
    http.headers["accept-encoding"] = "gzip"
    native: Any = client
    answer: ClientT = native.with_options(http_client=http, **options)
    return answer


def _note(response: Any) -> None:
    if _counts(response):
        response.read()
        count_llm_call(_tokens(response))


async def _note_async(response: Any) -> None:
    if _counts(response):
        await response.aread()
        count_llm_call(_tokens(response))


def _counts(response: Any) -> bool:
    return bool(response.status_code == 200 and response.request.url.path.endswith(_PATHS))


def _tokens(response: Any) -> int | None:
    """What the answer says; None of one that says nothing, or cannot be read."""
    try:
        total = response.json()["usage"]["total_tokens"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return total if isinstance(total, int) and not isinstance(total, bool) else None
