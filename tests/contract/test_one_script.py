"""One agent, one configuration, five memories: only the word after ``backend:`` changes.

The agent is the example that the README shows. Behind the words are the real mem0 and Graphiti, embedded, and wire
models of the servers of Honcho, MemOS and Stigmem.
"""

import importlib.util
from pathlib import Path

import pytest
import yaml
from backends import double

from memory.doctor.runner import Doctor
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FAKE_KEY, ScriptedLLM

HonchoDouble = double("honcho_double", "HonchoDouble")
MemosDouble = double("memos_double", "MemosDouble")
StigmemDouble = double("stigmem_double", "StigmemDouble")
ADMIN_KEY = double("stigmem_node_model", "ADMIN_KEY")

TESTS = Path(__file__).parents[1]
BACKENDS = ("mem0", "graphiti", "honcho", "memos", "stigmem")

CONFIGURATION = """
memory:
  backend: THE-ONE-WORD
  scope: {{run_id: demo, persona_id: ann}}
  budget: {{max_tokens: 2000, max_items: 20}}
  data_dir: {data_dir}
  backends:
    mem0: {{}}
    graphiti:
      llm: {{model: scripted, base_url: "{llm}", api_key: {key}}}
    honcho: {{base_url: "{honcho}", poll_s: 0.01}}
    memos: {{url: "{memos}", graph_db: postgres}}
    stigmem: {{url: "{stigmem}", api_key: {admin}}}
"""


@pytest.fixture(scope="module")
def agent_loop():
    path = TESTS.parent / "examples" / "agent_loop.py"
    spec = importlib.util.spec_from_file_location("agent_loop", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def configuration(tmp_path):
    """The YAML, but for one word."""
    with (
        ScriptedLLM() as llm,
        HonchoDouble() as honcho,
        MemosDouble() as memos,
        StigmemDouble(auth=True, multi_tenant=True) as stigmem,
    ):
        urls = {"llm": llm.base_url, "honcho": honcho.url, "memos": memos.url, "stigmem": stigmem.url}
        given = {**urls, "key": FAKE_KEY, "admin": ADMIN_KEY}
        yield CONFIGURATION.format(data_dir=tmp_path / "memory", **given)


@pytest.fixture(params=BACKENDS)
def config(configuration, request):
    """The configuration with a backend's name in its place."""
    row = next(row for row in MemoryAdapterRegistry().rows() if row.name == request.param)
    if not row.installed:
        pytest.skip(f"not installed: {row.error or row.missing}")
    chosen = yaml.safe_load(configuration.replace("THE-ONE-WORD", request.param))
    return chosen


@pytest.mark.thorough
async def test_the_same_agent_remembers_with_every_backend(agent_loop, config):
    async with agent_loop.open_model(None, "scripted") as model:
        answers = dict(await agent_loop.converse(config, model))
    assert "Biscuit" in answers["What is my dog called?"]
    assert "without sugar" in answers["How do I take my tea?"]


@pytest.mark.thorough
async def test_the_doctor_passes_every_backend(config):
    report = await Doctor(load_config(config)).run()
    assert report.ok, report
    assert {check.name for check in report.checks if check.status == "skipped"} <= {"models"}


def test_every_backend_of_ours_is_switched_to():
    ours = {
        row.name
        for row in MemoryAdapterRegistry().rows()
        if row.kind == "architecture" and row.distribution == "memslot"
    }
    assert ours <= {*BACKENDS, "mirror"}, "a mirror is over one of the others"
