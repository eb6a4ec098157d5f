"""What a start loads. Milliseconds depend on the machine, so what is held here is which modules are imported;
``tests/perf/figures.py import_cost`` prints what they cost."""

import json
import subprocess
import sys

import pytest
from variants import plain

SDKS = {
    "mem0", "qdrant_client", "openai", "graphiti_core", "kuzu", "honcho", "memos", "nanobot", "httpx", "numpy",
    "torch", "sqlalchemy", "fastapi", "uvicorn", "pytest", "fastembed", "onnxruntime", "huggingface_hub",
}  # fmt: skip
COMMAND_LINE = {"typer", "click", "rich", "shellingham", "jinja2"}
FILES = {"yaml", "pluggy", "importlib.metadata", "email"}
MODELS = {"pydantic", "pydantic_core", "anyio"}
LOOPS = {"asyncio", "trio", "ssl", "concurrent", "multiprocessing"}

ERRORS = "from memory import ConfigError, MemslotError"
SLOT = "from memory import MemoryEvent, MemorySlot, RetrieveRequest"
COMMAND = """
import sys
sys.argv = ["memslot", {}]
from memory.cli import main
try:
    main()
except SystemExit:
    pass
"""

BUDGET = {
    "the package": ("import memory", SDKS | COMMAND_LINE | FILES | MODELS | LOOPS),
    "its errors": (ERRORS, SDKS | COMMAND_LINE | FILES | MODELS | LOOPS),
    "the slot": (SLOT, SDKS | COMMAND_LINE | {"yaml", "pluggy"} | LOOPS),
    "the page of hosts": ("from memory import *", SDKS | COMMAND_LINE | LOOPS),
    "the page of plugins": (
        "from memory.adapter import BaseAdapter, NativeWorker",
        SDKS | COMMAND_LINE | {"yaml"},
    ),
    "an event": (
        SLOT + "; MemoryEvent(event_id='e', run_id='r', user_id='u', session_id='s', turn_id='t',"
        " timestamp='2024-01-01T00:00:00Z', messages=[{'role': 'user', 'content': 'x'}])",
        SDKS | COMMAND_LINE | {"yaml", "pluggy"} | LOOPS,
    ),
    "the command": (COMMAND.format("'--version'"), SDKS | {"rich", "jinja2"} | FILES | MODELS | LOOPS),
    "its help": (COMMAND.format("'--help'"), SDKS | {"rich", "jinja2", "yaml"} | MODELS | LOOPS),
    "a hook without a node": (
        "import os; os.environ.pop('STIGMEM_URL', None)\n"
        + COMMAND.format("'tools', 'stigmem', 'done', 't-1'"),
        SDKS | {"rich", "jinja2", "yaml", "pluggy"} | LOOPS,
    ),
    "its list": (COMMAND.format("'doctor', '--json'"), SDKS | {"rich", "jinja2", "trio"}),
}
"""What is run -> packages it may not import."""


@pytest.mark.parametrize("what", plain("the package", "the page of hosts", "its list", of=BUDGET))
def test_a_start_loads_no_more_than_it_needs(what):
    code, banned = BUDGET[what]
    program = f"import sys, json, site; before = set(sys.modules)\n{code}\n"
    program += "print(); print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "memory" in loaded
    names = {name.split(".")[0] for name in loaded} | set(loaded)
    assert not names & banned, f"{what}: {sorted(names & banned)}"
