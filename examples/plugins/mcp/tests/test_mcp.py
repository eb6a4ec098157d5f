"""memslot's conformance kit on a small MCP server, and what a wrong block or server is told."""

import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

from memory import BackendError, BackendUnavailable, ConfigError, open_memory
from memory.testing import MemoryContract

SERVER = Path(__file__).with_name("server.py")
OWNER = {"owner": "{scope}"}
TOOLS = {
    "store": {"tool": "add", "arguments": {**OWNER, "id": "{id}", "text": "{text}", "fields": "{fields}"}},
    "search": {
        "tool": "search",
        "arguments": {**OWNER, "query": "{query}", "limit": "{limit}"},
        "rows": "notes",
    },
    "list_all": {"tool": "list_notes", "arguments": OWNER, "rows": "notes"},
    "delete": {"tool": "delete", "arguments": {**OWNER, "id": "{id}"}},
}
OVER_STDIO = {**TOOLS, "command": [sys.executable, str(SERVER), "notes.db"]}


def config(block, **memory):
    return {"memory": {"backend": "mcp", "backends": {"mcp": block}, **memory}}


class TestMcp(MemoryContract):
    """Over HTTP, so that one server serves the whole kit."""

    @pytest.fixture(scope="class")
    @classmethod
    def notes(cls, tmp_path_factory):
        return tmp_path_factory.mktemp("notes") / "notes.db"

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, notes):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen([sys.executable, str(SERVER), str(notes), str(port)]) as process:
            reached = False
            while not reached and process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    reached = True
            yield f"http://127.0.0.1:{port}/mcp"
            process.terminate()

    @pytest.fixture
    def configured(self, url):
        return config({**TOOLS, "url": url})

    @pytest.fixture
    def fingerprint(self, notes):
        def rows():
            with closing(sqlite3.connect(notes)) as database:
                return database.execute("SELECT * FROM notes ORDER BY rowid").fetchall()

        return rows


async def talk(block, data_dir):
    settings = config(block, data_dir=str(data_dir), scope={"run_id": "r", "persona_id": "ada"})
    async with open_memory(settings) as slot:
        await slot.after_turn(user="My parrot is called Kiwi.", session_id="one")
        return await slot.before_turn("What is my parrot called?", session_id="two")


def test_a_process_for_each_scope(tmp_path):
    assert "Kiwi" in anyio.run(talk, OVER_STDIO, tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"command": []}, ConfigError, "give command or url, and not both"),
        (
            {"command": [], "url": "http://127.0.0.1:1/mcp", "delete": {"tool": "delete"}},
            ConfigError,
            r"add \{scope\} to delete",
        ),
        ({"command": [sys.executable, "-c", ""]}, BackendUnavailable, "no MCP server answers"),
        (
            {"list_all": {**TOOLS["list_all"], "rows": "x"}},
            BackendError,
            "list_notes answered no list at 'x'",
        ),
        ({"row": {"id": "uuid"}}, BackendError, "nothing at 'uuid', which is row.id"),
    ],
)
def test_a_wrong_block_or_server_is_told_what_is_wrong(tmp_path, change, error, words):
    with pytest.raises(error, match=words):
        anyio.run(talk, OVER_STDIO | change, tmp_path)
