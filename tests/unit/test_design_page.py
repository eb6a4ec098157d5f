"""Each name of the design documents has a place that exists, and the page is the one that its table gives."""

import importlib
import sys
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel

from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.settings import MemorySettings
from memory.testing.contract._spec import specs

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import _design  # noqa: E402

CONTENT = _design.table()
ROWS = list(_design.rows(CONTENT))


def has_python(name):
    """Whether a dotted name is a module, an attribute in it, or a field of a type in it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        break
    else:
        return False
    for part in parts[length:]:
        fields = {
            **getattr(found, "model_fields", {}),
            **getattr(found, "__dataclass_fields__", {}),
            **(
                found.__annotations__ if isinstance(found, type) and hasattr(found, "__annotations__") else {}
            ),
        }
        if not hasattr(found, part):
            return part in fields and part == parts[-1]
        found = getattr(found, part)
    return True


def has_option(name):
    provider, _, option = name.partition(".")
    return option in MemoryAdapterRegistry().info(provider).options.model_fields


def has_setting(name):
    section, *path = name.split(".")
    if section == "serve":
        return path == ["isolate"]
    if path[0] in ("backends", "conditions"):
        return True
    model = MemorySettings
    for part in path:
        if part not in model.model_fields:
            return False
        kinds = getattr(
            model.model_fields[part].annotation, "__args__", (model.model_fields[part].annotation,)
        )
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return True


def has_http(name):
    from memory.runtime.signet.endpoints import parity

    return name in {row.endpoint for row in parity()}


def has_text(name):
    path, _, words = name.partition("#")
    return words in (ROOT / path).read_text(encoding="utf-8")


KINDS = {
    "option": has_option,
    "setting": has_setting,
    "spec": lambda name: name in specs(),
    "http": has_http,
    "file": lambda name: (ROOT / name).is_file(),
    "text": has_text,
}


@pytest.mark.parametrize("document", [document["title"] for document in CONTENT["documents"]])
def test_each_place_exists(document):
    missing = []
    for row in ROWS:
        if row.document == document and row.place is not None:
            kind, separator, rest = row.place.partition(":")
            there = KINDS[kind](rest) if separator and kind in KINDS else has_python(row.place)
            missing += [] if there else [f"{row.section} {row.name}: {row.place}"]
    assert not missing


def test_what_has_no_place_is_a_departure_and_each_departure_is_used():
    assert not [row.name for row in ROWS if row.place is None and row.departure is None]
    used = {row.departure for row in ROWS if row.departure}
    assert used == set(CONTENT["departures"])


def test_no_name_stands_twice_in_a_section():
    often = Counter((row.document, row.section, row.name) for row in ROWS)
    assert not [where for where, count in often.items() if count > 1]


def test_the_page_is_made_of_the_table():
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert page == _design.page(CONTENT), "run: python docs/_design.py"
