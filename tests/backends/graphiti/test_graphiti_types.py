"""Custom types: read from the configuration, extracted by Graphiti, seen in ``raw`` and in the context."""

import json
import re
from pathlib import Path

import pytest
from graphiti_support import NEEDS_GRAPHITI, ask, event, listed, opened
from pydantic import BaseModel, Field

from memory import ConfigError
from memory.backends.graphiti.options import GraphitiOptions, build_ontology
from memory.backends.graphiti.stores import import_sdk
from memory.plugins.blocks import parse_block
from memory.testing import ScriptedLLM

HERE = Path(__file__).stem


TYPES = {
    "entity_types": {"Tea": f"{HERE}:Tea", "Person": f"{HERE}:Person"},
    "edge_types": {"DRINKS": f"{HERE}:Drinks"},
}
SAID = "I drink my Oolong whose flavour is malty and whose temperature is 90 as my Oolong."


class Tea(BaseModel):
    """A tea such as Oolong or Sencha."""

    flavour: str | None = Field(default=None, description="how it tastes")
    grams: int | None = Field(default=None, description="how much of it")


class Person(BaseModel):
    """A person who speaks"""


class Drinks(BaseModel):
    """Someone does drink something"""

    temperature: int | None = Field(default=None, description="in degrees")


class Undescribed(BaseModel):
    flavour: str | None = None


class Clashing(BaseModel):
    """Has a field that Graphiti's entities and facts have already."""

    uuid: str | None = None


NOT_A_MODEL = 3


def parsed(**options):
    llm = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    return parse_block(GraphitiOptions, {"llm": llm, **options}, "memory.backends.graphiti")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"entity_types": {"Tea": "test_graphiti_types"}},
            "entity_types.Tea: name a pydantic model as mypkg",
        ),
        ({"entity_types": {"Tea": {"description": "x"}}}, "entity_types.Tea"),
        (
            {"entity_types": {"Green tea": f"{HERE}:Tea"}},
            "use letters, digits and underscores, a letter first",
        ),
        ({"entity_types": {"Entity": f"{HERE}:Tea"}}, "entity_types.Entity: this is what Graphiti calls"),
        ({"edge_types": {"A-B": f"{HERE}:Drinks"}}, "use letters, digits and underscores, a letter first"),
    ],
)
def test_mistakes_are_named_with_their_fix(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        parsed(**options)


HERE = __name__


@NEEDS_GRAPHITI
@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        ("entity_types", "nowhere_at_all:Tea", "graphiti.entity_types.T: cannot import nowhere_at_all"),
        ("entity_types", f"{HERE}:Coffee", f"cannot import {HERE}:Coffee (AttributeError: Coffee)"),
        (
            "entity_types",
            f"{HERE}:NOT_A_MODEL",
            "is no pydantic model; give a subclass of pydantic.BaseModel",
        ),
        ("entity_types", f"{HERE}:test_mistakes_are_named_with_their_fix", "is no pydantic model"),
        ("entity_types", f"{HERE}:Undescribed", "has no docstring"),
        ("entity_types", f"{HERE}:Clashing", "entity_types.T.uuid: Graphiti has a field of this name itself"),
        ("edge_types", f"{HERE}:Clashing", "edge_types.T.uuid: Graphiti has a field of this name itself"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(kind, path, message):
    options = parsed(**{kind: {"T": path}})
    with pytest.raises(ConfigError, match=re.escape(message)):
        ontology(options)


@NEEDS_GRAPHITI
def test_a_module_that_fails_is_named_without_what_it_says(tmp_path, monkeypatch):
    (tmp_path / "broken_types.py").write_text("raise RuntimeError('zqsecret')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=r"cannot import broken_types:T \(RuntimeError: broken_types\)"
    ) as raised:
        ontology(parsed(entity_types={"T": "broken_types:T"}))
    assert "zqsecret" not in str(raised.value)


def ontology(options):
    import_sdk()
    return build_ontology(options, "memory.backends.graphiti")


@NEEDS_GRAPHITI
def test_types_and_rules_become_arguments():
    made = ontology(parsed(**TYPES))
    assert made["entity_types"] == {"Tea": Tea, "Person": Person}
    assert made["edge_types"] == {"DRINKS": Drinks}
    assert set(ontology(parsed()).values()) == {None}


@pytest.mark.thorough
@NEEDS_GRAPHITI
@pytest.mark.parametrize("structured", ["json_schema", "json_object"])
async def test_types_and_attributes_are_seen(tmp_path, structured):
    with ScriptedLLM() as llm:
        model = {"model": "scripted", "base_url": llm.base_url, "structured_output": structured}
        async with opened(llm, tmp_path, **TYPES, llm=model, recipe="combined") as slot:
            await slot.record_event(event(SAID))
            result = await slot.retrieve(ask("Oolong"))
        formats = {body["response_format"]["type"] for body in llm.bodies("chat/completions")}
    nodes = {row["name"]: row for row in result.raw["nodes"]}
    (fact,) = result.raw["edges"]
    assert formats == {structured}
    assert set(nodes["Oolong"]["labels"]) == {"Entity", "Tea"}
    assert {k: v for k, v in nodes["Oolong"]["attributes"].items() if v is not None} == {"flavour": "malty"}
    assert set(nodes["user"]["labels"]) == {"Entity", "Person"}
    assert (fact["name"], fact["attributes"]) == ("DRINKS", {"temperature": 90})
    assert "type DRINKS, temperature 90" in result.formatted_context
    assert "(type Tea, flavour malty, " in result.formatted_context
    assert "grams" not in result.formatted_context, "of which nothing was said"
    assert json.loads(json.dumps(result.raw)) == result.raw


@pytest.mark.thorough
@NEEDS_GRAPHITI
async def test_what_is_known_of_an_entity_stays_when_it_is_not_said_again(tmp_path, llm):
    async with opened(llm, tmp_path, **TYPES) as slot:
        await slot.record_event(event(SAID))
        await slot.record_event(event("I love my Oolong whose grams is 5 as my Oolong."))
        (tea,) = [row for row in (await listed(slot, "nodes"))["nodes"] if row["name"] == "Oolong"]
        health = await slot.health()
    assert (tea["attributes"]["flavour"], tea["attributes"]["grams"]) == ("malty", 5)
    assert health.details["ingest"] == ["message", "custom_entity_types", "custom_edge_types"]
    assert {"message", "text", "json", "triplet", "bulk"} < set(health.native_ingest_modes)


@NEEDS_GRAPHITI
async def test_instructions_reach_every_extraction(tmp_path):
    with ScriptedLLM() as llm:
        async with opened(llm, tmp_path, custom_instructions="zqinstruction") as slot:
            await slot.record_event(event(SAID))
        prompts = {
            body["response_format"]["json_schema"]["name"]: json.dumps(body["messages"])
            for body in llm.bodies("chat/completions")
        }
    assert {"ExtractedEntities", "ExtractedEdges"} <= {
        name for name, prompt in prompts.items() if "zqinstruction" in prompt
    }
