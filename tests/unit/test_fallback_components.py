"""A configuration that is a control under another name, or runs without the models it is known for, says so."""

import json

import pytest
from cli_support import invoke
from installed import installed
from one_loop import anyio_backend as anyio_backend

from memory import BackendHealth, InputError, MemoryScope
from memory.adapter import AdapterTraits
from memory.bench.engine.manifest import CellRecord, shown_labels
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.provenance import without_broken
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.slot import MemorySlot
from memory.testing import FakeBackend


def needs(module):
    """Skip without an SDK; importing it here would be before its backend has switched its telemetry off."""
    if not installed(module):
        pytest.skip(f"needs {module}")


def mem0(**options):
    return {"memory": {"backend": "mem0", "backends": {"mem0": options}}}


MODEL = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("options", "kind", "equivalent_control", "fallback_components"),
    [
        ({}, "control", "simple_rag", ("lexical embedder",)),
        ({"infer": False, "llm": MODEL}, "control", "simple_rag", ("lexical embedder",)),
        ({"llm": MODEL}, "architecture", None, ("lexical embedder",)),
        ({"llm": MODEL, "embedder": MODEL, "dimensions": 8}, "architecture", None, ()),
    ],
)
def test_mem0_without_extraction_is_the_control_simple_rag(
    tmp_path, options, kind, equivalent_control, fallback_components
):
    needs("mem0")
    traits = build_slot(mem0(**options), data_dir=tmp_path).traits
    assert (traits.kind, traits.equivalent_control, traits.fallback_components) == (
        kind,
        equivalent_control,
        fallback_components,
    )


def test_simple_rag_is_itself_and_names_what_stands_in_for_an_embedder(tmp_path):
    needs("mem0")
    config = {"memory": {"condition": "simple_rag", "conditions": {"simple_rag": {}}}}
    traits = build_slot(config, data_dir=tmp_path).traits
    assert (traits.kind, traits.equivalent_control, traits.fallback_components) == (
        "control",
        None,
        ("lexical embedder",),
    )


@pytest.mark.parametrize(
    ("options", "fallback_components"),
    [
        ({}, ("lexical embedder",)),
        ({"recipe": "cross_encoder"}, ("lexical embedder", "lexical cross-encoder")),
        ({"recipe": "cross_encoder", "embedder": MODEL, "cross_encoder": MODEL}, ()),
    ],
)
def test_graphiti_names_the_lexical_parts_that_a_search_uses(tmp_path, options, fallback_components):
    needs("graphiti_core")
    config = {"memory": {"backend": "graphiti", "backends": {"graphiti": {"llm": MODEL, **options}}}}
    traits = build_slot(config, data_dir=tmp_path).traits
    assert (traits.kind, traits.equivalent_control, traits.fallback_components) == (
        "architecture",
        None,
        fallback_components,
    )


async def test_health_says_what_the_traits_declare_whatever_the_adapter_answers():
    adapter = FakeBackend()
    adapter.traits = AdapterTraits(
        kind="control", equivalent_control="simple_rag", fallback_components=("lexical embedder",)
    )
    async with MemorySlot(adapter, scope=MemoryScope(run_id="r", persona_id="p")) as slot:
        health = await slot.health()
    assert (health.condition_kind, health.equivalent_control, health.fallback_components) == (
        "control", "simple_rag", ("lexical embedder",),
    )  # fmt: skip


def test_the_same_as_a_control_is_a_control():
    with pytest.raises(InputError, match="equivalent_control"):
        AdapterTraits(kind="architecture", equivalent_control="simple_rag")


@pytest.mark.thorough
def test_config_show_and_doctor_say_control(tmp_path):
    needs("mem0")
    file = tmp_path / "mem0.yaml"
    file.write_text(json.dumps(mem0()), encoding="utf-8")
    shown = invoke("tools", "config", "show", file, "--json")
    assert json.loads(shown.stdout)["kind"] == "control"
    text = invoke("tools", "config", "show", file).stdout
    assert "control mem0 (control, the same as simple_rag; lexical embedder)" in text
    examined = invoke("doctor", file, "--json", env={"HOME": str(tmp_path)})
    report = json.loads(examined.stdout)
    assert (report["kind"], report["label"]) == (
        "control", "mem0 (control, the same as simple_rag; lexical embedder)",
    )  # fmt: skip


OTHER = "mem0 (control, simple_rag with other options; lexical embedder)"
SAME = "mem0 (control, the same as simple_rag; lexical embedder)"
OF_THE_DESIGN = {"top_k": 12, "threshold": 0.1}


def test_the_same_as_a_control_is_said_of_equal_options_only(tmp_path):
    needs("mem0")
    file = tmp_path / "mem0.yaml"
    file.write_text(json.dumps(mem0(**OF_THE_DESIGN)), encoding="utf-8")
    assert json.loads(invoke("tools", "config", "show", file, "--json").stdout)["label"] == OTHER
    assert build_slot(mem0(**OF_THE_DESIGN), data_dir=tmp_path / "a").traits.differs_from_control
    assert not build_slot(mem0(infer=False, llm=MODEL), data_dir=tmp_path / "b").traits.differs_from_control


@pytest.mark.parametrize(
    ("backend", "control", "label"),
    [
        ({}, {}, SAME),
        ({"threshold": 0}, {}, SAME),  # which is the default for lexical
        (OF_THE_DESIGN, {}, OTHER),
        (OF_THE_DESIGN, OF_THE_DESIGN, SAME),
        ({}, OF_THE_DESIGN, OTHER),
    ],
)
def test_a_table_compares_with_the_control_that_stands_in_it(tmp_path, backend, control, label):
    needs("mem0")
    blocks = {"backends": {"mem0": backend}, "conditions": {"simple_rag": control}}
    content = {"memory": {"backend": "mem0", **blocks}, "bench": {"providers": ["mem0", "simple_rag"]}}
    _, variants = without_broken(load_experiment(content, output=tmp_path), MemoryAdapterRegistry())
    one = ("mem0 = simple_rag (lexical embedder)",)  # equal providers are played once, under both names
    assert shown_labels(variants) == (one if label == SAME else (label, "simple_rag (lexical embedder)"))


@pytest.mark.parametrize("on", [True, False])
def test_a_label_says_whether_keywords_searched_beside_vectors(tmp_path, on):
    needs("mem0")
    content = {"memory": {"condition": "simple_rag"}, "bench": {"providers": ["simple_rag"]}}
    _, variants = without_broken(load_experiment(content, output=tmp_path), MemoryAdapterRegistry())
    scope = MemoryScope(run_id="r", persona_id="p")
    seen = {"keyword_search": on}
    health = BackendHealth(
        status="ok", backend_name="simple_rag", consistency_model="immediate", details=seen
    )
    cell = CellRecord(
        cell_id="c", label="simple_rag", persona_id="p", seed=1, replicate=1, scope=scope, health=health
    )
    words = "lexical embedder, keywords beside vectors" if on else "lexical embedder"
    assert shown_labels(variants, [[cell]]) == (f"simple_rag ({words})",)
