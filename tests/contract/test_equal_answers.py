"""An equal question gets an equal answer in the same order, from everything that keeps its memory in this process:
asked again, by many at once, after a restart, after a kill, and in another store that was told the same."""

import random
import shutil
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec

import anyio
import pytest
from said import said

from memory import ContextBudget, MemoryScope, RetrieveRequest, open_memory
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FAKE_KEY, ScriptedLLM

ALICE = MemoryScope(run_id="run1", persona_id="alice")
START = datetime(2024, 1, 1, 12, tzinfo=UTC)
QUESTIONS = (
    "tea oolong",
    "which red cup in the morning",
    "Hal likes green",
    "blue evening",
    "coffee, tea and cups",
)
SERVERS = {"honcho", "memos", "stigmem"}

PROVIDERS = {
    "mem0": ("mem0", {}),
    "mem0 infer": ("mem0", {"infer": True}),
    "graphiti": ("graphiti", {"ingest": "triplet"}),
    "graphiti combined": ("graphiti", {"ingest": "triplet", "recipe": "combined"}),
    "graphiti message": ("graphiti", {}),
    "simple_rag": ("simple_rag", {}),
    "full_history": ("full_history", {}),
    "rolling_summary": ("rolling_summary", {}),
    "static_profile": ("static_profile", {"profile": "Ada plays the oboe.\n\nShe dislikes small talk."}),
    "oracle_ipas": ("oracle_ipas", {"matrix": {"alice": {"work": {"tone": "formal", "tea": "green"}}}}),
    "no_memory": ("no_memory", {}),
}
SDKS = {"mem0": "mem0", "simple_rag": "mem0", "graphiti": "kuzu"}
SLOW = ("graphiti",)


def test_no_provider_is_left_out():
    registry = MemoryAdapterRegistry()
    ours = {row.name for row in registry.rows() if row.distribution == "memslot"}
    assert ours <= {*(name for name, _ in PROVIDERS.values()), *SERVERS, "mirror"}, (
        "add it to PROVIDERS; a mirror answers as its primary"
    )


@contextmanager
def configured(name, options):
    """A configuration; its model, where it needs one, answers as long as the block lasts."""
    options = dict(options)
    with ScriptedLLM() as llm:
        model = {"model": "scripted", "base_url": llm.base_url, "api_key": FAKE_KEY}
        if name == "graphiti":
            options["llm"] = model
        if options.get("infer"):
            options.update(llm=model, embedder={"base_url": llm.base_url, "api_key": FAKE_KEY})
        yield {"memory": {"backend": name, "backends": {name: options}}}


def repetitive_events(count):
    """Events of few words, so that many facts are alike and many scores equal."""
    chosen = random.Random(11)
    events = []
    for number in range(count):
        words = " ".join(chosen.choices(["tea", "oolong", "coffee", "cup", "red", "blue", "green"], k=2))
        who, what = chosen.choice(["Hal", "Ann"]), chosen.choice(["Rome", "Oslo", "Paris"])
        fact = f"{who} likes {words} in {what}"
        triplet = {"source": who, "relation": "LIKES", "target": what, "fact": fact}
        fields = {"session_id": f"s{number // 8}", "metadata": {"triplets": [triplet]}}
        # Two events each have the same time.
        at = START + timedelta(minutes=number // 2)
        words = f"I like {words} with {who} in {what}."
        events.append(said(ALICE, words, number=number, timestamp=at, **fields))
    return events


async def answers(slot):
    """To every question: its rows in order, without native ids, which differ between stores."""
    budget = ContextBudget(max_items=7, max_tokens=400)
    found = []
    for query in QUESTIONS:
        request = RetrieveRequest(query=query, scope=ALICE, session_id="s9", budget=budget)
        entries = (await slot.retrieve(request)).entries
        found.append([(entry.text, entry.score, entry.event_ids, entry.timestamp) for entry in entries])
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*provider, id=name, marks=[pytest.mark.thorough] if " " in name or name in SLOW else [])
        for name, provider in PROVIDERS.items()
    ],
)
async def test_equal_questions_get_equal_answers(tmp_path, name, options):
    if name in SDKS and find_spec(SDKS[name]) is None:
        pytest.skip(f"{SDKS[name]} is not installed")
    async with AsyncExitStack() as stack:
        config = stack.enter_context(configured(name, options))
        opened = partial(open_memory, config, scope=ALICE)
        seen = {}

        async def ask(slot, when):
            seen[when] = await answers(slot)

        for store in ("one", "other"):
            async with opened(data_dir=tmp_path / store) as slot:
                for event in repetitive_events(16):
                    assert (await slot.record_event(event)).status in ("committed", "pending")
                await ask(slot, f"in the {store} store")
                if store == "one":
                    async with anyio.create_task_group() as group:
                        for number in range(4):
                            group.start_soon(ask, slot, f"at once {number}")
                    if (tmp_path / "one").exists():
                        shutil.copytree(tmp_path / "one", tmp_path / "killed")
        for store in ("one", "killed"):
            async with opened(data_dir=tmp_path / store) as slot:
                if await has_memory(slot):
                    await ask(slot, f"{store}, opened again")
    if name.startswith(("mem0", "simple_rag")):  # stock Qdrant orders rows of equal score as it likes
        seen = {when: [[round(row[1], 6) for row in rows] for rows in found] for when, found in seen.items()}
    first = seen["in the one store"]
    assert all(first) == (name not in ("no_memory",)), "there is something to compare"
    for when, found in seen.items():
        assert found == first, when


async def has_memory(slot):
    """Conditions keep nothing over a restart unless they are given a path."""
    return any(await answers(slot))
