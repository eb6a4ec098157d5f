"""What users may rely on: the flat namespace, and an import that costs little (DESIGN sections 3 and 10)."""

import inspect
import json
import pathlib
import re
import subprocess
import sys
import types
from importlib.metadata import version

import memory

SDKS = {
    "mem0", "qdrant_client", "openai", "graphiti_core", "kuzu", "honcho", "memos", "nanobot", "httpx", "numpy",
    "typer", "rich", "jinja2", "torch", "sqlalchemy", "fastapi", "uvicorn", "pytest",
}  # fmt: skip


def test_everything_exported_exists_and_is_documented():
    assert len(set(memory.__all__)) == len(memory.__all__)
    for name in memory.__all__:
        value = getattr(memory, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_nothing_public_is_left_out():
    public = {
        name
        for name, value in vars(memory).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(memory.__all__)


def test_one_version():
    assert memory.__version__ == version("memslot")
    changelog = pathlib.Path(__file__).parents[2].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?(Unreleased|{re.escape(memory.__version__)})", changelog, re.MULTILINE)


def test_importing_and_listing_load_no_sdk():
    code = (
        "import sys, json, memory; memory.MemoryAdapterRegistry().rows();"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert SDKS.isdisjoint(json.loads(done.stdout))
    assert done.stderr == ""
