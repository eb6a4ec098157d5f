"""How a search is configured, in Graphiti's terms.

Imports the SDK, so it is imported only after :func:`memory.backends.graphiti.opening.import_sdk`.
"""

from __future__ import annotations

from graphiti_core.search import search_config_recipes as recipes
from graphiti_core.search.search_config import SearchConfig
from graphiti_core.search.search_filters import ComparisonOperator, DateFilter, SearchFilters

from memory.backends.graphiti.options import GraphitiOptions

_RECIPES = {
    "hybrid": recipes.EDGE_HYBRID_SEARCH_RRF,
    "mmr": recipes.EDGE_HYBRID_SEARCH_MMR,
    "cross_encoder": recipes.EDGE_HYBRID_SEARCH_CROSS_ENCODER,
    "combined": recipes.COMBINED_HYBRID_SEARCH_RRF,
    "combined_mmr": recipes.COMBINED_HYBRID_SEARCH_MMR,
    "combined_cross_encoder": recipes.COMBINED_HYBRID_SEARCH_CROSS_ENCODER,
}


def make_recipe(options: GraphitiOptions, limit: int) -> SearchConfig:
    """A copy of the recipe that ``recipe`` names, for ``limit`` results of each kind and the configured floors."""
    recipe = _RECIPES[options.recipe].model_copy(deep=True)
    recipe.limit = limit
    recipe.reranker_min_score = options.least_rerank
    for part in (recipe.edge_config, recipe.node_config, recipe.community_config):
        if part is not None:
            part.sim_min_score = options.least_similarity
    return recipe


def make_filter(options: GraphitiOptions) -> SearchFilters:
    """Everything, or with ``only_valid`` facts that have not been invalidated."""
    if not options.only_valid:
        return SearchFilters()
    return SearchFilters(invalid_at=[[DateFilter(comparison_operator=ComparisonOperator.is_null)]])
