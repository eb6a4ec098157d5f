"""simple_rag: the mem0 adapter as a control condition, never extracting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mem0_support import ALICE, NEEDS_MEM0, ask, event

from memory import ConfigError, open_memory
from memory.testing import ScriptedLLM

pytestmark = NEEDS_MEM0


def config(data_dir: Path, **options: Any) -> dict[str, Any]:
    return {
        "memory": {
            "condition": "simple_rag",
            "data_dir": str(data_dir),
            "conditions": {"simple_rag": options},
        }
    }


async def test_it_is_a_control_and_says_so(tmp_path: Path) -> None:
    async with open_memory(config(tmp_path), scope=ALICE) as slot:
        await slot.record_event(event("I drink oolong."))
        result = await slot.retrieve(ask("oolong"))
        health = await slot.health()
    assert slot.traits.kind == "control"
    assert result.trace.condition_kind == "control"
    assert result.formatted_context.startswith('<memory-context backend="simple_rag" scope="run1:alice">')
    assert (health.native_ingest_modes, health.details["ingest"]) == (("infer", "verbatim"), "verbatim")


async def test_it_never_extracts_even_with_a_model_at_hand(tmp_path: Path) -> None:
    with ScriptedLLM() as llm:
        async with open_memory(config(tmp_path, llm={"base_url": llm.base_url}), scope=ALICE) as slot:
            await slot.record_event(event("I bought oolong tea yesterday."))
            (entry,) = (await slot.retrieve(ask("oolong"))).entries
        assert llm.requests == []
    assert entry.text == "I bought oolong tea yesterday."


async def test_extraction_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory\.conditions\.simple_rag\.infer: "):
        async with open_memory(config(tmp_path, infer=True, llm={"base_url": "http://127.0.0.1:9/v1"})):
            pass


async def test_it_has_a_store_of_its_own_beside_mem0(tmp_path: Path) -> None:
    both = {
        "memory": {
            **config(tmp_path)["memory"],
            "condition": None,
            "backend": "mem0",
            "backends": {"mem0": {}},
        }
    }
    async with open_memory(config(tmp_path), scope=ALICE) as rag, open_memory(both, scope=ALICE) as mem0:
        await rag.record_event(event("only in one"))
        assert (await mem0.retrieve(ask("only"))).entries == ()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"simple_rag", "mem0"}  # noqa: ASYNC240


async def test_errors_name_the_condition(tmp_path: Path) -> None:
    async with open_memory(config(tmp_path), scope=ALICE):
        with pytest.raises(Exception, match=r"memory\.conditions\.simple_rag\.path"):
            async with open_memory(config(tmp_path), scope=ALICE):
                pass
