"""What hosts keep beside a memory: durable, shared by processes, and never empty where it was full."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_journal import each_spoilt, spoil_open

from memory import MemoryScope
from memory.contract.errors import StoreError
from memory.slot.host_store import HostStore, StoredObject

ADA, EVE = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="eve")
WRITER = """
import sys
from pathlib import Path
from memory import MemoryScope
from memory.slot.host_store import HostStore, StoredObject
store, name = HostStore("fake", Path(sys.argv[1])), sys.argv[2]
for number in range(int(sys.argv[3])):
    store.put(StoredObject("note", MemoryScope(run_id="r", persona_id="ada"), f"{name}-{number}", {"n": number}))
    print(number, flush=True)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_objects_keep_their_age_and_their_owner(tmp_path: Path, each_store: Any) -> None:
    path = each_store or tmp_path / "deep" / "hosts.db"
    store = HostStore("fake", path)
    for name in ("a", "b", "a"):
        store.put(StoredObject("note", ADA, name, {"of": name}))
    store.put(StoredObject("note", EVE, "a", {"of": "eve"}))
    store.close()
    store = HostStore("fake", path)
    assert store.all("note", ADA) == [{"of": "b"}, {"of": "a"}]
    assert store.get("note", EVE, "a") == {"of": "eve"}
    assert store.get("other", ADA, "a") is None
    store.drop("note", ADA)
    assert (store.all("note", ADA), len(store.all("note", EVE))) == ([], 1)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get("note", ADA, "a")


def test_of_two_who_read_the_same_one_puts_in_its_place(tmp_path: Path, each_store: Any) -> None:
    place = each_store or tmp_path / "hosts.db"
    with HostStore("fake", place) as store, HostStore("fake", place) as rival:
        first = {"by": "one", "said": "ö \U0001f375"}
        assert store.swap(StoredObject("note", ADA, "a", first), None)
        assert not rival.swap(StoredObject("note", ADA, "a", {"by": "two"}), None)
        assert rival.swap(StoredObject("note", ADA, "a", {"by": "two"}), rival.get("note", ADA, "a"))
        assert not store.swap(StoredObject("note", ADA, "a", {"by": "again"}), first)
        assert store.get("note", ADA, "a") == {"by": "two"}


def test_the_oldest_go_first(each_store: Any) -> None:
    store = HostStore("fake", each_store, max_objects=10)
    for number in range(300):
        store.put(StoredObject("note", ADA, str(number), {"n": number}))
    left = [stored["n"] for stored in store.all("note", ADA)]
    assert left == sorted(left, reverse=True)
    assert left[0] == 299
    assert len(left) == 10 + 300 - 256, "they are looked for at every 256th"
    store.close()


def test_what_belongs_to_a_scope_goes_with_its_reset(each_store: Any) -> None:
    with HostStore("fake", each_store) as store, HostStore("other", each_store) as other:
        for kept in (store, other) if each_store else (store,):
            kept.put(StoredObject("note", ADA, "a", {"n": 1}))
            kept.put(StoredObject("session", EVE, "s", {"n": 2}, ADA))
            kept.put(StoredObject("note", EVE, "a", {"n": 3}))
        store.reset(ADA)
        assert (store.all("note"), store.all("session", EVE)) == ([{"n": 3}], [])
        assert not each_store or (len(other.all("note")), len(other.all("session", EVE))) == (2, 1)


def test_several_processes_make_and_use_one_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.db"
    others = [writer(path, f"w{number}", 50) for number in range(4)]
    assert [other.wait(300) for other in others] == [0] * 4
    for other in others:
        assert other.stdout is not None
        other.stdout.close()
    store = HostStore("fake", path)
    assert len(store.all("note", ADA)) == 200
    store.close()


def test_what_was_kept_outlives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "hosts.db"
    for turn in range(3):
        with writer(path, f"w{turn}", 100_000) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            acknowledged = [int(line) for line in process.stdout.read().splitlines() if line.isdigit()]
        store = HostStore("fake", path)
        for number in acknowledged[:-1]:  # the last line may be torn
            assert store.get("note", ADA, f"w{turn}-{number}") == {"n": number}
        store.close()


@each_spoilt("host store")
def test_a_spoilt_file_is_never_an_empty_store(tmp_path: Path, spoil, said: str, monkeypatch) -> None:
    monkeypatch.setattr("memory.slot.sqlite_file._BUSY_S", 0.05)
    path = tmp_path / "hosts.db"
    store = HostStore("fake", path)
    store.put(*(StoredObject("note", ADA, str(number), {"text": "tea " * 100}) for number in range(50)))
    store.close()
    spoil(path)
    with pytest.raises(StoreError, match=said):
        HostStore("fake", path)


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
def test_a_file_spoilt_while_it_is_open_keeps_nothing_and_says_so(tmp_path: Path, how: str) -> None:
    file = tmp_path / "hosts.db"
    store = HostStore("fake", file)
    store.put(StoredObject("note", ADA, "a", {}))
    spoil_open(file, how)
    with pytest.raises(StoreError, match="removed, replaced or emptied while it was open"):
        store.put(StoredObject("note", ADA, "b", {}))
    store.close()


def test_an_object_that_is_damaged_is_named_with_its_file(tmp_path: Path) -> None:
    """Read as nothing, it would be as if it had never been kept."""
    with HostStore("fake", tmp_path / "hosts.db") as store:
        store.put(StoredObject("note", ADA, "a", {}))
        store._db.execute("UPDATE kept SET value = '{'")
        store._db.commit()
        with pytest.raises(StoreError, match=r"^hosts\.db: damaged"):
            store.get("note", ADA, "a")


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(NAMES, NAMES, max_size=8))
def test_any_name_comes_back_as_it_was(kept: dict[str, str]) -> None:
    store = HostStore("fake")
    store.put(*(StoredObject("note", ADA, name, {"text": text}) for name, text in kept.items()))
    assert {name: store.get("note", ADA, name) for name in kept} == {
        name: {"text": text} for name, text in kept.items()
    }
    store.close()
