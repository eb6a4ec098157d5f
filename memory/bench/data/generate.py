"""memslot's own preference game: seeded personas whose preferences differ by context and change over time.

Its shape and default size follow MemPABench: 2 contexts x 14 attributes, 94 played accumulation sessions, 5
forced changes with fixed transcripts, and 36 test sessions. The text is memslot's own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from memory.bench.data.dice import Dice
from memory.bench.data.language import Language, Setting, load_language
from memory.bench.data.plan import TESTS_PER_CHANGE, Plan, PlannedChange, other_context
from memory.bench.data.reading import canonical_hash
from memory.bench.data.timeline import (
    Beat,
    BeatKind,
    Cell,
    Preference,
    PreferenceTruth,
    Script,
    Session,
    TestSession,
    Timeline,
    TimelineSet,
    Turn,
    exchange,
    truth_at,
    turns_of,
)
from memory.bench.data.worlds import World, worlds
from memory.contract.formatting import Utf8TokenCounter

_START = datetime(2026, 1, 5, tzinfo=UTC)
_HOUR = {"work": 9, "personal": 19}


class GameSize(BaseModel):
    """The size of a game. The defaults are MemPABench's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: Annotated[int, Field(ge=1)] = 4
    sessions: Annotated[int, Field(ge=10, le=400)] = 94  # accumulation sessions; forced changes are added
    tests: Annotated[int, Field(ge=1, le=400)] = 36  # below 21 there are fewer than five changes
    attributes: Annotated[int, Field(ge=4, le=14)] = 14  # each has a cell in one context or both
    # Talk without preferences, for each persona. It shares words with wordings and requests.
    tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0


def make_game(size: GameSize | None = None, *, seed: int = 7, wordings: Path | None = None) -> TimelineSet:
    """The game for a size and a seed. Equal arguments give equal data on any machine.

    Args:
        wordings: a file that replaces memslot's own wordings.
    """
    size = size or GameSize()
    language = load_language(wordings)
    scripts = [_PersonaScript(language, world, seed, size) for world in worlds(size.users)]
    timelines = tuple(script.timeline() for script in scripts)
    said: dict[str, dict[str, None]] = {}
    for script in scripts:
        for marker, forms in script.said.items():
            said.setdefault(marker, {}).update(forms)
    words = f"the wordings of {wordings.name}" if wordings else "memslot's own wordings"
    notes = [f"Synthetic data with {words}; a seed plays half of those of each setting."]
    if size.tests <= TESTS_PER_CHANGE:
        notes.append(f"With {size.tests} tests, fewer than {TESTS_PER_CHANGE} follow a change.")
    return TimelineSet(
        "game",
        timelines,
        canonical_hash(timelines),
        seed=seed,
        notes=tuple(notes),
        wordings={marker: tuple(forms) for marker, forms in sorted(said.items())},
        wordings_sha256=hashlib.sha256(wordings.read_bytes()).hexdigest() if wordings else None,
    )


@dataclass
class _PersonaScript:
    """One persona: what is said along its plan, and what is tested."""

    language: Language
    world: World
    seed: int
    size: GameSize
    history: list[Preference] = field(default_factory=list)
    decoys: list[tuple[str, str, int]] = field(default_factory=list)
    said: dict[str, dict[str, None]] = field(default_factory=dict)  # marker -> surface forms in use

    def __post_init__(self) -> None:
        self.dice = Dice(f"game/{self.seed}/{self.world.persona_id}")
        self.attributes = self.dice.shuffled(self.language.attributes)[: self.size.attributes]
        self.plan = Plan(self.dice, self.attributes, self.size.sessions, self.size.tests)
        self.changes = {change.index: change for change in self.plan.changes}
        self.beats: list[list[Beat]] = [[] for _ in range(self.plan.length)]
        used = set(self.plan.values.values()) | {change.value for change in self.plan.changes}
        self.nobodys = {
            entry.name: [marker for marker in entry.markers if marker not in used]
            for entry in self.attributes
        }

    def timeline(self) -> Timeline:
        self._state_all()
        sessions = tuple(self._session(index) for index in range(self.plan.length))
        return Timeline(
            persona_id=self.world.persona_id,
            sessions=sessions,
            probes=(),
            preferences=tuple(self.history),
            canaries=tuple(sorted(self.world.names)),
            tests=tuple(self._tests()),
        )

    def _state_all(self) -> None:
        """States every cell in the first part of the game, most of them in their own context."""
        values, contexts = self.plan.values, self.plan.contexts
        # One-sided preferences come first: every test has a request in the context where they do not belong.
        alone = [cell for cell in sorted(values) if (other_context(cell[0]), cell[1]) not in values]
        cells = alone + self.dice.shuffled(sorted(set(values) - set(alone)))
        played = [index for index in range(self.plan.known_by) if index not in self.changes]
        for number, cell in enumerate(cells):
            index = 0 if cell in alone else played[number * len(played) // len(cells)]
            there = contexts[index] == cell[0]
            if not there and cell not in alone and self.dice.chance(0.7):
                index = next((at for at in played if at > index and contexts[at] == cell[0]), index)
                there = contexts[index] == cell[0]
            kind: BeatKind = "statement" if there else "elsewhere"
            said = self._stated(cell, values[cell], lead=None if there else True)
            self.beats[index].append(Beat("", kind, said, attribute=cell[1]))
            self.history.append(Preference(*cell, values[cell], self._starts(index), index + 1))
        for index, change in self.changes.items():
            self.history.append(Preference(*change.cell, change.value, self._starts(index), index + 1))
        self.history.sort(key=lambda known: known.since)

    def _setting(self, marker: str) -> Setting:
        return self.language.in_play(marker, self.seed)

    def _drawn(self, marker: str, wordings: Sequence[str]) -> str:
        """A random surface form of one of a setting's wordings."""
        form = self.language.grammar.drawn(self.dice.pick(wordings), self.dice)
        self.said.setdefault(marker, {})[form] = None
        return form

    def _stated(self, cell: Cell, marker: str, *, lead: bool | None) -> str:
        """The first statement of a preference: outright or implied."""
        if self.dice.chance(0.4):
            return self._asked(self.language.forms.stated, cell, marker, lead=lead)
        return self._lead(cell, lead) + self._drawn(marker, self._setting(marker).implied)

    def _asked(self, forms: Sequence[str], cell: Cell, marker: str, *, lead: bool | None) -> str:
        phrase = self._drawn(marker, self._setting(marker).explicit)
        form, topic = self.dice.pick(forms), self.language.by_name[cell[1]].topic
        lead_in = self._lead(cell, lead)
        return opened(form.format(lead=lead_in, topic=topic, marker=phrase, Marker=opened(phrase)))

    def _lead(self, cell: Cell, lead: bool | None) -> str:
        """The words that name a sentence's context. By default, half of the sentences have them."""
        named = self.dice.chance(0.5) if lead is None else lead
        return self.dice.pick(self.language.forms.leads[cell[0]]) if named else ""

    def _props(self, context: str) -> dict[str, str]:
        matter = self.dice.pick(self.world.matters[context])
        return {"matter": matter, "person": self.dice.pick(self.world.people[context])}

    def _of_life(self, forms: Sequence[str], context: str, **more: str) -> str:
        """A sentence about a matter or a person of this life."""
        return opened(self.dice.pick(forms).format(**self._props(context), **more))

    def _talk(self, context: str) -> str:
        """Talk without a preference. Half of it shares words with a preference."""
        alike = self.dice.chance(0.5)
        forms = self.dice.pick(self.attributes).talk if alike else self.language.forms.filler
        return self._of_life(forms, context)

    def _starts(self, index: int) -> datetime:
        return _START + timedelta(days=index, hours=_HOUR[self.plan.contexts[index]])

    def _session(self, index: int) -> Session:
        session = self._own_session(index)
        if not self.size.tokens:
            return session
        talk = tuple(self._long_talk(index, session))
        return replace(session, turns=(*talk, *session.turns))

    def _long_talk(self, index: int, session: Session) -> Iterator[Turn]:
        """A session's share of the extra talk, placed before its own turns."""
        context, start = self.plan.contexts[index], self._starts(index) - timedelta(hours=8)
        room, number, count = self.size.tokens // self.plan.length + 1, 0, Utf8TokenCounter().count
        while room > 0:
            number += 1
            said = exchange(self._message(context, index), self.dice.pick(self.language.forms.replies))
            room -= sum(count(message.content) for message in said)
            yield Turn(
                turn_id=f"{session.session_id}.t{number}",
                event_id=f"{self.world.persona_id}:{session.session_id}.t{number}",
                timestamp=start + timedelta(seconds=20 * number),
                messages=said,
                scenario=self.dice.pick(self.language.forms.scenarios[context]),
                context=context,
            )

    def _message(self, context: str, index: int) -> str:
        """A long message without a preference of the user. Some contain hearsay or a single case."""
        said = [self._aside(context) for _ in range(6 + self.dice.below(8))]
        if self.dice.chance(0.25):
            said.insert(self.dice.below(len(said)), self._decoy(context, index).goal)
        return " ".join(said)

    def _aside(self, context: str) -> str:
        kind, forms = self.dice.below(5), self.language.forms
        if kind == 0:
            return self._of_life(self.dice.pick(self.attributes).practised(tested=False), context)
        if kind == 1:
            topic = self.dice.pick(self.attributes).topic
            return self._of_life(forms.passing, context, topic=topic)
        return self._talk(context)

    def _own_session(self, index: int) -> Session:
        context = self.plan.contexts[index]
        if index in self.changes:
            return self._forced(self.changes[index], context)
        beats = self.beats[index]
        if self.dice.chance(0.6):
            beats.insert(0, Beat("", "distraction", self._talk(context)))
        if cells := {known.cell for known in self._known(index) if known.context == context}:
            beats.append(self._task(self.dice.pick(sorted(cells)), index, tested=False))
        if self.dice.chance(0.3):
            beats.append(self._decoy(context, index))
        if not beats:
            beats.append(Beat("", "distraction", self._talk(context)))
        script = self._script(context, self._starts(index), beats)
        return Session(session_id=f"acc_{index + 1:03}", script=script)

    def _script(self, context: str, start: datetime, beats: Sequence[Beat]) -> Script:
        forms = self.language.forms
        return Script(
            life_context=self.dice.pick(forms.life[context]),
            scenario=self.dice.pick(forms.scenarios[context]),
            context=context,
            start=start,
            beats=tuple(replace(beat, beat_id=f"b{number}") for number, beat in enumerate(beats, start=1)),
        )

    def _known(self, sessions: int) -> list[Preference]:
        return [known for known in self.history if known.since <= sessions]

    def _decoy(self, context: str, index: int) -> Beat:
        """Hearsay or a single case, always with a setting that this persona never prefers."""
        name = self.dice.pick([name for name, markers in sorted(self.nobodys.items()) if markers])
        marker, forms = self.nobodys[name][-1], self.language.forms
        kind: BeatKind = "hearsay" if self.dice.chance(0.6) else "exception"
        form = self.dice.pick(forms.hearsay if kind == "hearsay" else forms.exception)
        self.decoys.append((name, marker, index + 1))
        phrase = self._drawn(marker, self._setting(marker).explicit)
        return Beat("", kind, opened(form.format(**self._props(context), marker=phrase)), attribute=name)

    def _forced(self, change: PlannedChange, context: str) -> Session:
        """A forced change. The words of both sides are fixed, so that every memory gets the same."""
        forms, cell = self.language.forms, change.cell
        if change.way == "plain":
            said = self._lead(cell, None) + self._drawn(change.value, self._setting(change.value).implied)
        else:
            ways = {"announced": forms.announced, "elsewhere": forms.announced, "reverted": forms.reverted}
            lead = True if change.way == "elsewhere" else None
            said = self._asked(ways[change.way], cell, change.value, lead=lead)
        start = self._starts(change.index)
        # A special name would tell the memory which session brings a change.
        session_id = f"acc_{change.index + 1:03}"
        scenario = self.dice.pick(forms.scenarios[context])
        lines: tuple[tuple[str, str | None], ...] = ((self._talk(context), None), (said, cell[1]))
        talk = [(exchange(text, self.dice.pick(forms.replies)), attribute) for text, attribute in lines]
        turns = turns_of(self.world.persona_id, session_id, start, talk, scenario, context)
        return Session(session_id=session_id, turns=turns, change=True)

    def _request(self, name: str, context: str, *, tested: bool, named: bool) -> str:
        attribute = self.language.by_name[name]
        request = self._of_life(attribute.practised(tested=tested), context)
        form = self.dice.pick(self.language.forms.named) if named else "{request}"
        return form.format(request=request, topic=attribute.topic)

    def _task(self, cell: Cell, sessions: int, *, tested: bool, named: bool | None = None) -> Beat:
        """A request. If a reply does not suit, the user says what would; in a test, only after a
        complaint."""
        context, name = cell
        named = self.dice.chance(0.5) if named is None else named
        truth, forms = self._truth(cell, sessions), self.language.forms
        wanted = truth.current or ""
        return Beat(
            "",
            "named" if named else "task",
            self._request(name, context, tested=tested, named=named),
            constraint=wanted,
            branch=self.dice.pick(forms.complaint) if tested else "",
            hint=self._asked(forms.corrected, cell, wanted, lead=False if tested else None),
            attribute=name,
            truth=truth,
        )

    def _neutral(self, context: str, sessions: int) -> Beat | None:
        """A request for which the user has a preference in the other context only, and has told it."""
        there = {known.attribute for known in self._known(sessions) if known.context != context}
        alone = sorted(name for name in there if (context, name) not in self.plan.values)
        if not alone:
            return None
        name, forms = self.dice.pick(alone), self.language.forms
        return Beat(
            "",
            "neutral",
            self._request(name, context, tested=True, named=self.dice.chance(0.5)),
            constraint=forms.neutral_reply,
            branch=self.dice.pick(forms.not_mine),
            attribute=name,
            truth=self._truth((context, name), sessions),
        )

    def _truth(self, cell: Cell, sessions: int) -> PreferenceTruth:
        decoys = (marker for about, marker, at in self.decoys if about == cell[1] and at <= sessions)
        return truth_at(self.world.persona_id, self.history, cell, sessions, decoys)

    def _tests(self) -> Iterable[TestSession]:
        for number, planned in enumerate(self.plan.tests, start=1):
            after, context = planned.after, planned.context
            cells = self._tested(context, after, planned.cell)
            if not cells:
                context = other_context(context)
                cells = self._tested(context, after, None)
            beats = [self._task(cell, after, tested=True) for cell in cells]
            if neutral := self._neutral(context, after):
                beats.append(neutral)
            # The first request again in other words, to detect contradictions.
            beats.append(self._task(cells[0], after, tested=True, named=beats[0].kind != "named"))
            start = self._starts(after - 1) + timedelta(hours=2)
            yield TestSession(after, f"test_{number:02}", self._script(context, start, beats))

    def _tested(self, context: str, after: int, first: Cell | None) -> list[Cell]:
        """Up to three known cells: ``first`` if given, then a changed one, then the others."""
        known = Counter(entry.cell for entry in self._known(after) if entry.context == context)
        changed = self.dice.shuffled(sorted({cell for cell in known if known[cell] > 1} - {first}))
        steady = self.dice.shuffled(sorted(known.keys() - set(changed) - {first}))
        return [*([first] if first else []), *changed[:1], *steady, *changed[1:]][:3]


def opened(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]
