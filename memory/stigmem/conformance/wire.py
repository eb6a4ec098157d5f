"""What conformance runs share: the bare wire to a node, and the rows that come out."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

import anyio
import httpx

from memory.adapter import BackendProtocolError

_JOB_PATIENCE_S = 30.0


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


def require(holds: object, problem: str) -> None:
    if not holds:
        raise Problem(problem)


class NotRun(Exception):
    """The vector does not apply to this node or this run."""


@dataclass(frozen=True)
class Answer:
    """A node's answer: its status, and its JSON or None."""

    status: int
    body: Any

    def expect_status(self, *allowed: int) -> Self:
        require(self.status in allowed, f"HTTP {self.status} instead of {' or '.join(map(str, allowed))}")
        return self

    def object(self) -> dict[str, Any]:
        require(isinstance(self.body, dict), "the answer is no JSON object")
        return dict(self.body)


def listed(body: Mapping[str, Any], name: str) -> list[Any]:
    found = body.get(name)
    require(isinstance(found, list), f"has no list of {name}")
    return list(found or ())


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
        except (ValueError, RecursionError):
            body = None
        return Answer(response.status_code, body)

    async def finished(self, answer: Answer, jobs: str) -> dict[str, Any]:
        """What came of a request that a node with many facts answers with 202 and carries out afterwards."""
        if answer.expect_status(200, 202).status == 200:
            return answer.object()
        job = f"{jobs}/{answer.object().get('job_id')}"
        with anyio.move_on_after(_JOB_PATIENCE_S):
            while True:
                answer_now = (await self.send("GET", job)).expect_status(200).object()
                if answer_now.get("status") == "done":
                    return dict(answer_now.get("result") or {})
                if answer_now.get("status") == "failed":
                    raise Problem("the node's job failed")
                await anyio.sleep(0.2)
        raise Problem(f"the node's job did not end within {_JOB_PATIENCE_S:.0f} s")


async def outcome(
    vector_id: str,
    group: str,
    run: Awaitable[None],
    *,
    deviation: tuple[str, str] | None = None,
    ours: bool = False,
) -> Row:
    try:
        await run
    except NotRun as reason:
        return Row(vector_id, group, Status.NOT_RUN, str(reason), ours)
    except Problem as problem:
        if deviation is not None and deviation[0] == str(problem):
            return Row(vector_id, group, Status.DEVIATION, ": ".join(deviation), ours)
        return Row(vector_id, group, Status.FAILED, str(problem), ours)
    except (httpx.HTTPError, BackendProtocolError) as error:
        return Row(vector_id, group, Status.FAILED, f"no answer ({type(error).__name__})", ours)
    except (AttributeError, KeyError, TypeError) as error:
        why = f"the vector or its answer cannot be read ({type(error).__name__})"
        return Row(vector_id, group, Status.FAILED, why, ours)
    return Row(vector_id, group, Status.PASSED, "", ours)
