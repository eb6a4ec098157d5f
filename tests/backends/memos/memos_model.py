"""A model of a MemOS 2.0.33 product server: what it stores, finds and answers, as seen on a real one.

It is wrong where the real server is wrong, and says 200 where the real server does: that is what it is for. Text is
compared by shared words in place of vectors; the order of equals is that of arrival, newest first.
"""

import json
import re
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

GROUP_OF = {
    "PreferenceMemory": "pref_mem",
    "ToolSchemaMemory": "tool_mem",
    "ToolTrajectoryMemory": "tool_mem",
    "SkillMemory": "skill_mem",
}
_WORD = re.compile(r"[^\W_]+")
_SMALL_TALK = ("Hello.", "Noted.")  # of which a model keeps nothing


@dataclass
class Row:
    """A memory. ``embedded`` is False where the embedder was down: such a row is never found."""

    cube_id: str
    memory: str
    metadata: dict[str, Any]
    embedded: bool = True
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def kind(self):
        return str(self.metadata["memory_type"])


@dataclass
class Task:
    """Work of the scheduler: a raw memory to be replaced."""

    due: float
    user_id: str
    perform: Callable[[], None]
    event: str | None = None
    status: str = "waiting"
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


class MemosModel:
    """The server's state and its routes as functions of a JSON body, answering ``(status, JSON)``.

    Args:
        graph_db: its GRAPH_DB_BACKEND; ``postgres`` ignores a search's filter, the others apply it.
        redis: whether the scheduler keeps its tasks in Redis.
        delay_s: how long the scheduler takes for an event.

    Attributes:
        embedder_down: rows are stored without a vector, searches come back empty.
        model_down: ``fine`` keeps raw text, feedback changes nothing.
        stores_nothing: adds answer 200 with nothing in it.
        answers_nothing: adds answer 200 with nothing in it, and store all the same.
        database_down: adds answer with the ids of memories that are nowhere, searches are empty, listings fail.
        loses_raw: the scheduler deletes the raw memory and stores no other.
        mixes_cubes: searches leave the cube out, as with neo4j's database per user.
        undeletable: deletes say what they always say, and delete nothing.
        handing_over: the local queue counts no task, once.
        held: the scheduler does not work.
        reads_badly: what the model says in a ``fine`` search cannot be read; that shows with two memories or more.
        rates_all: what the reranker says of everything: 0.0 where it is down, 0.5 for cosine_local on PostgreSQL.
    """

    def __init__(self, *, graph_db="postgres", redis=False, delay_s=0.02):
        self.graph_db = graph_db
        self.redis = redis
        self.delay_s = delay_s
        self.rows: list[Row] = []
        self.tasks: list[Task] = []
        self.queue: deque[Task] = deque()
        self.embedder_down = self.model_down = self.stores_nothing = self.loses_raw = False
        self.answers_nothing = False
        self.handing_over = self.reads_badly = False
        self.mixes_cubes = self.undeletable = self.held = self.database_down = False
        self.rates_all: float | None = None

    def add(self, body):
        user_id = body.get("user_id")
        if not isinstance(user_id, str):
            return 400, _refused(400, "user_id and session_id must be strings")
        rows = []
        asynchronous = body.get("async_mode", "async") == "async"
        fast = asynchronous or body.get("mode") == "fast"
        if not self.stores_nothing and body.get("messages"):
            cubes = dict.fromkeys(body.get("writable_cube_ids") or [user_id])
            rows = [self._row(cube, body, fast=fast) for cube in cubes]
        if self.embedder_down and not fast:
            rows = []  # extracted, and lost for want of a vector
        # PostgreSQL refuses NUL; the answer names an id all the same.
        self.rows.extend(
            row
            for row in rows
            if row.memory and not self.database_down and "\0" not in json.dumps(row.metadata) + row.memory
        )
        for row in rows:
            if asynchronous:
                self._schedule(user_id, row, body)
            elif self.redis:
                done = Task(0.0, user_id, lambda: None, body.get("task_id"), "completed")
                self.tasks.append(done)
        added = [
            {"memory": row.memory, "memory_id": row.id, "memory_type": row.kind, "cube_id": row.cube_id}
            for row in rows
            if row.memory
        ]
        return 200, _answer("Memory added successfully", [] if self.answers_nothing else added)

    def _row(self, cube_id, body, *, fast):
        messages = [message for message in body["messages"] if message["role"] != "system"]
        lines = [_line(message) for message in messages]
        raw = "".join(f"{line}\n" for line in lines)
        said = [text for text in map(_said, messages) if text not in _SMALL_TALK]
        memory = raw if fast or self.model_down else " ".join(said)
        # Without a working model, "fine" keeps the text under a title cut from it.
        tags = ["mode:fast"] if fast else [] if self.model_down else ["talk"]
        key = lines[0] if fast and lines else memory[:10]
        now = datetime.now(UTC).isoformat()
        alone = {message["role"] for message in messages} == {"user"}
        return Row(
            cube_id,
            memory,
            {
                "user_id": body["user_id"],
                "session_id": body.get("session_id") or "default_session",
                "status": "activated",
                "is_fast": fast or None,
                "type": "fact",
                "key": key if fast or self.model_down else "talk",
                "confidence": 0.99,
                "tags": tags,
                "created_at": now,
                "updated_at": now,
                "info": dict(body.get("info") or {}),
                "memory_type": "UserMemory" if alone else "LongTermMemory",
                "sources": [_source(message) for message in messages],
                "background": "",
            },
            embedded=not self.embedder_down,
        )

    def _schedule(self, user_id, raw, body):
        def replace():
            self.rows = [row for row in self.rows if row is not raw]
            if not self.loses_raw:
                self.rows.append(self._row(raw.cube_id, body, fast=False))

        self.queue.append(Task(time.monotonic() + self.delay_s, user_id, replace, body.get("task_id")))
        if self.redis:
            self.tasks.append(self.queue[-1])

    def work(self):
        """Let the scheduler do what is due."""
        while not self.held and self.queue and self.queue[0].due <= time.monotonic():
            task = self.queue.popleft()
            task.perform()
            task.status = "completed"

    def search(self, body):
        missing = [name for name in ("query", "user_id") if not isinstance(body.get(name), str)]
        if missing:
            return 422, _invalid("/product/search", missing[0], body)
        wanted = body.get("filter")
        if isinstance(wanted, dict) and {"and", "or"} & wanted.keys() and wanted.keys() - {"and", "or"}:
            return 400, _refused(
                400, "Invalid filter: top-level 'and'/'or' cannot coexist with per-cube keys"
            )
        data = {"text_mem": [], "act_mem": [], "para_mem": [], "pref_note": ""}
        data.update({"pref_mem": [], "tool_mem": [], "skill_mem": []})
        # Cubes are searched side by side and told as they are done; here the one asked for last is.
        for cube in reversed(dict.fromkeys(body.get("readable_cube_ids") or [body["user_id"]])):
            found = self._find(cube, body, wanted)
            for group, bound in _BOUNDS.items():
                max_items = (
                    int(body.get(bound, _DEFAULTS[bound])) if body.get(_SWITCHES.get(group, ""), True) else 0
                )
                show = _rewritten if body.get("mode") == "fine" else _item
                inside = [hit for hit in found if GROUP_OF.get(hit[0].kind, "text_mem") == group]
                items = [show(row, score) for row, score in inside]
                bucket = {"cube_id": cube, "memories": items[:max_items]}
                if group != "text_mem":
                    data[group].append({**bucket, "total_nodes": len(items[:max_items])})
                elif items[:max_items]:
                    data[group].append(bucket)
        if any(bucket["memories"] for bucket in data["pref_mem"]):
            data["pref_string"] = "preferences"
            data["pref_note"] = "Follow these preferences."
        return 200, _answer("Search completed successfully", data)

    def _find(self, cube, body, wanted):
        if self.database_down or self.embedder_down:
            return []
        if self.graph_db == "postgres" and body.get("dedup", "mmr") != "no":
            return []  # the exception is swallowed
        if isinstance(wanted, dict) and not {"and", "or"} & wanted.keys():
            wanted = wanted.get(cube)  # a flat filter is taken as one per cube, and lost
        rows = [row for row in self.rows if row.embedded and (self.mixes_cubes or row.cube_id == cube)]
        if self.graph_db != "postgres":
            rows = [row for row in rows if self._matches(row, wanted)]
        if body.get("mode") == "fine" and (self.model_down or (self.reads_badly and len(rows) > 1)):
            return []
        asked = _words(body["query"])
        scored = [(row, len(asked & _words(row.memory)) / max(len(asked), 1)) for row in reversed(rows)]
        scored.sort(key=lambda pair: -pair[1])
        if self.rates_all is not None:
            scored = [(row, self.rates_all) for row in reversed(rows)]
        return [(row, score) for row, score in scored if score >= body.get("relativity", 0.45)]

    def _matches(self, row, wanted):
        if not wanted:
            return True
        fields = {**row.metadata, "id": row.id, "memory": row.memory}
        info = fields.pop("info")
        if self.graph_db == "polardb":
            fields.update({f"info.{key}": value for key, value in info.items()})
        else:
            fields = {**info, **fields}
        every = all if "and" in wanted else any
        return every(
            all(_holds(fields.get(key), condition) for key, condition in clause.items())
            for clause in wanted.get("and", wanted.get("or"))
        )

    def get_memory(self, body):
        cube = body.get("mem_cube_id")
        if not isinstance(cube, str):
            return 422, _invalid("/product/get_memory", "mem_cube_id", body)
        if self.database_down:
            return 500, _refused(500, "connection refused")
        rows = [row for row in reversed(self.rows) if row.cube_id == cube]
        if self.graph_db != "postgres":
            rows = [row for row in rows if self._matches(row, body.get("filter"))]
        data = {}
        for group in ("text_mem", "pref_mem", "tool_mem", "skill_mem"):
            # PostgreSQL gives every memory in every group.
            inside = [
                row for row in rows if "postgres" in (self.graph_db, GROUP_OF.get(row.kind, "text_mem"))
            ]
            if self.graph_db != "postgres":
                inside = [row for row in rows if GROUP_OF.get(row.kind, "text_mem") == group]
            memories = [self._stored(row) for row in inside]
            data[group] = [{"cube_id": cube, "memories": memories, "total_nodes": len(memories)}]
        return 200, _answer("Memories retrieved successfully", data)

    def _stored(self, row):
        metadata = {key: value for key, value in row.metadata.items() if value is not None}
        metadata["sources"] = [json.dumps(source) for source in row.metadata["sources"]]
        if self.graph_db.startswith("neo4j"):
            metadata = {**metadata.pop("info"), **metadata}
        return {"id": row.id, "memory": row.memory, "metadata": metadata}

    def delete_memory(self, body):
        by_ids, by_user = body.get("memory_ids"), body.get("user_id")
        if (by_ids is None) == (by_user is None):
            error = "Exactly one delete mode must be provided: memory_ids, file_ids, or filter/user_id/session_id."
            return 200, _answer(error, {"status": "failure"})
        cubes = body.get("writable_cube_ids")

        def stays(row):
            if by_ids is not None:
                return row.id not in by_ids  # in whatever cube
            return row.metadata["user_id"] != by_user or (bool(cubes) and row.cube_id not in cubes)

        if not self.undeletable and not self.database_down:
            self.rows = [row for row in self.rows if stays(row)]
        if by_ids is not None:
            return 200, _answer("Memories deleted successfully", {"status": "success"})
        return 200, _answer("Failed to delete memories", {"status": "failure"})

    def feedback(self, body):
        missing = [name for name in ("user_id", "history", "feedback_content") if name not in body]
        if missing:
            return 422, _invalid("/product/feedback", missing[0], body)
        if body.get("async_mode", "async") == "async":
            return 200, _answer("Memory feedback successfully", [[]])
        (cube,) = body.get("writable_cube_ids") or [body["user_id"]]
        ids = body.get("retrieved_memory_ids") or []
        known = {row.id for row in self.rows if row.cube_id == cube}
        record = {"add": [], "update": []}
        if (
            not self.model_down and not self.database_down and set(ids) <= known
        ):  # one unknown id, and the exception is swallowed
            said = {
                "role": "user",
                "content": body["feedback_content"],
                "chat_time": body.get("feedback_time"),
            }
            row = self._row(cube, {**body, "messages": [said]}, fast=False)
            row.metadata["memory_type"] = "WorkingMemory"
            self.rows.append(row)
            record["add"].append({"id": row.id, "text": row.memory, "source_doc_id": None})
        return 200, _answer("Memory feedback successfully", [{"answer": "", "record": record}])

    def all_status(self, _):
        waiting = 0 if self.handing_over else len(self.queue)
        self.handing_over = False
        summary = dict.fromkeys(("in_progress", "completed", "failed", "cancelled"), 0)
        counts = {"waiting": waiting, "pending": waiting, **summary, "total": waiting}
        data = {"scheduler_summary": counts, "all_tasks_summary": dict.fromkeys(counts, 0)}
        return 200, _answer("Scheduler status summary retrieved successfully", data)

    def task_status(self, params):
        if "user_id" not in params:
            return 422, _invalid("/product/scheduler/status", "user_id", None, method="GET")
        tasks = [task for task in self.tasks if task.user_id == params["user_id"]]
        states = [{"task_id": task.id, "status": task.status} for task in tasks]
        if event := params.get("task_id"):  # all tasks of a request answer to the id it gave
            states = [{"task_id": event, "status": task.status} for task in tasks if task.event == event][:1]
            if not states:
                return 404, _refused(404, f"Task {event} not found for user {params['user_id']}")
        return 200, _answer("Memory get status successfully", states)

    def health(self, _):
        return 200, {"status": "healthy", "service": "memos", "version": "1.0.1"}


_BOUNDS = {
    "text_mem": "top_k",
    "pref_mem": "pref_top_k",
    "tool_mem": "tool_mem_top_k",
    "skill_mem": "skill_mem_top_k",
}
_DEFAULTS = {"top_k": 10, "pref_top_k": 6, "tool_mem_top_k": 6, "skill_mem_top_k": 3}
_SWITCHES = {
    "pref_mem": "include_preference",
    "tool_mem": "search_tool_memory",
    "skill_mem": "include_skill_memory",
}


def _answer(message, data):
    return {"code": 200, "message": message, "data": data}


def _refused(status, message):
    return {"code": status, "message": message, "data": None}


def _invalid(path, name, body, *, method="POST"):
    place = "body" if method == "POST" else "query"
    problem = {"type": "missing", "loc": [place, name], "msg": "Field required", "input": body}
    message = (
        f"Parameter validation error on {method} {path}: [{place} -> {name}] Field required (type: missing)"
    )
    return {"code": 422, "message": message, "detail": [problem], "data": None}


def _said(message):
    calls = message.get("tool_calls")
    return message.get("content") or (f"[tool_calls]: {json.dumps(calls)}" if calls else "")


def _line(message):
    when = message.get("chat_time")
    return f"{message['role']}: {f'[{when}]: ' if when else ''}{_said(message)}"


def _source(message):
    return {
        "type": "chat",
        "role": message["role"],
        "chat_time": message.get("chat_time"),
        "message_id": message.get("message_id"),
        "content": _said(message),
    }


def _item(row, score):
    short = f"[{row.id.split('-')[0]}]"
    metadata = {**row.metadata, "embedding": [], "usage": [], "relativity": score, "ref_id": short}
    metadata.update({"id": row.id, "memory": row.memory})
    return {"id": row.id, "memory": row.memory, "metadata": metadata, "ref_id": short}


def _rewritten(row, _):
    """What ``fine`` gives in place of a memory."""
    native_id = str(uuid.uuid4())
    bare = dict.fromkeys(("session_id", "info", "key", "tags", "source"))
    metadata = {**bare, "user_id": row.metadata["user_id"], "memory_type": "LongTermMemory", "id": native_id}
    return {"id": native_id, "memory": row.memory, "metadata": metadata, "ref_id": f"[{native_id[:8]}]"}


def _words(text):
    return set(_WORD.findall(text.lower()))


def _holds(value, condition):
    if not isinstance(condition, dict):
        return bool(value == condition)
    compared = {
        "in": lambda wanted: value in wanted,
        "like": lambda wanted: isinstance(value, str) and wanted in value,
        "gt": lambda wanted: value is not None and value > wanted,
        "gte": lambda wanted: value is not None and value >= wanted,
        "lt": lambda wanted: value is not None and value < wanted,
        "lte": lambda wanted: value is not None and value <= wanted,
    }
    return all(compared[operator](wanted) for operator, wanted in condition.items())
