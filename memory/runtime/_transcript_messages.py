"""The messages of one conversation, gathered from the items of any kind of file. See :mod:`._transcripts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memory.contract._model import parse_time
from memory.contract.errors import InputError
from memory.contract.events import Message
from memory.runtime._transcript_items import Conversation, Item, Kind, Problem, Spoken, Unreadable

Wrong = Callable[[Problem], None]
_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "system": "system",
    "developer": "system",
}
_TOOLS = frozenset({"tool", "function", "function_call", "observation", "tool_use", "tool_result"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_MILLISECONDS = 1e11  # seconds since 1970 reach this in the year 5138
_TIMES = ("timestamp", "created_at", "create_time", "time", "date")


def tried(item: Item, wrong: Wrong, read: Callable[[Item], Any]) -> Any:
    """Return the result of ``read``. An unreadable item gives None and is reported to ``wrong``."""
    try:
        if not isinstance(item.value, dict):
            raise Unreadable("must be an object")
        return read(item)
    except (Unreadable, InputError) as error:
        wrong(Problem(item.place, str(error)))
    return None


@dataclass
class Gathered:
    """A conversation whose messages are still being collected.

    ``strict`` refuses a message whose time is unreadable or has no zone; else such a message is undated.
    """

    conversation_id: str
    place: str
    user: str | None = None
    strict: bool = False
    messages: list[Spoken] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    kind: Kind | None = None

    def add(self, item: Item) -> None:
        """Add a message in any of the supported formats."""
        value: Mapping[str, Any] = item.value
        if isinstance(data := value.get("data"), dict) and "type" in value:  # LangChain
            value = {"role": value["type"], **data}
        role = next((value[name] for name in ("role", "from", "sender") if name in value), None)
        content = next((value[name] for name in ("content", "value", "text") if name in value), None)
        at = next((value[name] for name in _TIMES if value.get(name) is not None), None)
        self.say(role, content, at, value.get("id") or value.get("uuid"), calls=bool(value.get("tool_calls")))

    def say(self, role: Any, content: Any, at: Any, message_id: Any, *, calls: bool = False) -> None:
        """Add a message, and count the parts that are left out.

        Raises:
            Unreadable: the role, the content or, if ``strict``, the time is invalid.
        """
        if not isinstance(role, str):
            raise Unreadable("role is missing; it says who speaks")
        if role.lower() in _TOOLS:
            self.left_out["tool messages"] += 1
            return
        if role.lower() not in _ROLES:
            raise Unreadable(f"role must be one of {', '.join(_ROLES)}")
        text = self._text(content)
        self.left_out["tool calls"] += calls
        if not text.strip():
            self.left_out["messages without text"] += not calls
            return
        said = Message(role=_ROLES[role.lower()], content=text)
        name = message_id if isinstance(message_id, str) and message_id else None
        self.messages.append(Spoken(said, self._moment(at), name))

    def _moment(self, at: Any) -> datetime | None:
        try:
            return moment(at)
        except Unreadable:
            if self.strict:
                raise
            self.left_out["times without a zone, or unreadable"] += 1
            return None

    def each(self, listed: Iterable[Any], name: str, wrong: Wrong, read: Callable[[Any], None]) -> None:
        """Read every entry of a list. An unreadable entry is reported as a problem and skipped."""
        for number, entry in enumerate(listed, start=1):
            place = Item(f"{self.place}, {name}[{number}]", entry)
            tried(place, wrong, lambda item: read(item.value))

    def _text(self, content: Any) -> str:
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            raise Unreadable("content must be text or a list of parts")
        texts = []
        for part in content:
            kind = part.get("type", part.get("content_type")) if isinstance(part, dict) else None
            text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and (kind is None or kind in _TEXT_PARTS):
                texts.append(text)
            else:
                self.left_out["tool calls" if kind in _TOOLS else "parts without text"] += 1
        return "\n".join(text for text in texts if text.strip())

    def whole(self, wrong: Wrong) -> Iterator[Conversation]:
        """Yield the conversation. Without messages, it reports a problem instead."""
        if not self.messages:
            wrong(Problem(self.place, "holds no message of a user or an assistant"))
            return
        found = tuple(self.messages)
        yield Conversation(self.conversation_id, found, self.user, self.place, +self.left_out, kind=self.kind)


def moment(value: Any) -> datetime | None:
    """Read a time: ISO 8601 with a zone, or seconds or milliseconds since 1970; None for null or no text.

    Raises:
        Unreadable: the time has another format, has no zone or is out of range.
    """
    if value is None or value == "":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000 if abs(value) > _MILLISECONDS else value, UTC)
        except (ValueError, OverflowError, OSError):
            raise Unreadable("time is outside the years 1 to 9999") from None
    found = parse_time(value)
    if found is None:
        raise Unreadable("time must be ISO 8601 with its zone, such as 2026-01-31T09:00:00Z")
    return found
