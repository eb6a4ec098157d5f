"""A Stigmem node over HTTP: one method per route we use.

What a node does that its specification does not say, and what follows here: its cursor loses rows, so no method
pages; a ``Stigmem-Session`` header turns later writes into 403, so none is ever sent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote

from memory import InputError
from memory.adapter import JsonHttp, bearer, check_url
from memory.stigmem.answers import BACKEND, mapping, rows
from memory.stigmem.facts import Fact, FactScope, NewFact

__all__ = ["MAX_LIMIT", "NodeInfo", "StigmemNode"]

MAX_LIMIT = 500
"""The most rows a node returns at once; there is no second page, because its cursor loses rows."""

_NODE_FIELDS = ("version", "node_id", "node_url", "auth", "federation")
# A fact sent twice is the same fact, by its content id.
_IDEMPOTENT_POSTS = frozenset({"/v1/facts", "/v1/recall"})


@dataclass(frozen=True)
class NodeInfo:
    """What a node says of itself (``GET /.well-known/stigmem``).

    Attributes:
        version: of the protocol, as the node states it; ``"1.0"`` today where Spec-19 says ``"0.8"``.
        node_id: such as ``stigmem:node:<uuid>``.
        node_url: the node's own idea of its address.
        auth: ``none``, ``required`` ...
        federation: ``disabled`` ...
        raw: all it said.
    """

    version: str | None
    node_id: str | None
    node_url: str | None
    auth: str | None
    federation: str | None
    raw: Mapping[str, Any]


class StigmemNode:
    """A client of one node. Works on asyncio and trio; belongs to the event loop that first uses it.

    Args:
        url: the node's address, such as ``http://127.0.0.1:8765``.
        api_key: sent as bearer token to that address and to no other; None for a node without auth.
        timeout_s: for each request, in seconds.
        retry_pause_s: wait before the one retry of a request that may be sent twice (reads, facts, recall) and
            was answered with 5xx or not at all; 4xx is never retried.

    Raises:
        InputError: the address is no http(s) URL, or the key cannot stand in a header.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout_s: float = 10.0, retry_pause_s: float = 2.0
    ) -> None:
        self.url = check_url(url)
        self._headers = bearer(api_key)
        self._retry_pause_s = retry_pause_s
        self._http = JsonHttp(
            self.url,
            backend=BACKEND,
            server="node",
            timeout_s=timeout_s,
            hints={501: "the node lacks the plugin this needs"},
        )

    def with_key(self, api_key: str) -> StigmemNode:
        """The same node asked with another key, over the same connections; closing either closes both."""
        other = copy.copy(self)
        other._headers = bearer(api_key)
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- what the node is -------------------------------------------------------------------------------

    async def well_known(self) -> NodeInfo:
        """``GET /.well-known/stigmem``; needs no key."""
        raw = mapping(await self.request("GET", "/.well-known/stigmem"), "/.well-known/stigmem")
        return NodeInfo(
            **{name: None if raw.get(name) is None else str(raw[name]) for name in _NODE_FIELDS}, raw=raw
        )

    async def me(self) -> dict[str, Any]:
        """``GET /v1/me``: ``entity_uri``, ``permissions``, ``tenant_id`` of the key."""
        return mapping(await self.request("GET", "/v1/me"), "/v1/me")

    # -- facts ------------------------------------------------------------------------------------------

    async def assert_fact(self, fact: NewFact) -> Fact:
        """``POST /v1/facts``. The same content again gives the record that is already there, unchanged."""
        return Fact(**mapping(await self.request("POST", "/v1/facts", json=fact.body()), "/v1/facts"))

    async def query(
        self,
        *,
        entity: str | None = None,
        relation: str | None = None,
        source: str | None = None,
        scope: FactScope | None = None,
        min_confidence: float | None = None,
        include_contradicted: bool = False,
        include_expired: bool = False,
        after: str | None = None,
        limit: int = MAX_LIMIT,
    ) -> list[Fact]:
        """``GET /v1/facts``, newest first. One page: narrow the question where more than ``limit`` may match.

        Args:
            min_confidence: 0 to 1; the node's default is 0.
            after: ISO time; facts stored later by the node's clock.
            limit: 1 to 500 rows.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise InputError(
                f"limit: must be from 1 to {MAX_LIMIT}; the node has no second page that is complete"
            )
        params = {
            "entity": entity,
            "relation": relation,
            "source": source,
            "scope": scope,
            "min_confidence": min_confidence,
            "include_contradicted": include_contradicted,
            "include_expired": include_expired,
            "after": after,
            "limit": limit,
        }
        answer = mapping(await self.request("GET", "/v1/facts", params=params), "/v1/facts")
        return [Fact(**mapping(row, "/v1/facts")) for row in rows(answer, "facts", "/v1/facts")]

    async def recall(
        self,
        query: str,
        *,
        scope: FactScope,
        token_budget: int | None = None,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """``POST /v1/recall``; the answer as the node gave it, with ``facts`` known to be a list of objects.

        Args:
            query: FTS terms: words are AND-ed by the node, capital OR joins them.
            scope: one of the four; required, because the node's default (``local``) is silently empty.
            token_budget: 1 to 200000 of the node's tokens; its default is 4000.
            limit: 1 to 500 facts; its default is 100.
            weights: of ``lexical``, ``semantic``, ``graph``, ``source_trust``, ``recency``.
        """
        body = {
            "query": query,
            "scope": scope,
            "token_budget": token_budget,
            "limit": limit,
            "weights": dict(weights) if weights is not None else None,
            "include_neighbors": False,
        }
        body = {name: value for name, value in body.items() if value is not None}
        answer = mapping(await self.request("POST", "/v1/recall", json=body), "/v1/recall")
        for row in rows(answer, "facts", "/v1/recall"):
            mapping(mapping(row, "/v1/recall").get("fact"), "/v1/recall")
        return answer

    async def get_fact(self, fact_id: str) -> Fact:
        """``GET /v1/facts/{id}``, by id or ``sha256:`` content id."""
        path = f"/v1/facts/{_segment(fact_id)}"
        return Fact(**mapping(await self.request("GET", path), "/v1/facts/{id}"))

    async def provenance(self, fact_id: str) -> dict[str, Any]:
        """``GET /v1/facts/{id}/provenance``: ``fact_id``, ``cid``, ``derived_from``."""
        path = f"/v1/facts/{_segment(fact_id)}/provenance"
        return mapping(await self.request("GET", path), "/v1/facts/{id}/provenance")

    # -- any route --------------------------------------------------------------------------------------

    async def request(
        self,
        method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
    ) -> Any:
        """One call of the node: its JSON, or None for an empty answer.

        Args:
            path: from the root, such as ``/v1/facts``; ids in it are the caller's to escape.
            params: None values are left out.
            json: the body.

        Raises:
            BackendError, InputError: as :meth:`memory.adapter.http.JsonHttp.request`.
        """
        may_repeat = method == "GET" or (method == "POST" and path in _IDEMPOTENT_POSTS)
        return await self._http.request(
            method,
            path,
            params=params,
            json=json,
            headers=self._headers,
            retry_pause_s=self._retry_pause_s if may_repeat else None,
        )

    async def aclose(self) -> None:
        """Close the connections. Idempotent; a later call opens new ones."""
        await self._http.aclose()


def _segment(value: str) -> str:
    if not value.strip():
        raise InputError("fact_id: must not be blank")
    return quote(value, safe=":")
