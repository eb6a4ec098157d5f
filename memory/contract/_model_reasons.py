"""Explains why a model failed, in words that a user can act on.

Only an allow-list passes: numbers, and the codes and field names that a provider defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from memory.contract.errors import BackendProtocolError

_SAFE = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,64}\Z")
_LIMIT = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:size|window) (?:is|of)) ([\d,]{1,12})", re.I
)
_ASKED = re.compile(
    r"(?:resulted in|requested|has|prompt contains(?: at least)?) ([\d,]{1,12}) (?:input )?tokens", re.I
)
_NAMES = ("code", "type", "param")
_LONGEST_MESSAGE = 2000  # characters of a message to search for token counts
_TIMEOUTS = ("APITimeoutError", "ReadTimeout", "WriteTimeout", "TimeoutException")
_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"})
NOT_JSON = "the endpoint did not answer with JSON; check base_url"
_WORDS = {
    "insufficient_quota": "the quota is used up; waiting does not help",
    "billing_hard_limit_reached": "the quota is used up; waiting does not help",
    "rate_limit_exceeded": "rate limited",
    "content_filter": "the provider's content filter refused the prompt",
    "model_not_found": "the endpoint has no model of this name",
    "not_found_error": "the endpoint has no model of this name",
}


@dataclass(frozen=True)
class ModelAnswer:
    """Facts that a model's answer carries about itself."""

    finish_reason: str | None = None  # the provider's word; ``length`` for an answer that was cut
    json: bool = True  # whether the endpoint answered with JSON
    called_tool: bool | None = None  # None if no tool was offered

    @property
    def fault(self) -> str | None:
        """Why the answer could not be read; None if unknown."""
        if not self.json:
            return NOT_JSON
        if self.finish_reason in ("length", "max_tokens"):
            return "the answer was cut at max_tokens; raise max_tokens"
        if self.called_tool is False:
            return "the model did not call the tool"
        return None


_last: ContextVar[ModelAnswer | None] = ContextVar("memslot_model_answer", default=None)


def note_answer(answer: ModelAnswer | None) -> None:
    """Keep an answer's facts for the error that its reader may raise. None clears them before a new call."""
    _last.set(answer)


def model_answer_fault() -> str | None:
    """The fault of the last model answer in this context, or None."""
    answer = _last.get()
    return None if answer is None else answer.fault


def reason_of(links: Iterable[BaseException]) -> tuple[str | None, dict[str, Any]]:
    """Why a call failed, as a clause or None, and the facts behind it. The error comes before its causes."""
    facts: dict[str, Any] = {}
    unread = False
    for link in links:
        for name, value in _facts(link).items():
            facts.setdefault(name, value)
        unread = unread or isinstance(link, (AttributeError, LookupError, TypeError, ValueError))
        if isinstance(link, BackendProtocolError):  # raised by memslot's own hooks in the client
            return str(link), facts
    clause = _clause(facts)
    answer = _last.get()
    if clause is None and unread and answer is not None and answer.fault:
        clause = answer.fault
        facts["finish_reason"] = answer.finish_reason
    return clause, {name: value for name, value in facts.items() if value is not None}


def reason_in(body: object) -> str | None:
    """Why a provider refused, as a clause, from the JSON body of its answer; None if the body does not tell."""
    return _clause(_said(body))


def _facts(link: BaseException) -> dict[str, Any]:
    facts = _said(attribute_of(link, "body"))
    facts.update((name, word) for name in _NAMES if (word := _word(attribute_of(link, name))))
    if type(link).__name__ in _TIMEOUTS and (seconds := _timeout(link)) is not None:
        facts["timeout_s"] = seconds
    if type(link).__name__ == "LengthFinishReasonError":
        facts["finish_reason"] = "length"
    return facts


def _said(body: object) -> dict[str, Any]:
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    said: Mapping[Any, Any] = body if isinstance(body, Mapping) else {}
    facts: dict[str, Any] = {name: word for name in _NAMES if (word := _word(said.get(name)))}
    prompt, limit = _count(said.get("n_prompt_tokens")), _count(said.get("n_ctx"))
    message = str(said.get("message") or "")[:_LONGEST_MESSAGE]
    if limit is None and (found := _LIMIT.search(message)):
        asked = _ASKED.search(message, found.end())
        limit, prompt = _count(found[1]), _count(asked[1]) if asked else None
    if prompt is not None:
        facts["prompt_tokens"] = prompt
    if limit is not None:
        facts["context_tokens"] = limit
    return facts


def _clause(facts: Mapping[str, Any]) -> str | None:
    said = [word for word in (facts.get("code"), facts.get("type")) if word]
    words = set(said)
    limit, prompt, param = facts.get("context_tokens"), facts.get("prompt_tokens"), facts.get("param")
    if limit is not None and prompt is not None:
        return f"the prompt has {prompt:,} tokens, the model accepts {limit:,}"
    if limit is not None or words & _TOO_LONG:
        accepted = f", which is {limit:,} tokens" if limit is not None else ""
        return f"the prompt is longer than the model's context{accepted}"
    for word in sorted(words):
        if word in _WORDS:
            return _WORDS[word]
    if "timeout_s" in facts:
        # Backends with a server have timeout_s. An embedder gets the shorter of the two deadlines.
        limits = "deadlines.write_s and retrieve_s (or timeout_s, if its block has it)"
        return f"timed out after {facts['timeout_s']:g} s; raise {limits}, or use a faster model"
    if facts.get("finish_reason") == "length":
        return ModelAnswer(finish_reason="length").fault
    if words & {"unsupported_parameter", "unsupported_value"} and param:
        return f"the model does not take this {param}"
    named = [f"param {param}"] if param else []
    return ", ".join(dict.fromkeys(said + named)) or None


def attribute_of(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name, None)
    except Exception:  # a foreign property may fail
        return None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _SAFE.match(value) else None


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.replace(",", "").isdigit():
        return int(value.replace(",", ""))
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _timeout(link: BaseException) -> float | None:
    """How many seconds an HTTP client waited for the next byte, or None."""
    extensions = attribute_of(attribute_of(link, "request"), "extensions")
    waited = extensions.get("timeout") if isinstance(extensions, Mapping) else None
    seconds = waited.get("read") if isinstance(waited, Mapping) else None
    return float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
