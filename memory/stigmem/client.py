"""A Stigmem node over HTTP, with one method per used route.

No method pages, because a node's cursor loses rows. No ``Stigmem-Session`` header is sent, because it would
turn later writes into 403.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from memory import InputError
from memory.adapter.http import JsonHttp, bearer, check_url, expect, route
from memory.stigmem.facts import BACKEND, Fact, FactScope, NewFact

MAX_LIMIT = 500  # the most rows that a node returns at once

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class NodeInfo:
    version: str | None  # the protocol's version: "1.0" today, although Spec-19 says "0.8"
    node_id: str | None
    node_url: str | None  # the node's address by its own account
    auth: str | None  # such as ``none`` or ``required``
    federation: str | None


class StigmemNode(AbstractAsyncContextManager["StigmemNode"]):
    """A client of one node, on asyncio or trio. It belongs to the event loop that first uses it.

    Reads, facts and recall are retried once, after ``retry_pause_s`` seconds, if there is no answer or a 5xx.

    Raises:
        InputError: the address or the key is invalid.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout_s: float = 10.0, retry_pause_s: float = 2.0
    ) -> None:
        self.url = check_url(url)
        self._headers = bearer(api_key)
        self._retry_pause_s = retry_pause_s
        hints = {501: "the node lacks the plugin this needs"}
        self._http = JsonHttp(self.url, backend=BACKEND, server="node", timeout_s=timeout_s, hints=hints)

    def with_key(self, api_key: str) -> StigmemNode:
        """Return a client with another key over the same connections. Closing either closes both."""
        other = copy.copy(self)
        other._headers = bearer(api_key)
        return other

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def well_known(self) -> NodeInfo:
        """``GET /.well-known/stigmem``. It requires no key."""
        answer = await self.object("GET", "/.well-known/stigmem")
        values = (answer.get(field.name) for field in fields(NodeInfo))
        return NodeInfo(*(None if value is None else str(value) for value in values))

    async def me(self) -> dict[str, Any]:
        """``GET /v1/me``. Returns the key's ``entity_uri``, ``permissions`` and ``tenant_id``."""
        return await self.object("GET", "/v1/me")

    async def assert_fact(self, fact: NewFact) -> Fact:
        """``POST /v1/facts``. Asserting the same content again returns the existing record, unchanged."""
        return Fact(**await self.object("POST", "/v1/facts", json=fact.body()))

    async def query(self, *, limit: int = MAX_LIMIT, **narrowed: Any) -> list[Fact]:
        """``GET /v1/facts``, newest first. There is one page, so narrow a query that may match more facts.

        Args:
            limit: the most facts.
            narrowed: the node's filters: ``entity``, ``relation``, ``source``, ``scope``, ``min_confidence``,
                ``include_contradicted``, ``include_expired``, ``after`` (an ISO time). None means no filter.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise InputError(
                f"limit: must be from 1 to {MAX_LIMIT}; the node has no second page that is complete"
            )
        answer = await self.object("GET", "/v1/facts", params={**narrowed, "limit": limit})
        rows = expect(list, answer.get("facts"), "stigmem: GET /v1/facts: facts")
        if len(rows) < limit < MAX_LIMIT and not narrowed.get("include_contradicted"):
            # The node counts contradicted facts into the limit before it leaves them out.
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
        """``POST /v1/recall``. Returns the node's answer, after a check that ``facts`` is a list of objects.

        The node requires every word of ``query`` unless ``OR`` joins the words. ``scope`` has no default
        here, because the node's default, ``local``, silently finds nothing. The node's other defaults are
        4000 of its own tokens (at most 200000) and 100 facts.
        """
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

    async def object(self, method: Method, path: str, **sent: Any) -> dict[str, Any]:
        """Send a request like :meth:`request`, whose answer is a JSON object.

        Raises:
            BackendProtocolError: the answer is not an object.
        """
        return expect(dict, await self.request(method, path, **sent), f"stigmem: {method} {route(path)}")

    async def request(self, method: Method, path: str, **sent: Any) -> Any:
        # A fact may be sent twice, because its content id makes it the same fact.
        may_repeat = method == "GET" or (method, path) in (("POST", "/v1/facts"), ("POST", "/v1/recall"))
        pause = self._retry_pause_s if may_repeat else None
        return await self._http.request(method, path, headers=self._headers, retry_pause_s=pause, **sent)

    async def aclose(self) -> None:
        await self._http.aclose()


def _segment(fact_id: str) -> str:
    if not fact_id.strip():
        raise InputError("fact_id: must not be blank")
    return quote(fact_id, safe=":")
