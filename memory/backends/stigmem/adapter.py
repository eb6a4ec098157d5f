"""The adapter for Stigmem: every message becomes a fact on a node, and recall finds it again.

The context section has memslot's form, not that of Spec-19. Spec-19's form would lose the rank, time and
speaker of utterances, because all utterances have the same relation and confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory import (
    BackendError,
    BackendHealth,
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
    WriteReceipt,
)
from memory.adapter import AdapterSettings, AdapterTraits, SequentialBulk, ShieldedCalls, quantity
from memory.adapter.fields import parse_time
from memory.backends.stigmem import translate
from memory.backends.stigmem.client import OpenScope, Scopes, scope_id
from memory.backends.stigmem.options import StigmemOptions
from memory.stigmem.client import MAX_LIMIT
from memory.stigmem.facts import Fact, NewFact

_MAX_TOKEN_BUDGET = 200_000
_NO_WEIGHT = {"graph": 0.0, "source_trust": 0.0}


class StigmemAdapter(SequentialBulk):
    shielded: ShieldedCalls

    def __init__(self, settings: AdapterSettings[StigmemOptions]) -> None:
        self.backend_name = settings.name
        self._options = settings.options
        self.traits = AdapterTraits(
            consistency="immediate",
            cs_filtering="soft",  # CS values join the question, but filter nothing
            pet_observability="dated",
            max_concurrency=64,
            bulk_size=1,
            write_retries=1,  # safe: the node keeps equal facts once
            native_memory_types=("fact",),
            native_ingest_modes=("utterance",),
            native_queries=translate.QUERIES,
            store=settings.options.url,
            setup_writes=settings.options.isolation == "tenant",
            native_query_modes=("lexical", "semantic") if settings.options.semantic_weight else ("lexical",),
        )
        self._scopes = Scopes(settings.options, settings.where)
        self.shielded = ShieldedCalls()

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        node = {"node": self._scopes.url(scope)} if self._options.isolation == "node" else {}
        return {"scope": scope_id(scope), **node}

    async def setup_scope(self, scope: MemoryScope) -> None:
        await self._scopes.open(scope, again=True)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        async def write(opened: OpenScope) -> WriteReceipt:
            facts = translate.message_facts(event, opened.ids)
            return await self.shielded.run(opened.ids.scope_id, lambda: self._post(event, opened, facts))

        return await self._scopes.call(event.scope, write)

    async def _post(self, event: MemoryEvent, opened: OpenScope, facts: Sequence[NewFact]) -> WriteReceipt:
        stored: list[Fact] = []
        for fact in facts:
            try:
                stored.append(await opened.node.assert_fact(fact))
            except BackendError as error:
                if stored:
                    error.sent = True  # part of the event is stored
                    error.diagnostics["stored_messages"] = len(stored)
                    progress = (
                        f"{len(stored)} of {quantity(len(facts), 'messages')} are stored, write it again"
                    )
                    error.args = (f"{error}; {progress}",)
                raise
        warnings = []
        if any(fact.contradicted for fact in stored):
            warnings.append("this event_id was recorded before with another text; the node keeps both")
        return self.receipt(event, "POST /v1/facts", [fact.id for fact in stored], warnings=warnings)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        terms = translate.search_terms([request.query, *request.cs_filters.values()])
        warnings = [] if terms else ["the question holds no word that the node could look for"]
        asked = terms[: translate.MAX_TERMS]
        if (count := len(terms)) > len(asked):
            warnings = [f"the question has {count} different words; the first {len(asked)} were asked for"]
        budget, semantic = request.budget, self._options.semantic_weight

        async def recall(opened: OpenScope) -> tuple[OpenScope, dict[str, Any]]:
            if not terms:
                return opened, {"facts": []}
            return opened, await opened.node.recall(
                translate.recall_query(asked, opened.ids),
                scope=translate.FACT_SCOPE,
                token_budget=min(budget.max_tokens or _MAX_TOKEN_BUDGET, _MAX_TOKEN_BUDGET),
                limit=min(budget.max_items or self._options.top_k, MAX_LIMIT),
                weights={"lexical": 0.95 - semantic, "semantic": semantic, "recency": 0.05, **_NO_WEIGHT},
            )

        opened, answer = await self._scopes.call(request.scope, recall)
        hits = [hit for hit in answer["facts"] if hit.get("from_card") is not True]
        if cards := len(answer["facts"]) - len(hits):
            what = "summaries of other clients' facts, without id, time or rank"
            warnings.append(f"{cards} cards left out: {what}")
        entries = tuple(translate.to_entry(hit, opened.ids) for hit in hits)
        trace = self.trace(
            request.scope, "POST /v1/recall", consistency="committed", warnings=tuple(warnings)
        )
        return RetrieveResult(request=request, raw=answer, entries=entries, trace=trace)

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """Facts can be recalled once the node has answered a write, so one request is enough."""
        if self.shielded.busy(scope_id(scope)):
            return BackendReadiness(state="pending", detail="a write past its deadline is still under way")
        await self._scopes.call(scope, lambda opened: self._facts(opened, limit=1))
        return BackendReadiness(state="ready", detail="facts can be recalled at once")

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """Times come from the node's clock: when a fact was stored, not when it was said."""

        async def ask(opened: OpenScope) -> ProvenanceResult:
            if request.native_id is not None:
                facts = [await opened.node.get_fact(request.native_id)]
                if facts[0].source != opened.ids.source:
                    raise ScopeError("native_id: belongs to another scope, or to none")
                derivation = await opened.node.provenance(facts[0].id)
                raw: Any = {"fact": facts[0].model_dump(mode="json"), "provenance": derivation}
            else:
                since, until = request.since, request.until
                found = await self._facts(opened, after=since.isoformat() if since else None)
                facts = [fact for fact in found if not until or (fact.stored_at and fact.stored_at <= until)]
                raw = _as_json(facts)
            sources = [source for fact in facts for source in fact.derived_from if isinstance(source, dict)]
            events = dict.fromkeys(str(source["event_id"]) for source in sources if "event_id" in source)
            ids = tuple(fact.id for fact in facts)
            trace = self.trace(request.scope, "GET /v1/facts", native_ids=ids)
            return ProvenanceResult(raw=raw, native_ids=ids, event_ids=tuple(events), trace=trace)

        return await self._scopes.call(request.scope, ask)

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        wanted: dict[str, Any] = dict(request.arguments)
        if (after := parse_time(wanted.get("after"))) is not None:
            wanted["after"] = after.isoformat()
        found = await self._scopes.call(request.scope, lambda opened: self._facts(opened, **wanted))
        return NativeQueryResult(raw=_as_json(found), trace=self.trace(request.scope, "GET /v1/facts"))

    @staticmethod
    async def _facts(opened: OpenScope, **narrowed: Any) -> list[Fact]:
        return await opened.node.query(source=opened.ids.source, scope=translate.FACT_SCOPE, **narrowed)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Begin a new, empty generation, because facts cannot be deleted.

        The old tenant loses its key, so no route reaches its facts. On a node without tenants, other clients
        can still read them.
        """
        await self.shielded.idle(scope_id(scope))

        async def look(opened: OpenScope) -> tuple[OpenScope, list[Fact]]:
            return opened, await self._facts(opened, include_contradicted=True)

        before, old = await self._scopes.call(scope, look)
        with self.clearing():
            opened = await self._scopes.renew(scope, before)
            _, found = await look(opened)
        left: tuple[str, ...] = ()
        if old or opened.ids.generation > 1:
            hidden = self._options.isolation == "tenant"
            reachable = "unreachable" if hidden else "readable by its other clients"
            left = (f"facts of earlier generations, on the node's disk, {reachable}",)
        removed = len(old) if len(old) < MAX_LIMIT else None
        trace = self.trace(scope, "POST /v1/facts")
        return ResetReceipt(scope=scope, verified=not found, removed=removed, left=left, trace=trace)

    async def health(self) -> BackendHealth:
        nodes = {}
        for node in self._scopes.known_nodes():
            info, who = vars(await node.well_known()), await node.me()
            known = {name: info[name] for name in ("node_id", "version", "auth")}
            nodes[node.url] = {**known, "permissions": who.get("permissions")}
        warnings = []
        unfit = self._options.isolation == "tenant" and not all(
            "admin" in (node["permissions"] or ()) for node in nodes.values()
        )
        if unfit:
            warnings.append("api_key is no admin key, or the node has no tenants, so no scope can be set up")
        if self._options.allow_sharing:
            warnings.append("allow_sharing: scopes share a node; a mark in the facts alone keeps them apart")
        if not nodes:
            warnings.append("no scope is set up yet, so there is no node to ask")
        versions = {str(node["version"]) for node in nodes.values() if node["version"]}
        return self.health_of(
            "ok" if nodes and not unfit else "degraded",
            versions={"stigmem": ", ".join(sorted(versions))} if versions else {},
            details={"isolation": self._options.isolation, "nodes": nodes},
            warnings=tuple(warnings),
        )

    async def aclose_native(self) -> None:
        await self._scopes.aclose()


def _as_json(facts: Sequence[Fact]) -> dict[str, Any]:
    return {"facts": [fact.model_dump(mode="json") for fact in facts]}
