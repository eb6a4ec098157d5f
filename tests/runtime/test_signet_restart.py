"""What the Signet server keeps beside a memory: labels, and where sessions left off; over ends and restarts."""

import anyio
import pytest
from signet_support import BASE, daemon

from memory import MemorySlot
from memory.contract.errors import StoreError
from memory.runtime.signet.book import Book
from memory.runtime.signet.sessions import Sessions
from memory.testing import FakeBackend, FakeNativeStore

WORD = "zanzibar"


@pytest.fixture
def started(tmp_path):
    """Begins a server over one native store and one host file; used again, it is a restart."""
    native = FakeNativeStore()

    def start():
        return daemon(FakeBackend(native), host_file=tmp_path)

    return start


@pytest.fixture
async def signet(started):
    async with started() as opened:
        yield opened


def on_disk(directory):
    return b"".join(path.read_bytes() for path in directory.glob("memslot.db*") if path.is_file())


async def spoken(signet, key, *texts):
    for text in texts:
        await signet.hook("user-prompt-submit", sessionKey=key, userMessage=text, project="/p")
    await signet.drain()


async def test_a_session_that_ended_is_resumed_where_it_left_off(signet):
    first = await signet.hook("session-start", sessionKey="s", project="/p")
    assert (first["sessionKnown"], first["inject"]) == (False, "")
    await spoken(signet, "s", "My bike is red.", "Now we paint the fence.")
    await signet.hook("session-end", sessionKey="s")
    again = await signet.hook("session-start", sessionKey="s", project="/p", context="something else")
    assert again["sessionKnown"]
    assert "Where this session left off:\n- user: My bike is red.\n- user: Now we paint" in again["inject"]
    assert again["inject"].startswith('<memory-context backend="checkpoint"'), (
        "so that no memory is made of it"
    )
    # What was said before its end is not shown by the host any more, so it is recalled.
    found = await signet.hook("user-prompt-submit", sessionKey="s", userMessage="red bike?", project="/p")
    assert "My bike is red." in found["inject"]
    # The checkpoint is given once, and to this project's sessions alone.
    repeated = await signet.hook("session-start", sessionKey="s", project="/p", context="something else")
    other = await signet.hook("session-start", sessionKey="s", project="/other")
    assert not repeated["sessionKnown"]
    assert (other["sessionKnown"], other["inject"]) == (False, "")


async def test_a_session_goes_on_after_the_server_was_started_again(started):
    async with started() as signet:
        await spoken(signet, "s", "My bike is red.")
        await signet.hook("compaction-complete", sessionKey="s", summary="We spoke of wheels.")
        await spoken(signet, "s", "My car is blue.")
    async with started() as signet:
        same = await signet.hook("user-prompt-submit", sessionKey="s", userMessage="bike? car?", project="/p")
        assert "My bike is red." in same["inject"], "said before the compaction"
        assert "My car is blue." not in same["inject"], "the host still shows it"
        again = await signet.hook("session-start", sessionKey="s", project="/p")
        assert "Summary: We spoke of wheels.\n- user: My car is blue." in again["inject"]


async def test_a_forgotten_memory_leaves_no_word_beside_it(signet, tmp_path):
    await spoken(signet, "s", f"I sailed to {WORD}.")
    _, stored = await signet.post("/api/memory/remember", {"content": f"{WORD} trip", "tags": WORD})
    await signet.post("/api/memory/recall", {"query": WORD})
    assert WORD.encode() in on_disk(tmp_path)
    _, found = await signet.post("/api/memory/recall", {"query": WORD})
    forget = {"ids": [row["id"] for row in found["results"]], "mode": "execute", "reason": "asked"}
    assert (await signet.post("/api/memory/forget", forget))[1]["deleted"] == 2
    assert stored["id"] in forget["ids"]
    assert WORD.encode() not in on_disk(tmp_path)
    again = await signet.hook("session-start", sessionKey="s", project="/p", context="x")
    assert WORD not in again["inject"]


@pytest.mark.thorough
@pytest.mark.parametrize(("owner", "step"), [(Book, "forget"), (Sessions, "forget_words")])
async def test_a_memory_whose_forgetting_ended_in_its_middle_is_forgotten_by_the_next(
    started, tmp_path, monkeypatch, owner, step
):
    def broken(*_):
        raise StoreError("memslot.db: the disk is gone")

    async with started() as signet:
        _, stored = await signet.post("/api/memory/remember", {"content": f"{WORD} trip", "project": "/p"})
        await spoken(signet, "s", f"I sailed to {WORD}.")
        forget = {"ids": [stored["id"]], "mode": "execute", "reason": "asked"}
        with monkeypatch.context() as defect:
            defect.setattr(owner, step, broken)
            await signet.post("/api/memory/forget", forget)
    async with started() as signet:
        assert WORD.encode() in on_disk(tmp_path)
        answer = (await signet.post("/api/memory/forget", forget))[1]
        assert [result["status"] for result in answer["results"]] == ["deleted"]
        assert WORD.encode() not in on_disk(tmp_path)
        assert (await signet.send("GET", "/api/memories"))[1]["memories"] == []
        answer = (await signet.post("/api/memory/forget", forget))[1]
        assert [result["status"] for result in answer["results"]] == ["not_found"]


async def test_what_is_kept_goes_with_the_reset_of_its_scope(signet, tmp_path):
    await signet.post("/api/memory/remember", {"content": f"{WORD} trip"})
    await signet.hook("user-prompt-submit", sessionKey="s", userMessage=f"I sailed to {WORD}.")
    await signet.drain()
    receipt = await signet.memory.slot.reset_scope(BASE)
    assert receipt.left == ()
    assert WORD.encode() not in on_disk(tmp_path)
    assert (await signet.send("GET", "/api/memories"))[1]["memories"] == []


async def test_a_session_under_way_does_not_bring_back_what_its_scopes_reset_erased(signet, tmp_path):
    await spoken(signet, "s", f"I sailed to {WORD}.")
    for scope in list(signet.memory.slot._calls.scopes):
        await signet.memory.slot.reset_scope(scope)
    await spoken(signet, "s", "My bike is red.")
    await signet.hook("session-end", sessionKey="s")
    assert WORD.encode() not in on_disk(tmp_path)
    again = await signet.hook("session-start", sessionKey="s", project="/p", context="x")
    assert "My bike is red." in again["inject"]
    assert WORD not in again["inject"]


async def test_an_answer_from_before_a_reset_is_not_recorded_after_it(signet):
    async def say(text, answered=None):
        await signet.hook(
            "user-prompt-submit", sessionKey="s", userMessage=text, lastAssistantMessage=answered
        )

    await say(f"I sailed to {WORD}.")
    await signet.drain()
    await signet.memory.slot.reset_scope(BASE)
    await say("My bike is red.", f"{WORD} is far.")
    await say("My boat is blue.", "A red bike.")
    await signet.hook("session-end", sessionKey="s", transcript="User: My boat is blue.\nAssistant: A boat.")
    await signet.drain()
    stored = [row.text for row in signet.backend.store.rows.values()]
    assert stored == ["My bike is red.", "A red bike.", "My boat is blue.", "A boat."]


async def test_a_reset_that_cannot_be_noted_is_not_begun(tmp_path):
    async with MemorySlot(FakeBackend(), scope=BASE, store=tmp_path) as slot:
        (tmp_path / "memslot.db").write_bytes(b"nonsense" * 512)
        with pytest.raises(StoreError, match=r"memslot\.db: damaged, or not a SQLite file"):
            await slot.reset_scope(BASE)
    assert slot.delivery.resets_of(BASE) == 0


async def test_of_two_changes_of_one_version_one_is_a_conflict(signet):
    _, stored = await signet.post("/api/memory/remember", {"content": "tea"})
    signet.backend.store.latency_s = 0.01
    answers = []

    async def patch(text):
        body = {"content": text, "reason": "r", "if_version": 1}
        answers.append((await signet.send("PATCH", f"/api/memory/{stored['id']}", body))[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(patch, "sencha")
        tasks.start_soon(patch, "oolong")
    assert sorted(answers) == [200, 409]


async def test_a_host_file_spoilt_under_way_is_said_by_every_route_and_health(signet, tmp_path):
    await signet.post("/api/memory/remember", {"content": "tea"})
    (tmp_path / "memslot.db").unlink()
    rows = len(signet.backend.store.rows)
    for method, path, body in (
        ("POST", "/api/memory/remember", {"content": "more tea"}),
        ("GET", "/api/memories", None),
        ("POST", "/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": "x", "sessionKey": "n"}),
    ):
        status, answer = await signet.send(method, path, body)
        assert status == 503, path
        assert "memslot.db: removed or replaced while it was open" in answer["error"]
    assert len(signet.backend.store.rows) == rows, "nothing is stored whose labels cannot be kept"
    status, ready = await signet.send("GET", "/health/ready")
    assert (status, ready["status"]) == (503, "unavailable")
    assert "memslot.db: removed" in ready["labels"]


async def test_without_a_file_health_says_that_it_lives_in_this_process():
    async with daemon() as signet:
        assert (await signet.send("GET", "/health/ready"))[1][
            "labels"
        ] == "kept in this process, until it ends"


async def test_the_file_of_another_backend_shows_none_of_its_own(tmp_path):
    file = tmp_path
    async with daemon(FakeBackend(name="one"), host_file=file) as signet:
        await signet.post("/api/memory/remember", {"content": "tea"})
    async with daemon(FakeBackend(name="two"), host_file=file) as signet:
        assert (await signet.send("GET", "/api/memories"))[1]["memories"] == []


async def test_an_id_may_hold_a_slash(signet):
    status, answer = await signet.send("PATCH", "/api/memory/turn%2F0", {"content": "x", "reason": "r"})
    assert (status, answer["id"], answer["status"]) == (404, "turn/0", "not_found")
