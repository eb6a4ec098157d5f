"""What is known of a shadow and must outlive the process: it is on disk before anybody relies on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memory import MemoryScope
from memory.adapter import replace_file

_ENDED_EARLY = "a process ended before the shadow had everything"
_CUT_OFF = "a reset did not end as it should, and the primary may have kept what the shadow lost"
_UNREAD = "what was known of it could not be read"


class ShadowFacts:
    """Facts of one shadow, scope by scope, in a JSON file that is written whole.

    Args:
        path: the file; None keeps them in memory alone, for tests.

    Attributes:
        unlike: scope label -> why its memory lacks something that the primary has, or has something it lacks.
        unreset: labels of scopes that the primary was told to reset, and the shadow is not known to have reset.
        problem: why the file cannot be relied on; empty where it can.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.unlike: dict[str, str] = {}
        self.unreset: set[str] = set()
        self.problem = ""
        self._primary_unsure: set[str] = set()  # of these, the primary's own reset is not known to have ended
        self._begun: set[str] = set()  # scopes the shadow has been told of, in whatever process
        self._open: set[str] = set()  # scopes this process has written to
        self._load()

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            stored: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            self.unlike, self.unreset = dict(stored["unlike"]), set(stored["unreset"])
            self._begun, left_open = set(stored["begun"]), set(stored["open"])
            self._primary_unsure = set(stored["primary_unsure"])
        except (OSError, ValueError, LookupError, TypeError):
            self.problem = f"{_UNREAD}: {self._path.name} is damaged; reset its scopes, or remove the file"
            self._path = None  # never written over: it may say what must not be forgotten
            return
        for label in left_open:
            self.unlike.setdefault(label, _ENDED_EARLY)
        if left_open:
            self._save()

    def begin(self, scope: MemoryScope) -> bool:
        """A write is on its way to the shadow; whether it is the first that it ever gets of the scope."""
        first = scope.label not in self._begun
        if scope.label not in self._open:
            self._open.add(scope.label)
            self._begun.add(scope.label)
            self._save()
        return first

    def is_new(self, scope: MemoryScope) -> bool:
        """Whether the shadow was never told of the scope."""
        return scope.label not in self._begun

    def diverges(self, scope: MemoryScope, why: str) -> None:
        """From now on its memory of a scope is not the primary's."""
        if scope.label not in self.unlike:
            self.unlike[scope.label] = why
            self._save()

    def reset_begins(self, scope: MemoryScope) -> None:
        """The primary is about to be reset: until :meth:`reset_done` the shadow may hold what was erased."""
        self.unreset.add(scope.label)
        self._primary_unsure.add(scope.label)
        self._save()

    def primary_reset(self, scope: MemoryScope) -> None:
        """The primary is known to be empty."""
        self._primary_unsure.discard(scope.label)
        self._save()

    def reset_refused(self, scope: MemoryScope) -> None:
        """The primary kept its memory, and so the shadow keeps its own."""
        self.unreset.discard(scope.label)
        self._primary_unsure.discard(scope.label)
        self._save()

    def reset_done(self, scope: MemoryScope) -> None:
        """The shadow is known to be empty; where the primary may not be, the two differ."""
        self.unreset.discard(scope.label)
        self.unlike.pop(scope.label, None)
        if scope.label in self._primary_unsure:
            self.unlike[scope.label] = _CUT_OFF
            self._primary_unsure.discard(scope.label)
        self._begun.add(scope.label)
        self._save()

    def closed(self) -> None:
        """The process ends, and what it left undone is noted."""
        if self._open:
            self._open.clear()
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        facts = {"unreset": self.unreset, "begun": self._begun, "open": self._open}
        facts["primary_unsure"] = self._primary_unsure
        content = {"unlike": self.unlike, **{name: sorted(labels) for name, labels in facts.items()}}
        try:
            replace_file(self._path, json.dumps(content, ensure_ascii=False))
            self.problem = ""
        except OSError as error:
            self.problem = f"what is known of it could not be kept in {self._path.name} ({error.strerror})"
