"""Reads MemOS' answers: failures hidden in successful answers, memory groups and single memories."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.adapter import BackendProtocolError, ContextEntry
from memory.adapter.fields import parse_time
from memory.adapter.http import expect
from memory.backends.memos.translate import EVENT_KEYS

# The groups of a search's answer, in the order of the context section. ``pref_note`` follows them.
GROUPS = ("text_mem", "pref_mem", "tool_mem", "skill_mem", "act_mem", "para_mem")
# MemOS' types of memories. A server may not have all of them.
MEMORY_TYPES = (
    "WorkingMemory",
    "LongTermMemory",
    "UserMemory",
    "OuterMemory",
    "RawFileMemory",
    "PreferenceMemory",
    "ToolSchemaMemory",
    "ToolTrajectoryMemory",
    "SkillMemory",
)

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Added:
    native_id: str
    text: str


def data_of(answer: Any, operation: str) -> Any:
    """The answer's ``data``. MemOS may have failed although it answers 200, with another code inside."""
    if "data" not in expect(dict, answer, operation):
        raise BackendProtocolError(f"{operation}: expected data in the answer")
    code = answer.get("code", 200)
    if code != 200:
        problem = f"{operation}: MemOS answered 200 with code {code if isinstance(code, int) else '?'} inside"
        raise BackendProtocolError(problem, diagnostics={"code": str(code)[:16]})
    return answer["data"]


def added(answer: Any) -> tuple[Added, ...]:
    rows = expect(list, data_of(answer, "add"), "add")
    return tuple(Added(_text(row, "memory_id", "add"), _text(row, "memory", "add")) for row in rows)


def feedback_ids(answer: Any) -> tuple[str, ...]:
    """The ids of the memories that a feedback added or updated. Empty if it changed nothing."""
    records = expect(list, data_of(answer, "feedback"), "feedback")
    made = [expect(dict, row.get("record") or {}, "feedback") for row in records if isinstance(row, dict)]
    lists = [record.get(kind) for record in made for kind in ("add", "update")]
    ids = (change.get("id") for changes in lists for change in _rows(changes, "feedback"))
    return tuple(dict.fromkeys(native_id for native_id in ids if isinstance(native_id, str)))


def items(data: Any, operation: str) -> Iterator[tuple[str, str, Item]]:
    """Yield (group, cube, memory) for each memory in the answer of a search or listing, group by group."""
    if "text_mem" not in expect(dict, data, operation):
        raise BackendProtocolError(f"{operation}: expected groups of memories in the answer")
    for group in GROUPS:
        for bucket in _rows(data.get(group), f"{operation}: {group}"):
            for item in _rows(bucket.get("memories"), f"{operation}: memories of {group}"):
                yield group, str(bucket.get("cube_id")), item


def by_id(data: Any, operation: str) -> dict[str, Item]:
    return {str(item.get("id")): item for _, _, item in items(data, operation)}


def to_entries(data: Any, shared: Sequence[str] = ()) -> tuple[ContextEntry, ...]:
    """The memories of a search under their group and native type, then the preference note.

    The scope's own cube comes first, then ``shared`` in order. Memories of a shared cube name that cube alone.
    """
    order = {cube: number for number, cube in enumerate(shared, 1)}
    rows = sorted(items(data, "search"), key=lambda row: (GROUPS.index(row[0]), order.get(row[1], 0)))
    entries = [_entry(group, cube, item, order) for group, cube, item in rows]
    note = data.get("pref_note")
    if isinstance(note, str) and note.strip():
        entries.append(ContextEntry(text=note, group="pref_note", prose=True))
    return tuple(entries)


def _entry(group: str, cube_id: str, item: Item, shared: Collection[str]) -> ContextEntry:
    metadata = metadata_of(item)
    info = _info(metadata)
    kind = metadata.get("memory_type")
    # The times of the event, because MemOS' own times come from its server's clock.
    times = (info.get("timestamp"), *(source.get("chat_time") for source in _sources(metadata)))
    # The row's user is its cube. The bucket only repeats the cube of the request.
    owner = str(metadata.get("user_id") or cube_id)
    return ContextEntry(
        text=_text(item, "memory", "search"),
        native_id=None if rewritten(item) else item["id"],
        score=relativity_of(metadata),
        timestamp=next(filter(None, map(parse_time, times)), None),
        group=f"{group} {kind}" if isinstance(kind, str) else group,
        event_ids=event_ids(item),
        session_id=metadata.get("session_id"),
        labels=(("cube", owner),) if owner in shared else (),
        scope_ids=None if owner in shared else {"cube_id": owner},
    )


def metadata_of(item: Item) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def relativity_of(metadata: Mapping[str, Any]) -> float | None:
    value = metadata.get("relativity")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _info(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event's fields: under ``info``, or among MemOS' own fields if neo4j has flattened ``info``."""
    info = metadata.get("info")
    return info if isinstance(info, dict) else {key: metadata[key] for key in EVENT_KEYS if key in metadata}


def event_ids(item: Item) -> tuple[str, ...]:
    """The ids of a memory's events, from ``info`` and from the messages it names as sources."""
    metadata = metadata_of(item)
    own = _info(metadata).get("event_id")
    messages = (source.get("message_id") for source in _sources(metadata))
    named = (name.rpartition("#")[0] for name in messages if isinstance(name, str) and "#" in name)
    return tuple(dict.fromkeys(event_id for event_id in (own, *named) if isinstance(event_id, str)))


def rewritten(item: Item) -> bool:
    """Whether MemOS wrote this text for the answer. Its id then names no stored memory."""
    metadata = metadata_of(item)
    return not isinstance(item.get("id"), str) or not (metadata.get("created_at") or metadata.get("sources"))


def changes_of(item: Item) -> tuple[datetime | None, datetime | None]:
    metadata = metadata_of(item)
    return parse_time(metadata.get("created_at")), parse_time(metadata.get("updated_at"))


def unextracted(item: Item) -> bool:
    """Whether MemOS kept the raw text because its model failed: no tags, and the text's start as title."""
    metadata, text = metadata_of(item), item.get("memory")
    return isinstance(text, str) and metadata.get("tags") == [] and metadata.get("key") == text[:10]


def untouched(item: Item) -> bool:
    """Whether this is still the text as sent. After an asynchronous add, the scheduler replaces it later."""
    return metadata_of(item).get("tags") == ["mode:fast"]


def count_busy(answer: Any) -> int:
    """The number of waiting or running tasks of all users. With Redis the second part counts some earlier."""
    data, largest = expect(dict, data_of(answer, "all_status"), "all_status"), 0
    for part in ("scheduler_summary", "all_tasks_summary"):
        where = f"all_status: {part}"
        summary = expect(dict, data.get(part), where)
        counts = (expect(int, summary.get(name), f"{where}.{name}") for name in ("waiting", "in_progress"))
        largest = max(largest, sum(counts))
    return largest


def _sources(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A memory's sources. Some databases return each as JSON text."""
    sources = metadata.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, str):
            try:
                source = json.loads(source)
            except (ValueError, RecursionError):
                continue
        if isinstance(source, dict):
            yield source


def _rows(value: Any, where: str) -> list[Item]:
    return [expect(dict, row, where) for row in expect(list, [] if value is None else value, where)]


def _text(row: Any, name: str, operation: str) -> str:
    return expect(str, expect(dict, row, operation).get(name), f"{operation}: {name}")
