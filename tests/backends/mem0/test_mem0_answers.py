"""What the partitions answer: the same as the plain library, and the same when asked again."""

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mem0_plain import close_plain, plain_memory
from mem0_support import ALICE, BOB, NEEDS_MEM0, START, ask, event, native, opened
from variants import examples

from memory import MemoryScope
from memory.backends.mem0.options import STORES
from memory.backends.mem0.translate import native_filters

pytestmark = [pytest.mark.thorough, NEEDS_MEM0]

AGENT = MemoryScope(run_id="run1", persona_id="alice", agent_id="agent")
SCOPES = dict(zip(("alice", "bob", "agent"), (ALICE, BOB, AGENT), strict=True))
WORDS = "tea oolong coffee cup red blue green morning evening likes drinks bought sold mug kettle hot".split()  # noqa: SIM905


def sample_events(count=120):
    """Events of three scopes, with every kind of metadata; texts differ, most scores do not."""
    chosen = random.Random(7)
    return [
        event(
            f"{' '.join(chosen.choices(WORDS, k=chosen.randint(2, 6)))} {number}",
            scope=chosen.choice(list(SCOPES.values())),
            context=chosen.choice(["work", "personal", None]),
            scenario=chosen.choice(["tea", None]),
            timestamp=START + timedelta(hours=number % 40),
            metadata={
                "colour": chosen.choice(["red", "green", "dark blue"]),
                "n": chosen.randint(0, 5),
                "weight": chosen.choice([0.5, 1.5, 2.0]),
                "even": number % 2 == 0,
                "day": f"2023-05-{number % 9 + 1:02}",
                **({"rare": "yes"} if number % 10 == 0 else {}),
            },
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same memories twice: in plain mem0's one collection, and behind a slot (with its portal)."""
    from anyio.from_thread import start_blocking_portal

    directory = tmp_path_factory.mktemp("answers")
    with start_blocking_portal() as portal:
        manager = portal.wrap_async_context_manager(opened(directory / "ours", BOB, AGENT))
        with manager as slot:
            plain = plain_memory(directory / "plain")
            for event in sample_events():
                portal.call(slot.record_event, event)
                (row,) = [
                    point.payload
                    for point in native(slot, event.scope).vector_store.list(top_k=1000)[0]
                    if point.payload["event_id"] == event.event_id
                ]
                plain.vector_store.insert(
                    [plain.embedding_model.embed(row["data"], "add")], [row], [_id_of(slot, event)]
                )
            yield plain, lambda call, *arguments: portal.call(call, slot, *arguments)
            close_plain(plain)


def _id_of(slot, event):
    rows = native(slot, event.scope).vector_store.list(filters={"event_id": event.event_id}, top_k=1)[0]
    return str(rows[0].id)


VALUES = {
    "colour": st.sampled_from(["red", "green", "dark blue", "dark", "pink"]),
    "n": st.integers(-1, 6),
    "even": st.booleans(),
    "weight": st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    "day": st.sampled_from(["2023-05-01", "2023-05-05", "2023-05-09", "2023-06-01"]),
    "rare": st.sampled_from(["yes", "no"]),
}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, Any]:
    name = draw(st.sampled_from(sorted(VALUES)))
    values = VALUES[name]
    if name == "weight":
        clauses = {draw(st.sampled_from(["gt", "gte", "lt", "lte"])): draw(values)}
    else:
        ranged = ["gt", "gte", "lt", "lte"] if name in ("n", "day") else []
        texts = ["contains", "icontains"] if name == "colour" else []
        others = ["ne", "in", "nin"] if name != "even" else []  # Qdrant compares booleans for equality alone
        operator = draw(st.sampled_from(["plain", "eq", *others, *ranged, *texts]))
        if operator in ("in", "nin"):
            clauses = {operator: draw(st.lists(values, min_size=1, max_size=3))}
        elif operator == "plain":
            clauses = draw(values)
        elif operator in ranged and draw(st.booleans()):
            clauses = {operator: draw(values), ("lt" if "g" in operator else "gt"): draw(values)}
        else:
            clauses = {operator: draw(values)}
    return name, clauses


FILTERS = st.lists(conditions(), max_size=3).map(dict)
CS = st.fixed_dictionaries(
    {}, optional={"context": st.sampled_from(["work", "personal"]), "scenario": st.just("tea")}
)
QUERY = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@given(st.sampled_from(sorted(SCOPES)), QUERY, FILTERS, CS, st.integers(1, 60))
@example("agent", "drinks kettle", {}, {}, 36)
@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_same_rows_as_the_plain_library_finds(both, name, query, filters, cs, top_k):
    """Over all filters, in one collection of three scopes and with the conditions that a partition leaves out.

    Rows of equal score may stand in either order, and either of them may be cut off. One that shares nothing with
    the question scores 0 but for a rounding, and is found where that rounding is upwards.
    """
    plain, call = both
    scope = SCOPES[name]
    result = call(_retrieve, ask(query, scope=scope, max_items=top_k, filters=filters, **cs))
    conditions = {
        name: value if isinstance(value, dict) else {"eq": value} for name, value in {**filters, **cs}.items()
    }
    narrowing = native_filters(conditions, STORES["qdrant"])
    wanted = plain.search(query, filters={**call(_ids, scope), **narrowing}, top_k=top_k, threshold=0.0)[
        "results"
    ]
    ours = {row["id"]: row for row in result.raw["results"]}
    scores = sorted((row["score"] for row in ours.values()), reverse=True)
    native = [row["score"] for row in wanted]
    assert [score for score in scores if score > 1e-5] == pytest.approx(
        [score for score in native if score > 1e-5], abs=1e-5
    )
    cut = scores[-1] + 1e-5 if len(scores) == top_k else -1.0
    for row in wanted:
        if row["score"] > max(cut, 1e-5):
            assert _without_score(ours[row["id"]]) == _without_score(row)


async def _retrieve(slot, request):
    return await slot.retrieve(request)


async def _ids(slot, scope):
    ids = slot.native_scope(scope)
    return ids


def _without_score(row):
    return {name: value for name, value in row.items() if name != "score"}
