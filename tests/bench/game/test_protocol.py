"""The probe protocol of spec section 4.2: ready, closed, played, judged, offered and refused, opened again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory import BackendReadiness, ContextBudget, MemoryScope, MemorySlot
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.engine.context import CellContext, CellSettings
from memory.bench.engine.files import CellJournal, Stopped
from memory.bench.engine.play import CellPlayer
from memory.bench.engine.roles import Roles, RuleAssistant, RuleJudge, RuleSimulator
from memory.testing import FakeBackend

ENGLISH = load_language()
ROLES = Roles(RuleAssistant(ENGLISH), RuleSimulator(), RuleJudge(ENGLISH))
(TIMELINE,) = make_game(GameSize(users=1, sessions=10, tests=2, attributes=4)).timelines
SCOPE = MemoryScope(run_id="r", persona_id=TIMELINE.persona_id)
BUDGET = ContextBudget(max_tokens=600)


async def play(place, adapter, *, roles=ROLES, **settings):
    slot = MemorySlot(adapter)
    context = CellContext(slot=slot, roles=roles, journal=CellJournal(place / "journal.jsonl"))
    player = CellPlayer(context, TIMELINE, SCOPE, CellSettings(budget=BUDGET, **settings))
    await player.play()
    return player.state, slot


def statuses(records):
    return {record.status for record in records}


async def test_a_backend_with_everything_is_played_and_scored(tmp_path):
    played, slot = await play(tmp_path, FakeBackend())
    assert statuses(played.records) == {"scored"}
    assert played.readiness == {"ready": 2}
    assert any(record.fit_first for record in played.records)
    assert not slot.read_only
    await slot.aclose()


class RecordingBackend(FakeBackend):
    """Keeps what it is asked and what is recorded."""

    def __init__(self):
        super().__init__()
        self.asked, self.recorded = list[Any](), list[Any]()

    async def retrieve(self, request):
        self.asked.append(request)
        return await super().retrieve(request)

    async def record_event(self, event):
        self.recorded.append(event)
        return await super().record_event(event)


@pytest.mark.parametrize(
    "cs", [("context",), (), ("scenario", "context")], ids=lambda cs: "+".join(cs) or "none"
)
async def test_every_recall_has_the_matrix_s_budget_and_cs_fields_and_every_turn_the_timeline_s(tmp_path, cs):
    adapter = RecordingBackend()
    _, slot = await play(tmp_path, adapter, cs=cs)
    scripts = {
        session.session_id: session.script
        for session in (*TIMELINE.sessions, *TIMELINE.tests)
        if session.script
    }
    assert {request.session_id for request in adapter.asked} == scripts.keys()
    for request in adapter.asked:
        script = scripts[request.session_id]
        assert request.budget == BUDGET
        assert request.context == (script.context if "context" in cs else None)
        assert request.scenario == (script.scenario if "scenario" in cs else None)
        assert request.attribute is None
    assert not {event.session_id for event in adapter.recorded} & {test.session_id for test in TIMELINE.tests}
    for event in (event for event in adapter.recorded if event.session_id in scripts):
        script = scripts[event.session_id]
        number = int(event.turn_id.rpartition(".")[2])
        assert event.event_id == f"{TIMELINE.persona_id}:{event.session_id}.{number}"
        assert event.timestamp == script.start + timedelta(minutes=number - 1)
        assert (event.scenario, event.context) == (script.scenario, script.context)
        assert event.attribute in {None, *(beat.attribute for beat in script.beats)}
    await slot.aclose()


class OneReadiness(FakeBackend):
    """Gives one answer to every question of readiness."""

    state: Any = "pending"

    async def wait_until_ready(self, scope, timeout_s):
        return BackendReadiness(state=self.state, detail="three of four")


@pytest.mark.parametrize(
    ("state", "status"), [("pending", "unready"), ("unknown", "unready"), ("ready", "scored")]
)
async def test_what_is_not_known_to_be_ready_counts_as_it_behaves_and_is_marked(tmp_path, state, status):
    adapter = OneReadiness()
    adapter.state = state
    played, slot = await play(tmp_path, adapter)
    assert statuses(played.records) == {status}
    assert played.readiness == {state: 2}
    warnings = [text for text in played.warnings if f"readiness was {state}" in text]
    assert len(warnings) == (state != "ready")
    await slot.aclose()


class Torn(RuleJudge):
    """Fails in the first test session, where the user complains before it says what is wanted."""

    async def judge(self, script, beat, exchanges):
        if beat.branch:
            raise RuntimeError("a judge's defect")
        return await super().judge(script, beat, exchanges)


async def test_the_mode_is_restored_when_a_test_session_breaks(tmp_path):
    slot = MemorySlot(FakeBackend())
    roles = replace(ROLES, judge=Torn(ENGLISH))
    context = CellContext(slot=slot, roles=roles, journal=CellJournal(tmp_path / "journal.jsonl"))
    seen = []
    real = slot.set_mode

    async def noted(mode):
        seen.append(mode.read_only)
        return await real(mode)

    slot.set_mode = noted
    with pytest.raises(RuntimeError, match="a judge's defect"):
        await CellPlayer(context, TIMELINE, SCOPE, CellSettings(budget=BUDGET)).play()
    assert seen == [False, True, False]
    assert not slot.read_only
    await slot.aclose()


class Leaky(MemorySlot):
    """Says that it is closed, and is not."""

    async def set_mode(self, mode):
        return await super().set_mode(mode.model_copy(update={"read_only": False}))


async def test_a_test_session_that_writes_ends_the_cell(tmp_path):
    slot = Leaky(FakeBackend())
    context = CellContext(slot=slot, roles=ROLES, journal=CellJournal(tmp_path / "journal.jsonl"))
    with pytest.raises(Stopped, match=r"a turn of a test session was written \(committed\)"):
        await CellPlayer(context, TIMELINE, SCOPE, CellSettings(budget=BUDGET)).play()
    await slot.aclose()
