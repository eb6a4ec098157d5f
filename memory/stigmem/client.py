"""A Stigmem node over HTTP: one method per route we use. A node's cursor loses rows, so no method pages; a
``Stigmem-Session`` header turns later writes into 403, so none is ever sent."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote

import anyio

from memory import BackendTimeout, InputError
from memory.adapter import BackendProtocolError
from memory.adapter.http import JsonHttp, bearer, check_url, expect, route
from memory.stigmem.facts import BACKEND, Fact, FactScope, FactValue, NewFact

MAX_LIMIT = 500  # rows a node returns at once
JOB_TIMEOUT_S = 30.0  # for what a node carries out after its answer

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class NodeInfo:
    version: str | None  # of the protocol: "1.0" today, where Spec-19 says "0.8"
    node_id: str | None
    node_url: str | None  # the node's own idea of its address
    auth: str | None  # none, required ...
    federation: str | None


class Query(TypedDict, total=False):
    """Filters of ``GET /v1/facts``. None counts as absent."""

    entity: str | None
    relation: str | None
    source: str | None
    scope: FactScope | None
    min_confidence: float | None
    include_contradicted: bool
    include_expired: bool
    after: str | None  # an ISO time: stored later by the node's clock


class StigmemNode(AbstractAsyncContextManager["StigmemNode"]):
    """A client of one node. Works on asyncio and trio; belongs to the event loop that first uses it.
    ``retry_pause_s`` is waited before the one retry of what may be sent twice (reads, facts, recall) and was
    answered with 5xx or not at all; 4xx is never retried. Raises InputError for a wrong address or key."""

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout_s: float = 10.0, retry_pause_s: float = 2.0
    ) -> None:
        self.url = check_url(url)
        self._headers = bearer(api_key)
        self._retry_pause_s = retry_pause_s
        hints = {501: "the node lacks the plugin this needs"}
        self._http = JsonHttp(self.url, backend=BACKEND, server="node", timeout_s=timeout_s, hints=hints)

    def with_key(self, api_key: str) -> StigmemNode:
        """The same node asked with another key, over the same connections; closing either closes both."""
        other = copy.copy(self)
        other._headers = bearer(api_key)
        return other

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def well_known(self) -> NodeInfo:
        """``GET /.well-known/stigmem``; needs no key."""
        answer = await self.object("GET", "/.well-known/stigmem")
        values = (answer.get(field.name) for field in fields(NodeInfo))
        return NodeInfo(*(None if value is None else str(value) for value in values))

    async def me(self) -> dict[str, Any]:
        """``GET /v1/me``: ``entity_uri``, ``permissions``, ``tenant_id`` of the key."""
        return await self.object("GET", "/v1/me")

    async def assert_fact(self, fact: NewFact) -> Fact:
        """``POST /v1/facts``. The same content again gives the record that is already there, unchanged."""
        return Fact(**await self.object("POST", "/v1/facts", json=fact.body()))

    async def query(self, *, limit: int = MAX_LIMIT, **narrowed: Unpack[Query]) -> list[Fact]:
        """``GET /v1/facts``, newest first. One page: narrow the question where more than ``limit`` may match."""
        if not 1 <= limit <= MAX_LIMIT:
            raise InputError(
                f"limit: must be from 1 to {MAX_LIMIT}; the node has no second page that is complete"
            )
        answer = await self.object("GET", "/v1/facts", params={**narrowed, "limit": limit})
        rows = expect(list, answer.get("facts"), "stigmem: GET /v1/facts: facts")
        if len(rows) < limit < MAX_LIMIT and not narrowed.get("include_contradicted"):
            # The node leaves out contradicted facts after it has counted them into the limit.
            return (await self.query(**narrowed))[:limit]
        return [Fact(**expect(dict, row, "stigmem: GET /v1/facts: a fact")) for row in rows]

    async def recall(
        self,
        query: str,
        *,
        scope: FactScope,
        token_budget: int | None = None,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """``POST /v1/recall``; the answer as the node gave it, with ``facts`` known to be a list of objects. The
        node AND-s the words of ``query``, capital OR joins them. ``scope`` is required, because the node's default
        (``local``) is silently empty; its defaults are 4000 of its own tokens (at most 200000) and 100 facts."""
        bounds = {"token_budget": token_budget, "limit": limit, "weights": weights}
        given = {name: value for name, value in bounds.items() if value is not None}
        body = {"query": query, "scope": scope, **given, "include_neighbors": False}
        answer = await self.object("POST", "/v1/recall", json=body)
        where = "stigmem: POST /v1/recall"
        for hit in expect(list, answer.get("facts"), f"{where}: facts"):
            expect(dict, expect(dict, hit, f"{where}: a hit").get("fact"), f"{where}: a hit's fact")
        return answer

    async def get_fact(self, fact_id: str) -> Fact:
        return Fact(**await self.object("GET", f"/v1/facts/{_segment(fact_id)}"))

    async def provenance(self, fact_id: str) -> dict[str, Any]:
        return await self.object("GET", f"/v1/facts/{_segment(fact_id)}/provenance")

    async def resolve_conflict(
        self,
        conflict_id: str,
        *,
        winning_fact_id: str | None = None,
        new_value: FactValue | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """``POST /v1/conflicts/{id}/resolve``. The node's plugins do not confine conflicts to a tenant."""
        value = new_value and dict(new_value)
        body = {"winning_fact_id": winning_fact_id, "new_value": value, "resolution_note": note}
        path = f"/v1/conflicts/{_segment(conflict_id, 'conflict_id')}/resolve"
        return await self.object("POST", path, json=body)

    async def lint(self, scope: FactScope, **narrowed: Any) -> dict[str, Any]:
        """``POST /v1/lint``: ``findings``, ``fact_count``; for a large scope, of the job that the node makes of it.
        ``narrowed``: ``checks``, ``entity``, ``relation``, ``stale_lookahead_s``; None counts as absent. Raises
        BackendTimeout where that job does not end in 30 s."""
        given = {name: value for name, value in narrowed.items() if value is not None}
        answer = await self.object("POST", "/v1/lint", json={"scope": scope, **given})
        with anyio.move_on_after(JOB_TIMEOUT_S) as limit:
            while "job_id" in answer and answer.get("status") not in ("done", "failed"):
                await anyio.sleep(0.2)
                answer = await self.object("GET", f"/v1/lint/jobs/{_segment(str(answer['job_id']))}")
        if limit.cancelled_caught:
            what = f"stigmem: the node's lint job did not end within {JOB_TIMEOUT_S:g} s"
            raise BackendTimeout(what, backend_name=BACKEND)
        if answer.get("status") == "failed":
            raise BackendProtocolError("stigmem: the node's lint job failed", backend_name=BACKEND)
        return expect(dict, answer.get("result", answer), "stigmem: POST /v1/lint")

    async def object(self, method: Method, path: str, **sent: Any) -> dict[str, Any]:
        """As :meth:`request`, and the answer is an object; BackendProtocolError otherwise."""
        return expect(dict, await self.request(method, path, **sent), f"stigmem: {method} {route(path)}")

    async def request(self, method: Method, path: str, **sent: Any) -> Any:
        # A fact sent twice is the same fact, by its content id.
        may_repeat = method == "GET" or (method, path) in (("POST", "/v1/facts"), ("POST", "/v1/recall"))
        pause = self._retry_pause_s if may_repeat else None
        return await self._http.request(method, path, headers=self._headers, retry_pause_s=pause, **sent)

    async def aclose(self) -> None:
        await self._http.aclose()


def _segment(value: str, where: str = "fact_id") -> str:
    if not value.strip():
        raise InputError(f"{where}: must not be blank")
    return quote(value, safe=":")
