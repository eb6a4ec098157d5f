"""The table of native partitions, and the one rule that is checked when a store opens."""

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.contract.errors import ConfigError, StoreError
from memory.storage.partitions import PARTITIONS, Partition, Partitions
from memory.storage.store import SqliteStore

HERS = Partition("alice", "qdrant/alice", "qdrant", "bge-small", 384, "query: ", "passage: ")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture
def partitions(open_handle):
    return Partitions(open_handle(PARTITIONS), "mem0")


def test_a_new_partition_is_listed(partitions):
    assert partitions.listed("alice") is None
    assert partitions.open(HERS, exists=False) == HERS
    assert partitions.all() == [HERS]
    assert partitions.open(HERS, exists=True) == HERS


def test_a_listed_partition_that_is_missing_is_an_error(partitions):
    partitions.open(HERS, exists=False)
    with pytest.raises(StoreError, match=r"mem0: qdrant/alice is listed in .* and missing; restore it"):
        partitions.open(HERS, exists=False)


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("embedder", "e5-small", "embedder 'bge-small', and embedder 'e5-small' is configured"),
        ("dimensions", 768, "dimensions 384, and dimensions 768 is configured"),
        ("query_prefix", "", "query prefix 'query: ', and query prefix '' is configured"),
        ("document_prefix", "x", "document prefix 'passage: ', and document prefix 'x' is configured"),
    ],
)
def test_another_embedder_is_an_error_that_names_both(partitions, field, value, names):
    partitions.open(HERS, exists=False)
    other = replace(HERS, **{field: value})
    with pytest.raises(ConfigError) as caught:
        partitions.open(other, exists=True)
    assert names in str(caught.value)
    assert partitions.open(other, exists=True, is_empty=lambda: True) == other
    assert partitions.all() == [other]


def test_partitions_of_another_backend_are_its_own(partitions, open_handle):
    partitions.open(HERS, exists=False)
    assert Partitions(open_handle(PARTITIONS), "graphiti").all() == []


def test_a_dropped_partition_may_be_missing(partitions):
    partitions.open(HERS, exists=False)
    partitions.drop("alice")
    partitions.drop("alice")
    assert partitions.open(HERS, exists=False) == HERS


def test_asking_creates_no_file(tmp_path):
    with closing(SqliteStore(tmp_path / "memslot.db", [PARTITIONS])) as store:
        asked = Partitions(store, "mem0")
        asked.drop("alice")
        assert (asked.all(), asked.listed("alice")) == ([], None)
    assert list(tmp_path.iterdir()) == []


@given(st.builds(Partition, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | st.integers(0, 2**31), TEXTS, TEXTS))
def test_every_partition_is_read_back(partition):
    with closing(SqliteStore(None, [PARTITIONS])) as store:
        partitions = Partitions(store, "mem0")
        partitions.open(partition, exists=False)
        assert partitions.all() == [partition]
