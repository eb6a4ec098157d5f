"""simple_rag: the mem0 adapter as a control condition, never extracting."""

import json
from pathlib import Path

import pytest
from cli_support import invoke
from mem0_support import ALICE, NEEDS_MEM0, ask, event

from memory import ConfigError, open_memory
from memory.testing import ScriptedLLM

pytestmark = NEEDS_MEM0


def config(data_dir, **options):
    return {
        "memory": {
            "condition": "simple_rag",
            "data_dir": str(data_dir),
            "conditions": {"simple_rag": options},
        }
    }


async def test_it_is_a_control_and_says_so(tmp_path):
    async with open_memory(config(tmp_path), scope=ALICE) as slot:
        await slot.record_event(event("I drink oolong."))
        result = await slot.retrieve(ask("oolong"))
        health = await slot.health()
    assert slot.traits.kind == "control"
    assert result.trace.condition_kind == "control"
    assert result.formatted_context.startswith('<memory-context backend="simple_rag" scope="run1:alice">')
    assert (health.native_ingest_modes, health.details["ingest"]) == (("infer", "verbatim"), "verbatim")


async def test_it_never_extracts_even_with_a_model_at_hand(tmp_path):
    with ScriptedLLM() as llm:
        async with open_memory(config(tmp_path, llm={"base_url": llm.base_url}), scope=ALICE) as slot:
            await slot.record_event(event("I bought oolong tea yesterday."))
            (entry,) = (await slot.retrieve(ask("oolong"))).entries
        assert llm.requests == []
    assert entry.text == "I bought oolong tea yesterday."


async def test_extraction_cannot_be_asked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"memory\.conditions\.simple_rag\.infer: "):
        async with open_memory(config(tmp_path, infer=True, llm={"base_url": "http://127.0.0.1:9/v1"})):
            pass


async def test_it_has_a_store_of_its_own_beside_mem0(tmp_path):
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
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"simple_rag", "mem0"}


async def test_errors_name_the_condition(tmp_path):
    async with open_memory(config(tmp_path), scope=ALICE):
        with pytest.raises(Exception, match=r"memory\.conditions\.simple_rag\.path"):
            async with open_memory(config(tmp_path), scope=ALICE):
                pass


WORDS = """
violin kayak teapot lantern atlas camera sofa kettle bicycle umbrella passport garden
attic cellar garage hallway kitchen nursery pantry porch study shed balcony workshop
"""
THINGS, PLACES = (line.split() for line in WORDS.strip().splitlines())
LONG = (
    "after that long winter we finally sorted all those boxes, and decided together with my sister and her husband "
    "where everything from grandmother's old house should go, so her {thing} went to the {place}, beside many "
    "other heavy pieces which nobody wanted to carry any further during such a cold evening, although several "
    "neighbours had offered their help again and again since early November"
)
ASKED = (
    "Please tell: did somebody perhaps recently lend, break, repair, repaint, lose, sell, rent, inherit, donate or "
    "swap this valuable {thing}?"
)
OTHERS = (
    "Today I walked with Ada number {at} from home to work and where we stayed I do my daily keep fit hour."
)


def conversation():
    """Three close questions, eight that share one word with a long answer, and one that shares none."""
    told = [f"I keep my {thing} in the {place}." for thing, place in zip(THINGS[:3], PLACES, strict=False)]
    told += [LONG.format(thing=THINGS[at], place=PLACES[at]) for at in range(3, 11)]
    told.append("Roses and beans grow behind our workshop.")
    asked = [f"Where do I keep my {thing}?" for thing in THINGS[:3]]
    asked += [ASKED.format(thing=thing) for thing in THINGS[3:11]]
    asked.append("Where do I do my daily gardening?")
    said = [{"id": f"m{at}", "content": text} for at, text in enumerate(told)]
    said += [{"id": f"f{at}", "content": OTHERS.format(at=at)} for at in range(60)]
    questions = [
        {"question": question, "answer": place, "evidence": [f"m{at}"]}
        for at, (question, place) in enumerate(zip(asked, PLACES, strict=True))
    ]
    return [*({"session": line["id"], "role": "user", **line} for line in said), *questions]


@pytest.mark.thorough
def test_the_designs_own_options_are_another_memory_than_simple_rag_in_figures_and_words(
    tmp_path, monkeypatch
):
    """mem0 with the document's block was once called "the same as simple_rag" beside figures that differed so."""
    monkeypatch.chdir(tmp_path)
    block = {"mem0": {"top_k": 12, "threshold": 0.1}}
    scope = {"run_id": "r", "persona_id": "p"}
    settings = {"memory": {"backend": "mem0", "scope": scope, "data_dir": "data", "backends": block}}
    Path("memslot.yaml").write_text(json.dumps(settings), encoding="utf-8")
    lines = "".join(json.dumps(line) + "\n" for line in conversation())
    Path("chats.jsonl").write_text(lines, encoding="utf-8")
    arguments = ("run", "memslot.yaml", "mem0", "simple_rag", "--data", "chats.jsonl", "--out", "out")
    shown = invoke(*arguments, env={"COLUMNS": "300"}).stdout  # no line is wrapped
    rows = {line.split()[0]: line for line in shown.splitlines() if "lexical embedder), control" in line}
    assert rows["mem0"].startswith("mem0 (control, simple_rag with other options; lexical embedder), control")
    assert "25.0% of 12" in rows["mem0"]
    assert "91.7% of 12" in rows["simple_rag"]
