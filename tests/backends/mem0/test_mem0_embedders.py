"""Embedders of mem0 over a scripted endpoint: prefixes, batches, lengths, and options on their way to the wire."""

import uuid

import pytest
from mem0_plain import close_plain, plain_memory
from mem0_support import ALICE, BOB, NEEDS_MEM0, config, event, found, opened, stored
from postgres import NEEDS_POSTGRES

from memory import BackendError, ConfigError, open_memory
from memory.adapter import BackendRejected
from memory.testing import LoopbackAnswer, ScriptedLLM

pytestmark = NEEDS_MEM0


class OfLength(ScriptedLLM):
    """An endpoint whose embedder answers with this length, whatever is asked for."""

    length = 768

    def respond(self, request):
        answer = super().respond(request)
        if not request.path.strip("/").endswith("embeddings"):
            return answer
        texts = request.json["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": [1.0, *[0.5] * (self.length - 1)]}
            for index, _ in enumerate(texts)
        ]
        return LoopbackAnswer(200, {"object": "list", "data": data, "model": "m"})


@pytest.fixture
def endpoint():
    with OfLength() as server:
        yield server


def block(server, **more):
    return {"embedder": {"base_url": server.base_url, "model": "m", **more}}


async def test_the_embedder_is_asked_once_for_its_length_and_the_answer_is_kept(tmp_path, endpoint):
    async with opened(tmp_path, **block(endpoint)) as slot:
        assert (await slot.health()).details["dimensions"] == 768
        await slot.record_event(event("tea"))
    asked = len(endpoint.requests)
    async with opened(tmp_path, **block(endpoint)) as slot:
        assert len(endpoint.requests) == asked, "the table of partitions knows"
        assert await found(slot, "tea") == ["tea"]


async def test_an_embedder_that_changes_its_length_is_refused_with_both_numbers_and_nothing_is_stored(
    tmp_path, endpoint
):
    async with opened(tmp_path, **block(endpoint)) as slot:
        await slot.record_event(event("tea"))
        endpoint.length = 384
        with pytest.raises(
            BackendRejected, match=r"vectors of 384, and the store holds vectors of 768"
        ) as raised:
            await slot.record_event(event("more tea"))
        assert not raised.value.ambiguous
        with pytest.raises(BackendError, match=r"384.*768"):
            await found(slot, "tea")
        assert [row["memory"] for row in await stored(slot)] == ["tea"]
        with pytest.raises(ConfigError, match=r"vectors of 768, and the embedder answers with 384"):
            await slot._adapter.model_probes()["embedder"]()


async def test_dimensions_that_the_endpoint_cannot_make_are_refused(tmp_path, endpoint):
    async with opened(tmp_path, **block(endpoint), dimensions=256) as slot:
        with pytest.raises(BackendRejected, match=r"vectors of 768, and the store holds vectors of 256"):
            await slot.record_event(event("tea"))
    assert endpoint.bodies("embeddings")[-1]["dimensions"] == 256


async def test_another_embedder_is_refused_by_both_names_unless_the_store_is_empty(tmp_path, endpoint):
    async with opened(tmp_path):
        pass
    async with opened(tmp_path, **block(endpoint)) as slot:
        await slot.record_event(event("tea"))
    for other, why in (
        ({}, "embedder 'openai:m', and embedder 'lexical-hash-1'"),
        (block(endpoint, model="n"), "embedder 'openai:m', and embedder 'openai:n'"),
        (block(endpoint, query_prefix="q: "), "query prefix '', and query prefix 'q: '"),
    ):
        with pytest.raises(ConfigError, match=why):
            async with opened(tmp_path, **other):
                pass


@NEEDS_POSTGRES
class TestPostgres:
    """The same on a table of PostgreSQL."""

    @pytest.fixture
    def table(self, postgres):
        place = {"provider": "pgvector", "config": {"connection_string": postgres}}
        return {"vector_store": place, "collection": f"t_{uuid.uuid4().hex[:12]}"}

    @pytest.mark.thorough
    async def test_another_embedder_or_length_is_refused(self, tmp_path, postgres, table, endpoint):
        import psycopg

        async with opened(tmp_path / "a", **table):
            pass
        async with opened(tmp_path / "b", **table, **block(endpoint)) as slot:  # it was empty
            await slot.record_event(event("tea"))
        with psycopg.connect(postgres) as connection:  # entities have vectors of the new length as well
            asked = (
                "SELECT atttypmod FROM pg_attribute WHERE attname = 'vector' AND attrelid = to_regclass(%s)"
            )
            found = connection.execute(asked, (f"{table['collection']}_entities",)).fetchone()
        assert found == (768,)
        with pytest.raises(ConfigError, match="made with embedder 'openai:m'"):
            async with opened(tmp_path / "b", **table, **block(endpoint, model="n")):
                pass
        # Another machine knows no table of partitions of this one, but the database tells the length.
        with pytest.raises(ConfigError, match=r"holds vectors of 768, the embedder makes 1024"):
            async with opened(tmp_path / "c", **table):
                pass


@pytest.fixture(params=["pgvector", "chroma"])
def shared(request, tmp_path):
    """A store with one collection for all scopes."""
    if request.param == "chroma":
        pytest.importorskip("chromadb")
        return {"provider": "chroma", "config": {"path": str(tmp_path / "chroma")}}
    pytest.importorskip("pgserver")
    return {"provider": "pgvector", "config": {"connection_string": request.getfixturevalue("postgres")}}


async def test_a_shared_store_refuses_another_length(tmp_path, shared, endpoint):
    of_ours = {"vector_store": shared, "collection": f"t_{uuid.uuid4().hex[:12]}"}
    async with opened(tmp_path / "a", **of_ours) as slot:
        await slot.record_event(event("tea"))
    with pytest.raises(
        ConfigError, match=r"made with embedder 'lexical-hash-1'|vectors of 1024, the embedder makes 768"
    ):
        async with opened(tmp_path / "a", **of_ours, **block(endpoint)):
            pass
    # Another machine knows no table of partitions of this one, but the store tells the length.
    with pytest.raises(ConfigError, match=r"holds vectors of 1024, the embedder makes 768"):
        async with opened(tmp_path / "b", **of_ours, **block(endpoint)):
            pass
    async with opened(tmp_path / "a", **of_ours) as slot:
        assert (await slot.reset_scope(ALICE)).verified
    async with opened(tmp_path / "a", **of_ours, **block(endpoint)) as slot:  # it is empty now
        await slot.record_event(event("tea"))
        assert await found(slot, "tea") == ["tea"]


async def test_a_shared_store_keeps_scopes_apart_and_a_reset_takes_one(tmp_path, shared):
    of_ours = {"vector_store": shared, "collection": f"t_{uuid.uuid4().hex[:12]}"}
    async with opened(tmp_path, BOB, **of_ours) as slot:
        await slot.record_event(event("My tea is oolong."))
        await slot.record_event(event("My tea is mate.", scope=BOB))
        assert await found(slot, "tea") == ["My tea is oolong."]
        assert await found(slot, "tea", scope=BOB) == ["My tea is mate."]
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, 1)
        assert await found(slot, "tea") == []
        assert await found(slot, "tea", scope=BOB) == ["My tea is mate."]


async def test_a_shared_store_that_mem0_itself_made_is_refused_by_name(tmp_path, shared):
    name = f"t_{uuid.uuid4().hex[:12]}"
    async with opened(tmp_path, vector_store=shared, collection=f"{name}_ours"):
        pass  # mem0 is imported without telemetry
    config = {"collection_name": name, **shared["config"]}
    config |= {"embedding_model_dims": 1024} if shared["provider"] == "pgvector" else {}
    plain = plain_memory(tmp_path / "own", on={**shared, "config": config})
    plain.add("My dog is called Biscuit.", user_id="alice", infer=False)
    close_plain(plain)
    with pytest.raises(
        ConfigError, match=f"'{name}' on {shared['provider']} holds memories that memslot did"
    ):
        async with opened(tmp_path, vector_store=shared, collection=name):
            pass


async def test_a_store_that_mem0_itself_made_is_refused_by_name(tmp_path):
    async with open_memory(config(tmp_path)):
        pass  # mem0 is imported without telemetry
    plain = plain_memory(tmp_path / "own")
    plain.add("My dog is called Biscuit.", user_id="alice", infer=False)
    close_plain(plain)
    for path in (tmp_path / "own", tmp_path / "own" / "qdrant"):
        with pytest.raises(
            ConfigError, match=r"a Qdrant store that memslot did not make \(collections memslot\)"
        ):
            async with opened(tmp_path, path=str(path)):
                pass


async def test_prefixes_reach_the_embedder_and_no_memory(tmp_path, endpoint):
    async with opened(tmp_path, **block(endpoint, model="multilingual-e5-small")) as slot:
        assert (await slot.health()).details["prefixes"] == ["query: ", "passage: "]
        await slot.record_event(event("tea"))
        assert await found(slot, "Which tea?") == ["tea"]
    sent = [text for body in endpoint.bodies("embeddings") for text in body["input"]]
    assert sent[-2:] == ["passage: tea", "query: Which tea?"]


async def test_the_texts_of_many_events_are_few_requests(tmp_path, endpoint):
    async with opened(tmp_path, **block(endpoint)) as slot:
        asked = len(endpoint.requests)
        events = [event(f"tea {number}") for number in range(12)]
        receipts = await slot._adapter.record_events(events)
        assert len(endpoint.requests) == asked + 1
        assert len({receipt.native_ids for receipt in receipts}) == 12


async def test_null_takes_an_option_out(tmp_path, llm):
    out = {"temperature": None, "max_tokens": None, "top_p": None}
    async with opened(tmp_path, llm={"base_url": llm.base_url, "model": "tiny", **out}) as slot:
        await slot.record_event(event("I drink oolong."))
    (body,) = llm.bodies("chat/completions")
    assert not out.keys() & body.keys()
