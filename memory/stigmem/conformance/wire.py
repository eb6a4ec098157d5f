"""What conformance runs share: the bare wire to a node, the rows that come out, and how the Stigmem project's
vectors are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import anyio
import httpx

from memory import BackendError, InputError
from memory.stigmem.client import JOB_TIMEOUT_S


class Status(Enum):
    """How a vector came out. A vector that was not run has proved nothing."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "known deviation"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    id: str
    group: str  # its set, such as ``LINT_VECTORS`` or ``v1.0/01_fact_assert``
    status: Status
    why: str = ""  # empty where it passed; else what differs, or what it would need
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
        """The result of a request that a node with many facts answers with 202 and carries out later."""
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


async def outcome(
    vector_id: str,
    group: str,
    run: Awaitable[None],
    *,
    deviation: tuple[str, str] | None = None,
    ours: bool = False,
) -> Row:
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


_SLUG = re.compile(r"(?<![a-z0-9-])conf-(?!bad)")
_ENTITY = re.compile(r"\A(stigmem://[^/]+/(?!garden/)[a-z-]+/|[a-z]+:(?!/))")
_ENTITY_IN_PATH = re.compile(r"(testnode%2F(?!garden)[a-z-]+%2F|entity=user%3A)")


def load_vectors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The vectors of a data file: ``{"sdk_py": {...}, "data_conformance": {...}}``, one of them at least."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"vectors: the file cannot be read as JSON ({type(error).__name__})") from error
    sets = [data[name] for name in ("sdk_py", "data_conformance") if isinstance(data, dict) and name in data]
    if not sets or not all(isinstance(given, dict) for given in sets):
        raise InputError("vectors: the file holds neither sdk_py nor data_conformance, or no objects there")
    return dict(data)


@dataclass
class Context:
    authority: str  # the node's, which its gardens' URIs must name
    auth: Any  # ``none`` or ``required``, as the node says
    has_key: bool

    def check_applies(self, vector: Mapping[str, Any]) -> None:
        if vector.get("requires_auth"):
            if self.auth != "required":
                raise NotRun("needs a node with authentication")
            if 401 not in statuses(vector):
                raise NotRun("needs a node with authentication, an admin key and a plugin")
        elif self.auth == "required":
            if not self.has_key:
                raise NotRun("needs an API key")
            if vector["id"].endswith("auth-disabled"):
                raise NotRun("needs a node without authentication")


def statuses(vector: Mapping[str, Any]) -> tuple[int, ...]:
    if "expected_status" in vector:
        return (vector["expected_status"],)
    return tuple(vector.get("expected_status_in", ()))


def filled(value: Any) -> Any:
    """A vector's body with ``__now_plus_<n>s__`` replaced by that time."""
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, str) and (match := re.fullmatch(r"__now_plus_(\d+)s__", value)):
        return (datetime.now(UTC) + timedelta(seconds=int(match[1]))).isoformat()
    return value


def retagged(value: Any, tag: str, authority: str, key: str = "") -> Any:
    """Vectors whose gardens name the node's authority; with a tag, their entities and gardens are a run's own."""
    if isinstance(value, dict):
        ref = value.get("type") == "ref"
        return {
            name: retagged(item, tag, authority, "entity" if ref and name == "v" else name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [retagged(item, tag, authority, key) for item in value]
    if not isinstance(value, str) or key in ("id", "description", "requires_setup"):
        return value
    published, garden = "stigmem://testnode/garden/", f"stigmem://{authority}/garden/"
    value = value.replace(published, garden)
    if key == "path":
        value = value.replace(quote(published, safe=""), quote(garden, safe=""))
    if tag and (key == "path" or key in ("entity", "entity_uri")):
        value = (_ENTITY_IN_PATH if key == "path" else _ENTITY).sub(rf"\g<1>{tag}-", value)
    return _SLUG.sub(f"conf-{tag}-", value) if tag else value


def check_findings(body: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    findings = listed(body, "findings")
    if expected.get("findings_empty"):
        return require(not findings, f"{len(findings)} findings instead of none")
    check = expected["findings_check"]
    matching = [finding for finding in findings if finding.get("check") == check]
    least, severity = expected["findings_min"], expected["findings_severity"]
    require(len(matching) >= least, f"{len(matching)} findings of {check} instead of {least} or more")
    found = {finding.get("severity") for finding in matching}
    require(found == {severity}, f"severity is not {severity} alone")


def check_expectations(answer: Answer, vector: Mapping[str, Any], allowed: tuple[int, ...]) -> None:
    """Check every expectation of the numbered files. Problem names the expectation that fails."""
    expected = {name: wanted for name, wanted in vector.items() if name.startswith("expected_")}
    unknown = expected.keys() - _EXPECTATIONS.keys() - {"expected_status", "expected_status_in"}
    require(not unknown, f"the vector expects {', '.join(sorted(unknown))}, which is not understood")
    answer.expect_status(*allowed)
    for name, check in _EXPECTATIONS.items():
        if name in expected:
            check(answer.body, expected[name])


def _each(test: Callable[[Any, Any], bool], problem: str) -> Callable[[Any, Any], None]:
    """A check of some fields, each against a value of its own; ``problem`` takes both."""

    def check(body: Any, wanted: Mapping[str, Any]) -> None:
        for name, value in wanted.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            require(test(_at(body, [name]), value), problem.format(name, shown))

    return check


def _has_keys(*path: str) -> Callable[[Any, Any], None]:
    """A check of the keys of the first fact, or of what lies under ``path`` in it."""

    def check(body: Any, names: Iterable[str]) -> None:
        facts = _at(body, ["facts"])
        require(facts, "no fact is returned")
        found = _at(facts[0], path)
        for name in names:
            require(name in found, f"the first fact has no {name}")

    return check


def _at(body: Any, path: Iterable[str]) -> Any:
    for part in path:
        require(isinstance(body, dict) and part in body, f"has no {part}")
        body = body[part]
    return body


def _contains(found: Any, wanted: Any, where: str) -> None:
    """``found`` holds all of ``wanted``; an empty wanted list wants an empty list."""
    if isinstance(wanted, dict):
        for name, item in wanted.items():
            _contains(_at(found, [name]), item, f"{where}.{name}")
    elif isinstance(wanted, list):
        require(isinstance(found, list) and (wanted or not found), f"{where} is not the list expected")
        for item in wanted:
            require(any(_holds(row, item) for row in found), f"{where} lacks an expected entry")
    else:
        require(found == wanted and type(found) is type(wanted), f"{where} is not {wanted!r}")


def _holds(found: Any, wanted: Any) -> bool:
    try:
        _contains(found, wanted, "")
    except Problem:
        return False
    return True


_EXPECTATIONS: Mapping[str, Callable[[Any, Any], object]] = {
    "expected_response_is_list": lambda body, wanted: require(
        isinstance(body, list) or not wanted, "the answer is no list"
    ),
    "expected_body_has_keys": lambda body, names: [_at(body, [name]) for name in names],
    "expected_body_contains": lambda body, wanted: _contains(body, wanted, "body"),
    "expected_nested": lambda body, wanted: _contains(
        {path: _at(body, path.split(".")) for path in wanted}, wanted, "body"
    ),
    "expected_body_list_contains": _each(lambda found, item: item in found, "{} does not hold {}"),
    "expected_body_value_in": _each(lambda found, allowed: found in allowed, "{} is none of {}"),
    "expected_field_length": _each(
        lambda found, length: len(str(found)) == length, "{} is not {} characters long"
    ),
    "expected_field_starts_with": _each(
        lambda found, start: str(found).startswith(start), "{} does not start with {}"
    ),
    "expected_members_contain_role": lambda body, role: require(
        role in [member.get("role") for member in _at(body, ["members"])], f"no member is {role}"
    ),
    "expected_first_fact_has_keys": _has_keys(),
    "expected_first_fact_score_breakdown_keys": _has_keys("score_breakdown"),
}
