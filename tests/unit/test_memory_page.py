"""``memslot view CONFIG``: a memory and its turns, for a browser of this machine, over a real mem0."""

import re
import threading
from contextlib import contextmanager
from html import unescape
from importlib.util import find_spec

import httpx
import pytest

from memory import InputError, SupportsReadiness, open_memory_sync
from memory.cli._view import ViewServer

pytestmark = pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")


CONFIG = """
memory:
  backend: mem0
  scope: {run_id: r, persona_id: <b>ada</b>}
  journal: true
"""


@contextmanager
def served(directory):
    file = directory / "my.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    with open_memory_sync(file) as memory, ViewServer(memory, config=file, runs=directory) as server:
        memory.after_turn(user="I like <i>oolong</i> tea.", assistant="Noted.", session_id="s")
        memory.after_turn(user="My sister lives in Lyon, France.", session_id="s")
        memory.run(lambda slot: slot.capability(SupportsReadiness).wait_until_ready(slot.scope, 30))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with httpx.Client(base_url=server.url) as client:
            yield server, client
        server.shutdown()


def test_a_person_asks_sees_what_the_prompt_gets_and_deletes_a_row(tmp_path):
    with served(tmp_path) as (server, client):
        page = client.get("/", params={"q": "Which tea do I like?"}).text
        assert "<i>oolong" not in page
        assert "<b>ada" not in page
        section = re.search(r"<pre>(.*?)</pre>", page, re.S)
        assert "I like <i>oolong</i> tea." in unescape(unescape(section[1]))
        assert [re.findall(r"<td[^>]*>(.*?)</td>", row)[3] for row in page.split("<tr>")[2:]] == ["yes", "no"]
        native_id = re.search(r'name="id" value="([^"]+)"', page)
        form = {"id": native_id[1], "q": "tea"}
        assert client.post("/", data={**form, "token": "guessed"}).status_code == 403
        assert "oolong" in client.get("/", params={"q": "tea"}).text
        assert (
            client.post("/", data={**form, "token": server.token}, follow_redirects=True).status_code == 200
        )
        assert "oolong" not in client.get("/", params={"q": "tea"}).text
        gone = client.post("/", data={**form, "token": server.token})
        assert gone.status_code == 502, "it is not there"


def test_a_person_sees_everything_that_is_remembered_and_deletes_a_row_of_it(tmp_path):
    with served(tmp_path) as (server, client):
        page = client.get("/").text
        assert "<h2>3 memories</h2>" in page
        assert "I like &lt;i&gt;oolong&lt;/i&gt; tea." in page
        ids = re.findall(r'name="id" value="([^"]+)"', page)
        client.post("/", data={"id": ids[0], "token": server.token})
        assert re.findall(r'name="id" value="([^"]+)"', client.get("/").text) == ids[1:]


def test_a_turn_shows_what_was_asked_recalled_used_and_recorded_then(tmp_path):
    with served(tmp_path) as (server, client):
        memory = server.memory
        memory.before_turn("Which tea do I like?", session_id="later")
        memory.after_turn(user="Which tea do I like?", assistant="Oolong.", session_id="later")
        memory.after_turn(user="Now I like green tea.", session_id="later")
        turns = re.findall(r'<a href="(/turns/\d+)">', client.get("/turns").text)
        assert len(turns) == 4
        page = client.get(turns[1]).text
        assert "<h2>Asked</h2><p>Which tea do I like?</p>" in page
        rows = [
            re.findall(r"<td[^>]*>(.*?)</td>", row)
            for row in page[page.index("<h2>Recalled") : page.index("<h2>Recorded")].split("<tr>")[2:]
        ]
        assert (rows[0][0], rows[0][3]) == ("I like &lt;i&gt;oolong&lt;/i&gt; tea.", "yes")
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[1]) for row in rows)
        assert all(re.fullmatch(r"\d\.\d\d", row[2]) for row in rows)
        assert "green tea" not in page, "the memory of today has it, the turn had not"
        assert re.search(r"<h2>Recorded at [^<]+: committed</h2>", page)
        assert "<b>assistant</b> Oolong." in page
        assert "It is not known" in client.get(turns[0]).text, "nobody asked the memory in that turn"
        assert client.get("/turns/999").status_code == 404
        assert "0 runs in" in client.get("/runs").text


def test_a_deleted_row_and_a_reset_leave_no_recall(tmp_path):
    with served(tmp_path) as (server, client):
        memory = server.memory
        slot, recalls = memory.slot, memory.slot.delivery.recalls
        for number in (1, 2):
            memory.before_turn("Which tea do I like?", session_id=f"later {number}")
            memory.after_turn(user="Which tea do I like?", session_id=f"later {number}")
        turns = re.findall(r'<a href="(/turns/\d+)">', client.get("/turns").text)
        assert "oolong" in client.get(turns[0]).text
        native_id = re.search(r'name="id" value="([^"]+)"', client.get("/", params={"q": "oolong"}).text)
        client.post("/", data={"id": native_id[1], "token": server.token})
        assert "oolong" not in client.get(turns[0]).text
        memory.before_turn("Where does my sister live?", session_id="last")
        memory.after_turn(user="Where does my sister live?", session_id="last")
        [kept] = [turn.event for turn in server._recorded() if turn.event.session_id == "last"]
        assert recalls.of(kept)
        memory.run(lambda slot: slot.reset_scope(slot.scope))
        assert recalls.of(kept) is None
        assert slot.scope is not None


def test_a_memory_without_a_journal_says_where_turns_would_be(tmp_path):
    config = {"memory": {"backend": "full_history", "scope": {"run_id": "r", "persona_id": "ada"}}}
    with open_memory_sync(config, data_dir=tmp_path) as memory, ViewServer(memory) as server:
        with pytest.raises(InputError, match="no file whose journal"):
            server.page("turns", "")
        assert "does not list its memories" in (server.page("", "") or "")


def test_a_page_of_elsewhere_reads_nothing(tmp_path):
    with served(tmp_path) as (_, client):
        refused = client.get("/", params={"q": "tea"}, headers={"Host": "evil.example"})
        assert (refused.status_code, "oolong" in refused.text) == (403, False)
        assert client.get("/").status_code == 200
