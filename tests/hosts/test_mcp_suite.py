"""The suite of hosts on the MCP server, whose client is a program that asks its tools around a scripted model."""

from typing import Any

from host_model import HostModel, HostUnderTest, person
from host_support import Hosted
from mcp_client import connected

from memory.hosts.mcp.server import build_server
from memory.hosts.table import HOSTS
from memory.runtime import MemoryItems


class Client(HostUnderTest):
    """An agent of MCP alone: it searches before its model, and stores what was said after it."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._said: dict[str, list[str]] = {}

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        async with connected(build_server(MemoryItems(self._memory, person(who)))) as session:
            failed, found = await session.call("memory_search", {"query": said})
            prompt = said if failed else f"{said}\n{found}"
            turn = await self._model.acall(prompt)
            if turn.calls_tool:
                turn = await self._model.acall(prompt, after_tool=True)
            for text in (said, turn.text):
                await session.call("memory_store", {"content": text})
        self._said.setdefault(conversation, []).extend((said, turn.text))
        return turn.text

    async def kept(self, conversation: str) -> str:
        return "\n".join(self._said[conversation])


class TestMcp(Hosted):
    cannot = HOSTS["mcp"].cannot

    def host(self, memory: Any, model: HostModel) -> Client:
        return Client(memory, model)
