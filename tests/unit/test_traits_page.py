"""The table of traits is the one that the adapters declare."""

import sys
from pathlib import Path

import pytest

from memory.plugins.registry import MemoryAdapterRegistry

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import _traits  # noqa: E402

SHOWN = _traits.PAGE.read_text(encoding="utf-8")
INSTALLED = {row.name for row in MemoryAdapterRegistry().rows() if not row.missing}


@pytest.mark.parametrize("name", [name for name in _traits.MEMORIES if name in INSTALLED])
def test_a_row_says_what_the_adapter_declares(name):
    assert f"\n{_traits.row(name)}\n" in SHOWN, "write it anew: python docs/_traits.py"


def test_every_memory_that_is_shipped_has_a_row():
    made_of_others = {"mirror"}
    shipped = {row.name for row in MemoryAdapterRegistry().rows() if row.distribution == "memslot"}
    assert shipped - made_of_others == set(_traits.MEMORIES)
