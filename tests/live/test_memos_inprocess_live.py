"""The conformance kit on MemOS in this process, over the database and language model of a real server beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from memos_rig import MemosProcess
from test_memos_live import OnServer, config

from memory import BackendError, MemoryScope, RetrieveRequest, open_memory
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import Fingerprint

_REGISTRY = MemoryAdapterRegistry()
FINE: dict[str, Any] = {"async_mode": "sync", "mode": "fine"}
BLOCK: dict[str, Any] = {"transport": "inprocess"}
LIFE = """
import asyncio, json, logging, os, sys, threading
from pathlib import Path
from chonkie import tokenizer
from memory import SupportsReadiness, open_memory

tokenizer._chonkie_tokenizer_classes["gpt2"] = tokenizer.CharacterTokenizer
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
before = (logging.root.handlers[:], logging.root.level, dict(os.environ))

async def live(drink):
    async with open_memory(json.loads(sys.argv[1])) as memory:
        await memory.after_turn(session_id="s", user=f"I like {drink} tea.")
        state = await memory.capability(SupportsReadiness).wait_until_ready(memory.scope, 30)
        section = await memory.before_turn("Which tea do I like?", session_id="s")
        await memory.reset_scope(memory.scope)
    return state.state, drink in section

told = [asyncio.run(live(drink)) for drink in ("oolong", "sencha")]
for thread in threading.enumerate():  # anyio's ends just after its loop
    if not thread.daemon and thread is not threading.main_thread():
        thread.join(5)
print(json.dumps({
    "told": told,
    "same": (logging.root.handlers, logging.root.level, dict(os.environ)) == before,
    "here": sorted(path.name for path in Path().iterdir()),
    "sockets": sum(path.is_socket() for path in Path("/proc/self/fd").iterdir()),
    "threads": sorted({thread.name for thread in threading.enumerate() if not thread.daemon}),
    "daemons": sorted({thread.name for thread in threading.enumerate() if thread.daemon}),
}))
"""


@pytest.fixture(scope="module", autouse=True)
def inprocess(memos_rig_process: MemosProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MemOS' settings, its offline tokenizer, and one adapter that keeps MemOS up until the last test."""
    from chonkie import tokenizer

    with pytest.MonkeyPatch.context() as patch:
        for name, value in memos_rig_process.settings.items():
            if name != "MEMOS_BASE_PATH":
                patch.setenv(name, value)
        patch.setitem(tokenizer._chonkie_tokenizer_classes, "gpt2", tokenizer.CharacterTokenizer)
        settings = load_config(config("http://unused.invalid", **BLOCK))
        keeper = _REGISTRY.create(settings, data_dir=tmp_path_factory.mktemp("memos"))
        anyio.run(keeper.health)
        yield
        anyio.run(keeper.aclose)


class _InProcess(OnServer):
    @pytest.fixture
    def configured(self) -> dict[str, Any]:
        return config("http://unused.invalid", **BLOCK, **self.block)

    @pytest.fixture
    def fingerprint(self, memos_rig_process: MemosProcess) -> Fingerprint:
        return memos_rig_process.memories


class TestAsync(_InProcess):
    """As configured by default."""

    without_ids: ClassVar[dict[str, str]] = {
        "native_ids": "of raw memories, which MemOS replaces by what it makes of them"
    }


class TestFine(_InProcess):
    """The answer to a write waits for the model."""

    block: ClassVar[dict[str, Any]] = FINE


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_both_transports_are_one_memory(memos_rig_process: MemosProcess) -> None:
    scope = MemoryScope(run_id=os.urandom(6).hex(), persona_id="ada")
    through_server = open_memory(config(memos_rig_process.url, **FINE), scope=scope)
    async with through_server as there, open_memory(config("http://unused.invalid", **BLOCK, **FINE)) as here:
        await here.setup_scope(scope)
        await there.after_turn(session_id="s", event_id="e1", user="My parrot is called Kiwi.")
        request = RetrieveRequest(query="What is the parrot called?", scope=scope, session_id="s")
        answers = [await slot.retrieve(request) for slot in (there, here)]
        await here.reset_scope(scope)
        assert (await there.retrieve(request)).entries == ()
    assert answers[0].entries == answers[1].entries != ()
    assert answers[0].raw == answers[1].raw


async def test_a_lost_database_is_told_without_the_text(memos_rig_process: MemosProcess) -> None:
    async with open_memory(config("http://unused.invalid", **BLOCK, **FINE)) as memory:
        with memos_rig_process.no_database():
            receipt = await memory.after_turn(session_id="s", user="My diary says marmalade.")
            with pytest.raises(BackendError) as asked:
                await memory.before_turn("What of my marmalade?", session_id="s")
            assert (await memory.health()).status == "unavailable"
        assert (receipt.status, len(receipt.native_ids)) == ("unknown", 1)
        assert "marmalade" not in f"{receipt.warnings} {asked.value} {asked.value.diagnostics}"
        assert await memory.before_turn("What of my marmalade?", session_id="s") == ""


def test_opened_and_closed_again_it_leaves_the_process_as_it_was(
    memos_rig_process: MemosProcess, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / ".env").write_text("OPENAI_API_KEY=from-dotenv\nPOSTGRES_HOST=from-dotenv\n")
    block = config("http://unused.invalid", **BLOCK)
    block["memory"] |= {
        "data_dir": str(tmp_path / "data"),
        "scope": {"run_id": os.urandom(6).hex(), "persona_id": "p"},
    }
    done = subprocess.run(
        [sys.executable, "-c", LIFE, json.dumps(block)],
        cwd=here,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == {
        "told": [["ready", True], ["ready", True]],
        "same": True,
        "here": [".env"],
        "sockets": 0,
        "threads": ["MainThread"],
        # MemOS leaves these to end by themselves.
        "daemons": ["SchedulerMetricsMonitor", "threadpool_monitor"],
    }
    assert "tea" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "here"]
