"""Readers that turn the JSON values of each kind of file into conversations. See :mod:`._transcripts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from memory.contract.errors import ConfigError, MemslotError
from memory.contract.events import MemoryEvent
from memory.runtime._transcript_items import (
    KINDS,
    Conversation,
    Item,
    Kind,
    Question,
    Spoken,
    Unreadable,
)
from memory.runtime._transcript_messages import Gathered, Wrong, moment, tried

_LOOKED_AT = 20  # items examined to detect the kind


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
    if kind == "memslot":
        found = _own_lines(every, stem, wrong, questions)
    elif kind == "journal":
        found = _journal(every, wrong)
    elif kind == "claude_code":
        found = _claude_code(every, stem, wrong)
    elif kind in _ONE_A_ITEM and not _is_message(first.value):
        found = _one_an_item(every, kind, stem, wrong)
    else:
        gathered = Gathered(stem, first.place.partition(",")[0])
        for item in _mem0_memories(every) if kind == "mem0" else every:
            tried(item, wrong, gathered.add)
        found = gathered.whole(wrong)
    for each in found:
        yield replace(each, kind=each.kind or kind)


def kind_of(value: Any) -> Kind | None:
    """Detect a file's kind from one item; None if no kind fits."""
    if not isinstance(value, dict):
        return None
    fields = value.keys()
    marks: tuple[tuple[Kind, set[str]], ...] = (
        ("chatgpt", {"mapping"}),
        ("claude", {"chat_messages"}),
        ("sharegpt", {"conversations"}),
        ("sharegpt", {"from", "value"}),
        ("memslot", {"session", "role"}),
        ("memslot", {"question"}),
        ("journal", {"format"}),
        ("journal", {"event", "status"}),
        ("claude_code", {"sessionId"}),
        ("claude_code", {"leafUuid"}),
        ("openai", {"messages"}),
        ("langchain", {"type", "data"}),
        ("openai", {"role", "content"}),
        ("mem0", {"memory"}),
        ("mem0", {"results"}),
    )
    return next((kind for kind, needed in marks if needed <= fields), None)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and (
        {"role", "content"} <= value.keys() or {"from", "value"} <= value.keys()
    )


Fill = Callable[[Mapping[str, Any], Gathered, Wrong], None]
_ONE_A_ITEM = frozenset({"chatgpt", "claude", "sharegpt", "openai"})


def _one_an_item(items: Iterable[Item], kind: Kind, stem: str, wrong: Wrong) -> Iterator[Conversation]:
    for number, item in enumerate(items, start=1):

        def read(item: Item, number: int = number) -> Gathered:
            names = ("id", "conversation_id", "uuid")
            own = next((item.value[name] for name in names if isinstance(item.value.get(name), str)), "")
            found = Gathered(own or f"{stem}-{number}", item.place)
            mine = kind_of(item.value)  # merged exports hold several kinds
            found.kind = mine if mine in _FILL else kind
            _FILL[found.kind](item.value, found, wrong)
            return found

        if (found := tried(item, wrong, read)) is not None:
            yield from found.whole(wrong)


def _list_of(value: Mapping[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    if not isinstance(found, list):
        raise Unreadable(f"{name} must be a list")
    return found


def _fill_listed(name: str) -> Fill:
    def fill(value: Mapping[str, Any], found: Gathered, wrong: Wrong) -> None:
        found.each(_list_of(value, name), name, wrong, lambda entry: found.add(Item(found.place, entry)))

    return fill


def _fill_chatgpt(value: Mapping[str, Any], found: Gathered, wrong: Wrong) -> None:
    """Read the branch that ends in ``current_node``. The user has left the other branches."""
    nodes = value.get("mapping")
    if not isinstance(nodes, dict):
        raise Unreadable("mapping must be an object")
    path: dict[str, Mapping[str, Any]] = {}
    name = value.get("current_node") or next(reversed(nodes), None)
    while isinstance(name, str) and isinstance(node := nodes.get(name), dict) and name not in path:
        path[name] = node
        name = node.get("parent")
    branches = [node for key, node in nodes.items() if key not in path and _says_something(node)]
    found.left_out["messages of other branches"] += len(branches)

    def read(said: Mapping[str, Any]) -> None:
        author, content, hidden = (_object_of(said, name) for name in ("author", "content", "metadata"))
        role = author.get("role")
        if role == "system" or hidden.get("is_visually_hidden_from_conversation"):
            found.left_out["hidden messages"] += bool(content.get("parts"))
        elif content.get("content_type") not in ("text", "multimodal_text", None):
            found.left_out["tool messages"] += 1
        else:
            found.say(role, content.get("parts"), said.get("create_time"), said.get("id"))

    found.each(
        (node["message"] for node in reversed(path.values()) if node.get("message")), "message", wrong, read
    )


def _says_something(node: Any) -> bool:
    return isinstance(node, dict) and bool(node.get("message"))


def _object_of(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name) or {}
    if not isinstance(found, dict):
        raise Unreadable(f"{name} must be an object")
    return found


def _fill_claude(value: Mapping[str, Any], found: Gathered, wrong: Wrong) -> None:
    def read(said: Mapping[str, Any]) -> None:
        parts = said.get("content")
        content = parts if isinstance(parts, list) and parts else said.get("text")
        for name in ("attachments", "files"):
            if isinstance(files := said.get(name), list):
                found.left_out["attachments"] += len(files)
        found.say(said.get("sender"), content, said.get("created_at"), said.get("uuid"))

    found.each(_list_of(value, "chat_messages"), "chat_messages", wrong, read)


_FILL: dict[str, Fill] = {
    "chatgpt": _fill_chatgpt,
    "claude": _fill_claude,
    "sharegpt": _fill_listed("conversations"),
    "openai": _fill_listed("messages"),
}


def _mem0_memories(items: Iterable[Item]) -> Iterator[Item]:
    for item in items:
        listed = item.value.get("results") if isinstance(item.value, dict) else None
        for memory in listed if isinstance(listed, list) else [item.value]:
            if not isinstance(memory, dict) or not isinstance(memory.get("memory"), str):
                yield Item(item.place, None)
                continue
            when = memory.get("updated_at") or memory.get("created_at")
            said = {"role": "user", "content": memory["memory"], "time": when, "id": memory.get("id")}
            yield Item(item.place, said)


def _claude_code(items: Iterable[Item], stem: str, wrong: Wrong) -> Iterator[Conversation]:
    sessions: dict[str, Gathered] = {}

    def read(item: Item) -> None:
        value = item.value
        said, name = value.get("message"), value.get("sessionId")
        if value.get("type") not in ("user", "assistant") or not isinstance(said, dict):
            return  # such as a summary or a snapshot of files
        key = name if isinstance(name, str) and name else stem
        session = sessions.setdefault(key, Gathered(key, item.place))
        if value.get("isMeta") or value.get("isSidechain"):
            session.left_out["hidden messages"] += 1
            return
        role = said.get("role") or value["type"]
        session.say(role, said.get("content"), value.get("timestamp"), value.get("uuid"))

    for item in items:
        tried(item, wrong, read)
    for session in sessions.values():
        yield from session.whole(wrong)


def _own_lines(
    items: Iterable[Item], stem: str, wrong: Wrong, questions: list[Question] | None
) -> Iterator[Conversation]:
    sessions: dict[tuple[str | None, str], Gathered] = {}

    def read(item: Item) -> None:
        value: dict[str, Any] = item.value
        known = _QUESTION if "question" in value else _MESSAGE
        if unknown := sorted(value.keys() - known):
            raise Unreadable(f"{unknown[0][:40]} is not a known field; known are {', '.join(sorted(known))}")
        user = _named(value, "user")
        if "question" in value:
            if questions is not None:
                questions.append(_question(value, user, item.place))
            return
        session = _named(value, "session")
        if session is None:
            raise Unreadable("session is missing; it says which messages belong together")
        held = sessions.setdefault((user, session), Gathered(session, item.place, user, strict=True))
        role = value.get("role")
        if role not in ("user", "assistant", "system"):
            raise Unreadable("role must be user, assistant or system")
        if not isinstance(content := value.get("content"), str) or not content.strip():
            raise Unreadable("content must be text that is not blank")
        held.say(role, content, value.get("time"), _named(value, "id"))

    for item in items:
        tried(item, wrong, read)
    users = Counter(session for _, session in sessions)
    for (user, session), held in sessions.items():
        if held.messages:
            name = f"{user or stem}/{session}" if users[session] > 1 else session
            held.conversation_id = name
            yield from held.whole(wrong)


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
        tried(item, wrong, read)
    for (user, session), events in sessions.items():
        said = tuple(Spoken(message, event.timestamp) for event in events for message in event.messages)
        yield Conversation(session, said, user, events=tuple(events))


_MESSAGE = frozenset({"session", "role", "content", "time", "user", "id"})
_QUESTION = frozenset({"question", "answer", "evidence", "user", "time", "category"})


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
    text, answer = value["question"], value.get("answer")
    if not isinstance(text, str) or not text.strip():
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
        text.strip(),
        None if answer is None else str(answer),
        tuple(entry.strip() for entry in entries),
        user,
        moment(value.get("time")),
        _named(value, "category") or "question",
        place,
    )
