"""Further lines of the core whose loss no quick test noticed, each with what goes wrong without it."""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import FrozenInstanceError, asdict, fields
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from types import ModuleType

import anyio
import anyio.lowlevel
import httpx
import pytest
from journals import open_journal
from pydantic import ValidationError

import memory.adapter
import memory.runtime
from memory import (
    AdapterMode,
    BackendError,
    BackendUnavailable,
    ContextBudget,
    InputError,
    MemoryScope,
    MemorySlot,
    MemslotError,
)
from memory.adapter import (
    AdapterTraits,
    BackendProtocolError,
    BackendRejected,
    BaseAdapter,
    ContextEntry,
    JsonHttp,
    SynchronousWrites,
    Text,
    Utf8TokenCounter,
    bearer,
    check_aware,
    check_text,
    check_url,
    entry_cost,
    none_if_404,
    normalise,
    normalise_error,
    server_address,
    staged_directory,
    sweep_directories,
)
from memory.adapter._bounded import MAX_ANSWER_BYTES, bounded_answers, is_loopback
from memory.adapter._http import _unhandled
from memory.adapter._lexical import LexicalHashEmbedder, _stem
from memory.adapter._sdk import _QuietFilter, environment_kept
from memory.contract._model import Frozen, words_of
from memory.contract.admission import Admission, LlmUse
from memory.contract.formatting import (
    CallableTokenCounter,
    fit_entries,
    neutral_section,
    relabel_section,
    render_section,
)
from memory.contract.native_errors import NativeError, native_name
from memory.contract.requests import Operation
from memory.contract.scope import IdAlphabet
from memory.runtime import Recall, TurnMemory, TurnPolicy
from memory.runtime._writing import WriteCounts, _Pending
from memory.slot.bounded_queue import Lease
from memory.slot.calls import Span
from memory.slot.files import AppendLog
from memory.slot.turns import ScopedMemory
from memory.storage.journal import JournalEntry, JournalKey
from memory.storage.kept import HostStore, StoredObject
from memory.storage.lock import FileLock
from memory.storage.store import digest_of
from memory.testing import FakeBackend, LoopbackAnswer, LoopbackServer


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.localdomain", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("192.168.0.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_only_this_machine_is_this_machine(host: str, own: bool) -> None:
    """Taken for it, an address would be open to everyone without a token."""
    assert is_loopback(host) is own


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host:1", "http://", "https:///path", "http://host:0", "http://host:99999", "http://[::1"],
)
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http or https URL with a host"):
        server_address(url)


@pytest.mark.parametrize("url", ["http://host?key=1", "http://host/#part", "http://host/?key=1#part"])
def test_a_query_or_a_fragment_is_refused(url: str) -> None:
    """Keys stand in them, and paths would be appended behind."""
    with pytest.raises(InputError, match="must not hold a query or fragment"):
        check_url(url)


def test_an_address_stays_as_it_was_written() -> None:
    assert server_address(" https://host:8443/base/ ") == "https://host:8443/base"
    assert server_address("http://host:1") == "http://host:1"


class Server(LoopbackServer):
    """Answers as it is told."""

    answer = LoopbackAnswer(200, {})

    def respond(self, request: object) -> LoopbackAnswer:
        return self.answer


@pytest.mark.parametrize("path", ["notes", "//host/notes", ""])
async def test_a_path_that_may_lead_elsewhere_is_not_asked(path: str) -> None:
    """``//host`` is another server, which would be shown the key."""
    http = JsonHttp("http://127.0.0.1:9", backend="test")
    with pytest.raises(InputError, match="path: must start with one '/'"):
        await http.request("GET", path)
    await http.aclose()


def test_without_a_number_as_many_connections_as_httpx_has_by_itself() -> None:
    usual = inspect.signature(httpx.AsyncClient).parameters["limits"].default
    assert JsonHttp("http://host:1", backend="b")._client.keywords["limits"] == usual


async def test_an_answer_that_was_read_gives_its_connection_back() -> None:
    """Kept, every answer would cost one, and the last is waited for in vain."""
    with Server() as server, anyio.fail_after(60):
        http = JsonHttp(server.url, backend="test", connections=1)
        for _ in range(3):
            assert await http.request("GET", "/notes") == {}
        await http.aclose()


@pytest.mark.parametrize(("said", "wait_s"), [(7, 7.0), (True, None), ("7", None)])
async def test_how_long_to_wait_is_a_number_in_the_answer(said: object, wait_s: float | None) -> None:
    with Server() as server:
        http = JsonHttp(server.url, backend="test")
        server.answer = LoopbackAnswer(429, {"retry_after": said})
        with pytest.raises(BackendError) as raised:
            await http.request("GET", "/notes")
        await http.aclose()
    assert raised.value.retry_after_s == wait_s


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_what_is_no_json_is_no_answer(number: str) -> None:
    """Python reads them; as scores they make every comparison false."""
    with Server() as server:
        http = JsonHttp(server.url, backend="test")
        server.answer = LoopbackAnswer(200, f'{{"score": {number}}}'.encode())
        with pytest.raises(BackendProtocolError):
            await http.request("GET", "/notes")
        await http.aclose()


async def test_what_a_refusal_says_is_told_by_code_and_status() -> None:
    hints = {
        401: "missing, wrong or expired",
        403: "may not do this",
        404: "no such route or record",
        413: "too large",
        422: "the node refused the request's form",
        429: "quota is used up",
    }
    with Server() as server:
        http = JsonHttp(server.url, backend="test", server="node")
        for status, hint in hints.items():
            server.answer = LoopbackAnswer(status, {})
            with pytest.raises(BackendError, match=rf"GET /notes .*HTTP {status}\b.*{hint}"):
                await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(422, {"detail": {"code": "too_long", "message": "secret words"}})
        with pytest.raises(BackendRejected, match=r"HTTP 422, code too_long: the node refused") as raised:
            await http.request("POST", "/notes", json={})
        assert raised.value.diagnostics["code"] == "too_long"
        assert "secret" not in str(raised.value)
        for status, whose in ((500, "the node failed"), (499, "the node refused it")):
            server.answer = LoopbackAnswer(status, {})
            with pytest.raises((BackendRejected, BackendUnavailable), match=whose):
                await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(400, {})
        with pytest.raises(BackendRejected, match="HTTP 400"):
            await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(304, {})
        with pytest.raises(BackendProtocolError, match="redirect"):
            await http.request("GET", "/notes")
        await http.aclose()


@pytest.mark.parametrize(
    ("status", "kind", "stumbled"),
    [
        (499, "text/plain", False),
        (500, "application/json", True),
        (500, "text/plain", True),
        (501, "text/plain", True),
        (503, "text/html", True),
        (503, "application/json", False),
    ],
)
def test_connections_of_a_server_that_stumbled_are_not_used_again(
    status: int, kind: str, stumbled: bool
) -> None:
    """It may reset them, and a write over one would be lost without an answer."""
    assert _unhandled(httpx.Response(status, headers={"content-type": kind})) is stumbled


def test_a_directory_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    """What was begun holds words of somebody, and nobody would look for it."""
    with pytest.raises(FileNotFoundError), staged_directory(tmp_path / "made") as making:
        making.joinpath("words", "of", "nobody").write_text("tea")
    assert list(tmp_path.iterdir()) == []
    with staged_directory(tmp_path / "made") as making:
        assert making.parent == tmp_path, "from where it is moved at once"
        making.joinpath("words").write_text("tea")
    assert (tmp_path / "made" / "words").read_text() == "tea"


def test_what_was_interrupted_is_swept(tmp_path: Path) -> None:
    for name in (".new-1", ".gone-1", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words").write_text("tea")
    sweep_directories(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_lock_that_was_given_back_names_no_owner(tmp_path: Path) -> None:
    """A process of that id may be another's by now, and would be ended for nothing."""
    lock = FileLock(tmp_path / "lock", what="the graph", instead="wait")
    lock.acquire()
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    lock.release()
    assert (tmp_path / "lock").read_text() == ""


def test_a_trace_of_an_adapter_is_one() -> None:
    class Own(BaseAdapter):
        backend_name = "own"

    adapter = Own.__new__(Own)
    scope = MemoryScope(run_id="r", persona_id="p")
    for warnings in (("w",), ["w"]):  # the second cannot be hashed
        trace = BaseAdapter.trace(adapter, scope, "search", warnings=warnings)
        assert (trace.native_operation, trace.scope, trace.warnings) == ("search", scope, ("w",))


def test_what_an_earlier_version_wrote_is_found_again(tmp_path: Path) -> None:
    """Another mark, digest, key or id, and what is on the disk is somebody else's, damaged or lost."""
    scope = MemoryScope(run_id="r", persona_id="p")
    with HostStore("mem0", tmp_path) as store:
        store.put(StoredObject("kind", scope, "name", {}))
    with closing(sqlite3.connect(tmp_path / "memslot.db")) as db:
        assert db.execute("PRAGMA application_id").fetchone()[0] == 0x6D656D73
    digest = "833ede412aad05219a1b924c1fe8a5cd"
    assert digest_of("tea") == digest
    log = AppendLog(tmp_path / "log")
    log.load()
    log.append(b"tea")
    assert (tmp_path / "log.count").read_bytes().hex() == digest
    assert JournalKey.of("mem0", "here", scope, {"id": "r:p"}).lane == (
        "mem0:7b7b1e409f00",
        '{"persona_id":"p","run_id":"r"}',
    )
    assert len(LexicalHashEmbedder().embed("tea")) == 1024
    assert IdAlphabet().encode(None) == "%n"
    assert IdAlphabet().encode("a" * 512) == "a" * 512
    assert IdAlphabet().encode("a" * 600, "b") == "a" * 484 + "%zri4ftzxncnxmm7uirleon2z3sz"


def test_what_is_granted_where_nothing_is_said() -> None:
    """As documented, and counted from nothing."""
    assert TurnPolicy().model_dump() == {
        "recall_s": 2.0,
        "on_failure": "empty",
        "exclude_session": False,
        "queue_size": 100,
        "queue_wait_s": 5.0,
        "drain_s": 15.0,
        "open_after": 3,
        "pause_s": 30.0,
        "not_said": (),
    }
    traits = AdapterTraits()
    assert (traits.recalls_writes, traits.setup_writes) == (True, True)
    assert (traits.asyncio_only, traits.counts_llm_calls, traits.write_retries) == (False, False, 0)
    assert set(asdict(WriteCounts()).values()) == {0, None}
    assert asdict(LlmUse()) == {"calls": 0, "tokens": 0}
    assert (TurnPolicy(queue_wait_s=0.0).queue_wait_s, TurnPolicy(drain_s=0.0).drain_s) == (0, 0)
    with pytest.raises(InputError, match="drain_s"):
        TurnPolicy(drain_s=float("inf"))
    assert MAX_ANSWER_BYTES == 64_000_000
    assert ContextBudget(max_items=2**31 - 1).max_items == 2**31 - 1
    assert ContextBudget(min_tokens=5, max_tokens=5).min_tokens == 5
    for refused in (0, 2**31):
        with pytest.raises(InputError, match="max_items"):
            ContextBudget(max_items=refused)


@pytest.mark.parametrize("page", [memory, memory.adapter, memory.runtime])
def test_a_name_that_no_page_has_is_an_attribute_error(page: ModuleType) -> None:
    """What ``hasattr`` asks by; another error would end whoever only looks."""
    with pytest.raises(AttributeError, match=f"module '{page.__name__}' has no attribute 'nothing'"):
        _ = page.nothing


SMALL = [ContextEntry, JournalEntry, JournalKey, Recall, _Pending]


@pytest.mark.parametrize(
    "kind",
    [
        *SMALL,
        AdapterTraits,
        CallableTokenCounter,
        IdAlphabet,
        NativeError,
        Operation,
        _QuietFilter,
    ],
)
def test_what_is_handed_out_cannot_be_changed(kind: type) -> None:
    """Changed by one who has it, it would be changed for all."""
    with pytest.raises(FrozenInstanceError):
        setattr(object.__new__(kind), fields(kind)[0].name, 1)


@pytest.mark.parametrize("kind", [*SMALL, Admission, Lease, LlmUse, ScopedMemory, Span, WriteCounts])
def test_what_there_are_many_of_has_room_for_its_fields_alone(kind: type) -> None:
    assert not hasattr(object.__new__(kind), "__dict__")


@pytest.mark.parametrize("kind", [Admission, Lease, ScopedMemory])
def test_what_is_alike_is_not_the_same(kind: type) -> None:
    assert kind.__eq__ is object.__eq__
    assert kind.__hash__ is object.__hash__


def test_what_waits_in_a_queue_is_not_shown() -> None:
    assert Lease.__repr__ is object.__repr__


class Nowhere(tzinfo):
    """A zone that does not know its offset: Python calls such a moment naive."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "nowhere"


def test_a_moment_without_an_offset_is_no_moment() -> None:
    """It would be taken for the machine's own time."""
    for zone in (None, Nowhere()):
        with pytest.raises(ValueError, match="timezone-aware"):
            check_aware(datetime(2026, 1, 1, tzinfo=zone))
    assert check_aware(datetime(2026, 1, 1, tzinfo=UTC)).tzinfo is UTC


def test_only_fields_that_hold_words_are_words() -> None:
    """A missed one keeps what was recalled, and memory feeds on itself."""

    class Record(Frozen):
        number: int = 1
        text: Text = ""
        many: tuple[Text, ...] = ()

    assert words_of(Record) == ("text", "many")


def test_what_is_built_when_first_used_is_frozen_and_quotes_nobody() -> None:
    """``model_validate`` goes past our own error: pydantic's is seen, and would stand in a log."""

    class Record(Frozen):
        number: int = 1

    assert not Record.__pydantic_complete__, "two hundred of them, of which a hook uses a few"
    with pytest.raises(ValidationError, match=r"Record\s+number") as raised:
        Record.model_validate({"number": "words of somebody"})
    assert "words" not in str(raised.value)
    record = Record(number=2)
    with pytest.raises(ValidationError, match="frozen"):
        record.number = 3  # type: ignore[misc]
    assert record.number == 2


def test_all_text_but_half_a_pair_can_be_kept() -> None:
    for text in ("", "tea", "grüner Tee", "茶"):
        assert check_text(text) == text
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        check_text("tea \ud83c")


def test_a_long_key_of_the_user_is_not_named_in_an_error() -> None:
    class Record(Frozen):
        deep: dict[str, dict[str, int]] = {}  # noqa: RUF012 (pydantic copies it)

    for length, named in ((40, True), (41, False)):
        name = "k" * length
        with pytest.raises(InputError) as raised:
            Record(deep={name: {"x": "no"}})
        assert (name in str(raised.value)) is named


def test_what_costs_exactly_the_budget_fits() -> None:
    counter = Utf8TokenCounter()
    entries = [ContextEntry("one two three"), ContextEntry("one two three")]

    def fits(size: int, count: int) -> bool:
        found = fit_entries(entries[:count], ContextBudget(max_tokens=size), counter, overhead=0)
        return len(found) == count

    alone = next(size for size in range(1, 200) if fits(size, 1))
    both = next(size for size in range(1, 200) if fits(size, 2))
    assert entry_cost(entries[0], counter) == alone
    assert both == sum(entry_cost(entry, counter) for entry in entries)


def test_a_number_as_a_code_is_told() -> None:
    class Coded(Exception):
        code = 1205

    failed = normalise_error(Coded("secret"), backend_name="b", operation="o")
    assert failed.diagnostics["code"] == "1205"


def test_what_was_being_handled_adds_nothing_to_an_error_with_a_status() -> None:
    """A client that tries an import first would have every refusal called a missing package."""

    class Refused(Exception):
        status_code = 503

    refused = Refused()
    refused.__context__ = ModuleNotFoundError(name="extra")
    table = {native_name(Refused): NativeError(sent=True)}
    failed = normalise_error(refused, backend_name="b", operation="o", table=table)
    assert (type(failed), failed.diagnostics["status"]) == (BackendUnavailable, 503)
    assert "module" not in failed.diagnostics


def test_the_lowest_status_of_a_refusal_decides_before_what_it_was_raised_from() -> None:
    class Refused(Exception):
        status_code = 400

    refused = Refused()
    refused.__cause__ = ConnectionRefusedError("an earlier attempt")
    assert type(normalise_error(refused, backend_name="b", operation="o")) is BackendRejected


@pytest.mark.parametrize("error", [OSError("down"), BackendRejected("no"), InputError("bad")])
def test_what_a_bulk_write_failed_with_keeps_its_cause(error: Exception) -> None:
    class Own(BaseAdapter):
        backend_name = "own"

    cause = KeyError("x")
    with pytest.raises(MemslotError) as caught, BaseAdapter.attach_receipts(Own.__new__(Own), []):
        raise error from cause
    assert caught.value.__cause__ is (cause if caught.value is error else error)


def test_marks_on_a_letter_are_cut_to_the_first_thirty() -> None:
    """Normalising sorts them by insertion: tens of thousands would hold up everybody."""
    for count, left in ((30, 30), (40, 30), (4000, 30)):
        assert len(normalise("NFD", "x" + "\u0301" * count)) == 1 + left


def test_a_neutral_section_stays_neutral_and_another_gets_the_scope() -> None:
    """Named again, a section would tell the model in which condition it is."""
    entry = ContextEntry("tea")
    neutral = neutral_section(render_section("b", "s", [entry]))
    assert relabel_section(neutral, "mine") == neutral
    named = render_section("b", "s", [entry])
    assert 'scope="mine"' in relabel_section(named, "mine")
    assert relabel_section("no section", "mine") == "no section"


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("painted", "painting"),
        ("painted", "paint"),
        ("paints", "paint"),
        ("planned", "planning"),
        ("classes", "class"),
    ],
)
def test_forms_of_a_word_meet(word: str, other: str) -> None:
    assert _stem(word) == _stem(other)


@pytest.mark.parametrize("word", ["glass", "status", "is", "tea"])
def test_what_is_no_form_of_another_word_stays(word: str) -> None:
    assert _stem(word) == word


def test_an_import_sees_its_settings_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``.env`` file beside the process would set keys and addresses for all of it."""
    monkeypatch.setenv("KEPT", "mine")
    before = dict(os.environ)
    with environment_kept(KEPT="theirs"):
        assert (os.environ["PYTHON_DOTENV_DISABLED"], os.environ["KEPT"]) == ("1", "theirs")
        os.environ["READ_FROM_A_FILE"] = "1"
    assert dict(os.environ) == before


@pytest.mark.parametrize("on_failure", ["raise", "empty"])
async def test_a_turn_without_a_place_is_raised_where_it_is_asked_for(on_failure: str) -> None:
    """Swallowed, a host that wants to know would take it for recorded."""
    policy = TurnPolicy.model_validate({"on_failure": on_failure, "queue_size": 1, "queue_wait_s": 0.0})

    async def never(event: object) -> None:
        await anyio.sleep_forever()

    fake = FakeBackend()
    fake.record_event = never  # type: ignore[assignment]
    scope = MemoryScope(run_id="r", persona_id="p")
    async with MemorySlot(fake, scope=scope) as slot:
        turns = TurnMemory(slot, policy.model_copy(update={"drain_s": 0.0}), keep_unsent=False)
        refused = []
        for number in range(4):
            try:
                refused.append(not await turns.record_turn(session_id="s", user=f"tea {number}"))
            except BackendUnavailable:
                refused.append("raised")
        await turns.aclose()
        lost = turns.status()["not_recorded"]
        await turns.aclose()
        assert turns.status()["not_recorded"] == lost, "closed again, nothing is lost again"
    assert refused[-1] == ("raised" if on_failure == "raise" else True)


async def test_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    """An endless one would hold its reader for ever, although it was refused."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            await anyio.lowlevel.checkpoint()
            sent += 1
            yield b"x" * 10

    answer = httpx.Response(200, content=endless())
    await bounded_answers("test", 20)(answer)
    with anyio.fail_after(20), pytest.raises(BackendProtocolError, match="longer than 20 bytes"):
        await answer.aread()
    assert sent <= 5


def test_a_reset_that_broke_off_says_so_and_may_have_removed_something() -> None:
    """Swallowed, it would read as done; as refused, as if nothing were gone."""
    error = BackendRejected("no", sent=False)
    with pytest.raises(BackendRejected) as raised, BaseAdapter.clearing():
        raise error
    assert raised.value is error
    assert error.ambiguous


async def test_only_what_is_not_there_is_none() -> None:
    async def refused(status: int) -> None:
        raise BackendRejected("no", diagnostics={"status": status})

    assert await none_if_404(refused(404)) is None
    for status in (403, 405):
        with pytest.raises(BackendRejected):
            await none_if_404(refused(status))


@pytest.mark.parametrize("key", ["sécret", "sec\nret", " secret", "secret\t"])
def test_a_key_that_cannot_stand_in_a_header_is_told_without_it(key: str) -> None:
    with pytest.raises(InputError, match="api_key: holds characters") as raised:
        bearer(key)
    assert key.strip() not in str(raised.value)
    assert bearer("k y") == {"Authorization": "Bearer k y"}


@pytest.mark.parametrize(("number", "status"), [(99, None), (100, 100), (599, 599), (600, None)])
def test_a_status_is_one_of_http(number: int, status: int | None) -> None:
    class Refused(Exception):
        status_code = number

    failed = normalise_error(Refused(), backend_name="b", operation="o")
    assert failed.diagnostics.get("status") == status


async def test_where_an_event_waits_is_told(tmp_path: Path) -> None:
    scope = MemoryScope(run_id="r", persona_id="p")
    for journal, place in ((None, "memory"), (open_journal(tmp_path), "journal")):
        async with MemorySlot(FakeBackend(), scope=scope, journal=journal) as slot:
            turns = TurnMemory(slot)
            assert turns.queued_in == place
            await slot.set_mode(AdapterMode(read_only=True))
            assert turns.queued_in == "memory", "nothing is kept there any more"
            await turns.aclose()


async def test_a_store_that_does_not_answer_is_not_ready() -> None:
    class Own(SynchronousWrites):
        backend_name = "own"

        async def probe_scope(self, scope: MemoryScope) -> None:
            if scope.persona_id == "gone":
                raise BackendUnavailable("no answer")

    own = Own.__new__(Own)
    for ask in (own.readiness, partial(own.wait_until_ready, timeout_s=1.0)):
        assert (await ask(MemoryScope(run_id="r", persona_id="p"))).state == "ready"
        with pytest.raises(BackendUnavailable):
            await ask(MemoryScope(run_id="r", persona_id="gone"))
