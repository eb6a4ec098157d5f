"""Writes docs/conformance-results.md: kit, game and LoCoMo on every memory that can be reached from here.

    python tests/conformance_results.py [--what kit|game|locomo] [--render] [NAME ...]

What was found is kept in conformance_results.json beside this file, so that rows can be played one by one; what
was not played says so. Each row names what it needs; a memory in another environment is played by the Python
that a variable names. LoCoMo's data is named by LOCOMO.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/conformance-results.md"
KEPT = Path(__file__).with_suffix(".json")
LIMIT_S = "600"  # what hangs is cut off, and a busy machine is not taken for that
GAME = {"users": 6, "sessions": 12, "tests": 8}
RUNS = {
    "game": {"memory": {"budget": {"max_tokens": 2000}}, "run": {"game": GAME}},
    "locomo": {"memory": {"budget": {"max_items": 20, "max_tokens": None}}, "run": {"timeline": "locomo"}},
}


@dataclass(frozen=True)
class Subject:
    """A memory to play against.

    Attributes:
        name: of the row.
        block: what stands below ``memory``; ``$NAME`` is taken from the environment.
        runs_on: the store, in words.
        distributions: whose versions are shown.
        needs: variables of the environment, without which it cannot be played.
        python: the variable that names the interpreter, where it is not this one.
        install: what has to be there first, as a command.
        kind: ``backend``, ``control`` or ``stranger``: a memory that others wrote.
    """

    name: str
    block: dict[str, Any]
    runs_on: str
    distributions: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    python: str = ""
    install: str = ""
    kind: str = "backend"


def backend(name, **options):
    return {"backend": name, "backends": {name: options}}


def condition(name, **options):
    return {"condition": name, "conditions": {name: options}}


SUBJECTS = (
    Subject("mem0", backend("mem0"), "embedded Qdrant, no model", ("mem0ai",)),
    Subject("graphiti", backend("graphiti", llm={"base_url": "$SCRIPTED_LLM_URL", "model": "scripted"}),
            "embedded Kuzu, a scripted model", ("graphiti-core", "kuzu"),
            ("SCRIPTED_LLM_URL",)),
    Subject("honcho", backend("honcho", base_url="$HONCHO_URL"),
            "Honcho server 3.0.12 with its worker, PostgreSQL 16.2, a scripted model", ("honcho-ai",),
            ("HONCHO_URL", "HONCHO_DB")),
    Subject("memos", backend("memos", url="$MEMOS_URL", graph_db="postgres"),
            "MemOS server 2.0.33, local queue, PostgreSQL 16.2, a scripted model",
            needs=("MEMOS_URL", "MEMOS_DB")),
    Subject("stigmem", backend("stigmem", url="$STIGMEM_URL", api_key="$STIGMEM_ADMIN_KEY"),
            "Stigmem node 0.9.0a10 with tenants, SQLite",
            needs=("STIGMEM_URL", "STIGMEM_ADMIN_KEY", "STIGMEM_DB")),
    Subject("full_history", condition("full_history"), "SQLite", kind="control"),
    Subject("rolling_summary", condition("rolling_summary"), "SQLite",
            kind="control"),
    Subject("simple_rag", condition("simple_rag"), "embedded Qdrant, no model", ("mem0ai",),
            kind="control"),
    Subject("no_memory", condition("no_memory"), "nothing", kind="control"),
    Subject("static_profile", condition("static_profile", profile="Ada plays the oboe."),
            "a text of the configuration", kind="control"),
    Subject("mnemosyne", backend("mnemosyne"), "an SQLite file a scope, no embeddings",
            ("mnemosyne-memory",), python="MNEMOSYNE_PYTHON", kind="stranger",
            install="pip install ./examples/plugins/mnemosyne"),
    Subject("hermes: holographic", backend("hermes", provider="holographic"), "SQLite, stored by its tool",
            ("hermes-agent",), python="HERMES_PYTHON", kind="stranger",
            install="pip install ./examples/plugins/hermes"),
    Subject("hermes: mnemosyne", backend("hermes", provider="mnemosyne"),
            "SQLite, stored by sync_turn, no embeddings", ("hermes-agent", "mnemosyne-hermes", "mnemosyne-memory"),
            python="HERMES_PYTHON", kind="stranger",
            install="pip install ./examples/plugins/hermes mnemosyne-hermes; export MNEMOSYNE_NO_EMBEDDINGS=1"),
)  # fmt: skip
HEADLINES = {"game": "read right", "locomo": "evidence recall"}
"""The figure of each column. A kept result with another figure is not shown."""
MISSING = "not run"


def play(subject, what):
    """Return the result, or None if a requirement of the subject is missing."""
    missing = [name for name in (*subject.needs, subject.python) if name and not os.environ.get(name)]
    if what == "locomo" and not os.environ.get("LOCOMO"):
        missing.append("LOCOMO")
    if missing:
        sys.stdout.write(f"not run: {subject.name}: {', '.join(missing)} names nothing\n")
        return None
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "memslot.yaml")
        run = RUNS.get(what, {})
        config.write_text(
            json.dumps({**run, "memory": {**run.get("memory", {}), **_from_environment(subject.block)}})
        )
        if what == "kit":
            limit = ["--loop", "asyncio", "--limit", LIMIT_S]
            found = _memslot(subject, directory, "tools", "conform", "memslot.yaml", *limit, "--json")
            broken = sorted({each["spec"] for each in found["specs"] if each["outcome"] == "failed"})
            counts = found["levels"]["FULL"]
            return {
                "level": found["level"],
                "counts": counts,
                "failed": broken,
                "versions": _versions(subject),
            }
        data = ["--data", os.environ["LOCOMO"]] if what == "locomo" else []
        found = _memslot(subject, directory, "run", "memslot.yaml", "--no-doctor", *data, "--json")
        (provider,) = found["metrics"]["providers"]
        headline = found["metrics"]["headlines"][0]
        (measure,) = [each for each in provider["measures"] if each["name"] == headline]
        return {"headline": headline, **measure["estimate"], "requests": provider["requests"]}


def _from_environment(value):
    if isinstance(value, dict):
        return {name: _from_environment(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_from_environment(item) for item in value]
    return os.environ[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def _memslot(subject, directory, *arguments):
    ran = _python(subject, "-c", "import memslot; memslot.main()", *arguments, cwd=directory)
    if not ran.stdout.startswith("{"):
        sys.exit(f"{subject.name}: {ran.stderr[-2000:]}")
    answer = json.loads(ran.stdout)
    return answer


def _python(subject, *arguments, cwd):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [os.environ[subject.python] if subject.python else sys.executable, *arguments],
        cwd=cwd, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _versions(subject):
    names = subject.distributions or ("memslot",)
    code = f"from importlib.metadata import version\nprint(', '.join(f'{{n}} {{version(n)}}' for n in {names!r}))"
    return _python(subject, "-c", code, cwd=str(ROOT)).stdout.strip()


def page(kept):
    """Return the page."""
    sections = {"backend": "Backends", "control": "Controls", "stranger": "Memories that others wrote"}
    lines = [HEAD]
    for kind, title in sections.items():
        lines += [f"## {title}\n", *_table([each for each in SUBJECTS if each.kind == kind], kept), ""]
    return "\n".join(lines) + TAIL.replace("REQUESTS", _requests(kept))


def _table(subjects, kept):
    yield "| Memory | Level | Passed | Failed | Not declared | Not tested | Game | LoCoMo | Runs on | Again |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for subject in subjects:
        found = kept.get(subject.name, {})
        kit = found.get("kit")
        if kit:
            counts = kit["counts"]
            failed = ", ".join(f"[`{name}`](conformance-specs.md#{name})" for name in kit["failed"]) or "0"
            cells = [f"**{kit['level']}**", str(counts["passed"]), failed,
                     str(counts["not_declared"]), str(counts["not_tested"])]  # fmt: skip
        else:
            cells = [MISSING, *[""] * 4]
        cells += [_figure(found.get(what), what) for what in HEADLINES]
        cells.append("; ".join(filter(None, [kit["versions"] if kit else "", subject.runs_on])))
        again = f"`python tests/conformance_results.py '{subject.name}'`"
        named = [name for name in (*subject.needs, subject.python) if name]
        if named:
            again += f" with {', '.join(f'`{name}`' for name in named)}"
        if subject.install:
            again += f" after `{subject.install}`"
        yield f"| {' | '.join([subject.name, *cells, again])} |"


def _figure(found, what):
    if found is None or found["headline"] != HEADLINES[what]:
        return MISSING
    lost = "".join(f", {found[name]} {name}" for name in ("failed", "unready") if found[name])
    value = "unknown" if found["value"] is None else f"{found['value']:.1%}"
    span = "" if found["low"] is None else f" ({found['low']:.0%} to {found['high']:.0%})"
    return f"{value}{span} of {found['n']}{lost}"


def _requests(kept):
    games = [each["game"] for each in kept.values() if "game" in each]
    asked = {each["requests"] for each in games if each["headline"] == HEADLINES["game"]}
    return f"{' or '.join(map(str, sorted(asked))) or 'no'} requests"


def known():
    """Return the results so far."""
    found = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return found


def main():
    given = argparse.ArgumentParser()
    given.add_argument("--what", choices=("kit", "game", "locomo"), action="append")
    given.add_argument("--render", action="store_true", help="write the page, and play nothing")
    given.add_argument("names", nargs="*")
    options = given.parse_args()
    for subject in () if options.render else SUBJECTS:
        if options.names and subject.name not in options.names:
            continue
        for what in options.what or ("kit", "game", "locomo"):
            found = play(subject, what)
            if found is not None:
                kept = known()  # others may play other rows meanwhile
                kept.setdefault(subject.name, {})[what] = found
                sys.stdout.write(f"{subject.name}: {what}: {found.get('level', found.get('value'))}\n")
                KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(known()), encoding="utf-8")


HEAD = """# Conformance results

`python tests/conformance_results.py` writes this page. It runs the [kit](conformance.md) on asyncio, the
[game](benchmark.md) and LoCoMo. The level says which promises were checked and kept. It says nothing about how
well a memory remembers; the two figures do.
"""
TAIL = """
## How to read the tables

*Game* is the share of REQUESTS that are *read right*. A fixed reader takes the current setting from the section.
The section must hold no setting that the user never had. *LoCoMo* is *evidence recall*: the share of the turns
with an answer that reach the section. Both figures come from `memslot run`. The game has a budget of 2,000 tokens,
LoCoMo one of 20 items. A figure has its number of requests beside it, and its 95 % interval by persona if there
are at least five personas. `--what game` and `--what locomo` play them again. `LOCOMO` is the path of the data,
which is CC BY-NC 4.0 and not part of memslot. The figures are too small for a ranking.

*Unready* requests were asked while the memory could not say whether it was ready. They count like all others.

A failed spec is a broken promise of the server or the provider. The providers of Hermes shorten long texts,
find no Chinese words, hide their errors or count recalled text as new.
`CORE+DECLARED` is the best level of a control, because a control declares no capability.

The kit changes. A row whose counts add up to more than 87 was played with an earlier kit. CI checks the newer
promises against models of the Honcho, MemOS and Stigmem servers.
[What was run on what](backends/index.md) lists the other tests of each backend.

The servers are real. Faults and delays are injected between the server and the adapter's HTTP client. The kit
reads what a server holds from its database: `HONCHO_DB` and `MEMOS_DB` are PostgreSQL addresses, `STIGMEM_DB` is an
SQLite file. *Not tested* counts as not kept.

## Plugins

The [directory](plugins.md) lists plugins by others, and says how to be listed.
"""

if __name__ == "__main__":
    main()
