"""Writes the table of traits in ``docs/backends/index.md``: ``python docs/_traits.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memory import SupportsReadiness
from memory.adapter import AdapterTraits
from memory.contract.adapter import SupportsEventLookup
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

PAGE = Path(__file__).parent / "backends/index.md"
TABLE = re.compile(r"(?<=<!-- traits -->\n).*?(?=<!-- end of traits -->)", re.S)
NOWHERE = "http://127.0.0.1:9"
# By name: the group of the configuration, and the least options.
MEMORIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mem0": ("backend", {}),
    "graphiti": ("backend", {"llm": {"base_url": f"{NOWHERE}/v1", "model": "m"}}),
    "honcho": ("backend", {"base_url": NOWHERE}),
    "memos": ("backend", {"graph_db": "postgres"}),
    "stigmem": ("backend", {"api_key": "unused"}),
    "full_history": ("condition", {}),
    "rolling_summary": ("condition", {}),
    "simple_rag": ("condition", {}),
    "static_profile": ("condition", {"profile": "Ada sails."}),
    "oracle_ipas": ("condition", {"matrix": {"ada": {"work": {"tone": "formal"}}}}),
    "no_memory": ("condition", {}),
}
HEAD = (
    "memory",
    "a write is retrievable",
    "scenario, context, attribute",
    "filter operators",
    "tells readiness",
    "looks an event up",
    "repeats a write without an answer",
)


def row(name: str) -> str:
    """The row of one memory, from the traits of its adapter."""
    group, options = MEMORIES[name]
    settings = load_config({"memory": {group: name, f"{group}s": {name: options}}})
    with TemporaryDirectory() as directory:
        adapter = MemoryAdapterRegistry().create(settings, data_dir=Path(directory))
    traits = AdapterTraits.of(adapter)
    at_once = "at once" if traits.consistency == "immediate" else "later"
    operators = ", ".join(f"`{operator}`" for operator in sorted(traits.filter_operators))
    looks_up = isinstance(adapter, SupportsEventLookup)
    return _line(
        f"`{name}`",
        at_once if traits.recalls_writes else "never",
        traits.cs_filtering,
        operators or "none",
        _yes(isinstance(adapter, SupportsReadiness)),
        _yes(looks_up),
        "after a look-up" if looks_up and traits.write_retries else _yes(bool(traits.write_retries)),
    )


def table() -> Iterator[str]:
    yield _line(*HEAD)
    yield _line(*("---" for _ in HEAD))
    yield from map(row, MEMORIES)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


if __name__ == "__main__":
    rows = "\n".join(table())
    PAGE.write_text(TABLE.sub(f"\n{rows}\n\n", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
