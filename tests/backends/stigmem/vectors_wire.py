"""Common parts of conformance runs: raw requests to a node, result rows, and a reader of vectors."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import anyio
import httpx

from memory import BackendError

JOB_TIMEOUT_S = 30.0  # for jobs that a node runs after its answer


class Status(Enum):
    """The result of a vector. A vector that was not run proves nothing."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "known deviation"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    id: str
    group: str  # the vector's set, such as ``LINT_VECTORS``
    status: Status
    why: str = ""  # what differs, or what the vector requires; empty if it passed
    ours: bool = False


class Problem(Exception):
    """The node's answer is not what the vector expects."""


def require(holds, problem):
    if not holds:
        raise Problem(problem)


class NotRun(Exception):
    """The vector does not apply to this node or this run."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any

    def expect_status(self, *allowed):
        require(self.status in allowed, f"HTTP {self.status} instead of {' or '.join(map(str, allowed))}")
        return self

    def object(self):
        require(isinstance(self.body, dict), "the answer is no JSON object")
        return dict(self.body)


def listed(body, name):
    found = body.get(name)
    require(isinstance(found, list), f"has no list of {name}")
    return list(found or ())


class Wire:
    """Raw requests, because vectors check statuses and bodies that the client turns into errors."""

    def __init__(self, http):
        self._http = http

    async def send(self, method, path, *, json=None, params=None):
        response = await self._http.request(method, path, json=json, params=params)
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        return Answer(response.status_code, body)

    async def finished(self, answer, jobs):
        """Return the result of a request, which a node with many facts answers with 202 and runs as a job."""
        if answer.expect_status(200, 202).status == 200:
            return answer.object()
        job = f"{jobs}/{answer.object().get('job_id')}"
        with anyio.move_on_after(JOB_TIMEOUT_S):
            while True:
                answer_now = (await self.send("GET", job)).expect_status(200).object()
                if answer_now.get("status") == "done":
                    return dict(answer_now.get("result") or {})
                if answer_now.get("status") == "failed":
                    raise Problem("the node's job failed")
                await anyio.sleep(0.2)
        raise Problem(f"the node's job did not end within {JOB_TIMEOUT_S:.0f} s")


async def outcome(vector_id, group, run, *, deviation=None, ours=False):
    status, why = Status.FAILED, ""
    try:
        await run
        status = Status.PASSED
    except NotRun as reason:
        status, why = Status.NOT_RUN, str(reason)
    except Problem as problem:
        why = str(problem)
        if deviation is not None and deviation[0] == why:
            status, why = Status.DEVIATION, ": ".join(deviation)
    except httpx.HTTPError as error:
        why = f"no answer ({type(error).__name__})"
    except BackendError as error:
        why = str(error)
    except (AttributeError, KeyError, TypeError) as error:
        why = f"the vector or its answer cannot be read ({type(error).__name__})"
    return Row(vector_id, group, status, why, ours)


_ENTITY = re.compile(r"\A(stigmem://[^/]+/[a-z-]+/|[a-z]+:(?!/))")


def load_vectors(path):
    """The vectors in a data file ``{"sdk_py": {"ASSERT_VECTORS": [...], ...}}``, by the names of their sets."""
    return dict(json.loads(path.read_bytes())["sdk_py"])


def filled(value):
    """Replace ``__now_plus_<n>s__`` in a vector's body by that time."""
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, str) and (match := re.fullmatch(r"__now_plus_(\d+)s__", value)):
        return (datetime.now(UTC) + timedelta(seconds=int(match[1]))).isoformat()
    return value


def retagged(value, tag, key=""):
    """Add the tag to every entity in the vectors. Without a tag, nothing changes."""
    if isinstance(value, dict):
        ref = value.get("type") == "ref"
        return {
            name: retagged(item, tag, "entity" if ref and name == "v" else name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [retagged(item, tag, key) for item in value]
    if not tag or key != "entity" or not isinstance(value, str):
        return value
    return _ENTITY.sub(rf"\g<1>{tag}-", value)


def check_findings(body, expected):
    findings = listed(body, "findings")
    if expected.get("findings_empty"):
        return require(not findings, f"{len(findings)} findings instead of none")
    check = expected["findings_check"]
    matching = [finding for finding in findings if finding.get("check") == check]
    least, severity = expected["findings_min"], expected["findings_severity"]
    require(len(matching) >= least, f"{len(matching)} findings of {check} instead of {least} or more")
    found = {finding.get("severity") for finding in matching}
    require(found == {severity}, f"severity is not {severity} alone")
