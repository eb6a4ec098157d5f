"""The probe protocol of spec section 4.2: ready, closed, played, judged, offered and refused, opened again."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from memory import BackendReadiness, ContextBudget, MemoryScope, MemorySlot
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.engine.context import CellContext
from memory.bench.engine.files import CellJournal, Stopped, Times, TraceFile
from memory.bench.engine.play import CellPlayer, Openings
from memory.bench.engine.roles import Roles, RuleAssistant, rule_judge, rule_simulator
from memory.bench.engine.settings import ExperimentSettings
from memory.plugins.redaction import Scrubber
from memory.testing import FakeBackend

ENGLISH = load_language()
ROLES = Roles(ENGLISH, RuleAssistant(ENGLISH), rule_simulator, partial(rule_judge, ENGLISH))
(TIMELINE,) = make_game(GameSize(users=1, sessions=10, tests=2, attributes=4)).timelines
SCOPE = MemoryScope(run_id="r", persona_id=TIMELINE.persona_id)
BUDGET = ContextBudget(max_tokens=600)


async def play(place, adapter=FakeBackend, *, roles=ROLES, slot=MemorySlot, **settings):
    """Plays the timeline. The slot and its adapter are made anew for every test session."""
    openings = Openings(lambda _: slot(adapter()), place / "store")
    async with openings:
        context = CellContext(
            openings.slot,
            SCOPE,
            ExperimentSettings(providers=["fake"], **settings),
            BUDGET,
            roles,
            CellJournal(place / "journal.jsonl"),
            TraceFile(place / "traces.jsonl", Scrubber({})),
            Times(place / "times.jsonl"),
        )
        player = CellPlayer(context, openings, TIMELINE)
        await player.play()
    return player.state


def statuses(records):
    return {record.status for record in records}


async def test_a_backend_with_everything_is_played_and_scored(tmp_path):
    played = await play(tmp_path)
    assert statuses(played.records) == {"scored"}
    assert played.readiness == {"ready": 2}
    assert any(record.fit_first for record in played.records)


class RecordingBackend(FakeBackend):
    """Keeps what it is asked and what is recorded."""

    asked, recorded, modes = list[Any](), list[Any](), list[Any]()

    async def retrieve(self, request):
        self.asked.append(request)
        return await super().retrieve(request)

    async def record_event(self, event):
        self.recorded.append(event)
        return await super().record_event(event)

    async def record_events(self, events):
        self.recorded.extend(events)
        return await super().record_events(events)

    async def set_mode(self, mode):
        self.modes.append(mode.read_only)
        return await super().set_mode(mode)


@pytest.fixture
def recording():
    for seen in (RecordingBackend.asked, RecordingBackend.recorded, RecordingBackend.modes):
        seen.clear()
    return RecordingBackend


@pytest.mark.parametrize(
    "cs", [("context",), (), ("scenario", "context")], ids=lambda cs: "+".join(cs) or "none"
)
async def test_every_recall_has_the_matrix_s_budget_and_cs_fields_and_every_turn_the_timeline_s(
    tmp_path, recording, cs
):
    await play(tmp_path, recording, cs=cs)
    scripts = {
        session.session_id: session.script
        for session in (*TIMELINE.sessions, *TIMELINE.tests)
        if session.script
    }
    assert {request.session_id for request in recording.asked} == scripts.keys()
    for request in recording.asked:
        script = scripts[request.session_id]
        assert request.budget == BUDGET
        assert request.context == (script.context if "context" in cs else None)
        assert request.scenario == (script.scenario if "scenario" in cs else None)
        assert request.attribute is None
    assert not {event.session_id for event in recording.recorded} & {
        test.session_id for test in TIMELINE.tests
    }
    for event in (event for event in recording.recorded if event.session_id in scripts):
        script = scripts[event.session_id]
        number = int(event.turn_id.rpartition(".")[2])
        assert event.event_id == f"{TIMELINE.persona_id}:{event.session_id}.{number}"
        assert event.timestamp == script.start + timedelta(minutes=number - 1)
        assert (event.scenario, event.context) == (script.scenario, script.context)
        assert event.attribute in {None, *(beat.attribute for beat in script.beats)}


class OneReadiness(FakeBackend):
    """Gives one answer to every question of readiness."""

    state: Any = "pending"

    async def wait_until_ready(self, scope, timeout_s):
        return BackendReadiness(state=self.state, detail="three of four")


@pytest.mark.parametrize(
    ("state", "status"), [("pending", "unready"), ("unknown", "unready"), ("ready", "scored")]
)
async def test_what_is_not_known_to_be_ready_counts_as_it_behaves_and_is_marked(tmp_path, state, status):
    played = await play(tmp_path, type("Answering", (OneReadiness,), {"state": state}))
    assert statuses(played.records) == {status}
    assert played.readiness == {state: 2}
    warnings = [text for text in played.warnings if f"readiness was {state}" in text]
    assert len(warnings) == (state != "ready")


async def torn(script, beat, exchanges):
    """Fails in the first test session, where the user complains before it says what is wanted."""
    if beat.branch:
        raise RuntimeError("a judge's defect")
    return await rule_judge(ENGLISH, script, beat, exchanges)


async def test_the_mode_is_restored_when_a_test_session_breaks(tmp_path, recording):
    with pytest.raises(RuntimeError, match="a judge's defect"):
        await play(tmp_path, recording, roles=replace(ROLES, judge=torn))
    assert recording.modes[-2:] == [True, False]


class Leaky(MemorySlot):
    """Says that it is closed, and is not."""

    async def set_mode(self, mode):
        return await super().set_mode(mode.model_copy(update={"read_only": False}))


async def test_a_test_session_that_writes_ends_the_cell(tmp_path):
    with pytest.raises(Stopped, match=r"a turn of a test session was written \(committed\)"):
        await play(tmp_path, slot=Leaky)
