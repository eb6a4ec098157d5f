"""The stage of :class:`~host_contract.HostContract`: the model, the agent, and the results."""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import anyio

from memory import MemoryScope, MemorySlot
from memory.testing import FakeNativeStore

THOUGHT, TOOL_RESULT, PICTURE = "Private reasoning zqthought.", "It is noon zqtool.", "cXpwaWN0dXJl"


def person(name: str) -> MemoryScope:
    """The scope of one person in the suite."""
    return MemoryScope(run_id="app", persona_id=name)


class ModelDown(Exception):
    """The error of a scripted model that fails."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One reply of the model: a thought, then text, then a call of the tool ``clock`` or the answer."""

    text: str
    thought: str = THOUGHT
    calls_tool: bool = False


class HostModel:
    """The language model of a host under test. The host's real model class calls it.

    Attributes:
        shown: the prompt of each call, as text.
        uses_tool: whether it calls the tool ``clock`` once a turn.
        fails: the number of calls that fail next.
        holds: whether calls wait until the test cancels them.
        held: set once a call waits.
    """

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.uses_tool = self.holds = False
        self.fails = self._said = 0
        self.held, self._lock = threading.Event(), threading.Lock()

    def call(self, prompt: str, *, after_tool: bool = False) -> ModelTurn:
        """One call of the model.

        Args:
            prompt: everything that the SDK sends, as text.
            after_tool: whether the last message is the tool's result.

        Raises:
            ModelDown: the test ordered a failure.
        """
        with self._lock:
            self.shown.append(prompt)
            if self.fails:
                self.fails -= 1
                raise ModelDown("the model is down")
            if self.uses_tool and not after_tool:
                return ModelTurn("Let me look at the clock.", calls_tool=True)
            self._said += 1
            return ModelTurn(f"Answer {self._said}.")

    async def acall(self, prompt: str, *, after_tool: bool = False) -> ModelTurn:
        """Like :meth:`call`. It waits for ever while ``holds`` is set."""
        if self.holds:
            self.held.set()
            await anyio.sleep_forever()
        return self.call(prompt, after_tool=after_tool)


class HostUnderTest(ABC):
    """An agent of the host, bound to a memory, with a tool ``clock`` that answers :data:`TOOL_RESULT`."""

    @abstractmethod
    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        """Play one turn and return its answer. ``picture`` adds :data:`PICTURE` to the words."""

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        """Like :meth:`ask`, but streamed to its end."""
        raise NotImplementedError

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        """Like :meth:`ask`, by the SDK's blocking call."""
        raise NotImplementedError

    async def kept(self, conversation: str) -> str:
        """Everything that the host itself keeps of a conversation, as text."""
        raise NotImplementedError

    async def flush(self) -> None:  # noqa: B027 - most SDKs need none
        """Wait until the SDK has finished its work after the answer."""

    async def bind_again(self) -> None:
        """Give an agent a second memory. It must raise, at the latest when the agent runs."""
        raise NotImplementedError

    async def aclose(self) -> None:  # noqa: B027
        """Release the agent."""


@dataclass(frozen=True)
class Stage:
    model: HostModel
    store: FakeNativeStore
    memory: MemorySlot
    turns: Any  # of the memory
    host: HostUnderTest
    troubles: list[tuple[str, str]]  # the calls of ``on_trouble``

    async def recorded(self) -> list[str]:
        """Wait for pending writes, and return the stored texts in order."""
        await self.host.flush()
        assert await self.turns.drain(20)
        return [row.text for row in self.store.rows.values()]
