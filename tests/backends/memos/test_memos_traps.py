"""Where MemOS says 200 and means something else: every trap met on a real server, and what we say."""

import pytest
from memos_double import MemosDouble
from memos_support import ALICE, BOB, ask, config, event, opened, ready

from memory import AdapterMode, BackendUnavailable, ConfigError, ReadOnlyError
from memory.adapter import BackendProtocolError
from memory.backends.memos.client import CANARY
from memory.plugins.opening import build_slot


async def test_a_server_that_finds_nothing_is_refused_at_setup_and_unavailable_in_health(double):
    double.model.embedder_down = True
    with pytest.raises(BackendUnavailable, match=r"not found again.*embedder.*ivfflat.*relativity"):
        async with opened(double):
            pass
    double.model.embedder_down = False
    async with opened(double) as slot:
        assert (await slot.health()).details["canary"] == "found"
        double.model.embedder_down = True
        health = await slot.health()
        assert (health.status, health.details["canary"]) == ("unavailable", "not found")
        assert "embedder" in health.warnings[0]


@pytest.mark.parametrize(("rates", "culprit"), [(0.0, "reranker"), (0.5, "cosine_local")])
async def test_a_server_that_ranks_nothing_is_degraded(double, rates, culprit):
    async with opened(double) as slot:
        double.model.rates_all = rates
        health = await slot.health()
        assert (health.status, health.details["canary"]) == ("degraded", "found, unranked")
        assert culprit in health.warnings[0]


async def test_a_server_asked_not_to_rank_is_not_blamed(double):
    async with opened(double, rerank=False) as slot:
        double.model.rates_all = 0.0
        assert (await slot.health()).status == "ok"


async def test_fine_searches_rewrite_and_say_so(double):
    """Its texts have new ids that are stored nowhere, so what is looked up again is looked up without it."""
    async with opened(double, search_mode="fine", async_mode="sync") as slot:
        receipt = await slot.record_event(event("I like oolong tea."))
        assert receipt.status == "committed"
        assert (await ready(slot)).state == "ready"
        result = await ask(slot)
        (entry,) = result.entries
        assert "oolong" in entry.text
        assert entry.native_id is None
        assert "without the id" in result.trace.warnings[0]
        assert result.raw["text_mem"][0]["memories"][0]["id"] not in receipt.native_ids
        double.model.model_down = True
        with pytest.raises(BackendUnavailable, match="search_mode"):
            await ask(slot)
        assert (await slot.health()).status == "unavailable"


async def test_a_setup_while_the_embedder_is_down_leaves_the_good_canary_and_no_bad_one(double):
    async with opened(double) as slot:
        (good,) = double.model.rows
        double.model.embedder_down = True
        with pytest.raises(BackendUnavailable):
            async with opened(double):
                pass
        assert double.model.rows == [good]
        double.model.embedder_down = False
        assert (await ask(slot)).entries == ()
        assert (await slot.health()).status == "ok"


async def test_while_read_only_nothing_is_stored_not_even_a_canary(double):
    async with opened(double) as slot:
        await slot.set_mode(AdapterMode(read_only=True))
        double.model.rows[0].embedded = False
        before = len(double.sent("/product/add"))
        with pytest.raises(BackendUnavailable):
            await ask(slot)
        double.model.rows.clear()
        assert (await ask(slot)).entries == ()
        fresh = build_slot(config(double.url))
        await fresh.set_mode(AdapterMode(read_only=True))
        with pytest.raises(ReadOnlyError, match="which may write"):
            await fresh.setup_scope(ALICE)
        assert len(double.sent("/product/add")) == before
        assert double.sent("/product/delete_memory") == []
        await fresh.set_mode(AdapterMode(read_only=False))
        await fresh.setup_scope(ALICE)
        assert len(double.model.rows) == 1
        assert (await fresh.health()).details["filters"] == "ignored"
        await fresh.aclose()


@pytest.mark.parametrize("mode", ["fine", "mixture"])
async def test_a_search_mode_that_finds_nothing_where_fast_does_is_an_error(double, mode):
    """On a real server the canary, alone in its cube, was found all the same."""
    async with opened(double, search_mode=mode, async_mode="sync") as slot:
        assert (await ask(slot)).entries == ()
        for said in ("I like oolong tea.", "I live in Lyon."):
            await slot.record_event(event(said))
        assert (await ask(slot)).entries != ()
        double.model.reads_badly = True
        if mode == "fine":
            with pytest.raises(BackendUnavailable, match="search_mode: fine finds nothing where fast does"):
                await ask(slot)
        else:
            assert (await ask(slot)).entries != ()


async def test_a_server_that_stores_nothing_is_refused_at_setup(double):
    double.model.stores_nothing = True
    with pytest.raises(BackendUnavailable, match="stored nothing"):
        async with opened(double):
            pass


async def test_the_canary_is_stored_once_for_all_and_looked_for_once_by_a_slot(double):
    for _ in range(2):
        async with opened(double) as slot:
            asked = len(double.requests)
            await slot.setup_scope(BOB)
            paths = [request.path for request in double.requests[asked:]]
            assert set(paths) <= {"/product/get_memory"}, "whether the new scope holds anything"
    assert [row.cube_id for row in double.model.rows] == [CANARY]


async def test_a_server_that_mixes_cubes_is_refused():
    with MemosDouble(graph_db="neo4j") as double:
        double.model.mixes_cubes = True
        with pytest.raises(ConfigError, match="MOS_NEO4J_SHARED_DB=true"):
            async with opened(double, neo4j_shared_db=True):
                pass


@pytest.mark.parametrize(
    ("is_really", "said", "message"),
    [
        ("postgres", "neo4j-community", "ignored a filter"),
        ("postgres", "polardb", "ignored a filter"),
        ("neo4j-community", "polardb", "found nothing by a filter that matches"),
        ("polardb", "neo4j-community", "found nothing by a filter that matches"),
    ],
)
async def test_filters_that_are_not_what_was_promised_are_refused(is_really, said, message):
    with MemosDouble(graph_db=is_really) as double, pytest.raises(ConfigError, match=message) as raised:
        async with opened(double, graph_db=said):
            pass
    assert "graph_db" in str(raised.value)


@pytest.mark.parametrize(
    ("graph_db", "filters"),
    [("postgres", "ignored"), ("neo4j-community", "honoured"), ("polardb", "honoured")],
)
async def test_health_says_what_filters_do(graph_db, filters):
    with MemosDouble(graph_db=graph_db) as double:
        async with opened(double) as slot:
            assert (await slot.health()).details["filters"] == filters


async def test_an_asynchronous_write_is_queued_and_its_ids_are_only_for_now(double):
    double.model.held = True
    async with opened(double) as slot:
        receipt = await slot.record_event(event("I like oolong tea."))
        assert receipt.status == "queued"
        assert "replaces" in receipt.warnings[0]
        result = await ask(slot)
        assert [entry.native_id for entry in result.entries] == list(receipt.native_ids)
        double.model.held = False
        assert (await ready(slot)).state == "ready"
        result = await ask(slot)
        assert len(result.entries) == 1
        assert result.entries[0].native_id not in receipt.native_ids
        assert result.entries[0].event_ids == (receipt.event_id,)


async def test_a_write_without_a_vector_is_not_committed(double):
    async with opened(double, async_mode="sync", mode="fast") as slot:
        assert (await slot.record_event(event("I like oolong tea."))).status == "committed"
        double.model.embedder_down = True
        receipt = await slot.record_event(event("I like sencha tea."))
    assert (receipt.status, bool(receipt.native_ids)) == ("unknown", True)
    assert "is not found" in receipt.warnings[0]


@pytest.mark.parametrize("fault", ["500", "429", "reset", "unreadable"])
async def test_a_write_that_could_not_be_looked_up_is_no_failed_write(double, fault):
    """Raising would say that the event is not stored, and have it written twice."""
    async with opened(double, async_mode="sync") as slot:
        double.faults.add(fault, endpoint="POST /product/search")
        receipt = await slot.record_event(event("I like oolong tea."))
        assert receipt.status == "unknown"
        assert "could not be seen" in receipt.warnings[0]
        assert len((await ask(slot)).entries) == 1


async def test_an_extraction_lost_for_want_of_a_vector_is_an_error(double):
    async with opened(double, async_mode="sync") as slot:
        double.model.embedder_down = True
        with pytest.raises(BackendUnavailable, match="answered 200 with nothing"):
            await slot.record_event(event("I like oolong tea."))


async def test_a_search_that_failed_is_no_empty_memory(double):
    async with opened(double) as slot:
        assert (await ask(slot)).entries == ()
        double.model.embedder_down = True
        with pytest.raises(BackendUnavailable, match="answered 200 with nothing"):
            await ask(slot)
        double.model.rows.clear()
        with pytest.raises(BackendUnavailable, match="answered 200 with nothing"):
            await ask(slot)
        assert double.model.rows == []


@pytest.mark.parametrize("mode", ["fast", "fine"])
async def test_an_id_is_no_proof_that_anything_is_stored(double, mode):
    async with opened(double, async_mode="sync", mode=mode) as slot:
        double.model.database_down = True
        receipt = await slot.record_event(event("I like oolong tea."))
        assert receipt.status == "unknown"
        assert "is not found" in receipt.warnings[-1]
        with pytest.raises(BackendUnavailable):
            await ask(slot)


class Forgetful(list):
    """Rows of a database that confirms and forgets."""

    def extend(self, rows):
        pass


async def test_an_id_that_is_not_found_is_not_committed(double, monkeypatch):
    async with opened(double, async_mode="sync") as slot:
        monkeypatch.setattr(double.model, "rows", Forgetful(double.model.rows))
        assert (await slot.record_event(event("I like oolong tea."))).status == "unknown"
        assert (await ready(slot)).state == "unknown"


async def test_an_add_that_stored_nothing_is_an_error(double):
    async with opened(double, async_mode="sync", mode="fast") as slot:
        double.model.stores_nothing = True
        with pytest.raises(BackendProtocolError, match="stored nothing"):
            await slot.record_event(event("I like oolong tea."))
    async with opened(double) as slot:  # here the scheduler may have it
        receipt = await slot.record_event(event("I like oolong tea."))
        assert (receipt.status, "stored nothing" in receipt.warnings[0]) == ("unknown", True)
        assert (await ready(slot)).state == "unknown"


async def test_an_extraction_of_nothing_is_unknown_as_a_model_that_cannot_be_read_says_the_same(double):
    async with opened(double, async_mode="sync") as slot:
        double.model.stores_nothing = True
        receipt = await slot.record_event(event("Hm."))
        assert (receipt.status, receipt.native_ids) == ("unknown", ())
        assert "kept nothing" in receipt.warnings[0]
        answer = await ready(slot)
        assert (answer.state, "of 1 event nothing is stored" in answer.detail) == ("unknown", True)
        assert "failed" not in answer.detail


async def test_raw_text_kept_for_want_of_a_model_is_told(double):
    double.model.model_down = True
    async with opened(double, async_mode="sync") as slot:
        receipt = await slot.record_event(event("I like oolong tea."))
        assert receipt.status == "committed"
        assert "language model" in receipt.warnings[0]
        answer = await ready(slot)
        assert (answer.state, "language model" in answer.detail) == ("failed", True)


async def test_messages_that_memos_reads_past_are_told(double):
    async with opened(double) as slot:
        messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "I like tea."}]
        receipt = await slot.record_event(event(messages=messages))
    assert any("developer" in warning for warning in receipt.warnings)


async def test_nul_would_lose_the_memory_and_is_taken_out(double):
    async with opened(double) as slot:
        await slot.record_event(event("I like oolong\0 tea."))
        await ready(slot)
        assert "oolong tea" in (await ask(slot)).formatted_context
