"""Recorded traffic of a real MemOS server, and how it is asked again.

Each file of ``pairs/`` is a little history of one server: requests with their answers. In requests ``<cube>``
stands for a cube of this run, ``<name.0>`` for the first memory that the step ``name`` added; in answers,
ids are numbered in order of appearance. A step's ``llm`` is what then fails behind the server, ``no_database`` that
it has none, and ``double`` the same in the double; ``settle`` lets that last until the scheduler is done, ``idle``
waits for the scheduler first.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PAIRS = sorted((Path(__file__).parent / "pairs").glob("*.json"))
Ask = Callable[[Mapping[str, Any]], tuple[int, Any]]

_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_REFERENCE = re.compile(r"<(\w+)\.(\d+)>")
# Differs with the run, or is worded by the server's libraries.
_FREE = frozenset(
    {"created_at", "updated_at", "waited_seconds", "waiting", "in_progress", "pending", "total"}
)


def load(path):
    """One history."""
    history = json.loads(path.read_text(encoding="utf-8"))
    return history


def replay(history, run, ask):
    """Ask a server step by step.

    Args:
        history: of :func:`load`.
        run: makes cubes and users those of this run.
        ask: sends one step's request, its placeholders filled; gives status and body.

    Yields:
        The step, and the server's status and body in comparable form.
    """
    names = _Names(run)
    added = {}
    for step in history["steps"]:
        request = json.loads(_fill(json.dumps(step["request"]), run, added))
        status, body = ask({**step, "request": request})
        data = body.get("data") if isinstance(body, dict) else None
        if request["path"] == "/product/add" and isinstance(data, list):
            added[step["name"]] = [row["memory_id"] for row in data]
        yield step, status, names.comparable(body)


def _fill(text, run, added):
    text = _REFERENCE.sub(lambda found: added[found[1]][int(found[2])], text)
    return text.replace("<cube>", run)


class _Names:
    """Numbers ids in order of appearance, so that two servers' answers can be compared."""

    def __init__(self, run):
        self._run = run
        self._ids: dict[str, str] = {}

    def comparable(self, value, key=""):
        if isinstance(value, dict):
            if value.get("code") == 500:  # the words of a database, with addresses of its machine
                value = {**value, "message": "<words>"}
            return {name: self.comparable(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [self.comparable(part, key) for part in value]
        if key in _FREE:
            return f"<{type(value).__name__}>"
        return self._plain(value) if isinstance(value, str) else value

    def _plain(self, text):
        text = _ID.sub(lambda found: self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>"), text)
        for native_id, name in self._ids.items():
            text = text.replace(f"[{native_id[:8]}]", f"[{name}]")
        return text.replace(self._run, "<cube>")


# Of a memory, what tells how MemOS treated it counts. Its wording is the model's, its score the reranker's.
_LOOSE = frozenset(
    {"message", "msg", "memory", "key", "tags", "background", "relativity", "text", "answer", "version"}
)
_MAY_SAY_LESS = frozenset({"metadata", "info", "input"})


def agrees(real, double, where=""):
    """What the double says otherwise than the server did. It may leave out of a memory, never add to it."""
    name = where.rpartition(".")[2]
    if name == "sources" and isinstance(real, str) and isinstance(double, str):
        real, double = json.loads(real), json.loads(double)
    if isinstance(real, dict) and isinstance(double, dict):
        for key in sorted(double.keys() - real.keys()):
            yield f"{where}.{key}: is not in the real answer"
        if not _MAY_SAY_LESS & set(where.split(".")):
            for key in sorted(real.keys() - double.keys()):
                yield f"{where}.{key}: is missing"
        for key in sorted(real.keys() & double.keys()):
            yield from agrees(real[key], double[key], f"{where}.{key}")
    elif isinstance(real, list) and isinstance(double, list) and name not in _LOOSE:
        if len(real) != len(double):
            yield f"{where}: {len(double)} in place of {len(real)}"
        for real_item, double_item in zip(real, double, strict=False):
            yield from agrees(real_item, double_item, where)
    elif _kind(real) != _kind(double) or (name not in _LOOSE and real != double):
        yield f"{where}: {double!r} in place of {real!r}"


def _kind(value):
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
