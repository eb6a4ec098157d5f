"""Scopes as mem0's ids, and the ids of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from memory import MemoryScope
from memory.adapter import ScopeEncoder
from memory.backends.mem0.options import Mem0Options


class ScopeIds:
    """A scope as mem0's ``user_id``, ``run_id`` and, where the scope sets one, ``agent_id``.

    A row with an agent_id also matches a search without one, so the agent is always part of run_id as well.

    Raises:
        ScopeError: a template is malformed, or drops an isolating field.
    """

    def __init__(self, options: Mem0Options, where: str) -> None:
        self._alphabet = options.profile.alphabet
        self._encoder: ScopeEncoder | None = None
        self._names_agent = True
        if options.user_id_template or options.run_id_template:
            templates = {
                "user_id": options.user_id_template or "{persona_id}",
                "run_id": options.run_id_template or "{run_id}:{backend_namespace}:{agent_id}",
            }
            self._encoder = ScopeEncoder(
                self._alphabet, templates, allow_sharing=options.allow_sharing, owner=where
            )
            self._names_agent = "{agent_id}" in "".join(templates.values())  # otherwise agents share
        self._cached = lru_cache(maxsize=1024)(self._encode)

    def encode(self, scope: MemoryScope) -> dict[str, str]:
        """The native ids, by mem0's names."""
        return dict(self._cached(scope))

    def _encode(self, scope: MemoryScope) -> dict[str, str]:
        if self._encoder is not None:
            ids = self._encoder.encode(scope)
        else:
            run = (scope.run_id, scope.backend_namespace, scope.agent_id)
            ids = {"user_id": self._alphabet.encode(scope.persona_id), "run_id": self._alphabet.encode(*run)}
        if scope.agent_id is not None and self._names_agent:
            ids["agent_id"] = self._alphabet.encode(scope.agent_id)
        return ids


def row_ids(row: Mapping[str, Any]) -> dict[str, str]:
    """The scope ids a native row carries; a missing user_id or run_id is blank, which no scope has."""
    ids = {"user_id": str(row.get("user_id") or ""), "run_id": str(row.get("run_id") or "")}
    agent = row.get("agent_id")
    if agent is not None:
        ids["agent_id"] = str(agent)
    return ids
