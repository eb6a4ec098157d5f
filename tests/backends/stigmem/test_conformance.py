"""Conformance vectors: every one of the data file, and ours, against the model node.

The Stigmem project's vectors are not part of this repository; what needs them is skipped where they are absent.
"""

import os
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from stigmem_double import StigmemDouble
from stigmem_node_model import ADMIN_KEY
from vectors_run import GATE_IDS, KNOWN_DEVIATIONS, OWN_IDS, run_conformance
from vectors_wire import Status, load_vectors

VECTORS = Path(
    os.environ.get("MEMSLOT_STIGMEM_VECTORS")
    or Path(__file__).parents[3].parent / "shared" / "wire" / "stigmem_conformance_vectors.json"
)
# A file that was named and is not there is a mistake, and no reason to skip.
HAS_VECTORS = VECTORS.is_file() or "MEMSLOT_STIGMEM_VECTORS" in os.environ
needs_vectors = pytest.mark.skipif(
    not HAS_VECTORS,
    reason="the Stigmem project's vectors are absent; MEMSLOT_STIGMEM_VECTORS names their file",
)
OWN = (*OWN_IDS, *GATE_IDS)


def given_ids(vectors):
    """Every vector of the file, in its order."""
    node_info = [vectors["NODE_INFO_VECTOR"]]
    groups = [vectors["ASSERT_VECTORS"], vectors["QUERY_VECTORS"], node_info, vectors["LINT_VECTORS"]]
    return [vector["id"] for group in groups for vector in group]


def by_status(rows, status):
    return {row.id for row in rows if row.status is status}


@needs_vectors
async def test_every_vector_of_the_file_is_run_and_named(double):
    vectors = load_vectors(VECTORS)
    rows = await run_conformance(double.url, vectors, expire_scope=True)
    ids = given_ids(vectors)
    assert len(ids) >= 17
    assert [row.id for row in rows] == [*ids, *OWN]
    assert by_status(rows, Status.FAILED) == set()
    assert by_status(rows, Status.DEVIATION) == {"query-by-entity", "query-by-entity-relation", "lint-orphan"}
    assert set(KNOWN_DEVIATIONS) == by_status(rows, Status.DEVIATION)
    assert [row.id for row in rows if row.ours] == list(OWN)
    for row in rows:
        assert bool(row.why) == (row.status is not Status.PASSED)


@needs_vectors
async def test_what_needs_another_node_is_not_counted_as_passed(double):
    vectors = load_vectors(VECTORS)
    rows = await run_conformance(double.url, vectors)
    assert by_status(rows, Status.NOT_RUN) == {"decay-retraction", "synthesis-min-confidence"}


@needs_vectors
async def test_a_node_with_auth_is_asked_with_the_key():
    vectors = load_vectors(VECTORS)
    with StigmemDouble(auth=True) as node:
        rows = await run_conformance(node.url, vectors, api_key=ADMIN_KEY)
        assert by_status(rows, Status.FAILED) == set()
        without = await run_conformance(node.url, vectors, tag="nokey")
    assert "assert-string" in by_status(without, Status.FAILED)
    assert all(ADMIN_KEY not in row.why for row in (*rows, *without))


async def test_our_vectors_pass_on_the_model_node_and_are_marked(double):
    rows = await run_conformance(double.url, expire_scope=True)
    assert [row.id for row in rows] == list(OWN)
    assert all(row.ours for row in rows)
    assert by_status(rows, Status.PASSED) == set(OWN) - {"synthesis-min-confidence"}


@pytest.mark.skipif(not os.environ.get("STIGMEM_URL"), reason="STIGMEM_URL names no Stigmem node")
async def test_a_live_node_comes_out_as_the_model_does(capsys):
    rows = await run_conformance(
        os.environ["STIGMEM_URL"],
        load_vectors(VECTORS) if HAS_VECTORS else None,
        api_key=os.environ.get("STIGMEM_API_KEY"),
        tag=f"t{uuid.uuid4().hex[:8]}",
    )
    with capsys.disabled():
        for row in rows:
            sys.stdout.write(f"\n{row.id}: {row.status.value} {row.why}")
    assert by_status(rows, Status.FAILED) == set()
    assert by_status(rows, Status.DEVIATION) <= set(KNOWN_DEVIATIONS)
    assert Counter(row.status for row in rows)[Status.PASSED] > 0
