"""The suite of hosts on a Nanobot that finds the memory by its entry point. Its model is a server of the test."""

import json
import tempfile
from pathlib import Path
from typing import Any

from host_model import TOOL_RESULT, HostModel, HostUnderTest
from host_support import Living
from loopback_model import Model
from nanobot import Nanobot
from nanobot_support import nanobot_config

from memory.hosts.nanobot import tool
from memory.hosts.table import HOSTS


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
        self._bots: dict[str, Any] = {}

    async def bot(self, who: str = "ada") -> Any:
        if who not in self._bots:
            config = nanobot_config(Path(self._directory.name) / who, self._server)
            workspace = config.parent / "workspace"
            workspace.mkdir()
            (workspace / "page.txt").write_text(TOOL_RESULT)
            if self._memory:
                named = workspace / "memslot.yaml"
                named.touch()
                tool._open[named.absolute()] = self._memory
            self._bots[who] = Nanobot.from_config(config)
            await self._bots[who].__aenter__()
        return self._bots[who]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        bot = await self.bot(who)
        return str((await bot.run(said, session_key=f"sdk:{conversation}")).content)

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        bot = await self.bot()
        running = await bot.run_streamed(said, session_key=f"sdk:{conversation}")
        async for _ in running.stream_events():
            pass
        return str((await running.wait()).content)

    async def leave(self, said: str) -> None:
        bot = await self.bot()
        running = await bot.run_streamed(said, session_key="sdk:one")
        async for _ in running.stream_events():
            break
        await running.cancel()

    async def summarise(self) -> None:
        bot = await self.bot()
        await bot.runtime.compact_session("sdk:one")

    async def kept(self, conversation: str) -> str:
        bot = await self.bot()
        return str(bot.sessions.export(f"sdk:{conversation}").messages)

    async def aclose(self) -> None:
        for bot in self._bots.values():
            await bot.__aexit__(None, None, None)
        self._server.__exit__(None, None, None)
        self._directory.cleanup()


class TestNanobot(Living):
    name = "nanobot"
    cannot = HOSTS["nanobot"].cannot

    def host(self, memory: Any, model: HostModel) -> Bots:
        return Bots(memory, model)
