"""The suite of hosts on Nanobot's SDK, whose model is a server on the loopback."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from host_support import Hosted
from loopback_model import Model
from nanobot import Nanobot
from nanobot_support import nanobot_config

from memory.hosts._table import HOSTS
from memory.hosts.nanobot.sdk import attach
from memory.testing import HostModel, HostUnderTest, person


class ScriptedModel(Model):
    """The suite's model behind Nanobot's real client."""

    def __init__(self, script: HostModel) -> None:
        super().__init__()
        self.script = script

    def answer_to(self, body: Any) -> str:
        return self.script.call(json.dumps(body["messages"])).text


class Bots(HostUnderTest):
    """A bot with a directory of its own for each person."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory = memory
        self._directory = tempfile.TemporaryDirectory()
        self._server = ScriptedModel(model)
        self._server.__enter__()
        self._bots: dict[str, tuple[Any, Any]] = {}

    async def bot(self, who: str) -> tuple[Any, Any]:
        if who not in self._bots:
            config = nanobot_config(Path(self._directory.name) / who, self._server)
            bot = Nanobot.from_config(config)
            self._bots[who] = bot, attach(bot, self._memory, scope=person(who))
            await bot.__aenter__()
        return self._bots[who]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        bot, attached = await self.bot(who)
        result = await bot.run(said, session_key=f"sdk:{conversation}", hooks=[attached.hook])
        return str(result.content)

    async def kept(self, conversation: str) -> str:
        exported = self._bots["ada"][0].sessions.export(f"sdk:{conversation}")
        return str(exported.messages)

    async def bind_again(self) -> None:
        bot, _ = await self.bot("ada")
        attach(bot, self._memory)

    async def aclose(self) -> None:
        for bot, _ in self._bots.values():
            await bot.__aexit__(None, None, None)
        self._server.__exit__(None, None, None)
        self._directory.cleanup()


class TestNanobot(Hosted):
    cannot = HOSTS["nanobot"].cannot

    def host(self, memory: Any, model: HostModel) -> Bots:
        return Bots(memory, model)
