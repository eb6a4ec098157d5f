"""Guards for importing and running an SDK, and a count of its model calls."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from memory.adapter._bounded import bounded_answers
from memory.contract._model_reasons import NOT_JSON, ModelAnswer, note_answer
from memory.contract.admission import count_llm_call
from memory.contract.errors import BackendProtocolError

_DETAIL = re.compile(r"(?<!\s)\s*+[:={\[('\"].*", re.DOTALL)


@contextmanager
def environment_kept(**settings: str) -> Iterator[None]:
    """Restore the environment after an import, during which ``settings`` are set and no ``.env`` is read."""
    before = dict(os.environ)
    os.environ.update({"PYTHON_DOTENV_DISABLED": "1", **settings})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def warnings_only(*packages: str) -> None:
    """Set the loggers of SDKs and their HTTP clients to WARNING, unless the host has set a level."""
    for name in (*packages, "httpcore", "httpx", "openai"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def quiet_loggers(package: str, *more: str, unsaid: tuple[str, ...] = ()) -> None:
    """By default log only warnings, cut before the first detail, because details repeat user text.

    ``more`` are loggers of the package that may not exist yet; ``unsaid`` are beginnings of records to drop.
    """
    warnings_only(package)
    for name in {*more, *logging.root.manager.loggerDict}:
        if name.partition(".")[0] == package:
            logging.getLogger(name).addFilter(_QuietFilter(unsaid))


@dataclass(frozen=True)
class _QuietFilter:
    """A filter that compares by value, so that a logger adds it only once."""

    unsaid: tuple[str, ...]

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # a badly formatted record must not fail the call that logs it
            text = record.msg if isinstance(record.msg, str) else ""
        record.msg, record.args = _DETAIL.sub("", text), ()
        record.exc_info = record.exc_text = record.stack_info = None
        return not text.startswith(self.unsaid)


def trim_heap() -> None:
    """Return freed memory to the system, which glibc would keep for each thread. Takes some milliseconds."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


ClientT = TypeVar("ClientT")
_PATHS = ("/chat/completions", "/responses", "/completions")
_EMBEDDINGS = "/embeddings"


def counted_openai(client: ClientT, *, backend: str = "model", **options: Any) -> ClientT:
    """A copy of a client that counts answers of language models, and the tokens reported by the endpoint.

    Args:
        client: an ``OpenAI`` or ``AsyncOpenAI``, or an instance of a subclass.
        backend: the name in the error of an answer that is too long.
        options: further options of its ``with_options``.
    """
    import openai

    wait = isinstance(client, openai.AsyncOpenAI)
    hooks = [bounded_answers(backend, wait=wait), _note_async if wait else _note]
    kind: Any = openai.DefaultAsyncHttpxClient if wait else openai.DefaultHttpxClient
    http = kind(event_hooks={"response": hooks})
    http.headers["accept-encoding"] = "identity"
    return cast(ClientT, cast(Any, client).with_options(http_client=http, **options))


def _note(response: Any) -> None:
    note_answer(None)
    if _is_read(response):
        response.read()
        _note_read(response)


async def _note_async(response: Any) -> None:
    note_answer(None)
    if _is_read(response):
        await response.aread()
        _note_read(response)


def _is_read(response: Any) -> bool:
    return bool(response.status_code == 200 and response.request.url.path.endswith((*_PATHS, _EMBEDDINGS)))


def _note_read(response: Any) -> None:
    """Count a completion and its tokens, and note what explains an unreadable answer."""
    if response.request.url.path.endswith(_EMBEDDINGS):
        # To parse the vectors a second time would cost more than all else that memslot does with them.
        if response.content.lstrip()[:1] != b"{":
            raise BackendProtocolError(NOT_JSON)
        return
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        streamed = "event-stream" in response.headers.get("content-type", "")
        count_llm_call(None)
        note_answer(ModelAnswer(json=streamed))
        return
    total = _at(answer, "usage", "total_tokens")
    count_llm_call(total if isinstance(total, int) and not isinstance(total, bool) else None)
    finished = _at(answer, "choices", 0, "finish_reason")
    offered = _at(_request_body(response), "tools")
    called = bool(_at(answer, "choices", 0, "message", "tool_calls")) if offered else None
    note_answer(ModelAnswer(finished if isinstance(finished, str) else None, called_tool=called))


def _at(value: Any, *path: str | int) -> Any:
    with suppress(KeyError, IndexError, TypeError):
        for part in path:
            value = value[part]
        return value
    return None


def _request_body(response: Any) -> Any:
    try:
        return json.loads(response.request.content)
    except (ValueError, RecursionError, AttributeError, RuntimeError):  # httpx: a body that was streamed
        return None
