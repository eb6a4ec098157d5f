"""An MCP server as a memory: the preset over a model of the reference server, and over itself where it is named."""

import json
import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from variants import plain

from memory import BackendError, BackendTimeout, BackendUnavailable, ConfigError, MemoryScope, open_memory
from memory.adapter import BackendProtocolError
from memory.backends.mcp.options import McpOptions
from memory.backends.mcp.servers import Servers, at, filled
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract

SERVER = Path(__file__).with_name("graph_server.py")
NOTES = Path(__file__).with_name("notes_server.py")
OWNER = {"owner": "{scope}"}
SHARED = {
    "preset": None,
    "store": {"tool": "add", "arguments": {**OWNER, "key": "{key}", "text": "{text}", "fields": "{fields}"}},
    "search": {
        "tool": "search",
        "arguments": {**OWNER, "query": "{any_word}", "limit": "{limit}"},
        "rows": "found",
    },
    "read": {"tool": "read", "arguments": {**OWNER, "key": "{key}"}, "error": "error", "absent": "ABSENT"},
    "list_all": {"tool": "page_of", "arguments": {**OWNER, "page": "{page}"}, "rows": "rows"},
    "delete": {"tool": "drop", "arguments": {**OWNER, "key": "{key}"}, "error": "error"},
    "row": {"name": "id", "text": "text", "fields": "fields"},
}
# Real servers, where the environment names them: a command, and for basic-memory the URL of one that runs.
REAL = {
    "server-memory": os.environ.get("MCP_SERVER_MEMORY", ""),
    "memory-libsql": os.environ.get("MCP_MEMORY_LIBSQL", ""),
    "basic-memory": os.environ.get("MCP_BASIC_MEMORY", ""),
}


def config(*command, **block):
    block = block or {"preset": "server-memory", "command": list(command)}
    return {"memory": {"backend": "mcp", "backends": {"mcp": block}}}


def real(preset):
    at = {"url": REAL[preset]} if REAL[preset].startswith("http") else {"command": [REAL[preset]]}
    return config(preset=preset, **at)


@contextmanager
def notes(*arguments):
    """The block of a server over HTTP, while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(NOTES), str(port), *arguments]) as process:
        try:
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None
            yield {**SHARED, "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            process.terminate()


@pytest.mark.thorough
class TestPreset(MemoryContract):
    config = config(sys.executable, str(SERVER))
    anyio_backends = ("asyncio",)


@pytest.mark.thorough
class TestShared(MemoryContract):
    """A server over HTTP that tells scopes apart by an argument."""

    anyio_backends = ("asyncio",)

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls):
        with notes() as block:
            yield config(**block)

    @pytest.fixture
    def configured(self, served):
        return served

    @pytest.fixture
    def fingerprint(self):
        """What such a server holds is seen by its tools alone."""


def _real(preset):
    body = {"config": real(preset), "anyio_backends": ("asyncio",)}
    mark = pytest.mark.skipif(not REAL[preset], reason=f"the environment names no {preset}")
    return mark(pytest.mark.thorough(type(f"TestReal_{preset}", (MemoryContract,), body)))


for _preset in REAL:
    globals()[f"TestReal_{_preset}"] = _real(_preset)


def doctor(block, directory):
    file = directory / "memslot.yaml"
    scope = {"run_id": "r", "persona_id": "ada"}
    file.write_text(
        json.dumps({"memory": {**config(**block)["memory"], "scope": scope, "data_dir": str(directory)}})
    )
    ran = subprocess.run(
        [sys.executable, "-c", "import memslot; memslot.main()", "doctor", str(file), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {check["name"]: check["status"] for check in json.loads(ran.stdout)["checks"]}


@pytest.mark.thorough
def test_the_doctor_decides_whether_a_shared_server_keeps_scopes_apart(tmp_path):
    with notes() as honest:
        assert doctor(honest, tmp_path)["isolation"] == "passed"
    with notes("ignore") as careless:
        assert doctor(careless, tmp_path)["isolation"] == "failed"


def test_a_shared_server_needs_to_be_told_the_scope():
    shared = {**SHARED, "url": "http://127.0.0.1:1/mcp", "list_all": {"tool": "all"}}
    with pytest.raises(ConfigError, match=r"put \{scope\} into the url, or into the arguments of list_all"):
        MemoryAdapterRegistry().create(load_config(config(**shared)))


def test_where_nobody_listens_the_server_is_unavailable(tmp_path):
    block = config(**SHARED, url="http://127.0.0.1:1/mcp")["memory"] | {"data_dir": str(tmp_path)}

    async def talk():
        async with open_memory({"memory": block}) as memory:
            with pytest.raises(BackendUnavailable) as raised:
                await memory.setup_scope(MemoryScope(run_id="r", persona_id="ada"))
            assert not raised.value.sent

    anyio.run(talk)


@pytest.mark.thorough
@pytest.mark.parametrize("loop", plain("asyncio", of=["asyncio", "trio"]))
def test_what_is_said_in_one_process_is_known_in_the_next(tmp_path, loop):
    block = config(sys.executable, str(SERVER))["memory"]
    block |= {"data_dir": str(tmp_path), "scope": {"run_id": "r", "persona_id": "ada"}}

    async def talk():
        async with open_memory({"memory": block}) as memory:
            receipt = await memory.after_turn(user="My parrot is called Kiwi.", session_id="1")
            assert receipt.status == "committed"
            assert len(receipt.native_ids) == 1
        async with open_memory({"memory": block}) as memory:
            known = await memory.before_turn("What is my parrot called?", session_id="2")
            bob = memory.for_scope(persona_id="bob")
            return known, await bob.before_turn("What is my parrot called?", session_id="2")

    known, foreign = anyio.run(talk, backend=loop)
    assert "Kiwi" in known
    assert foreign == ""


@pytest.mark.thorough
async def test_a_scope_has_one_process_at_a_time(tmp_path):
    """The reference server writes its file whole: of sixty writes through two of them three were lost."""
    ada, bob = (MemoryScope(run_id="r", persona_id=name) for name in ("ada", "bob"))
    block = config(sys.executable, str(SERVER))
    async with (
        open_memory(block, scope=ada, data_dir=tmp_path) as ada_memory,
        open_memory(block, scope=bob, data_dir=tmp_path) as bob_memory,
    ):
        with pytest.raises(
            BackendUnavailable, match="is open elsewhere in this process; close the other user"
        ):
            await bob_memory.setup_scope(ada)
        assert (await ada_memory.health()).status == (await bob_memory.health()).status == "ok"
    async with open_memory(block, scope=ada, data_dir=tmp_path):
        pass


@pytest.mark.thorough
def test_what_a_failing_tool_says_reaches_no_error(tmp_path):
    options = McpOptions.model_validate(config(sys.executable, str(SERVER))["memory"]["backends"]["mcp"])
    servers = Servers(options, tmp_path)
    assert options.delete is not None
    try:
        with pytest.raises(BackendError) as raised:
            servers.call("scope", options.delete, names=["boom"])
        assert str(raised.value) == "the tool delete_entities failed"
    finally:
        servers.close_all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("block", "error", "words"),
    [
        (
            {"store": {"tool": "remember"}},
            BackendError,
            "no tool remember; it has create_entities, delete_ent",
        ),
        ({"row": {"name": "uuid"}}, BackendProtocolError, "nothing at 'uuid', where row.name is"),
        ({"row": {"text": "said", "fields": "entityType"}}, BackendProtocolError, "nothing at 'said'"),
        (
            {"command": [sys.executable, "-c", ""]},
            BackendUnavailable,
            "it ended, or takes longer than timeout_s",
        ),
        ({"command": ["sleep", "60"], "timeout_s": 0.2}, BackendUnavailable, "it ended, or takes longer"),
    ],
)
def test_what_is_wrong_with_a_server_or_its_block_is_said(tmp_path, block, error, words):
    given = {"preset": "server-memory", "command": [sys.executable, str(SERVER)], **block}
    memory = config(**given)["memory"]
    memory |= {"data_dir": str(tmp_path), "scope": {"run_id": "r", "persona_id": "ada"}}

    async def play():
        async with open_memory({"memory": memory}) as slot:
            await slot.after_turn(user="My passport is in the drawer.", session_id="s")
            await slot.before_turn("Where is my passport?", session_id="t")

    with pytest.raises(error, match=words):
        anyio.run(play)


def test_a_server_that_ends_before_it_is_written_to_is_said_to_have_ended(tmp_path, monkeypatch):
    """Which of the SDK's tasks notices first is a matter of luck."""

    @asynccontextmanager
    async def broken(*_):
        raise ExceptionGroup("tasks", [anyio.BrokenResourceError()])
        yield

    monkeypatch.setattr("memory.backends.mcp.servers._opened", broken)
    servers = Servers(McpOptions(preset="server-memory", command=("true",)), tmp_path)
    with pytest.raises(BackendUnavailable, match="it ended"):
        servers.check("scope")


@pytest.mark.thorough
async def test_a_tool_that_takes_too_long_is_a_time_out(tmp_path, monkeypatch):
    """As the SDK says it, whose error has no name of its own for that."""
    from mcp import ClientSession, McpError
    from mcp.types import ErrorData

    async def late(*_):
        raise McpError(ErrorData(code=408, message="waited for 'my passport'"))

    ada = MemoryScope(run_id="r", persona_id="ada")
    async with open_memory(config(sys.executable, str(SERVER)), scope=ada, data_dir=tmp_path) as slot:
        monkeypatch.setattr(ClientSession, "call_tool", late)
        with pytest.raises(BackendTimeout) as raised:
            await slot.before_turn("Where is my passport?", session_id="s")
    assert "passport" not in f"{raised.value} {raised.value.diagnostics}"


@pytest.mark.thorough
def test_processes_are_ended_where_there_are_too_many(tmp_path):
    block = config(sys.executable, str(SERVER))["memory"]["backends"]["mcp"] | {"open_servers": 1}
    options = McpOptions.model_validate(block)
    servers = Servers(options, tmp_path)
    assert options.list_all is not None
    try:
        for scope in ("one", "two", "one"):
            assert servers.rows(scope, options.list_all) == []
            assert list(servers._open) == [scope]
    finally:
        servers.close_all()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://ada:hunter2@127.0.0.1:1/{scope}", "must not hold credentials; give them in headers"),
        ("http://127.0.0.1:1/{scope}?token=hunter2", "must not hold a query"),
        ("127.0.0.1:1/{scope}", "must be an http or https URL"),
    ],
)
def test_a_url_is_an_address_without_credentials(url, words):
    """It is shown by health, and published with the configuration."""
    with pytest.raises(ConfigError, match=rf"mcp\.url: {words}") as raised:
        MemoryAdapterRegistry().create(load_config(config(preset="server-memory", url=url)))
    assert "hunter2" not in str(raised.value)


def test_a_block_says_what_is_missing():
    block = {"memory": {"backend": "mcp", "backends": {"mcp": {"preset": None, "command": ["x"]}}}}
    with pytest.raises(ConfigError, match="give store, search, list_all, delete, or a preset: server-memory"):
        MemoryAdapterRegistry().create(load_config(block))


def test_another_server_is_another_place_to_a_journal():
    """Else it would hold an event for delivered that the new server never got."""
    blocks = [
        {"preset": "server-memory"},
        {"preset": "memory-libsql"},
        {"preset": "server-memory", "command": ["other"]},
        {"preset": "server-memory", "directory": "/elsewhere"},
        {"preset": "basic-memory"},
        {"preset": "basic-memory", "url": "http://127.0.0.1:8001/mcp"},
    ]
    stores = [MemoryAdapterRegistry().create(load_config(config(**block))).traits.store for block in blocks]
    assert len(set(stores)) == len(blocks)


def test_templates_and_places():
    template = {"all": {"$each": {"n": "{name}", "o": ["{text}"]}}, "fixed": 1, "q": "{query}"}
    values = {"each": [{"name": "a", "text": "A {name}"}, {"name": "b", "text": "B"}], "query": "x"}
    made = filled(template, values)
    assert made == {"all": [{"n": "a", "o": ["A {name}"]}, {"n": "b", "o": ["B"]}], "fixed": 1, "q": "x"}
    assert at({"a": [{"b": 1}]}, "a.0.b") == 1
    assert at({"a": []}, "a.0.b") is None
    assert at([1], "") == [1]
