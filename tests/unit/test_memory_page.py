"""``memslot view CONFIG``: what a memory knows, for a browser of this machine, over a real mem0."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from memory import open_memory_sync
from memory.cli._memory_page import MemoryServer

pytestmark = pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")


@contextmanager
def served(directory: Path) -> Iterator[tuple[MemoryServer, httpx.Client]]:
    config = {"memory": {"backend": "mem0", "scope": {"run_id": "r", "persona_id": "<b>ada</b>"}}}
    with open_memory_sync(config, data_dir=directory) as memory, MemoryServer(memory) as server:
        memory.after_turn(user="I like <i>oolong</i> tea.", assistant="Noted.", session_id="s")
        memory.after_turn(user="My sister lives in Lyon, France.", session_id="s")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with httpx.Client(base_url=server.url) as client:
            yield server, client
        server.shutdown()


def test_a_person_asks_sees_what_the_prompt_gets_and_deletes_a_row(tmp_path: Path) -> None:
    with served(tmp_path) as (server, client):
        page = client.get("/", params={"q": "Which tea do I like?"}).text
        assert "<i>oolong" not in page
        assert "<b>ada" not in page
        section = re.search(r"<pre>(.*?)</pre>", page, re.S)
        assert section is not None
        assert "I like <i>oolong</i> tea." in unescape(unescape(section[1]))
        assert [re.findall(r"<td>(.*?)</td>", row)[3] for row in page.split("<tr>")[2:]] == ["yes", "no"]
        native_id = re.search(r'name="id" value="([^"]+)"', page)
        assert native_id is not None
        form = {"id": native_id[1], "q": "tea"}
        assert client.post("/", data={**form, "token": "guessed"}).status_code == 403
        assert "oolong" in client.get("/", params={"q": "tea"}).text
        assert (
            client.post("/", data={**form, "token": server.token}, follow_redirects=True).status_code == 200
        )
        assert "oolong" not in client.get("/", params={"q": "tea"}).text
        gone = client.post("/", data={**form, "token": server.token})
        assert gone.status_code == 502, "it is not there"


def test_a_page_of_elsewhere_reads_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (_, client):
        refused = client.get("/", params={"q": "tea"}, headers={"Host": "evil.example"})
        assert (refused.status_code, "oolong" in refused.text) == (403, False)
        assert client.get("/").status_code == 200
