"""Writes docs/conformance-results.md: the kit on every memory that runs here without a key.

    python tests/conformance_results.py [NAME ...]

Every row says how to play it again. A server that has to be named by the environment is left out, in words, where
it is not. It takes minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/conformance-results.md"
sys.path.insert(0, str(ROOT / "tests/contract"))
os.environ["PYTHONPATH"] = str(ROOT / "tests/contract")


@dataclass(frozen=True)
class Subject:
    """A memory to play the kit against.

    Attributes:
        name: of the row.
        block: what stands below ``memory``.
        profile: in ``tests/contract/profiles.py``.
        runs_on: distribution and store, in words.
        distribution: whose version is shown.
        needs: the environment variable without which it cannot be played.
    """

    name: str
    block: dict[str, Any]
    profile: str | None
    runs_on: str
    distribution: str = "memslot"
    needs: str = ""
    note: str = field(default="")


def backend(name: str, **options: Any) -> dict[str, Any]:
    return {"backend": name, "backends": {name: options}}


def condition(name: str, **options: Any) -> dict[str, Any]:
    return {"condition": name, "conditions": {name: options}}


SUBJECTS = (
    Subject("mem0", backend("mem0"), "profiles:Mem0", "embedded Qdrant, no model", "mem0ai"),
    Subject(
        "mcp: server-memory",
        backend("mcp", preset="server-memory", command=[os.environ.get("MCP_SERVER_MEMORY", "")]),
        "profiles:Mcp", "the reference server 2026.8.31, a JSONL file a scope", "mcp", "MCP_SERVER_MEMORY",
    ),
    Subject("full_history", condition("full_history"), "profiles:InFiles", "files"),
    Subject("rolling_summary", condition("rolling_summary"), "profiles:RollingSummary", "files"),
    Subject("simple_rag", condition("simple_rag"), "profiles:Mem0", "embedded Qdrant, no model", "mem0ai"),
    Subject("no_memory", condition("no_memory"), "profiles:NothingCanFail", "nothing"),
    Subject(
        "static_profile", condition("static_profile", profile="Ada plays the oboe."), "profiles:NothingCanFail",
        "a text of the configuration",
    ),
)  # fmt: skip


def play(subject: Subject, loop: str) -> str:
    """A row of the table."""
    from memory.testing.contract._report import Report
    from memory.testing.contract._run import of_level, pairs
    from memory.testing.contract._worker import play as played

    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "memslot.yaml")
        config.write_text(json.dumps({"memory": subject.block}))
        report = Report(subject.name)
        chosen = pairs(of_level("full"), [loop])
        report.results = list(played(str(config), chosen, limit_s=120, profile=subject.profile))
    counts = report.tally.counts()
    failed = ", ".join(f"`{result.spec}`" for result in report.failed) or "0"
    rerun = f"`python tests/conformance_results.py '{subject.name}'`"
    shown = f"{counts['passed']} | {failed} | {counts['not declared']} | {counts['not tested']}"
    runs_on = f"{subject.distribution} {version(subject.distribution)}; {subject.runs_on}"
    return f"| {subject.name} | **{report.level}** | {shown} | {runs_on} | {rerun} |"


def main(names: list[str]) -> None:
    kept = dict(_rows(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else {}
    for subject in SUBJECTS:
        if names and subject.name not in names:
            continue
        if subject.needs and not os.environ.get(subject.needs):
            sys.stdout.write(f"not run: {subject.name}: {subject.needs} names no server\n")
            continue
        kept[subject.name] = play(subject, "asyncio")
        sys.stdout.write(kept[subject.name] + "\n")
    PAGE.write_text(
        HEAD + "\n".join(kept[one.name] for one in SUBJECTS if one.name in kept) + TAIL, encoding="utf-8"
    )


def _rows(text: str) -> list[tuple[str, str]]:
    return [
        (line.split("|")[1].strip(), line) for line in text.splitlines() if "conformance_results.py '" in line
    ]


HEAD = """# Conformance results

Written by `python tests/conformance_results.py`: the [kit](conformance.md) on asyncio. A level says what was looked
at and kept, not how well a memory remembers: that is the [benchmark](benchmark.md)'s.

| Memory | Level | Passed | Failed | Not declared | Not tested | Runs on | Again |
|---|---|---|---|---|---|---|---|
"""
TAIL = """

Controls keep no capability, so that `CORE+DECLARED` is their best. Backends whose servers need a key or a container
(Honcho, MemOS, Stigmem, Graphiti with a model) are held to the same specs over models of their servers in the
tests; [what was run on what](backends/index.md) says which.

## Plugins

| Plugin | Kind | Level | Owner | Licence |
|---|---|---|---|---|
| memslot-sqlite-fts (`examples/third_party_plugin`) | backend | see its tests | memslot | Apache-2.0 |
| memslot-last-session (`examples/condition_plugin`) | condition | see its tests | memslot | Apache-2.0 |

To be listed, open a pull request that adds a line here, with the output of `memslot conform --markdown` on a
released version of your plugin, and keep `memslot conform` in your own CI; a line whose plugin fails with a later
memslot is marked so.
"""

if __name__ == "__main__":
    main(sys.argv[1:])
