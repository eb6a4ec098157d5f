"""A language model without weights: rules that answer a chat request from its own text, tried in order.

``memory.testing.ScriptedLLM`` serves it. An agent with ``provider: scripted`` calls it without a server.

A rule is a function ``(ChatRequest) -> Reply | None``. None means that the rule does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.adapter._scripted_text import (
    estimate_tokens,
    is_question,
    is_statement,
    lexical_overlap,
    sentences,
)

_EMPTY: Mapping[Any, Any] = {
    "string": "",
    "array": [],
    "object": {},
    "integer": 0,
    "number": 0,
    "boolean": False,
}


def _blank(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The required properties of an object with empty values; for a choice, its first word."""
    properties = schema.get("properties", {})
    wanted = {name: properties.get(name, {}) for name in schema.get("required", ())}
    return {
        name: one["enum"][0] if "enum" in one else _EMPTY.get(one.get("type")) for name, one in wanted.items()
    }


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message with its text parts joined."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request of the chat completions API or the responses API, in a common form."""

    messages: tuple[ChatMessage, ...]  # ``instructions`` of the responses API come first, as ``system``
    model: str = "scripted"
    schema_name: str | None = None
    schema: Mapping[str, Any] | None = None
    json_mode: bool = False  # the answer must be a JSON object, with or without a schema
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> schema of its parameters
    forced_tool: str | None = None
    max_tokens: int | None = None

    @property
    def system(self) -> str:
        return "\n".join(item.text for item in self.messages if item.role in ("system", "developer"))

    @property
    def last_user(self) -> str:
        return next((item.text for item in reversed(self.messages) if item.role == "user"), "")

    @property
    def text(self) -> str:
        return "\n".join(item.text for item in self.messages)


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of one word. The probabilities add up to 1, and the answer's ``logprobs`` list all of them."""

    odds: Mapping[str, float]

    @property
    def ranked(self) -> list[tuple[str, float]]:
        return sorted(self.odds.items(), key=lambda pair: -pair[1])


NOT_KNOWN = "I do not know."
Reply = str | Mapping[str, Any] | ToolCall | Choice
Rule = Callable[[ChatRequest], Reply | None]


def answer(request: ChatRequest, rules: Sequence[Rule]) -> Reply:
    """The answer of the first rule that applies. A text is cut at ``max_tokens`` by whole lines."""
    reply = next(reply for rule in rules if (reply := rule(request)) is not None)
    if not isinstance(reply, str) or request.max_tokens is None:
        return reply
    lines = reply.split("\n")
    while lines and estimate_tokens("\n".join(lines)) > request.max_tokens:
        lines.pop()
    return "\n".join(lines)


def section(text: str, heading: str, until: str | None = None) -> str:
    """The text below a ``## heading`` of a prompt, to the last ``## until`` or the end; empty if absent."""
    _, found, rest = text.partition(f"## {heading}\n")
    if found and until is not None and f"\n## {until}\n" in rest:
        rest = rest.rpartition(f"\n## {until}\n")[0]
    return rest.strip()


def _fill_schema(request: ChatRequest) -> Reply | None:
    if name := request.forced_tool:
        return ToolCall(name, _blank(request.tools.get(name, {})))
    if request.schema is not None:
        return _blank(request.schema)
    return {"text": _chat(request)} if request.json_mode else None


def _summarise(request: ChatRequest) -> Reply | None:
    if not _ASKS_SUMMARY.search(request.text) or _CONTEXT.search(request.text):
        return None
    lines = []
    for line in request.last_user.split("\n"):
        speaker = _SPEAKER.match(line)
        role = speaker["role"] if speaker else "user"
        for sentence in sentences(line[speaker.end() :] if speaker else line.removeprefix("- ")):
            if is_statement(sentence, role) and not _ASKS_SUMMARY.search(sentence):
                lines.append(f"- {sentence}")
    return "\n".join(dict.fromkeys(lines)) or None


def _chat(request: ChatRequest) -> str:
    """The context entry that shares most words with the question, or else a plain reply."""
    question = _CONTEXT.sub("", request.last_user).strip()
    entries = _context_entries(["", *_CONTEXT.findall(request.text)][-1])
    ranked = ((lexical_overlap(question, text), moment, text) for moment, text in entries)
    overlap, _, text = max(ranked, key=lambda entry: entry[:2], default=(0.0, "", ""))
    if overlap > 0:
        return text
    return NOT_KNOWN if is_question(question) else "Understood."


_ASKS_SUMMARY = re.compile(
    r"\bsummari[sz]e\b|\b(?:write|update|give|produce|create)\b.{0,40}\bsummary\b|摘要|总结", re.I
)
_SPEAKER = re.compile(r"^(?:- )?(?:\[[^\]]*\] ?)?(?P<role>\w+): ")
_CONTEXT = re.compile(r"<memory-context\b[^<>]*+>((?:[^<]++|<(?!/?memory-context\b))*+)</memory-context>")
_ENTRY = re.compile(r"^- (?:\((?P<labels>[^()]*)\) )?(?P<text>.*)$")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d)?")


def _context_entries(body: str) -> Iterator[tuple[str, str]]:
    """Yield (timestamp or empty, text) for each entry. The later of two equally good entries is chosen."""
    entries: list[tuple[str, list[str]]] = []
    for line in body.strip().split("\n"):
        if match := _ENTRY.match(line):
            moment = _MOMENT.search(match["labels"] or "")
            entries.append((moment.group() if moment else "", [match["text"]]))
        elif line.startswith("  ") and entries:
            entries[-1][1].append(line.strip())
        else:
            entries.extend(("", [sentence]) for sentence in sentences(line))
    for moment_text, lines in entries:
        yield moment_text, "\n".join(lines).strip()


# Rules for every other request, the most specific first. The last rule always answers.
general_rules: tuple[Rule, ...] = (_fill_schema, _summarise, _chat)
