"""What conformance runs share: the bare wire to a node, and the rows that come out."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httpx

__all__ = ["Answer", "NotRun", "Problem", "Row", "Status", "Wire", "judged"]


class Status(Enum):
    """How a vector came out. A vector that was not run has proved nothing."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "known deviation"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """One vector's outcome.

    Attributes:
        id: the vector's.
        group: the set it belongs to, such as ``LINT_VECTORS`` or ``v1.0/01_fact_assert``.
        why: empty where it passed; else what differs, or what it would need.
        ours: written here from the specification, not published by the Stigmem project.
    """

    id: str
    group: str
    status: Status
    why: str = ""
    ours: bool = False


class Problem(Exception):
    """The node's answer is not what the vector expects."""


class NotRun(Exception):
    """The vector does not apply to this node or this run."""


@dataclass(frozen=True)
class Answer:
    """A node's answer: its status, and its JSON or None."""

    status: int
    body: Any

    def expect_status(self, *allowed: int) -> None:
        """Raises Problem for any other status."""
        if self.status not in allowed:
            raise Problem(f"HTTP {self.status} instead of {' or '.join(map(str, allowed))}")

    def object(self) -> dict[str, Any]:
        """The JSON object answered; Problem where it is something else."""
        if not isinstance(self.body, dict):
            raise Problem("the answer is no JSON object")
        return self.body


class Wire:
    """Requests without interpretation: vectors look at statuses and bodies that our client turns into errors."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        without_key: bool = False,
    ) -> Answer:
        """One request. Raises httpx.HTTPError where no answer comes."""
        request = self._http.build_request(method, path, json=json, params=params)
        if without_key:
            request.headers.pop("authorization", None)
        response = await self._http.send(request)
        try:
            body = response.json()
        except ValueError:
            body = None
        return Answer(response.status_code, body)


async def judged(
    vector_id: str, group: str, run: Awaitable[None], *, deviation: str | None = None, ours: bool = False
) -> Row:
    """Await a vector's run and say how it came out."""
    try:
        await run
    except NotRun as reason:
        return Row(vector_id, group, Status.NOT_RUN, str(reason), ours)
    except Problem as problem:
        if deviation is not None:
            return Row(vector_id, group, Status.DEVIATION, f"{problem}: {deviation}", ours)
        return Row(vector_id, group, Status.FAILED, str(problem), ours)
    except httpx.HTTPError as error:
        return Row(vector_id, group, Status.FAILED, f"no answer ({type(error).__name__})", ours)
    return Row(vector_id, group, Status.PASSED, "", ours)
