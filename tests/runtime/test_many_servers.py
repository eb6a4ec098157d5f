"""Three ``memslot serve`` over one PostgreSQL, a proxy that sends each request anywhere, and kills."""

import os
import random
import threading
import time

import pytest
from many_servers import served
from postgres import NEEDS_POSTGRES, ask
from signet_support import daemon

from memory.storage.postgres import PostgresStore
from memory.testing import FakeBackend, FakeNativeStore, ScriptedLLM

SECONDS = min(2.0 * int(os.environ.get("MEMSLOT_ROUNDS", "8")), 20.0)
SESSIONS = 4


@pytest.fixture
def clean(state_url):
    ask(state_url, "CREATE EXTENSION IF NOT EXISTS vector", "DROP TABLE IF EXISTS many")
    return state_url


def prompt(number, session):
    said = f"In project {session} I bought tea number {number}x."
    return {"harness": "t", "sessionKey": f"s{session}", "project": f"/p{session}", "userMessage": said}


@NEEDS_POSTGRES
@pytest.mark.thorough
def test_a_kill_every_two_seconds_loses_nothing_doubles_nothing_and_keeps_each_scopes_order(tmp_path, clean):
    pytest.importorskip("mem0")
    acknowledged = [[] for _ in range(SESSIONS)]
    unanswered = [[] for _ in range(SESSIONS)]
    ended = threading.Event()

    def speak(session):
        choose, number = random.Random(session), 0
        while not ended.is_set():
            answer = servers.ask("/api/hooks/user-prompt-submit", prompt(number, session), choose)
            if answer is None:
                unanswered[session].append(number)
            else:
                assert answer.status_code == 200, answer.text
                acknowledged[session].append(number)
            number += 1
            time.sleep(0.05)

    with ScriptedLLM() as model, served(tmp_path, clean, model=model.base_url) as servers:
        speakers = [threading.Thread(target=speak, args=(session,)) for session in range(SESSIONS)]
        for speaker in speakers:
            speaker.start()
        starting = []
        choose, until = random.Random(0), time.monotonic() + SECONDS
        try:
            while time.monotonic() < until or servers.kills < 4:
                time.sleep(2)
                if len(servers.urls) > 1:
                    victim = choose.choice(servers.numbers)
                    servers.kill(victim)
                    starting.append(threading.Thread(target=servers.start, args=(victim,)))
                    starting[-1].start()
        finally:
            ended.set()
            for start in starting:
                start.join()
            for speaker in speakers:
                speaker.join()
        for _ in range(600):
            [(waiting,)] = ask(
                clean, "SELECT count(*) FROM memslot.outbox WHERE state IN ('waiting', 'unknown')"
            )
            if not waiting:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"{waiting} events still wait")
        # In the order of the transactions that wrote them; nothing is changed or deleted.
        texts = [
            text for (text,) in ask(clean, "SELECT payload->>'data' FROM many ORDER BY xmin::text::bigint")
        ]
    assert sum(map(len, acknowledged)) > 5 * SESSIONS
    for session in range(SESSIONS):
        mine = [text for text in texts if f"project {session} " in text]
        numbers = [int(text.rpartition(" ")[2].rstrip("x.")) for text in mine]
        assert len(numbers) == len(set(numbers)), "0 double"
        assert set(acknowledged[session]) <= set(numbers), "0 lost"
        assert set(numbers) <= {*acknowledged[session], *unanswered[session]}
        kept = set(acknowledged[session])
        assert [number for number in numbers if number in kept] == acknowledged[session], "in their order"


@pytest.fixture
def started(state_url):
    """Begins servers over one native store and one PostgreSQL."""
    native, server = FakeNativeStore(), PostgresStore(state_url)
    return lambda **options: daemon(FakeBackend(native), host_file=server, **options)


@NEEDS_POSTGRES
async def test_a_session_goes_on_at_whichever_server_is_asked(started):
    async with started() as first, started() as second:
        await first.hook("session-start", sessionKey="s", project="/p")
        await first.hook("user-prompt-submit", sessionKey="s", userMessage="My bike is red.", project="/p")
        await first.drain()
        found = await second.hook("user-prompt-submit", sessionKey="t", userMessage="red bike?", project="/p")
        assert "My bike is red." in found["inject"]
        assert not (await first.hook("session-start", sessionKey="s", project="/p"))["sessionKnown"]
        await second.hook("session-end", sessionKey="s")
        resumed = await first.hook("session-start", sessionKey="s", project="/p")
        assert resumed["sessionKnown"]
        assert "My bike is red." in resumed["inject"]
        assert not (await second.hook("session-start", sessionKey="s", project="/p"))["sessionKnown"]
        labelled = {"content": "I like oolong.", "tags": "tea", "pinned": True}
        stored = await first.post("/api/memory/remember", labelled)
        row = (await second.send("GET", f"/api/memory/{stored[1]['id']}"))[1]
        assert (row["tags"], row["pinned"]) == ("tea", 1)
        keyed = {"content": "I like oolong.", "idempotencyKey": "tea"}
        await first.post("/api/memory/remember", keyed)
        assert (await second.post("/api/memory/remember", keyed))[1]["deduped"]
