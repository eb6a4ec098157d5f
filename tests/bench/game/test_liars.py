"""Memories that lie: which figure each moves, and that none leads a headline or a verdict.

Twelve are made of an honest memory; ``docs/experiment.md`` has the same table, and a test compares the two. Eight
more only pretend to remember; two that keep the questions of tests stand in ``test_teaching``.
"""

import asyncio
import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from bench_support import config_of, registry_with, run, write_locomo
from game_support import begin
from variants import plain

from conditions._control import ControlCondition
from memory import BackendReadiness, MemoryEvent, MemoryScope, ResetReceipt
from memory.adapter import AdapterTraits, ContextEntry
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.results import results_of
from memory.bench.report.verdict import verdict
from memory.bench.scores.figures import BY_NAME
from memory.contract.errors import BackendUnavailable

SIZE = {"users": 2, "sessions": 24, "tests": 12, "attributes": 6}
SEED = 8
Entries = Sequence[ContextEntry]


class Honest(ControlCondition):
    """Shows all that the user said, dated, under the context it was said in."""

    def __init__(self, name="fake"):
        super().__init__(name, AdapterTraits(kind="control", pet_observability="dated"))
        self.events: dict[MemoryScope, dict[str, MemoryEvent]] = {}

    async def setup_scope(self, scope):
        self.events.setdefault(scope, {})

    async def record_event(self, event):
        self.events[event.scope].setdefault(event.event_id, event)
        return self.receipt(event, "keep", [event.event_id])

    async def retrieve(self, request):
        events = sorted(
            self.events[request.scope].values(), key=lambda event: (event.context or "", event.timestamp)
        )
        entries = [
            ContextEntry(
                event.messages[0].content,
                native_id=event.event_id,
                timestamp=event.timestamp,
                group=event.context,
                event_ids=(event.event_id,),
                session_id=event.session_id,
            )
            for event in events
        ]
        return self.found(request, "show", tuple(self.shown(entries, request)), {})

    def shown(self, entries, request):
        """What of it is shown, and how."""
        return entries

    def by_chance(self, request):
        """For half of the requests. Every session opens its memory anew: a count would meet the same places."""
        return random.Random(f"{request.query} {len(self.events[request.scope])}").random() < 0.5

    async def reset_scope(self, scope):
        self.events.pop(scope, None)
        return ResetReceipt(scope=scope, verified=True, removed=0, trace=self.trace(scope, "clear"))


class FailsOnSome(Honest):
    """Never twice in a row, after which the slot would leave it alone for a while."""

    failed = False

    async def retrieve(self, request):
        self.failed = not self.failed and self.by_chance(request)
        if self.failed:
            raise BackendUnavailable("not now")
        return await super().retrieve(request)


class SaysPending(Honest):
    async def readiness(self, scope):
        return BackendReadiness(state="pending", detail="still at it")

    async def wait_until_ready(self, scope, timeout_s):
        return await self.readiness(scope)


class Forgets(Honest):
    def shown(self, entries, request):
        newest = sorted(entries, key=lambda entry: str(entry.timestamp))[-12:]
        return [entry for entry in entries if entry in newest]


class NeverLearns(Honest):
    def shown(self, entries, request):
        return [entry for entry in entries if str(entry.timestamp) < "2026-01-22"]


class OneItem(Honest):
    def shown(self, entries, request):
        if not entries:
            return []
        every = tuple(event_id for entry in entries for event_id in entry.event_ids)
        return [ContextEntry(" ".join(entry.text for entry in entries), native_id="all", event_ids=every)]


class LabelsNothing(Honest):
    def shown(self, entries, request):
        return [replace(entry, group=None) for entry in entries]


class NoDates(Honest):
    def shown(self, entries, request):
        shuffled = sorted(entries, key=lambda entry: (entry.group or "", entry.text[::-1]))
        return [replace(entry, timestamp=None) for entry in shuffled]


class KnowsThePhrases(Honest):
    """The phrases of another seed's game, which anybody can read."""

    phrases: tuple[str, ...] = ()

    def shown(self, entries, request):
        return [entry for entry in entries if any(phrase in entry.text.casefold() for phrase in self.phrases)]


class Silent(Honest):
    def shown(self, entries, request):
        return []


class GoesBack(Honest):
    """Shows half of the time what was so at first."""

    def shown(self, entries, request):
        if self.by_chance(request):
            return [entry for entry in entries if str(entry.timestamp) < "2026-01-22"]
        return entries


class MixesContexts(Honest):
    """Shows everything as if it had been said of the context that asks."""

    leads = re.compile("|".join(lead for leads in load_language().forms.leads.values() for lead in leads))

    def shown(self, entries, request):
        return [
            replace(entry, text=self.leads.sub("", entry.text), group=request.context) for entry in entries
        ]


class ClaimsEverything(Honest):
    def shown(self, entries, request):
        every = tuple(event_id for entry in entries for event_id in entry.event_ids)
        return [ContextEntry("All of it is here.", native_id="claim", event_ids=every)]


@dataclass(frozen=True)
class Lie:
    """A liar, and the figures that get worse for it."""

    memory: Callable[[], Honest]
    worse: tuple[str, ...]
    note: str = ""


LIES = {
    "fails on a third of the requests": Lie(
        FailsOnSome, ("style fit", "forgetting", "felt effort", "overall", "shown")
    ),
    "says pending": Lie(
        SaysPending, (), "moves no figure: every request is marked unready, with its best case"
    ),
    "forgets": Lie(Forgets, ("style fit", "overall", "shown", "felt effort")),
    "never learns": Lie(NeverLearns, ("style fit", "detection", "overall", "shown")),
    "all in one item": Lie(OneItem, ("style fit", "overall")),
    "labels nothing": Lie(LabelsNothing, ("style fit",)),
    "drops the dates": Lie(NoDates, ("style fit", "overall", "felt effort")),
    "knows another seed's phrases": Lie(KnowsThePhrases, ("style fit", "shown", "overall")),
    "shows nothing": Lie(
        Silent, ("style fit", "discrimination", "detection", "coherence", "overall", "shown", "nothing shown")
    ),
    "goes back half of the time": Lie(GoesBack, ("style fit", "detection", "overall", "coherence")),
    "mixes the contexts": Lie(MixesContexts, ("style fit", "discrimination")),
    "claims every id": Lie(ClaimsEverything, ("style fit", "shown", "coherence", "overall")),
}


def other_phrases():
    words = load_language()
    markers = [marker for attribute in words.attributes for marker in attribute.markers]
    return tuple(
        wording.casefold() for marker in markers for wording in words.in_play(marker, SEED + 1).wordings
    )


def played(out, memory, peer="", block="bench", game=None, **more):
    """A game of a memory, beside a peer where one is named: ``honest`` or a condition."""
    registry_with(partial(Honest, "honest"), name="honest")
    registry = registry_with(memory, beside=["honest"])
    content = {
        "memory": {
            "condition": "no_memory",
            "budget": {"max_tokens": 2000 if peer else None, "max_items": None},
            "backends": {"fake": {}, "honest": {}},
            "conditions": {"no_memory": {}, "full_history": {}},
        },
        block: {
            "game": {**SIZE, **(game or {})},
            "seeds": [SEED],
            "providers": ["fake", peer] if peer else ["fake"],
            "doctor": False,
            "wait_timeout_s": 0.01,
            **more,
        },
    }
    experiment = load_experiment(content, block=block, output=out, registry=registry)
    return begin(experiment, registry=registry)


def figures(outcome, label="fake"):
    (provider,) = (each for each in outcome.metrics.providers if each.label == label)
    return {measure.name: measure.estimate.value for measure in provider.measures}


def leads(outcome, peer):
    """Whether the memory is above its peer in a headline, or the verdict names it as the best."""
    own, other = figures(outcome), figures(outcome, peer)
    sentences = verdict(results_of(outcome.directory, outcome.manifest, outcome.metrics))
    return "fake reaches" in sentences[0] or any(
        (own[name] or 0.0) > (other[name] or 0.0) for name in outcome.metrics.headlines
    )


def worse_by(name, lie, honest):
    """How much worse a figure is for a lie; negative where it looks better."""
    sign = 1 if BY_NAME[name].better == "higher" else -1
    return sign * ((honest or 0.0) - (lie or 0.0)) if None not in (lie, honest) else 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("name", plain("says pending", "shows nothing", of=LIES))
def test_a_lie_moves_what_it_must_improves_nothing_and_does_not_lead(tmp_path, name):
    lie = LIES[name]
    KnowsThePhrases.phrases = other_phrases()
    outcome = played(tmp_path, lie.memory, peer="honest")
    honest, found = figures(outcome, "honest"), figures(outcome)
    assert (honest["style fit"] or 0) > 0.9
    assert honest["detection"] == 1.0
    assert honest["over-personalisation"] == 0.0
    for figure in lie.worse:
        assert worse_by(figure, found[figure], honest[figure]) > 0.03, (figure, found[figure], honest[figure])
    for figure in found:
        if not BY_NAME[figure].fault:
            assert worse_by(figure, found[figure], honest[figure]) >= -0.03, (figure, found, honest[figure])
    assert not leads(outcome, "honest")
    (provider,) = (each for each in outcome.metrics.providers if each.label == "fake")
    if name == "says pending":
        assert provider.unready == provider.requests
        assert all(measure.estimate.best is not None for measure in provider.measures if measure.estimate.n)
    if name.startswith("fails"):
        assert provider.failed > 0.2 * provider.requests


class NewestFirst(Honest):
    """A mediocre memory: all that was said, the newest first, and no word of the context it was said in."""

    def shown(self, entries, request):
        return [
            replace(entry, group=None)
            for entry in sorted(entries, key=lambda entry: str(entry.timestamp), reverse=True)
        ]


class LosesWrites(NewestFirst):
    """The same, and six of ten acknowledged writes are gone."""

    async def record_event(self, event):
        receipt = await super().record_event(event)
        if zlib.crc32(event.event_id.encode()) % 10 < 6:
            del self.events[event.scope][event.event_id]
        return receipt


@pytest.mark.thorough
def test_no_figure_that_ranks_improves_for_a_lie_from_a_mediocre_start(tmp_path):
    before = figures(played(tmp_path / "mediocre", NewestFirst))
    after = figures(played(tmp_path / "loser", LosesWrites))
    for name, figure in BY_NAME.items():
        if not figure.fault:
            assert worse_by(name, after[name], before[name]) >= -0.03, (name, before[name], after[name])
    assert worse_by("forgetting", after["forgetting"], before["forgetting"]) > 0.03


class Pretends(Honest):
    """Remembers nobody, and prints something all the same."""

    def lines(self, request):
        return []

    def shown(self, entries, request):
        return [ContextEntry(line, native_id=str(at)) for at, line in enumerate(self.lines(request))]


ATTRIBUTES = load_language().attributes


class Shotgun(Pretends):
    def lines(self, request):
        return [marker for attribute in ATTRIBUTES for marker in attribute.markers]


class Constant(Pretends):
    def lines(self, request):
        return [attribute.markers[0] for attribute in ATTRIBUTES]


class Random(Pretends):
    def lines(self, request):
        dice = zlib.crc32(request.query.encode())
        return [attribute.markers[dice % len(attribute.markers)] for attribute in ATTRIBUTES]


class Echo(Pretends):
    def lines(self, request):
        return [request.query] * 5


class FrequentWords(Pretends):
    def lines(self, request):
        return [
            f"{one} {two} the." for one in ("please", "work", "time") for two in ("that", "today", "with")
        ]


class Labels(Honest):
    """Reads no word, and keeps the newest event of each label."""

    def shown(self, entries, request):
        newest = {
            (event.context, event.attribute): event.event_id
            for event in sorted(self.events[request.scope].values(), key=lambda event: event.timestamp)
        }
        return [entry for entry in entries if entry.event_ids[0] in newest.values()]


class PhraseList(Honest):
    """Keeps what holds a phrase of a list that anybody can read."""

    def shown(self, entries, request):
        markers = [marker.casefold() for attribute in ATTRIBUTES for marker in attribute.markers]
        return [entry for entry in entries if any(marker in entry.text.casefold() for marker in markers)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "memory", [Shotgun, Constant, Random, Echo, FrequentWords, Labels, PhraseList, LosesWrites]
)
def test_a_memory_that_only_pretends_leads_no_headline_and_no_verdict(tmp_path, memory):
    outcome = played(
        tmp_path, memory, peer="full_history", block="run", game={"users": 6, "sessions": 16, "tests": 8}
    )
    assert outcome.metrics.headlines[0] == "read right"
    assert not leads(outcome, "full_history")


@pytest.mark.thorough
def test_every_request_in_which_nothing_personal_belongs_can_be_failed(tmp_path):
    """A memory that shows everything of both contexts as if it held here fails each of them."""
    found = figures(played(tmp_path, MixesContexts))
    assert found["over-personalisation"] == 1.0
    game = make_game(GameSize(**SIZE), seed=SEED)
    assert sum(
        beat.kind == "neutral" for line in game.timelines for test in line.tests for beat in test.script.beats
    )


@pytest.mark.parametrize(("memory", "recall"), [(Honest, 1.0), (ClaimsEverything, 0.0)])
def test_a_claim_is_no_evidence(tmp_path, memory, recall):
    data = write_locomo(tmp_path / "talks.json")
    block = {"timeline": "locomo", "data": str(data), "output": str(tmp_path / "out")}
    outcome = asyncio.run(run(config_of(run=block), registry=registry_with(memory())))
    assert figures(outcome)["evidence recall"] == recall


def test_the_documented_table_is_this_one():
    page = (Path(__file__).parents[3] / "docs" / "experiment.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z][^|]+?) \| ([^|]*?) \|$", page.split("## Liars")[1], re.MULTILINE))
    for name, lie in LIES.items():
        assert rows[name] == (", ".join(lie.worse) or lie.note), name
