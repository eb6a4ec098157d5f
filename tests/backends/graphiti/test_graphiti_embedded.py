"""Graphiti on embedded Kuzu: modes, recipes, ids, mutation, reset, faults; the real library."""

import json
import os

import anyio
import pytest
from graphiti_support import (
    ALICE,
    BOB,
    NEEDS_GRAPHITI,
    ask,
    event,
    found,
    listed,
    mutate,
    opened,
    reset_leaves_the_bystander,
    sources,
)
from variants import plain

from memory import (
    BackendTimeout,
    CapabilityNotSupported,
    ConfigError,
    InputError,
    MemoryScope,
    Message,
    ScopeError,
)

pytestmark = NEEDS_GRAPHITI


@pytest.mark.parametrize(
    ("ingest", "said", "fact"),
    plain(
        "message",
        "text",
        of=[
            ("message", "I keep my passport in the drawer.", "I keep my passport in the drawer."),
            ("text", "Ada keeps her passport in Zurich.", "Ada keeps her passport in Zurich."),
            ("json", "I keep my passport in the drawer.", "I keep my passport in the drawer."),
        ],
    ),
)
async def test_episode_modes(tmp_path, llm, ingest, said, fact):
    async with opened(llm, tmp_path, ingest=ingest) as slot:
        receipt = await slot.record_event(event(said))
        assert await found(slot, "passport") == [fact]
        (episode,) = (await listed(slot, "episodes"))["episodes"]
    assert episode["source"] == ingest
    assert receipt.native_ids[0] == episode["uuid"]
    assert not receipt.warnings


async def test_triplets_are_added_as_they_are(tmp_path, llm):
    facts = [
        {"source": "Ada", "relation": "LIVES_IN", "target": "Paris", "fact": "Ada lives in Paris"},
        {"source": "Ada", "relation": "OWNS", "target": "boat", "valid_at": "2020-01-01T00:00:00+00:00"},
    ]
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        triplet_event = event("unused", metadata={"triplets": facts})
        receipt = await slot.record_event(triplet_event)
        result = await slot.retrieve(ask("Where does Ada live?"))
        rows = {row["fact"]: row for row in result.raw["edges"]}
        nodes = {row["name"] for row in (await listed(slot, "nodes"))["nodes"]}
        history = await sources(slot, native_id=rows["Ada OWNS boat"]["uuid"])
        with pytest.raises(InputError, match=r"metadata\.triplets"):
            await slot.record_event(event("no triplets"))
        with pytest.raises(InputError, match=r"metadata\.triplets: .*0\.target"):
            await slot.record_event(event("x", metadata={"triplets": [{"source": "a", "relation": "R"}]}))
    asked = {body["response_format"]["json_schema"]["name"] for body in llm.bodies("chat/completions")}
    assert "ExtractedEntities" not in asked
    assert nodes == {"Ada", "Paris", "boat"}
    assert len(receipt.native_ids) == 3
    assert rows["Ada lives in Paris"]["valid_at"] == triplet_event.timestamp.isoformat()
    assert rows["Ada OWNS boat"]["valid_at"] == "2020-01-01T00:00:00+00:00"
    assert history.event_ids == (triplet_event.event_id,)


async def test_what_graphiti_learns_nothing_from_is_said(tmp_path, llm):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    async with opened(llm, tmp_path) as slot:
        hello = await slot.record_event(event("Hello?"))
        silent = await slot.record_event(event(messages=(Message(role="assistant", tool_calls=(call,)),)))
    assert "no fact" in hello.warnings[0]
    assert len(hello.native_ids) == 1
    assert silent.native_ids == ()
    assert "nothing to send" in silent.warnings[-1]


@pytest.mark.thorough
async def test_cs_reaches_the_model_only_when_asked_for(tmp_path, llm):
    for cs_in_body in (False, True):
        del llm.requests[:]
        async with opened(llm, tmp_path, cs_in_body=cs_in_body) as slot:
            await slot.record_event(event("I drink oolong tea.", scenario="zqscenario"))
        assert ("zqscenario" in json.dumps(llm.bodies("chat/completions"))) == cs_in_body


@pytest.mark.thorough
async def test_removing_an_episode_takes_what_only_it_supports(tmp_path, llm):
    async with opened(llm, tmp_path, BOB) as slot:
        receipt = await slot.record_event(event("I keep my passport in the drawer."))
        await slot.record_event(event("I ride my green bicycle."))
        episode, fact = receipt.native_ids
        of_episode = await sources(slot, native_id=episode)
        with pytest.raises(ScopeError):
            await mutate(slot, "delete", episode, BOB)
        with pytest.raises(CapabilityNotSupported):
            await mutate(slot, "update", fact)
        with pytest.raises(InputError):
            await mutate(slot, "delete", fact, cascade=True)
        assert (await mutate(slot, "delete", episode)).raw["deleted"] == "episode"
        assert await found(slot, "passport bicycle") == ["I ride my green bicycle."]
        counts = await listed(slot, "count")
    assert of_episode.native_ids == (fact,)
    assert counts == {"Episodic": 1, "Entity": 2, "RelatesToNode_": 1, "Community": 0}


@pytest.mark.thorough
async def test_reset_leaves_the_bystander(tmp_path, llm):
    async with opened(llm, tmp_path, BOB) as slot:
        await reset_leaves_the_bystander(slot)


@pytest.mark.thorough
async def test_reset_leaves_no_text_on_disk(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        directory = tmp_path / "graphiti" / slot.native_scope(ALICE)["group_id"]

        def on_disk():
            return any(b"zqsecret" in file.read_bytes() for file in directory.iterdir())

        await slot.record_event(event("I keep my zqsecret passport in the drawer."))
        assert on_disk(), "or this test proves nothing"
        await slot.reset_scope(ALICE)
        assert not on_disk()
        await slot.record_event(event("I ride my green bicycle."))
        assert await found(slot, "bicycle") == ["I ride my green bicycle."]


@pytest.mark.thorough
async def test_many_scopes_at_once_open_few_graphs(tmp_path, llm):
    scopes = [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(10)]
    max_open = 0
    async with opened(llm, tmp_path, open_graphs=2) as slot:
        adapter = slot._adapter

        async def live(number):
            nonlocal max_open
            scope = scopes[number]
            await slot.setup_scope(scope)
            await slot.record_event(event(f"I own my thing zq{number} gladly.", scope=scope))
            max_open = max(max_open, len(adapter._graphs.opened))
            assert await found(slot, "thing", scope=scope) == [f"I own my thing zq{number} gladly."]
            max_open = max(max_open, len(adapter._graphs.opened))

        async with anyio.create_task_group() as tasks:
            for number in range(len(scopes)):
                tasks.start_soon(live, number)
    assert 2 <= max_open <= 4, "two for writes, two for reads"


@pytest.mark.thorough
async def test_no_read_waits_for_a_write_of_another_scope(tmp_path, llm):
    async with opened(llm, tmp_path, BOB, open_graphs=1) as slot:
        await slot.record_event(event("I keep my passport in the drawer.", scope=BOB))
        llm.faults.add("late", delay_s=30.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slot.record_event, event("I ride my green bicycle."))
            await anyio.sleep(0.1)
            with anyio.fail_after(20):
                assert await found(slot, "passport", scope=BOB) == ["I keep my passport in the drawer."]
            tasks.cancel_scope.cancel()
        await slot.record_event(event("I ride my green bicycle."))
        assert await found(slot, "bicycle") == ["I ride my green bicycle."]


async def test_a_write_that_waited_for_a_place_was_not_sent(tmp_path, llm):
    async with opened(llm, tmp_path, open_graphs=1, deadlines={"write_s": 0.05}) as slot:
        adapter = slot._adapter
        async with adapter._graphs._places[True]:  # as a write of another scope holds it
            with pytest.raises(BackendTimeout) as raised:
                await slot.record_event(event("I ride my green bicycle."))
        assert not raised.value.ambiguous
        assert (await listed(slot, "count"))["Episodic"] == 0


async def test_a_path_that_cannot_be_used_is_named(tmp_path, llm):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError,
        match=r"memory\.backends\.graphiti\.path: cannot be used \((Not a directory|File exists)\)",
    ):
        async with opened(llm, tmp_path, path=str(tmp_path / "file" / "graphs")):
            pass


async def test_no_telemetry_and_no_new_environment(tmp_path, llm):
    before = dict(os.environ)
    async with opened(llm, tmp_path):
        from graphiti_core.telemetry.telemetry import TELEMETRY_ENV_VAR
    changed = {name for name in os.environ.keys() | before.keys() if os.environ.get(name) != before.get(name)}
    assert changed <= {TELEMETRY_ENV_VAR}
    assert os.environ[TELEMETRY_ENV_VAR] == "false"
