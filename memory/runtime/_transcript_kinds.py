"""The conversations in the JSON values of a file. See :mod:`._transcripts`.

A file of ``chatgpt``, ``claude``, ``sharegpt`` or ``openai`` holds one conversation in each item. In other
files, the messages of a conversation may be anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import Any

from memory.contract._model import parse_time
from memory.contract.errors import ConfigError, InputError, MemslotError
from memory.contract.events import MemoryEvent, Message
from memory.runtime._transcript_items import (
    KINDS,
    Conversation,
    Item,
    Kind,
    Problem,
    Question,
    Spoken,
    Unreadable,
)

Wrong = Callable[[Problem], None]
_LOOKED_AT = 20  # items examined to detect the kind
_MARKS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("chatgpt", frozenset({"mapping"})),
    ("claude", frozenset({"chat_messages"})),
    ("sharegpt", frozenset({"conversations"})),
    ("sharegpt", frozenset({"from", "value"})),
    ("memslot", frozenset({"session", "role"})),
    ("memslot", frozenset({"question"})),
    ("journal", frozenset({"format"})),
    ("journal", frozenset({"event", "status"})),
    ("claude_code", frozenset({"sessionId"})),
    ("claude_code", frozenset({"leafUuid"})),
    ("openai", frozenset({"messages"})),
    ("langchain", frozenset({"type", "data"})),
    ("openai", frozenset({"role", "content"})),
    ("mem0", frozenset({"memory"})),
    ("mem0", frozenset({"results"})),
)
# Where an item that is one conversation holds its messages.
_LISTS: Mapping[str, str] = {
    "chatgpt": "mapping",
    "claude": "chat_messages",
    "sharegpt": "conversations",
    "openai": "messages",
}
_SPEAKERS = {
    "user": ("user", "human"),
    "assistant": ("assistant", "ai", "gpt", "chatgpt", "model", "bot"),
    "system": ("system", "developer"),
}
_ROLES = {name: role for role, names in _SPEAKERS.items() for name in names}
_TOOLS = frozenset({"tool", "function", "function_call", "observation", "tool_use", "tool_result"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_MILLISECONDS = 1e11  # seconds since 1970 reach this in the year 5138
_TIMES = ("timestamp", "created_at", "create_time", "time", "date")
_MESSAGE = frozenset({"session", "role", "content", "time", "user", "id"})
_QUESTION = frozenset({"question", "answer", "evidence", "user", "time", "category"})


def conversations(
    items: Iterable[Item], kind: Kind | None, stem: str, wrong: Wrong, questions: list[Question] | None
) -> Iterator[Conversation]:
    """Yield the conversations in the items of one file. ``stem`` prefixes generated conversation ids."""
    left = iter(items)
    begin = list[Item]()
    for item in islice(left, 1 if kind else _LOOKED_AT):
        begin.append(item)
        if kind := kind or kind_of(item.value):
            break
    if not begin:
        return
    first = begin[0]
    if kind is None:
        raise ConfigError(f"{first.place}: is of no known kind ({', '.join(KINDS)}); name the kind")
    every = chain(begin, left)
    if kind == "journal":
        found = _journal(every, wrong)
    elif kind in _LISTS and not _is_message(first.value):
        found = _one_an_item(every, kind, stem, wrong)
    else:
        found = _anywhere(every, kind, stem, wrong, questions)
    for each in found:
        yield replace(each, kind=each.kind or kind)


def kind_of(value: Any) -> Kind | None:
    """Detect a file's kind from one item; None if no kind fits."""
    if not isinstance(value, dict):
        return None
    return next((kind for kind, needed in _MARKS if needed <= value.keys()), None)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and (
        {"role", "content"} <= value.keys() or {"from", "value"} <= value.keys()
    )


def _tried(item: Item, wrong: Wrong, read: Callable[[Item], Any]) -> Any:
    """Return the result of ``read``. An unreadable item gives None and is reported to ``wrong``."""
    try:
        if not isinstance(item.value, dict):
            raise Unreadable("must be an object")
        return read(item)
    except (Unreadable, InputError) as error:
        wrong(Problem(item.place, str(error)))
    return None


@dataclass
class _Talk:
    """A conversation whose messages are still being collected."""

    conversation_id: str
    place: str
    user: str | None = None
    kind: Kind | None = None
    messages: list[Spoken] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, item: Item) -> None:
        """Add a message of any kind, and count the parts that are left out."""
        value = _fields(item.value, self.left_out)
        if value is None:
            return
        role = next((value[name] for name in ("role", "from", "sender") if name in value), None)
        if not isinstance(role, str):
            raise Unreadable("role is missing; it says who speaks")
        if role.lower() in _TOOLS:
            self.left_out["tool messages"] += 1
            return
        if role.lower() not in _ROLES:
            raise Unreadable(f"role must be one of {', '.join(_ROLES)}")
        text = self._text(next((value[name] for name in ("content", "value", "text") if value.get(name)), ""))
        calls = bool(value.get("tool_calls"))
        self.left_out["tool calls"] += calls
        for name in ("attachments", "files"):
            if isinstance(files := value.get(name), list):
                self.left_out["attachments"] += len(files)
        if not text.strip():
            self.left_out["messages without text"] += not calls
            return
        at = next((value[name] for name in _TIMES if value.get(name) is not None), None)
        own = value.get("id") or value.get("uuid")
        said = Message(role=_ROLES[role.lower()], content=text)
        self.messages.append(Spoken(said, self._moment(at), own if isinstance(own, str) else None))

    def _moment(self, at: Any) -> datetime | None:
        try:
            return _moment_of(at)
        except Unreadable:
            self.left_out["times without a zone, or unreadable"] += 1
            return None

    def _text(self, content: Any) -> str:
        if isinstance(content, str):
            return content
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


def _fields(value: Mapping[str, Any], left_out: Counter[str]) -> Mapping[str, Any] | None:
    """Return a message with its fields at the top; None if it is left out and counted."""
    if isinstance(data := value.get("data"), dict):  # LangChain
        return {"role": value.get("type"), **data}
    if isinstance(memory := value.get("memory"), str):  # mem0
        when = value.get("updated_at") or value.get("created_at")
        return {"role": "user", "content": memory, "time": when, "id": value.get("id")}
    if "author" not in value:
        return value
    author, content, about = (
        _object_of(value, name) for name in ("author", "content", "metadata")
    )  # ChatGPT
    if author.get("role") == "system" or about.get("is_visually_hidden_from_conversation"):
        left_out["hidden messages"] += bool(content.get("parts"))
        return None
    if content.get("content_type") not in ("text", "multimodal_text", None):
        left_out["tool messages"] += 1
        return None
    return {**value, "role": author.get("role"), "content": content.get("parts")}


def _object_of(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name) or {}
    if not isinstance(found, dict):
        raise Unreadable(f"{name} must be an object")
    return found


def _one_an_item(items: Iterable[Item], kind: Kind, stem: str, wrong: Wrong) -> Iterator[Conversation]:
    for number, item in enumerate(items, start=1):
        read = partial(_listed, kind=kind, name=f"{stem}-{number}", wrong=wrong)
        if (talk := _tried(item, wrong, read)) is not None:
            yield from talk.whole(wrong)


def _listed(item: Item, kind: Kind, name: str, wrong: Wrong) -> _Talk:
    value = item.value
    own = (value.get(field) for field in ("id", "conversation_id", "uuid"))
    mine = kind_of(value)  # merged exports hold several kinds
    kind = mine if mine is not None and mine in _LISTS else kind
    talk = _Talk(next((text for text in own if isinstance(text, str) and text), name), item.place, kind=kind)
    place = _LISTS[kind]
    entries = _branch(value, talk.left_out) if kind == "chatgpt" else value.get(place)
    if not isinstance(entries, list):
        raise Unreadable(f"{place} must be a list")
    for number, entry in enumerate(entries, start=1):
        _tried(Item(f"{item.place}, {place}[{number}]", entry), wrong, talk.add)
    return talk


def _branch(value: Mapping[str, Any], left_out: Counter[str]) -> list[Any]:
    """Return the messages of the branch that ends in ``current_node``. The user has left the other branches."""
    nodes = value.get("mapping")
    if not isinstance(nodes, dict):
        raise Unreadable("mapping must be an object")
    said = {
        name: node["message"]
        for name, node in nodes.items()
        if isinstance(node, dict) and node.get("message")
    }
    path: dict[str, Any] = {}
    name = value.get("current_node") or next(reversed(nodes), None)
    while isinstance(name, str) and isinstance(node := nodes.get(name), dict) and name not in path:
        path[name] = said.get(name)
        name = node.get("parent")
    left_out["messages of other branches"] += len(said.keys() - path.keys())
    return [message for message in reversed(path.values()) if message]


class _Talks:
    """The conversations of a file whose messages may be anywhere in it."""

    def __init__(self, stem: str, wrong: Wrong, questions: list[Question] | None) -> None:
        self._stem, self._wrong, self._questions = stem, wrong, questions
        self.found: dict[tuple[str | None, str], _Talk] = {}

    def _of(self, item: Item, name: Any, user: str | None = None) -> _Talk:
        name = name if isinstance(name, str) and name else self._stem
        return self.found.setdefault((user, name), _Talk(name, item.place, user))

    def add_bare(self, item: Item) -> None:
        """Add a message or a memory of a file that is one conversation."""
        listed = item.value.get("results")
        for value in listed if isinstance(listed, list) else [item.value]:
            _tried(Item(item.place, value), self._wrong, self._of(item, None).add)

    def add_claude_code(self, item: Item) -> None:
        value = item.value
        said = value.get("message")
        if value.get("type") not in ("user", "assistant") or not isinstance(said, dict):
            return  # such as a summary or a snapshot of files
        talk = self._of(item, value.get("sessionId"))
        if value.get("isMeta") or value.get("isSidechain"):
            talk.left_out["hidden messages"] += 1
            return
        named = {"timestamp": value.get("timestamp"), "id": value.get("uuid")}
        talk.add(Item(item.place, {"role": value["type"], **said, **named}))

    def add_own(self, item: Item) -> None:
        value: dict[str, Any] = item.value
        known = _QUESTION if "question" in value else _MESSAGE
        if unknown := sorted(value.keys() - known):
            raise Unreadable(f"{unknown[0][:40]} is not a known field; known are {', '.join(sorted(known))}")
        user = _named(value, "user")
        if "question" in value:
            if self._questions is not None:
                self._questions.append(_question(value, user, item.place))
            return
        session = _named(value, "session")
        if session is None:
            raise Unreadable("session is missing; it says which messages belong together")
        if value.get("role") not in ("user", "assistant", "system"):
            raise Unreadable("role must be user, assistant or system")
        if not isinstance(content := value.get("content"), str) or not content.strip():
            raise Unreadable("content must be text that is not blank")
        _moment_of(value.get("time"))
        message_id = _named(value, "id")
        self._of(item, session, user).add(Item(item.place, {**value, "id": message_id}))


def _anywhere(
    items: Iterable[Item], kind: Kind, stem: str, wrong: Wrong, questions: list[Question] | None
) -> Iterator[Conversation]:
    talks = _Talks(stem, wrong, questions)
    add = {"claude_code": talks.add_claude_code, "memslot": talks.add_own}.get(kind, talks.add_bare)
    for item in items:
        _tried(item, wrong, add)
    users = Counter(session for _, session in talks.found)
    for (user, session), talk in talks.found.items():
        if users[session] > 1:
            talk.conversation_id = f"{user or stem}/{session}"
        yield from talk.whole(wrong)


def _journal(items: Iterable[Item], wrong: Wrong) -> Iterator[Conversation]:
    sessions: dict[tuple[str, str], list[MemoryEvent]] = {}

    def read(item: Item) -> None:
        if "format" in item.value:
            return
        given = item.value.get("event")
        if not isinstance(given, dict):
            raise Unreadable("event is missing; give a line that 'memslot export' writes")
        try:
            event = MemoryEvent(**given)
        except (MemslotError, TypeError) as error:
            raise Unreadable(f"event: {error}") from None
        sessions.setdefault((event.scope.persona_id, event.session_id), []).append(event)

    for item in items:
        _tried(item, wrong, read)
    for (user, session), events in sessions.items():
        said = tuple(Spoken(message, event.timestamp) for event in events for message in event.messages)
        yield Conversation(session, said, user, events=tuple(events))


def _named(value: Mapping[str, Any], name: str) -> str | None:
    """Return a field as text, which may be a whole number in the file; None if it is absent or null."""
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if not isinstance(found, str) or not found.strip():
        raise Unreadable(f"{name} must be text that is not blank")
    return found.strip()


def _question(value: Mapping[str, Any], user: str | None, place: str) -> Question:
    text, answer = _named(value, "question"), value.get("answer")
    if text is None:
        raise Unreadable("question must be text that is not blank")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float | None):
        raise Unreadable("answer must be text or a number")
    if isinstance(answer, str) and not answer.strip():
        raise Unreadable("answer is blank; leave it out where there is none")
    evidence = value.get("evidence")
    entries = [evidence] if isinstance(evidence, str) else evidence or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, str) and entry.strip() for entry in entries
    ):
        raise Unreadable("evidence must be a list of ids of messages, SESSION:N or sessions")
    return Question(
        text,
        None if answer is None else str(answer),
        tuple(entry.strip() for entry in entries),
        user,
        _moment_of(value.get("time")),
        _named(value, "category") or "question",
        place,
    )


def _moment_of(value: Any) -> datetime | None:
    """Read a time: ISO 8601 with a zone, or seconds or milliseconds since 1970; None for null or no text."""
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
