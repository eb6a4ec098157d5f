"""Builds the bodies of MemOS requests, for its pydantic models in ``memos.api.product_models``."""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory import InputError, MemoryEvent, MemoryFeedback, MemoryScope, Message, RetrieveRequest
from memory.adapter import IdAlphabet
from memory.adapter.fields import without_nul
from memory.backends.memos.options import GraphDb, MemosOptions

Body = dict[str, Any]

# MemOS puts cube ids into SQL and Cypher text, and ":" separates the parts of its Redis keys.
CUBE_IDS = IdAlphabet(safe=string.ascii_uppercase + "-", escape="_", separator=".", max_length=128)
# Keys of ``info`` that identify the event of a memory. A metadata field of MemOS would override such a key.
EVENT_KEYS = ("event_id", "turn_id", "agent_id", "timestamp", "scenario", "context", "attribute")
USER_PREFIX = "meta_"
_USER_REST = "metadata_json"
_NATIVE_KEYS = frozenset(
    {"id", "memory_type", "session_id", "tags", "created_at", "updated_at", "status", "key"}
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
OPERATORS = frozenset({"eq", "in", "gt", "gte", "lt", "lte", "contains"})  # if the database applies filters


def cube_of(scope: MemoryScope) -> str:
    """The scope's cube. Its user has the same id, because MemOS does not distinguish the two."""
    return CUBE_IDS.encode(scope.run_id, scope.persona_id, scope.backend_namespace, scope.agent_id)


@dataclass(frozen=True)
class Requests:
    options: MemosOptions

    def add(self, event: MemoryEvent, cube: str) -> Body:
        options = self.options
        info: Body = {  # flat: graph databases hold no nested properties
            **user_info(event.metadata),
            **event.labels,
            "event_id": event.event_id,
            "timestamp": event.timestamp.isoformat(),
        }
        messages = enumerate(event.messages)
        body: Body = {
            "user_id": cube,
            "writable_cube_ids": [cube],
            "session_id": event.session_id,
            "task_id": event.event_id,
            "async_mode": options.async_mode,
            "messages": [native_message(message, event, number) for number, message in messages],
            "info": info,
            "custom_tags": list(event.cs_fields.values()),
            "is_feedback": False,
        }
        if options.async_mode == "sync":
            body["mode"] = options.mode
        return without_nul(body)

    def add_text(self, text: str, cube: str, info: Mapping[str, str]) -> Body:
        return {
            "user_id": cube,
            "writable_cube_ids": [cube],
            "session_id": cube,
            "async_mode": "sync",
            "mode": "fast",
            "messages": [{"role": "user", "content": text}],
            "info": dict(info),
        }

    def feedback(self, feedback: MemoryFeedback, cube: str) -> Body:
        """A feedback that MemOS carries out before it answers. ``metadata["history"]`` may hold a history."""
        history = feedback.metadata.get("history")
        said = [feedback.content, *([feedback.corrected_answer] if feedback.corrected_answer else [])]
        info = {"feedback_id": feedback.feedback_id, "timestamp": feedback.timestamp.isoformat()}
        rest = {key: value for key, value in feedback.metadata.items() if key != "history"}
        return without_nul(
            {
                "user_id": cube,
                "writable_cube_ids": [cube],
                "session_id": feedback.session_id,
                "task_id": feedback.feedback_id,
                "async_mode": "sync",
                "history": history if isinstance(history, list) else [],
                "retrieved_memory_ids": list(feedback.native_ids),
                "feedback_content": "\n".join(said),
                "feedback_time": feedback.timestamp.isoformat(),
                "corrected_answer": False,
                "info": {**user_info(rest), **info},
            }
        )

    def search(self, request: RetrieveRequest, cube: str, mode: str | None = None) -> Body:
        """A search with every parameter explicit, because several of MemOS' defaults empty the result."""
        query = request.query
        if not self.options.filters:  # without filters, the CS values join the query
            query = "\n".join((query, *request.cs_filters.values()))
        body = self.ask(
            query,
            cube,
            session_id=request.session_id,
            limit=request.budget.max_items,
            where=native_filter(request.where, self.options.graph_db) if self.options.filters else None,
            mode=mode,
        )
        body["readable_cube_ids"] = list(dict.fromkeys((cube, *self.options.readable_cubes)))
        return without_nul(body)

    def ask(
        self,
        query: str,
        cube: str,
        *,
        session_id: str | None = None,
        limit: int | None = None,
        where: Body | None = None,
        mode: str | None = None,
    ) -> Body:
        """A search of one cube, by default in the configured mode. ``limit`` bounds each group separately."""
        options, bound = self.options, sys.maxsize if limit is None else limit
        return {
            "query": query,
            "user_id": cube,
            "readable_cube_ids": [cube],
            "session_id": session_id,
            "mode": mode or options.search_mode,
            "top_k": limit or options.top_k,
            "relativity": options.relativity,
            "dedup": options.dedup,
            "rerank": options.rerank,
            "include_preference": options.pref_top_k > 0,
            "pref_top_k": min(options.pref_top_k, bound),
            "search_tool_memory": options.tool_mem_top_k > 0,
            "tool_mem_top_k": min(options.tool_mem_top_k, bound),
            "include_skill_memory": options.skill_mem_top_k > 0,
            "skill_mem_top_k": min(options.skill_mem_top_k, bound),
            "filter": where,
            "context_format": "memory",
            "internet_search": False,
            "threshold": None,
            "search_memory_type": "All",
            "reference_time": None,
            "chat_history": [],
            "neighbor_discovery": False,
        }

    @staticmethod
    def listing(cube: str) -> Body:
        return {
            "mem_cube_id": cube,
            "user_id": None,
            "include_preference": True,
            "include_tool_memory": True,
            "include_skill_memory": True,
            "filter": None,
            "page": None,
            "page_size": None,
        }

    @staticmethod
    def clear(cube: str) -> Body:
        """Delete everything in one cube. Without the cube, MemOS would delete in every cube."""
        return {"writable_cube_ids": [cube], "user_id": cube}

    @staticmethod
    def delete(native_ids: Sequence[str], cube: str) -> Body:
        """Delete memories by id. MemOS does not check their cube."""
        return {"writable_cube_ids": [cube], "memory_ids": list(native_ids)}


def native_message(message: Message, event: MemoryEvent, number: int) -> Body:
    """An OpenAI message with MemOS' two further fields. ``developer`` becomes ``system``."""
    native: Body = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content,
        "chat_time": event.timestamp.isoformat(),
        "message_id": f"{event.event_id}#{number}",
    }
    if message.name is not None and message.role == "user":
        native["name"] = message.name
    if message.role == "tool":
        native["tool_call_id"] = message.tool_call_id or f"{event.event_id}#{number}"
    if message.tool_calls:
        native["tool_calls"] = [dict(call) for call in message.tool_calls]
    return native


def dropped_roles(event: MemoryEvent) -> tuple[str, ...]:
    lost = {message.role for message in event.messages} & {"system", "developer"}
    if not lost:
        return ()
    return (f"of messages of role {', '.join(sorted(lost))} MemOS keeps nothing but <tool_schema> blocks",)


def user_info(metadata: Mapping[str, Any]) -> Body:
    """A user's metadata for ``info``: plain values under prefixed keys, the rest as one JSON text."""
    flat: Body = {}
    rest: Body = {}
    for key, value in metadata.items():
        if isinstance(value, (str, int, float)) and _IDENTIFIER.match(key):
            flat[USER_PREFIX + key] = value
        else:
            rest[key] = value
    if rest:
        flat[_USER_REST] = json.dumps(rest, ensure_ascii=False, allow_nan=False)
    return flat


def native_filter(where: Mapping[str, Mapping[str, Any]], graph_db: GraphDb) -> Body | None:
    """``{"and": [...]}`` in the dialect of the graph database. MemOS would lose a flat filter."""
    conditions: list[Body] = []
    for key, clauses in where.items():
        if not _IDENTIFIER.match(key):
            problem = "MemOS can filter by letters, digits and '_' only; rename the key"
            raise InputError(f"filters.{key}: {problem}")
        column = key if key in _NATIVE_KEYS or key in EVENT_KEYS else USER_PREFIX + key
        # neo4j stores the fields of ``info`` among its own.
        if key not in _NATIVE_KEYS and graph_db in ("polardb", "postgres"):
            column = f"info.{column}"
        for operator, value in clauses.items():
            name = "like" if operator == "contains" else operator
            conditions.append({column: value if operator == "eq" else {name: value}})
    return {"and": conditions} if conditions else None
