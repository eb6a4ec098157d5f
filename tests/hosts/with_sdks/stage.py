"""A stage on which hosts behave as their users' reports say: long turns, edits, resent lists, notices, helpers.

One property holds after each scene: the memory holds what the user saw, each turn once, in order, for the right
person, and the counters agree. A host that cannot play a scene names it in ``cannot``, with the reason.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from host_contract import HostContract
from host_model import HostModel, ModelTurn
from host_pages import assert_on_the_page, verdict

NOTICE = "<task-notification><task-id>b1</task-id><status>completed</status></task-notification>"
TURNS = 120
WORDS = [
    "tea",
    "leaves",
    "water",
    "cup",
    "steam",
    "spoon",
    "shelf",
    "kettle",
    "lamp",
    "table",
    "garden",
    "river",
]


def long_text(count: int) -> str:
    """Words of a long answer, or of a page that a tool read."""
    return " ".join(WORDS[at % len(WORDS)] for at in range(count))


class LongModel(HostModel):
    """A model whose answers are long.

    Args:
        words: of each answer.
    """

    def __init__(self, words: int = 600) -> None:
        super().__init__()
        self._tail = long_text(words)

    def call(self, prompt: str, *, after_tool: bool = False) -> ModelTurn:
        turn = super().call(prompt, after_tool=after_tool)
        self.shown[:] = self.shown[-2:]  # long prompts add up
        return turn if turn.calls_tool else ModelTurn(f"{turn.text} {self._tail}")


def _head(text: str) -> str:
    """The beginning of a long answer, by which it is told from others; a host may say more before it."""
    head = text.partition(" tea leaves")[0].strip()
    return head[head.rfind("Answer ") :] if "Answer " in head else head


def judge(recorded: list[str], seen: list[tuple[str, str]]) -> dict[str, int]:
    """:func:`verdict` of texts that are questions and answers in turn."""
    heads = [*map(_head, recorded)]
    return verdict([*zip(heads[::2], heads[1::2], strict=False)], seen)


NOTHING_WRONG = {"lost": 0, "duplicated": 0, "false": 0}


async def play(stage: Any, turns: int) -> dict[str, int]:
    """Play turns of one conversation, and judge them.

    What is recorded is taken out of the memory again, since the suite's memory reads all it has at every search.
    """
    recorded: list[str] = []
    seen: list[tuple[str, str]] = []
    for at in range(1, turns + 1):
        seen.append((f"Sentence {at}.", _head(await stage.host.ask(f"Sentence {at}."))))
        if at % 10 == 0 or at == turns:
            recorded += await stage.recorded()
            stage.store.rows.clear()
    judged = judge(recorded, seen)
    in_order = [*map(_head, recorded)] == [text for turn in seen for text in turn]
    return judged if in_order or any(judged.values()) else {**judged, "out of order": 1}


@dataclass(frozen=True)
class Said:
    """A message of a list that a front end sends. An empty ``id`` stands for none."""

    role: str
    text: str
    id: str = ""


class InLife(HostContract):
    """The scenes. A driver has the acts that its SDK knows: ``edit``, ``regenerate``, ``resend``, ``leave``,
    ``ask_through_helper``, ``approve``, ``summarise``.

    Class attributes:
        name: of the host whose row in docs/hosts.md this class shows.
        parts: how many parts without words the driver's ``picture`` adds, at best one of every kind.
        takes_any_role: whether a run's input may hold a message of a role that nobody knows.
        keeps_ids_apart: whether the SDK keeps two messages of the same id.
    """

    name: ClassVar[str] = ""
    parts: ClassVar[int] = 1
    takes_any_role: ClassVar[bool] = False
    keeps_ids_apart: ClassVar[bool] = True

    @asynccontextmanager
    async def scene(self, act: str = "", model: HostModel | None = None, **policy: Any) -> AsyncIterator[Any]:
        async with self.on_stage(model, **policy) as stage:
            if act and not hasattr(stage.host, act):
                pytest.fail(
                    f"this host's driver has no act {act!r}; name the scene in cannot, with the reason"
                )
            yield stage
            status = stage.turns.status()
            rows = {row.labels["event_id"] for row in stage.store.rows.values()}
            assert status["recorded"] - status["corrected"] == len(rows)
            assert status["not_recorded"] == 0

    async def test_a_hundred_and_twenty_long_turns(self):
        async with self.on_stage(LongModel()) as stage:
            judged, status = await play(stage, TURNS), stage.turns.status()
            assert judged == NOTHING_WRONG
            assert (status["recorded"], status["not_recorded"]) == (TURNS, 0)
            if self.name:
                assert_on_the_page(self.name, TURNS, status["recorded"], judged)

    async def test_a_tool_result_of_fifteen_thousand_words(self, monkeypatch):
        monkeypatch.setattr(sys.modules[type(self).__module__], "TOOL_RESULT", long_text(15_000))
        model = LongModel(5)
        model.uses_tool = True
        async with self.scene(model=model) as stage:
            asked = [f"Sentence {at}." for at in range(1, 4)]
            turns = [(said, _head(await stage.host.ask(said))) for said in asked]
            assert judge(await stage.recorded(), turns) == NOTHING_WRONG

    async def test_an_edited_question_replaces_the_first(self):
        async with self.scene("edit") as stage:
            await stage.host.ask("I like green tea.")
            await stage.host.edit("I like oolong tea.")
            assert await stage.recorded() == ["I like oolong tea.", "Answer 2."]

    async def test_a_regenerated_answer_replaces_the_first(self):
        async with self.scene("regenerate") as stage:
            await stage.host.ask("Which tea?")
            await stage.recorded()
            await stage.host.regenerate()
            assert await stage.recorded() == ["Which tea?", "Answer 2."]

    async def test_a_front_end_that_sends_the_whole_list_each_time(self, monkeypatch):
        async with self.scene("resend") as stage:
            said: list[Said] = []
            asked: list[str] = []
            search = stage.store.search

            async def searched(space: str, query: str, **more: Any) -> Any:
                asked.append(query)
                return await search(space, query, **more)

            monkeypatch.setattr(stage.store, "search", searched)
            for at in range(1, 5):
                said.append(Said("user", f"Sentence {at}.", f"q{at}"))
                said.append(Said("assistant", await stage.host.resend(said), f"a{at}"))
            assert await stage.recorded() == [message.text for message in said]
            assert asked == [message.text for message in said if message.role == "user"]

    @pytest.mark.parametrize("ids", ["none", "one for each turn", "one for all"])
    async def test_a_list_with_odd_ids_and_unknown_messages_loses_no_words(self, ids):
        if ids != "none" and not self.keeps_ids_apart:
            pytest.skip("the SDK replaces a message by the next one of its id")
        async with self.scene("resend") as stage:
            said: list[Said] = []
            for at in range(1, 4):
                of_turn = {"none": "", "one for each turn": f"m{at}", "one for all": "m"}[ids]
                said.append(Said("user", f"Sentence {at}.", of_turn))
                if self.takes_any_role:
                    said.append(Said("plugin", "A plugin's words.", of_turn))
                said.append(Said("assistant", await stage.host.resend(said), of_turn))
            assert await stage.recorded() == [one.text for one in said if one.role != "plugin"]
            assert stage.turns.status()["parts_left_out"] == 3 * self.takes_any_role
            named = [("left_out", "a turn is recorded without 1 plugin message")]
            assert stage.troubles == named * 3 * self.takes_any_role

    async def test_what_the_host_says_in_the_users_name_is_not_recorded(self):
        async with self.scene() as stage:
            await stage.host.ask("I like oolong tea.")
            await stage.host.ask(NOTICE)
            await stage.host.ask("Which tea?\n<system-reminder>Be brief.</system-reminder>")
            assert await stage.recorded() == ["I like oolong tea.", "Answer 1.", "Which tea?", "Answer 3."]

    async def test_what_holds_no_words_is_counted_and_named(self):
        async with self.scene() as stage:
            await stage.host.ask("I like oolong tea.", picture=True)
            assert await stage.recorded() == ["I like oolong tea.", "Answer 1."]
            assert [what for what, _ in stage.troubles] == ["left_out"]
            assert stage.turns.status()["parts_left_out"] == self.parts

    async def test_the_task_of_a_helper_is_not_recorded(self):
        async with self.scene("ask_through_helper") as stage:
            answer = await stage.host.ask_through_helper("I like oolong tea.", "Helper, find the time.")
            assert await stage.recorded() == ["I like oolong tea.", answer]

    async def test_a_stream_that_is_left_early_spoils_no_later_turn(self):
        async with self.scene("leave") as stage:
            await stage.host.leave("Which tea?")
            await asyncio.sleep(0.2)
            await stage.host.ask("I like oolong tea.")
            recorded = await stage.recorded()
            assert recorded[-2] == "I like oolong tea."
            assert len(recorded) in (2, 4)  # a host may finish what nobody reads any more
            assert recorded.count("Which tea?") == len(recorded) // 2 - 1

    async def test_an_approval_that_comes_after_a_restart(self):
        async with self.scene("approve") as stage:
            async for at, _ in stage.host.approve("I like oolong tea."):
                recorded = await stage.recorded()
                assert len(recorded) == (2 if at == "answered" else 0)
            assert recorded[0] == "I like oolong tea."

    async def test_ten_people_in_one_process(self):
        people = [f"person-{at}" for at in range(10)]
        async with self.scene() as stage:
            for turn in range(2):
                asked = [
                    stage.host.ask(f"I am {who}, turn {turn}.", who=who, conversation=who) for who in people
                ]
                await asyncio.gather(*asked)
            await stage.recorded()
            spaces: dict[str, set[str]] = {}
            for row in stage.store.rows.values():
                if row.labels["role"] == "user":
                    spaces.setdefault(row.text.split(",")[0], set()).add(row.space)
            assert len(spaces) == 10
            assert all(len(of_one) == 1 for of_one in spaces.values())
            assert len(set.union(*spaces.values())) == 10
            assert len(stage.store.rows) == 40

    async def test_a_summary_in_the_middle(self):
        async with self.scene("summarise") as stage:
            for at in range(1, 4):
                await stage.host.ask(f"Sentence {at}.")
            await stage.recorded()
            await stage.host.summarise()
            for at in range(4, 7):
                await stage.host.ask(f"Sentence {at}.")
            recorded = await stage.recorded()
            assert recorded[::2] == [f"Sentence {at}." for at in range(1, 7)]
            assert len(recorded) == 12
