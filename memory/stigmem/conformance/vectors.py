"""How the Stigmem project's conformance vectors are read: placeholders, where they apply, and what they expect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from memory.stigmem.conformance.wire import Answer, NotRun, Problem

__all__ = ["Context", "Problem", "check_expectations", "check_facts", "check_findings", "filled", "retagged"]

_PLUS_SECONDS = re.compile(r"__now_plus_(\d+)s__")
_GARDEN = re.compile(r"stigmem://testnode/garden/")
_GARDEN_IN_PATH = re.compile(r"stigmem%3A%2F%2Ftestnode%2Fgarden%2F")
_SLUG = re.compile(r"(?<![a-z0-9-])conf-(?!bad)")
_ENTITY = re.compile(r"\A(stigmem://[^/]+/(?!garden/)[a-z-]+/|[a-z]+:(?!/))")
_ENTITY_IN_PATH = re.compile(r"(testnode%2F(?!garden)[a-z-]+%2F|entity=user%3A)")
_ENTITY_KEYS = frozenset({"entity", "entity_uri"})


@dataclass
class Context:
    """What decides whether a vector applies.

    Attributes:
        authority: the node's, which its gardens' URIs must name.
        auth: ``none`` or ``required``, as the node says.
        has_key: whether the run has an API key.
        done: ids of the vectors sent so far.
    """

    authority: str
    auth: Any
    has_key: bool
    done: set[str] = field(default_factory=set)

    def statuses(self, vector: Mapping[str, Any]) -> tuple[int, ...]:
        """The statuses a vector allows."""
        if "expected_status" in vector:
            return (vector["expected_status"],)
        return tuple(vector.get("expected_status_in", ()))

    def check_applies(self, vector: Mapping[str, Any]) -> None:
        """Raises NotRun where the vector supposes another kind of node."""
        if vector.get("requires_auth"):
            if self.auth != "required":
                raise NotRun("needs a node with authentication")
            if 401 not in self.statuses(vector):
                raise NotRun("needs a node with authentication, an admin key and a plugin")
        elif self.auth == "required":
            if not self.has_key:
                raise NotRun("needs an API key")
            if vector["id"].endswith("auth-disabled"):
                raise NotRun("needs a node without authentication")


def filled(value: Any) -> Any:
    """A vector's body with ``__now_plus_<n>s__`` replaced by that time."""
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, str) and (match := _PLUS_SECONDS.fullmatch(value)):
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
    value = _GARDEN.sub(f"stigmem://{authority}/garden/", value)
    if key == "path":
        value = _GARDEN_IN_PATH.sub(f"{quote(f'stigmem://{authority}/garden/', safe='')}", value)
    return _tagged(value, tag, key) if tag else value


def _tagged(value: str, tag: str, key: str) -> str:
    if key == "path":
        value = _ENTITY_IN_PATH.sub(rf"\g<1>{tag}-", value)
    elif key in _ENTITY_KEYS:
        value = _ENTITY.sub(rf"\g<1>{tag}-", value)
    return _SLUG.sub(f"conf-{tag}-", value)


def check_facts(body: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The SDK's QUERY expectations."""
    facts = body.get("facts")
    if not isinstance(facts, list):
        raise Problem("has no list of facts")
    if expected.get("expect_non_empty") and not facts:
        raise Problem("no fact is returned")
    for name in expected.get("expect_fields", ()):
        if any(name not in fact for fact in facts):
            raise Problem(f"a fact has no {name}")


def check_findings(body: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The SDK's LINT expectations."""
    findings = body.get("findings")
    if not isinstance(findings, list):
        raise Problem("has no list of findings")
    if expected.get("findings_empty"):
        if findings:
            raise Problem(f"{len(findings)} findings instead of none")
        return
    check = expected["findings_check"]
    matching = [finding for finding in findings if finding.get("check") == check]
    if len(matching) < expected["findings_min"]:
        raise Problem(f"{len(matching)} findings of {check} instead of {expected['findings_min']} or more")
    severities = {finding.get("severity") for finding in matching}
    if severities != {expected["findings_severity"]}:
        raise Problem(f"severity is not {expected['findings_severity']} alone")


def check_expectations(answer: Answer, vector: Mapping[str, Any], statuses: tuple[int, ...]) -> None:
    """The expectations of the numbered files, every kind of them.

    Raises:
        Problem: names the expectation that fails.
    """
    unknown = {name for name in vector if name.startswith("expected_")} - _KNOWN
    if unknown:
        raise Problem(f"the vector expects {', '.join(sorted(unknown))}, which is not understood")
    answer.expect_status(*statuses)
    if vector.get("expected_response_is_list") and not isinstance(answer.body, list):
        raise Problem("the answer is no list")
    body = answer.body
    for name in vector.get("expected_body_has_keys", ()):
        if not isinstance(body, dict) or name not in body:
            raise Problem(f"has no {name}")
    if "expected_body_contains" in vector:
        _contains(body, vector["expected_body_contains"], "body")
    for path, wanted in vector.get("expected_nested", {}).items():
        _contains(_at(body, path.split(".")), wanted, path)
    for name, wanted in vector.get("expected_body_list_contains", {}).items():
        if wanted not in _at(body, [name]):
            raise Problem(f"{name} does not hold {wanted}")
    for name, allowed in vector.get("expected_body_value_in", {}).items():
        if _at(body, [name]) not in allowed:
            raise Problem(f"{name} is none of {', '.join(map(str, allowed))}")
    _check_shapes(body, vector)


def _check_shapes(body: Any, vector: Mapping[str, Any]) -> None:
    for name, length in vector.get("expected_field_length", {}).items():
        if len(str(_at(body, [name]))) != length:
            raise Problem(f"{name} is not {length} characters long")
    for name, start in vector.get("expected_field_starts_with", {}).items():
        if not str(_at(body, [name])).startswith(start):
            raise Problem(f"{name} does not start with {start}")
    role = vector.get("expected_members_contain_role")
    if role is not None and role not in [member.get("role") for member in _at(body, ["members"])]:
        raise Problem(f"no member is {role}")
    wanted = vector.get("expected_first_fact_has_keys", ())
    inner = vector.get("expected_first_fact_score_breakdown_keys", ())
    if wanted or inner:
        facts = _at(body, ["facts"])
        if not facts:
            raise Problem("no fact is returned")
        _has_all(facts[0], wanted)
        _has_all(_at(facts[0], ["score_breakdown"]), inner)


_KNOWN = {
    "expected_status", "expected_status_in", "expected_response_is_list", "expected_body_has_keys",
    "expected_body_contains", "expected_nested", "expected_body_list_contains", "expected_body_value_in",
    "expected_field_length", "expected_field_starts_with", "expected_members_contain_role",
    "expected_first_fact_has_keys", "expected_first_fact_score_breakdown_keys",
}  # fmt: skip


def _has_all(found: Any, names: Iterable[str]) -> None:
    for name in names:
        if name not in found:
            raise Problem(f"the first fact has no {name}")


def _at(body: Any, path: Iterable[str]) -> Any:
    for part in path:
        if not isinstance(body, dict) or part not in body:
            raise Problem(f"has no {part}")
        body = body[part]
    return body


def _contains(found: Any, wanted: Any, where: str) -> None:
    """``found`` holds all of ``wanted``; an empty wanted list wants an empty list."""
    if isinstance(wanted, dict):
        for name, item in wanted.items():
            _contains(_at(found, [name]), item, f"{where}.{name}")
    elif isinstance(wanted, list):
        if not isinstance(found, list) or (not wanted and found):
            raise Problem(f"{where} is not the list expected")
        for item in wanted:
            if not any(_holds(candidate, item) for candidate in found):
                raise Problem(f"{where} lacks an expected entry")
    elif found != wanted or type(found) is not type(wanted):
        raise Problem(f"{where} is not {wanted!r}")


def _holds(found: Any, wanted: Any) -> bool:
    try:
        _contains(found, wanted, "")
    except Problem:
        return False
    return True
