"""What a provider's retrievals tell of change over time: declared once, told wherever traits are."""

import json

import pytest
from backends import of_backend
from cli_support import invoke

from memory import InputError, MemoryScope
from memory.adapter import AdapterTraits
from memory.bench.engine.provenance import traits_record
from memory.plugins.config import load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.slot import MemorySlot
from memory.testing._fake_backend import FakeBackend

DECLARED = {
    "no_memory": "weak",
    "static_profile": "weak",
    "full_history": "dated",
    "rolling_summary": "versioned",
    "simple_rag": "dated",
    "mem0": "dated",
    "graphiti": "dated",
    "stigmem": "dated",
    "memos": "dated",
    "honcho": "weak",
}


async def test_health_says_what_the_traits_declare():
    adapter = FakeBackend()
    adapter.traits = AdapterTraits(pet_observability="versioned")
    async with MemorySlot(adapter, scope=MemoryScope(run_id="r", persona_id="p")) as slot:
        assert (await slot.health()).pet_observability == "versioned"


def test_listings_say_it_of_every_memory_of_our_own():
    rows = json.loads(invoke("doctor", "--json").stdout)
    found = {row["name"]: row["pet_observability"] for row in rows}
    assert found == {name: DECLARED.get(name, found[name]) for name in found}


@pytest.mark.parametrize("name", ["no_memory", "full_history", "rolling_summary"])
def test_the_description_says_what_the_adapter_declares(tmp_path, name):
    config = {"memory": {"condition": name, "conditions": {name: {}}}}
    info = MemoryAdapterRegistry().selected(load_config(config))
    assert build_slot(config, data_dir=tmp_path).traits.pet_observability == info.pet_observability


def test_the_manifest_has_it_and_null_where_nothing_is_declared():
    assert traits_record(AdapterTraits(pet_observability="weak")).pet_observability == "weak"
    assert traits_record(AdapterTraits()).pet_observability is None


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, "weak"),
        ({"retrieval": "search", "supplement": "none"}, "dated"),
        ({"retrieval": "search", "supplement": "conclusions"}, "weak"),
    ],
)
def test_honcho_is_weak_where_it_answers_in_prose(tmp_path, options, seen):
    of_backend("honcho")
    pytest.importorskip("honcho")
    block = {"base_url": "http://127.0.0.1:1", **options}
    config = {"memory": {"backend": "honcho", "backends": {"honcho": block}}}
    assert build_slot(config, data_dir=tmp_path).traits.pet_observability == seen


def test_the_doctor_says_it(tmp_path):
    file = tmp_path / "memslot.yaml"
    file.write_text(json.dumps({"memory": {"condition": "full_history"}}), encoding="utf-8")
    examined = invoke("doctor", file, "--json", env={"HOME": str(tmp_path)})
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert "PET dated" in checks["capabilities"]["evidence"]


@pytest.mark.parametrize("field", ["kind", "consistency", "cs_filtering", "pet_observability"])
def test_a_word_that_does_not_exist_is_refused_where_it_is_written(field):
    with pytest.raises(InputError, match=rf"AdapterTraits\.{field} is 'none at all'; use one of "):
        AdapterTraits(**{field: "none at all"})
