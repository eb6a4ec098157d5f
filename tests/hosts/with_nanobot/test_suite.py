"""The suite of hosts on Nanobot's SDK and on a stock Nanobot, whose model is a server on the loopback."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from host_model import TOOL_RESULT, HostModel, HostUnderTest, person
from host_support import Living
from loopback_model import Model
from nanobot import Nanobot
from nanobot_support import nanobot_config

from memory.hosts._table import HOSTS
from memory.hosts.nanobot import tool
from memory.hosts.nanobot.sdk import attach


class ScriptedModel(Model):
    """The suite's model behind Nanobot's real client."""

    def __init__(self, script: HostModel) -> None:
        super().__init__()
        self.script = script

    def message_to(self, body: Any) -> dict[str, Any]:
        messages = body["messages"]
        turn = self.script.call(json.dumps(messages), after_tool=messages[-1]["role"] == "tool")
        said = {"content": turn.text, "reasoning_content": turn.thought}
        if not turn.calls_tool:
            return said
        call = {"name": "read_file", "arguments": json.dumps({"path": "page.txt"})}
        identity = f"call-{len(self.script.shown)}"
        return {**said, "tool_calls": [{"index": 0, "id": identity, "type": "function", "function": call}]}


class Bots(HostUnderTest):
    """A bot with a directory of its own for each person; the file in it is what its tool tells."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory = memory
        self._directory = tempfile.TemporaryDirectory()
        self._server = ScriptedModel(model)
        self._server.__enter__()
        self._bots: dict[str, tuple[Any, list[Any]]] = {}

    async def bot(self, who: str) -> tuple[Any, list[Any]]:
        """A bot, and the hooks of its runs."""
        if who not in self._bots:
            config = nanobot_config(Path(self._directory.name) / who, self._server)
            workspace = config.parent / "workspace"
            workspace.mkdir()
            (workspace / "page.txt").write_text(TOOL_RESULT)
            self._bots[who] = self.made(config, workspace, who)
            await self._bots[who][0].__aenter__()
        return self._bots[who]

    def made(self, config: Path, workspace: Path, who: str) -> tuple[Any, list[Any]]:
        bot = Nanobot.from_config(config)
        return bot, [attach(bot, self._memory, user_id=person(who)).hook] if self._memory else []

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        bot, hooks = await self.bot(who)
        return str((await bot.run(said, session_key=f"sdk:{conversation}", hooks=hooks)).content)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        bot, hooks = await self.bot("ada")
        running = await bot.run_streamed(said, session_key=f"sdk:{conversation}", hooks=hooks)
        async for _ in running.stream_events():
            pass
        return str((await running.wait()).content)

    async def leave(self, said: str) -> None:
        bot, hooks = await self.bot("ada")
        running = await bot.run_streamed(said, session_key="sdk:one", hooks=hooks)
        async for _ in running.stream_events():
            break
        await running.cancel()

    async def summarise(self) -> None:
        bot, _ = await self.bot("ada")
        await bot.runtime.compact_session("sdk:one")

    async def kept(self, conversation: str) -> str:
        bot, _ = await self.bot("ada")
        return str(bot.sessions.export(f"sdk:{conversation}").messages)

    async def bind_again(self) -> None:
        bot, _ = await self.bot("ada")
        attach(bot, self._memory)

    async def aclose(self) -> None:
        for bot, _ in self._bots.values():
            await bot.__aexit__(None, None, None)
        self._server.__exit__(None, None, None)
        self._directory.cleanup()


class StockBots(Bots):
    """Bots that find the memory by their entry point, and know of nothing else."""

    def made(self, config: Path, workspace: Path, who: str) -> tuple[Any, list[Any]]:
        named = workspace / "memslot.yaml"
        named.touch()
        tool._open[named.absolute()] = self._memory
        return Nanobot.from_config(config), []


class TestNanobot(Living):
    name = "nanobot"
    cannot = HOSTS["nanobot"].cannot

    def host(self, memory: Any, model: HostModel) -> Bots:
        return Bots(memory, model)


class TestStockNanobot(Living):
    cannot: ClassVar[Mapping[str, str]] = {
        **HOSTS["nanobot"].cannot,
        "people_never_mix": "a configuration names one person, and its workspace belongs to that one",
        "ten_people_in_one_process": "a configuration names one person, and its workspace belongs to that one",
        "a_second_memory_on_an_agent_is_refused": "a configuration names one memory",
    }

    def host(self, memory: Any, model: HostModel) -> StockBots:
        return StockBots(memory, model)
