"""Each backend's block of the design's example configuration loads, or its error names an option there is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from memory import ConfigError
from memory.backends.graphiti.options import GraphitiOptions
from memory.backends.honcho.options import HonchoOptions
from memory.backends.mem0.options import Mem0Options
from memory.backends.memos.options import MemosOptions
from memory.plugins.blocks import parse_block
from memory.plugins.config import MemorySettings

# What the design leaves out and the backend cannot do without.
LLM = {"llm": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}}
SERVER = {"base_url": "http://127.0.0.1:1"}
NAMESPACE = "scope.backend_namespace"
DATABASE = {"graph_db": "neo4j-community"}


@pytest.mark.parametrize(
    ("model", "block"),
    [
        (Mem0Options, {"top_k": 5, "threshold": 0.2, "rerank": True}),
        (GraphitiOptions, {**LLM, "recipe": "combined"}),
        (HonchoOptions, {**SERVER, "workspace_template": "{run_id}_x{persona_id}", "context_tokens": 900}),
        (MemosOptions, {**DATABASE, "search_mode": "mixture", "async_mode": "async"}),
    ],
    ids=["mem0", "graphiti", "honcho", "memos"],
)
def test_what_the_design_sets_is_an_option(model: type[BaseModel], block: dict[str, Any]) -> None:
    assert parse_block(model, block, "block").model_fields_set == set(block)


@pytest.mark.parametrize(
    ("model", "block", "field", "named"),
    [
        (GraphitiOptions, {**LLM, "group_id_template": "{run_id}"}, "group_id_template", NAMESPACE),
        (GraphitiOptions, {**LLM, "search_config": "combined_hybrid"}, "search_config", "recipe"),
        (HonchoOptions, {"context_tokens": 900}, "", "base_url"),
        (MemosOptions, {**DATABASE, "writable_cube_template": "x"}, "writable_cube_template", NAMESPACE),
        (MemosOptions, {**DATABASE, "readable_cube_template": "x"}, "readable_cube_template", NAMESPACE),
        (MemosOptions, {**DATABASE, "readable_cube_ids": ["x"]}, "readable_cube_ids", "readable_cubes"),
        (MemosOptions, {**DATABASE, "writable_cube_ids": ["x"]}, "writable_cube_ids", "writable_cubes"),
        (MemosOptions, {**DATABASE, "mode": "mixture"}, "mode", "search_mode"),
    ],
)
def test_what_is_spelt_otherwise_is_refused_by_an_option_there_is(
    model: type[BaseModel], block: dict[str, Any], field: str, named: str
) -> None:
    with pytest.raises(ConfigError) as error:
        parse_block(model, block, "block")
    where, _, hint = str(error.value).partition(": ")
    assert where == (f"block.{field}" if field else "block")
    assert re.search(rf"\b{re.escape(named)}\b", hint)
    section, _, option = named.rpartition(".")
    owner = MemorySettings.model_fields[section].annotation if section else model
    if section:
        owner = next(allowed for allowed in getattr(owner, "__args__", (owner,)) if allowed is not type(None))
    assert option in owner.model_fields


def test_a_combined_recipe_under_graphitis_own_name_is_told_by_ours() -> None:
    with pytest.raises(ConfigError, match="'combined'"):
        parse_block(GraphitiOptions, {**LLM, "recipe": "combined_hybrid"}, "block")
