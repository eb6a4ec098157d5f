"""The seam between the adapter and a MemOS: one call for each operation, JSON in and JSON out.

``http`` asks a product server; ``inprocess`` runs the same handlers here. Bodies come from
:mod:`translate`, answers go to :mod:`answers`; a transport changes neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

__all__ = ["MAX_CONCURRENCY", "Operation", "Transport"]

MAX_CONCURRENCY = 4
"""Calls at a time. More make the server slower and exhaust its database connections: of eight searches at once one
in five came back empty, with a status of 200."""

Operation = Literal[
    "add", "search", "get_memory", "delete_memory", "feedback", "all_status", "task_status", "health"
]
"""What is asked of MemOS: ``/product/<name>``, ``/product/scheduler/allstatus``, ``/product/scheduler/status``,
``/health``. Never ``task_queue_status``: without Redis it starts a Redis server on every interface."""


class Transport(Protocol):
    """A way to one MemOS."""

    name: str
    """As in ``memory.backends.memos.transport``."""

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """Carry one operation out.

        Args:
            operation: the native operation.
            body: the request's fields; for ``all_status``, ``task_status`` and ``health`` the query parameters.

        Returns:
            The whole answer as JSON values, such as ``{"code": 200, "message": ..., "data": ...}``.

        Raises:
            BackendError: no answer, an error status, or no JSON. Failures that MemOS hides in a successful answer
                are not looked for here.
        """
        ...

    async def aclose(self) -> None:
        """Release connections, threads and clients. Idempotent."""
        ...
