"""A slot as a context provider of Microsoft's Agent Framework, in a real agent with a scripted client."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Message

from memory.hosts.agent_framework import SlotContextProvider


class Scripted(BaseChatClient):
    """Keeps what it was shown, instructions included."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        self.shown.append(f"{[one.text for one in messages]} {options.get('instructions')}")

        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [f"Answer {len(self.shown)}."])])

        return answer()


async def test_it_remembers_across_sessions_and_keeps_the_section_in_no_history(told: Any) -> None:
    client = Scripted()
    bot = Agent(client, context_providers=[SlotContextProvider(told.memory)])
    await bot.run("I like oolong tea.", session=bot.create_session())
    assert await told.texts() == ["I like oolong tea.", "Answer 1."]
    session = bot.create_session()
    await bot.run("Which tea do I like?", session=session)
    assert "I like oolong tea." in client.shown[-1]
    await bot.run("Thanks.", session=session)
    assert client.shown[-1].count("<memory-context") <= 1
    assert "<memory-context" not in str(session.to_dict())
    texts = await told.texts()
    assert texts.count("I like oolong tea.") == 1
    assert len({row.labels["session_id"] for row in told.store.rows.values()}) == 2


async def test_a_failing_memory_costs_no_turn(told: Any) -> None:
    told.store.faults.add("500", times=None)
    client = Scripted()
    bot = Agent(client, context_providers=[SlotContextProvider(told.memory)])
    assert (await bot.run("I like oolong tea.")).text == "Answer 1."
    assert told.memory.status()["recalls_failed"] == 1
    told.store.faults.clear()
