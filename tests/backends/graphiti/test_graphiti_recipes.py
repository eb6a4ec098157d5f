"""Searching Graphiti on embedded Kuzu: recipes, embedders, cross-encoders, what a question may hold."""

import json

import pytest
from graphiti_support import ALICE, NEEDS_GRAPHITI, ask, event, found, opened
from variants import plain

from memory.adapter import BackendAuthError

pytestmark = NEEDS_GRAPHITI


@pytest.mark.thorough
@pytest.mark.parametrize(
    "recipe",
    plain(
        "hybrid",
        "combined_cross_encoder",
        of=["hybrid", "mmr", "cross_encoder", "combined", "combined_mmr", "combined_cross_encoder"],
    ),
)
async def test_every_recipe_finds_the_fact(tmp_path, llm, recipe):
    async with opened(llm, tmp_path, recipe=recipe) as slot:
        from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_RRF

        from memory.backends.graphiti.client import make_filter, make_recipe

        before = EDGE_HYBRID_SEARCH_RRF.model_dump_json()
        await slot.record_event(event("I keep my passport in the drawer.", "I ride my green bicycle."))
        result = await slot.retrieve(ask("Where is my passport?", max_items=1))
        adapter = slot._adapter
        async with adapter.graph(ALICE) as graph:
            used = graph._recipe(1), graph._filter
    assert used == (make_recipe(adapter._options, 1), make_filter(adapter._options)), "searches share them"
    assert EDGE_HYBRID_SEARCH_RRF.model_dump_json() == before, "ingestion uses it too"
    assert [row["fact"] for row in result.raw["edges"]] == ["I keep my passport in the drawer."]
    assert isinstance(result.raw["edges"][0]["score"], float)
    assert bool(result.raw["nodes"]) == bool(result.raw["episodes"]) == recipe.startswith("combined")
    assert ("[episodes]" in result.formatted_context) == (
        recipe.startswith("combined")
        and bool({"episodes"} & {entry.group for entry in result.context_entries})
    )
    assert len(result.included) <= 1
    assert json.loads(json.dumps(result.raw)) == result.raw


async def test_a_question_mark_is_no_wildcard(tmp_path, llm):
    """Kuzu takes "passport?" for a pattern, so that keyword search would miss what is asked for."""
    async with opened(llm, tmp_path, sim_min_score=1.0) as slot:  # by keywords alone
        await slot.record_event(event("I keep my passport in the drawer."))
        for query in ("Where is my passport?", "passport*", "What?! My passport?"):
            assert await found(slot, query) == ["I keep my passport in the drawer."], query
        assert await found(slot, "? * ?") == []


@pytest.mark.thorough
async def test_a_model_as_embedder(tmp_path, llm):
    embedder = {"model": "embed", "base_url": llm.base_url}
    async with opened(llm, tmp_path, embedder=embedder, sim_min_score=0.0) as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        assert await found(slot, "passport")
    assert llm.bodies("embeddings")


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", ["cross_encoder", "combined_cross_encoder"])
async def test_a_model_as_cross_encoder(tmp_path, llm, recipe):
    model = {"model": "rank", "base_url": llm.base_url}
    async with opened(llm, tmp_path, cross_encoder=model, recipe=recipe) as slot:
        await slot.record_event(
            event("I ride my green bicycle to work.", "I keep my passport in the drawer.")
        )
        result = await slot.retrieve(ask("passport drawer"))
    asked = [body for body in llm.bodies("chat/completions") if body["model"] == "rank"]
    scores = [row["score"] for row in result.raw["edges"]]
    assert result.raw["edges"][0]["fact"] == "I keep my passport in the drawer."
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(0.99)
    assert scores[-1] == pytest.approx(0.01), "probabilities, of the model's one word"
    assert all(body["logprobs"] and body["max_tokens"] == 1 for body in asked)
    assert len(asked) >= 2, "once per passage"


async def test_a_cross_encoder_that_fails_is_an_error_and_no_empty_result(tmp_path, llm):
    model = {"model": "rank", "base_url": llm.base_url}
    async with opened(llm, tmp_path, cross_encoder=model, recipe="cross_encoder") as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        llm.faults.add("401", times=None)
        with pytest.raises(BackendAuthError):
            await slot.retrieve(ask("passport"))
