"""``memslot tools new-plugin``: every kind of package passes as it stands; a backend is FULL."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import anyio
import pytest

from memory import NativeMutationRequest, SupportsFeedback, SupportsNativeMutation
from memory.testing import Kit, unique_word
from memory.testing._new_plugin import PluginKind, package

KINDS = get_args(PluginKind)
MEMSLOT = "from memory.cli import main; main()"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python in a directory with a package of each kind, written by the command and installed."""
    root = tmp_path_factory.mktemp("new_plugin")
    environment = {**os.environ, "PYTHONPATH": str(root / "site"), "COLUMNS": "80"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
        )

    for kind in KINDS:
        made = run("-c", MEMSLOT, "tools", "new-plugin", f"my_{kind}", "--kind", kind, "--into", kind)
        assert made.returncode == 0, made.stderr
        assert "passes its tests as it stands" in made.stdout
    offline = ["--no-build-isolation", "--no-index", "--no-deps", "--quiet", "--target", "site"]
    installed = run("-m", "pip", "install", *offline, *(f"./{kind}" for kind in KINDS))
    assert installed.returncode == 0, installed.stderr
    return run


@pytest.mark.thorough
def test_a_new_backend_is_full_and_a_new_condition_reaches_its_level(run, tmp_path):
    levels = {}
    for kind, group in (("backend", "backends"), ("condition", "conditions")):
        config = tmp_path / f"{kind}.yaml"
        config.write_text(f"memory: {{{kind}: my_{kind}, {group}: {{my_{kind}: {{}}}}}}")
        ended = run("-c", MEMSLOT, "tools", "conform", str(config), "--json", "--loop", "asyncio")
        levels[kind] = json.loads(ended.stdout)["level"]
    assert levels == {"backend": "FULL", "condition": "CORE+DECLARED"}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_its_own_tests_pass(run, kind):
    ended = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", kind)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout


@pytest.mark.thorough
def test_what_cannot_be_written_is_one_line(run):
    for name in ("My-Plugin", "1st", "x" * 41, ""):
        refused = run("-c", MEMSLOT, "tools", "new-plugin", name, "--into", "other")
        assert refused.returncode == 2
        assert refused.stderr.startswith("error: NAME: ")
    taken = run("-c", MEMSLOT, "tools", "new-plugin", "again", "--into", "backend")
    assert "exists and is not empty" in taken.stderr


def test_nothing_of_the_template_is_left_and_every_kind_says_what_to_replace():
    for kind in KINDS:
        files = package("two_words", kind)
        text = "\n".join(files.values())
        for word in ("PLUGIN", "MODULE", "CLASS", "DISTRIBUTION", "KIND", "ENTRY"):
            assert word not in text
        assert "REPLACE" in files["src/memslot_two_words/__init__.py"]
        assert {"LICENSE", "README.md", "pyproject.toml", ".github/workflows/tests.yml"} <= files.keys()
        compile(files["src/memslot_two_words/__init__.py"], "module", "exec")


@pytest.fixture
def backend(tmp_path, monkeypatch):
    """The module of a new backend."""
    source = package("made", "backend")["src/memslot_made/__init__.py"]
    (tmp_path / "memslot_made.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "memslot_made", raising=False)
    return importlib.import_module("memslot_made")


def test_an_id_of_a_record_that_was_deleted_names_no_other(backend, tmp_path):
    async def run():
        kit = Kit(backend.Made("made", backend.Options(), tmp_path))
        async with kit.slot:
            mutate = kit.needs(SupportsNativeMutation)
            deleted = (await kit.slot.record_event(kit.event(kit.fact("blue"), None))).native_ids[0]
            asked = NativeMutationRequest(scope=kit.scope, operation="delete", native_id=deleted)
            assert (await mutate.native_mutation(asked)).status == "committed"
            written = (await kit.slot.record_event(kit.event(kit.fact("green"), None))).native_ids[0]
            assert written != deleted
            assert unique_word("blue") not in await kit.history(native_id=written)

    anyio.run(run)


def test_feedback_takes_no_event_its_id(backend, tmp_path):
    async def run():
        kit = Kit(backend.Made("made", backend.Options(), tmp_path))
        async with kit.slot:
            await kit.needs(SupportsFeedback).apply_feedback(kit.feedback(kit.fact("green"), feedback_id="1"))
            assert [entry.event_ids for entry in await kit.entries("green")] == [()]
            await kit.remember("blue", event_id="feedback 1")
            assert await kit.recalls("blue")

    anyio.run(run)
