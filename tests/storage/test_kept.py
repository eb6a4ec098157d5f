"""What hosts keep beside a memory."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import MemoryScope
from memory.contract.errors import StoreError
from memory.storage.kept import HostStore, StoredObject, reset_host_store
from memory.storage.store import SqliteStore

ADA, EVE = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="eve")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture
def place(open_handle):
    return open_handle()


def test_objects_keep_their_age_and_their_owner(place):
    with HostStore("fake", place) as store:
        for name in ("a", "b", "a"):
            store.put(StoredObject("note", ADA, name, {"of": name}))
        store.put(StoredObject("note", EVE, "a", {"of": "eve"}))
    with HostStore("fake", place) as store:
        assert store.all("note", ADA) == [{"of": "b"}, {"of": "a"}]
        assert store.get("note", EVE, "a") == {"of": "eve"}
        assert store.get("other", ADA, "a") is None
        store.drop("note", ADA)
        assert (store.all("note", ADA), len(store.all("note"))) == ([], 1)
    with pytest.raises(StoreError, match="closed"):
        store.get("note", ADA, "a")


def test_the_oldest_go_first():
    with HostStore("fake", None, max_objects=10) as store:
        for number in range(300):
            store.put(StoredObject("note", ADA, str(number), {"n": number}))
        assert len(store.all("note")) < 60
        assert store.all("note")[0] == {"n": 299}


def test_what_belongs_to_a_scope_goes_with_its_reset(place):
    with HostStore("fake", place) as store, HostStore("other", place) as other:
        store.put(
            StoredObject("note", ADA, "a", {"n": 1}), StoredObject("note", EVE, "b", {"n": 2}, scope=ADA)
        )
        store.put(StoredObject("note", EVE, "c", {"n": 3}))
        other.put(StoredObject("note", ADA, "a", {"n": 4}))
        assert (store.resets(ADA), store.resets()) == (0, 0)
        assert reset_host_store(place, "fake", ADA) == ()
        assert (store.all("note"), other.all("note")) == ([{"n": 3}], [{"n": 4}])
        assert (store.resets(ADA), store.resets(), other.resets()) == (1, 1, 0)


def test_what_is_older_than_a_reset_is_not_kept(place):
    with HostStore("fake", place) as store:
        assert store.put_since(store.resets(ADA), StoredObject("note", ADA, "a", {"n": 1})) == 0
        assert reset_host_store(place, "fake", ADA) == ()
        assert store.put_since(0, StoredObject("note", ADA, "b", {"n": 2})) == 1
        assert store.put_since(1, StoredObject("note", ADA, "c", {"n": 3})) == 1
        assert store.all("note") == [{"n": 3}]


def test_a_store_that_was_never_begun_is_not_made(tmp_path):
    assert reset_host_store(tmp_path, "fake", ADA) == ()
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_is_damaged_is_named_with_its_place(tmp_path):
    with closing(SqliteStore(tmp_path / "memslot.db")) as place, HostStore("fake", place) as store:
        store.put(StoredObject("note", ADA, "a", {"n": 1}))
        place.call(lambda db: db.execute("UPDATE kept SET value = 'torn'"))
        with pytest.raises(StoreError, match=r"memslot\.db: damaged; restore it"):
            store.get("note", ADA, "a")


@given(st.dictionaries(TEXTS, TEXTS, max_size=6))
def test_any_name_comes_back_as_it_was(kept):
    with HostStore("fake", None) as store:
        store.put(*(StoredObject("note", ADA, name, {"text": text}) for name, text in kept.items()))
        assert store.get_many("note", ADA, kept.keys()) == {
            name: {"text": text} for name, text in kept.items()
        }
