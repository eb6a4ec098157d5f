"""Conformance vectors against a node, and what came out, id by id (Spec-19 12.7).

    rows = await run_conformance("http://127.0.0.1:8765", load_vectors("vectors.json"))

Two sources of vectors. Those of the Stigmem project are data the caller brings: the sets of its Python SDK
(ASSERT, QUERY, NODE_INFO, LINT) and its numbered conformance files. The DECAY and SYNTHESIS sets that Spec-19
names were never published; ours (:mod:`memory.stigmem.conformance.own`) are marked ``ours``, and so is
the gate that Spec-19 asks of each adapter for its own writes.

A node has no way to delete a fact, so a run leaves its facts behind. Against a node that holds facts of a run
already, give a ``tag``: facts of equal content are one fact to a node, and keep their first ``valid_until``.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from memory import InputError
from memory.adapter import http_client, normalise_error
from memory.stigmem.client import StigmemNode
from memory.stigmem.conformance.own import gate_rows, own_rows
from memory.stigmem.conformance.wire import (
    Context,
    NotRun,
    Row,
    Wire,
    check_expectations,
    check_findings,
    filled,
    listed,
    outcome,
    require,
    retagged,
    statuses,
)

_TIMEOUT_S = 30.0
_HIDDEN = (
    "no fact is returned",
    "the set's own retract vector contradicts the fact, and contradicted facts leave default queries; "
    "the specification lets a retraction replace it",
)
KNOWN_DEVIATIONS: Mapping[str, tuple[str, str]] = {
    "query-by-entity": _HIDDEN,
    "query-by-entity-relation": _HIDDEN,
    "lint-orphan": (
        "0 findings of orphan instead of 1 or more",
        "a retraction does not retract its sibling, so the entity is no orphan to the node",
    ),
}
"""Vectors of the Stigmem project that its own node fails, how, word for word, and why. Failing otherwise is a
failure."""


def load_vectors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The vectors of a data file: ``{"sdk_py": {...}, "data_conformance": {...}}``.

    Raises:
        InputError: the file cannot be read or holds neither set.
    """
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"vectors: the file cannot be read as JSON ({type(error).__name__})") from error
    sets = [data[name] for name in ("sdk_py", "data_conformance") if isinstance(data, dict) and name in data]
    if not sets or not all(isinstance(given, dict) for given in sets):
        raise InputError("vectors: the file holds neither sdk_py nor data_conformance, or no objects there")
    return dict(data)


async def run_conformance(
    url: str,
    vectors: Mapping[str, Any] | None = None,
    *,
    api_key: str | None = None,
    tag: str = "",
    expire_scope: bool = False,
) -> list[Row]:
    """Run every vector in order and say what came out.

    Args:
        url: of the node.
        vectors: from :func:`load_vectors`; None runs ours alone.
        api_key: with read and write permission, where the node wants one.
        tag: lower-case letters, digits and dashes, put into the vectors' entities and gardens; empty sends the
            vectors as they are, which needs a node that has not seen them.
        expire_scope: also run the vector that expires *every* fact of scope ``public``: for throw-away nodes.

    Raises:
        InputError: the URL, key or tag is malformed.
        BackendError: the node cannot be reached or does not describe itself. A node that fails later fails rows.
    """
    if tag.strip("abcdefghijklmnopqrstuvwxyz0123456789-"):
        raise InputError("tag: use lower-case letters, digits and dashes")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with (
        StigmemNode(url, api_key, timeout_s=_TIMEOUT_S, retry_pause_s=0.1) as node,
        http_client(node.url, backend="stigmem", timeout_s=_TIMEOUT_S, headers=headers) as http,
    ):
        wire = Wire(http)
        context = await _context(wire, url, bool(api_key))
        rows = [row async for row in _given_rows(wire, vectors or {}, context, tag)]
        rows += [row async for row in own_rows(wire, expire_scope=expire_scope)]
        rows += [row async for row in gate_rows(node)]
    return rows


async def _context(wire: Wire, url: str, has_key: bool) -> Context:
    try:
        info = await wire.send("GET", "/.well-known/stigmem")
    except httpx.HTTPError as error:
        failure = normalise_error(error, backend_name="stigmem", operation="GET /.well-known/stigmem")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            failure.args = (f"{failure}: nobody answers at {url}",)
        raise failure from error
    known = info.body if info.status == 200 and isinstance(info.body, dict) else {}
    authority = urlsplit(str(known.get("node_url") or url)).netloc
    return Context(authority=authority, auth=known.get("auth"), has_key=has_key)


async def _given_rows(
    wire: Wire, vectors: Mapping[str, Any], context: Context, tag: str
) -> AsyncIterator[Row]:
    sdk = retagged(vectors.get("sdk_py", {}), tag, context.authority)
    for group, run in (
        ("ASSERT_VECTORS", _assert), ("QUERY_VECTORS", _query), ("NODE_INFO_VECTOR", _node_info),
        ("LINT_VECTORS", _lint),
    ):  # fmt: skip
        found = sdk.get(group, [])
        for vector in [found] if isinstance(found, dict) else found:
            yield await outcome(
                vector["id"], group, run(wire, vector), deviation=KNOWN_DEVIATIONS.get(vector["id"])
            )
    for name, group in vectors.get("data_conformance", {}).items():
        async for row in _file(wire, name, retagged(group, tag, context.authority), context):
            yield row


async def _assert(wire: Wire, vector: Mapping[str, Any]) -> None:
    answer = await wire.send("POST", "/v1/facts", json=filled(vector["request"]))
    body = answer.expect_status(vector["expected_status"]).object()
    stored = {"value_type": body.get("value", {}).get("type"), "confidence": body.get("confidence")}
    for name, found in stored.items():
        wanted = vector.get(f"expected_{name}", found)
        require(found == wanted, f"{name.replace('_', '.')} is not {wanted}")


async def _query(wire: Wire, vector: Mapping[str, Any]) -> None:
    answer = await wire.send("GET", "/v1/facts", params=vector["params"])
    facts = listed(answer.expect_status(200).object(), "facts")
    require(facts or not vector.get("expect_non_empty"), "no fact is returned")
    for name in vector.get("expect_fields", ()):
        require(all(name in fact for fact in facts), f"a fact has no {name}")


async def _node_info(wire: Wire, vector: Mapping[str, Any]) -> None:
    body = (await wire.send("GET", "/.well-known/stigmem")).expect_status(200).object()
    missing = [name for name in vector["expected_fields"] if name not in body]
    require(not missing, f"has no {', '.join(missing)}")


async def _lint(wire: Wire, vector: Mapping[str, Any]) -> None:
    for fact in vector.get("setup", []):
        (await wire.send("POST", "/v1/facts", json=filled(fact))).expect_status(201)
    answer = await wire.send("POST", "/v1/lint", json=vector["request"])
    check_findings(await wire.finished(answer, "/v1/lint/jobs"), vector["expected"])


async def _file(wire: Wire, name: str, group: Mapping[str, Any], context: Context) -> AsyncIterator[Row]:
    by_id = {vector["id"]: vector for vector in group["vectors"]}
    sent: set[str] = set()

    async def prepare(vector: Mapping[str, Any]) -> None:
        earlier = by_id.get(vector.get("requires_setup", ""))
        if earlier is None or earlier["id"] in sent:
            return
        await prepare(earlier)
        await wire.send(earlier["method"], earlier["path"], json=filled(earlier["body"]))
        sent.add(earlier["id"])

    async def run(vector: Mapping[str, Any]) -> None:
        context.check_applies(vector)
        await prepare(vector)
        allowed = statuses(vector)
        without_key = bool(vector.get("requires_auth")) and 401 in allowed
        body = filled(vector["body"])
        answer = await wire.send(vector["method"], vector["path"], json=body, without_key=without_key)
        sent.add(vector["id"])
        if answer.status == 501 and "requires_plugin" in group:
            raise NotRun(f"needs the node's {group['requires_plugin']} plugin")
        # Another 404 than that of a record the node does not know.
        absent = answer.body in ({"detail": "Not Found"}, {"detail": "Method Not Allowed"})
        if vector.get("requires_auth") and absent and answer.status not in allowed:
            raise NotRun("the node does not offer the route, which belongs to a plugin")
        check_expectations(answer, vector, allowed)

    seed = group.get("seed_fact")
    if seed is not None:
        with suppress(httpx.HTTPError):  # the vectors that rest on it will tell
            await wire.send("POST", "/v1/facts", json=seed)
    for vector in group["vectors"]:
        yield await outcome(vector["id"], name.removesuffix(".json"), run(vector))
