"""What only the Stigmem adapter can be asked, on model nodes over real sockets."""

import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from both_loops import anyio_backend as anyio_backend
from stigmem_double import StigmemDouble
from stigmem_node_model import ADMIN_KEY

from memory import (
    ConfigError,
    ContextBudget,
    InputError,
    MemoryEvent,
    MemoryScope,
    Message,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
    ScopeError,
    SupportsNativeQuery,
    SupportsProvenance,
    open_memory,
)
from memory.stigmem.facts import MAX_VALUE_BYTES

ADA, BOB = (MemoryScope(run_id="r", persona_id=name) for name in ("ada", "bob"))
SHARED = {"isolation": "node", "allow_sharing": True}
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@asynccontextmanager
async def memory_on(double, scope=ADA, **block):
    """A slot on the double: tenants where it has auth, else shared, unless ``block`` says otherwise."""
    usual = {"api_key": ADMIN_KEY} if double.node.auth else SHARED
    options = {"url": double.url, "retry_pause_s": 0.01, **(block or usual)}
    config = {"memory": {"backend": "stigmem", "backends": {"stigmem": options}}}
    async with open_memory(config, scope=scope) as memory:
        yield memory


def event(*texts, event_id="e1", scope=ADA, **fields):
    roles = ("user", "assistant") * len(texts)
    messages = tuple(Message(role=role, content=text) for role, text in zip(roles, texts, strict=False))
    fields = {"session_id": "s1", "turn_id": "t1", "timestamp": NOON, **fields}
    return MemoryEvent(event_id=event_id, scope=scope, messages=messages, **fields)


async def ask(memory, query, scope=ADA, **fields):
    fields = {"budget": ContextBudget(), **fields}
    return await memory.retrieve(RetrieveRequest(query=query, scope=scope, session_id="s2", **fields))


def sent(double, path, method="POST"):
    return [request for request in double.requests if (request.method, request.path) == (method, path)]


async def test_every_message_is_a_fact_of_its_own(tenant_double):
    async with memory_on(tenant_double) as memory:
        receipt = await memory.record_event(
            event("I like oolong.", "Noted.", context="work", metadata={"n": 1})
        )
    bodies = [request.json for request in sent(tenant_double, "/v1/facts")]
    assert [body["value"] for body in bodies] == [
        {"type": "text", "v": "I like oolong."},
        {"type": "text", "v": "Noted."},
    ]
    assert len({body["entity"] for body in bodies}) == len(receipt.native_ids) == 2
    assert {(body["relation"], body["scope"], body["confidence"]) for body in bodies} == {
        ("memory:utterance", "company", 0.49)
    }
    origin = bodies[1]["derived_from"][0]
    assert origin.items() >= {"event_id": "e1", "index": 1, "role": "assistant", "context": "work"}.items()
    assert (origin["timestamp"], origin["metadata"]) == (NOON.isoformat(), {"n": 1})
    assert all(
        re.fullmatch(r"stigmem://memslot/[0-9a-f]{32}/[0-9a-f]{32}", body["entity"]) for body in bodies
    )


async def test_a_recall_asks_for_any_word_and_states_its_bounds(tenant_double):
    async with memory_on(tenant_double, api_key=ADMIN_KEY, top_k=7, semantic_weight=0.25) as memory:
        await ask(memory, "What's my Tea? NOT coffee OR tea!", context="Work")
        await ask(memory, "tea", budget=ContextBudget(max_tokens=500, max_items=3))
    first, second = (request.json for request in sent(tenant_double, "/v1/recall"))
    assert first["query"] == "what OR s OR my OR tea OR not OR coffee OR or OR work"
    assert (first["scope"], first["limit"], first["token_budget"]) == ("company", 7, 200_000)
    assert (second["limit"], second["token_budget"]) == (3, 500)
    assert first["include_neighbors"] is False
    assert first["weights"] == {
        "lexical": 0.7,
        "semantic": 0.25,
        "graph": 0.0,
        "source_trust": 0.0,
        "recency": 0.05,
    }


async def test_a_question_without_words_is_answered_without_the_node(double):
    async with memory_on(double) as memory:
        result = await ask(memory, "?! 🐍 __")
        assert result.entries == ()
        assert "no word" in result.trace.warnings[0]
        many = await ask(memory, " ".join(f"w{number}" for number in range(300)))
        assert "300 different words" in many.trace.warnings[0]
    (request,) = sent(double, "/v1/recall")
    assert request.json["query"].count(" OR ") == 127


async def test_entries_carry_the_events_time_and_the_nodes_rank(double):
    async with memory_on(double) as memory:
        receipt = await memory.record_event(event("I like oolong tea.", "Tea it is."))
        result = await ask(memory, "oolong tea")
    assert [entry.native_id for entry in result.entries] == list(receipt.native_ids)
    best, second = result.entries
    assert best.score is not None
    assert second.score is not None
    assert best.score > second.score
    assert {entry.timestamp for entry in result.entries} == {NOON}
    assert [entry.labels for entry in result.entries] == [(("role", "user"),), (("role", "assistant"),)]
    assert "role user" in result.formatted_context


async def test_no_script_is_lost_to_the_nodes_tokenizer(double):
    said = "我把护照放在蓝色抽屉里。Ｔhe ﬁle 中\u200b is kept."
    async with memory_on(double) as memory:
        await memory.record_event(event(said))
        (entry,) = (await ask(memory, "护照放在哪个抽屉里?")).entries
        assert entry.text.startswith("我把护照放在蓝色抽屉里")
        assert (await ask(memory, "咖啡")).entries == ()
        assert await ask(memory, "renée") is not None


async def test_cards_and_other_clients_facts(tenant_double):
    """A card is left out and said to be; a plain fact in the scope's own tenant is shown for what it is."""
    async with memory_on(tenant_double) as memory:
        await memory.record_event(event("I like oolong."))
        tenant = tenant_double.node.facts[-1]["tenant_id"]
        other = {"source": "stigmem://x/agent/y", "scope": "company"}
        for confidence, entity in ((1.0, "stigmem://x/note/1"), (0.4, "stigmem://x/note/2")):
            value = {"type": "text", "v": f"oolong is out of stock {confidence}"}
            tenant_double.node.add(
                tenant, entity=entity, relation="shop:stock", value=value, confidence=confidence, **other
            )
        result = await ask(memory, "oolong")
    texts = [entry.text for entry in result.entries]
    assert sorted(texts) == ["I like oolong.", "shop:stock: oolong is out of stock 0.4"]
    assert any(hit["from_card"] for hit in result.raw["facts"])
    assert "1 cards left out" in result.trace.warnings[0]


@pytest.mark.parametrize("fault", ["503", "429"])
async def test_half_a_turn_says_so_and_can_be_completed(double, monkeypatch, fault):
    """Also where the second half was refused: raising would say that nothing of the turn is stored."""
    async with memory_on(double) as memory:
        respond = double.respond

        def second_fails(request):
            if request.json and request.json.get("value", {}).get("v") == "Noted.":
                double.faults.add(fault, times=None)
            return respond(request)

        monkeypatch.setattr(double, "respond", second_fails)
        receipt = await memory.record_event(event("I like oolong.", "Noted."))
        assert receipt.status == "unknown"
        assert "1 of 2 messages are stored, write it again" in receipt.warnings[0]
        monkeypatch.undo()
        double.faults.clear()
        assert len((await memory.record_event(event("I like oolong.", "Noted."))).native_ids) == 2
    assert len(double.node.facts) == 2


async def test_a_message_too_long_sends_nothing(double):
    async with memory_on(double) as memory:
        with pytest.raises(InputError, match="bytes"):
            await memory.record_event(event("short", "é" * MAX_VALUE_BYTES))
    assert sent(double, "/v1/facts") == []


async def test_each_scope_is_a_tenant_with_a_key_of_its_own(tenant_double):
    async with memory_on(tenant_double) as memory:
        await memory.setup_scope(BOB)
        await memory.record_event(event("I like oolong."))
        await memory.record_event(event("I like coffee.", scope=BOB))
        tenants = {key["tenant_id"] for key in tenant_double.node.keys.values()} - {"default"}
        assert {fact["tenant_id"] for fact in tenant_double.node.facts} == tenants
        assert {f"{memory.native_scope(scope)['scope']}-g0" for scope in (ADA, BOB)} == tenants
    assert list(tenant_double.node.keys) == [ADMIN_KEY], "a node tries every live key on each request"


async def test_a_reset_outlives_the_process_and_is_seen_by_other_hosts(tenant_double):
    async with memory_on(tenant_double) as here, memory_on(tenant_double) as there:
        await here.record_event(event("I like oolong."))
        assert (await ask(there, "oolong")).entries
        receipt = await here.reset_scope(ADA)
        assert (receipt.verified, receipt.removed) == (True, 1)
        assert "unreachable" in receipt.left[0]
        assert (await ask(there, "oolong")).entries == ()
        await there.record_event(event("I like coffee.", event_id="e2"))
        assert [entry.text for entry in (await ask(here, "coffee")).entries] == ["I like coffee."]
    async with memory_on(tenant_double) as later:
        assert (await ask(later, "oolong")).entries == ()
        assert (await ask(later, "coffee")).entries
        assert (await later.reset_scope(ADA)).verified
        assert (await ask(later, "coffee")).entries == ()


async def test_a_reset_by_another_process_is_noticed_without_tenants_too(double):
    """Nothing fails where it happened: what was written to the old generation would be committed and lost."""
    async with memory_on(double) as here, memory_on(double) as there:
        await here.record_event(event("I like oolong."))
        assert (await ask(there, "oolong")).entries
        assert (await here.reset_scope(ADA)).verified
        assert (await ask(there, "oolong")).entries == ()
        await there.record_event(event("I like coffee.", event_id="e2"))
        assert [entry.text for entry in (await ask(here, "coffee")).entries] == ["I like coffee."]
        assert (await there.reset_scope(ADA)).removed == 1
        query = here.capability(SupportsNativeQuery)
        assert (await query.native_query(NativeQueryRequest(scope=ADA, operation="facts"))).raw == {
            "facts": []
        }


async def test_a_key_that_another_slot_deleted_is_made_anew(tenant_double):
    async with memory_on(tenant_double) as first:
        async with memory_on(tenant_double) as second:
            await first.setup_scope(BOB)
            await second.setup_scope(BOB)
        for raw in [raw for raw in tenant_double.node.keys if raw != ADMIN_KEY]:
            del tenant_double.node.keys[raw]
        await first.record_event(event("I like tea.", scope=BOB))
        assert len(tenant_double.node.keys) == 2


@pytest.mark.parametrize("auth", [True, False])
async def test_a_core_node_is_refused(auth):
    """Without the plugin every key is in one tenant; without auth there is no admin."""
    with StigmemDouble(auth=auth) as core:
        with pytest.raises(
            ConfigError, match="multi-tenant plugin on" if auth else "runs without authentication"
        ):
            async with memory_on(core, api_key=ADMIN_KEY if auth else "any"):
                pass
        assert list(core.node.keys) == ([ADMIN_KEY] if auth else [])
        assert core.node.facts == []


async def test_an_ordinary_key_is_refused(tenant_double):
    tenant_double.node.add_key("k" * 40, "agent:plain", ["read", "write"], "default", None)
    with pytest.raises(ConfigError, match=r"stigmem\.api_key: is no admin key"):
        async with memory_on(tenant_double, api_key="k" * 40):
            pass


async def test_provenance_by_id_and_by_time(double):
    async with memory_on(double) as memory:
        await memory.setup_scope(BOB)
        before = datetime.now(UTC)
        receipt = await memory.record_event(event("I like oolong."))
        foreign = await memory.record_event(event("I like tea.", scope=BOB))
        provenance = memory.capability(SupportsProvenance)
        answer = await provenance.provenance(ProvenanceRequest(scope=ADA, native_id=receipt.native_ids[0]))
        assert answer.event_ids == ("e1",)
        assert answer.raw["fact"]["derived_from"][0]["session_id"] == "s1"
        with pytest.raises(ScopeError):
            await provenance.provenance(ProvenanceRequest(scope=ADA, native_id=foreign.native_ids[0]))
        later = datetime.now(UTC) + timedelta(hours=1)
        for since, until, found in (
            (before, later, receipt.native_ids),
            (later, None, ()),
            (None, before, ()),
        ):
            request = ProvenanceRequest(scope=ADA, since=since, until=until)
            assert (await provenance.provenance(request)).native_ids == found


async def test_health_says_what_is_weak(double, tenant_double):
    async with memory_on(double) as memory:
        health = await memory.health()
        assert health.status == "ok"
        assert "allow_sharing" in health.warnings[0]
        assert health.versions == {"stigmem": "1.0"}
    async with memory_on(tenant_double) as memory:
        assert (await memory.health()).warnings == ()
        tenant_double.node.keys[ADMIN_KEY]["permissions"] = ["read", "write"]
        health = await memory.health()
        assert health.status == "degraded"
        assert "no admin key" in health.warnings[0]
        assert ADMIN_KEY not in health.model_dump_json()


async def test_the_keys_of_many_scopes_are_deleted_by_the_first_of_them(tenant_double):
    """A node tries its keys one by one on each request, so the last of many is heard last."""
    scopes = [MemoryScope(run_id="r", persona_id=f"p{number}") for number in range(21)]
    async with memory_on(tenant_double, scopes[0]) as memory:
        for scope in scopes[1:]:
            await memory.setup_scope(scope)
        assert len(tenant_double.node.keys) == 1 + len(scopes)
    deleted = [request for request in tenant_double.requests if request.method == "DELETE"]
    assert len(deleted) == len(scopes)
    assert len({request.headers["authorization"] for request in deleted}) == 1
    assert len(tenant_double.node.keys) == 1
