"""What a provider's retrievals tell of change over time: declared once, told wherever traits are."""

import json

import pytest
from backends import of_backend
from cli_support import invoke

from memory import InputError
from memory.adapter import AdapterTraits
from memory.plugins.opening import build_slot


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
