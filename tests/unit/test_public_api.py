"""What users may rely on: the flat namespace, and an import that costs little (DESIGN sections 3 and 10)."""

import inspect
import json
import pathlib
import re
import subprocess
import sys
import types
from importlib.metadata import version

import pytest
from slot_support import ALICE, Obedient

import memory
import memory.adapter
import memory.runtime
import memory.testing

SDKS = {
    "mem0", "qdrant_client", "openai", "graphiti_core", "kuzu", "honcho", "memos", "nanobot", "httpx", "numpy",
    "typer", "rich", "jinja2", "torch", "sqlalchemy", "fastapi", "uvicorn", "pytest",
}  # fmt: skip


DOORS = [memory, memory.adapter, memory.runtime, memory.testing]
PAGES = pytest.mark.parametrize("page", DOORS, ids=lambda page: page.__name__)


@PAGES
def test_everything_exported_exists_and_is_documented(page):
    assert len(set(page.__all__)) == len(page.__all__)
    for name in page.__all__:
        value = getattr(page, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_the_page_of_hosts_is_short_and_pinned():
    """What a host may rely on; a name that comes or goes is a decision, and shows here."""
    assert " ".join(sorted(memory.__all__, key=str.lower)) == (
        "AdapterMode BackendError BackendHealth BackendReadiness BackendTimeout BackendUnavailable "
        "CapabilityNotSupported ConfigError ContextBudget Deadlines InputError IsolationError "
        "JsonlTraceSink LifecycleError MemoryEvent MemoryFeedback MemoryScope MemorySlot MemslotError "
        "Message NativeMutationRequest NativeQueryRequest open_memory open_memory_sync OpenTelemetrySink "
        "PluginError PluginLoadError ProvenanceRequest ReadOnlyError RetrieveRequest RetrieveResult "
        "ScopeError SupportsBulkIngest SupportsFeedback SupportsNativeMutation SupportsNativeQuery "
        "SupportsProvenance SupportsReadiness TokenCounter Trace WriteReceipt"
    )


def test_no_name_stands_on_two_pages():
    names = [name for page in DOORS for name in page.__all__]
    assert len(names) == len(set(names))


def test_private_modules_carry_no_list_of_exports():
    root = pathlib.Path(memory.__file__).parents[1]
    doors = {pathlib.Path(page.__file__) for page in DOORS}
    files = {file for room in ("memory", "conditions") for file in root.joinpath(room).rglob("*.py")}
    assert not [file for file in files - doors if "\n__all__" in file.read_text(encoding="utf-8")]


@PAGES
def test_nothing_public_is_left_out(page):
    for name in page.__all__:  # those that load late
        getattr(page, name)
    public = {
        name
        for name, value in vars(page).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name not in ("annotations", "TYPE_CHECKING", "Any")
    }
    assert public == set(page.__all__)


async def test_a_misspelt_argument_is_refused_before_anything_runs():
    adapter = Obedient()
    async with memory.MemorySlot(adapter, scope=ALICE) as slot:
        for call in (
            lambda: slot.before_turn("hello", session_id="s", budgt=None),
            lambda: slot.after_turn(user="hello", session_id="s", sesion="s"),
            lambda: slot.for_scope().after_turn(user="hello", session_id="s", metdata=None),
        ):
            with pytest.raises(TypeError, match=r"budgt|sesion|metdata"):
                await call()
    assert (adapter.calls, adapter.asked) == ([], 0)
    with pytest.raises(TypeError, match="trace_snk"):
        memory.open_memory("memory.yaml", trace_snk=None)


def test_one_version():
    assert memory.__version__ == version("memslot")
    changelog = pathlib.Path(__file__).parents[2].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?(Unreleased|{re.escape(memory.__version__)})", changelog, re.MULTILINE)


def test_importing_and_listing_load_no_sdk():
    code = (
        "import sys, json; from memory.plugins.registry import MemoryAdapterRegistry as R; R().rows();"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert SDKS.isdisjoint(json.loads(done.stdout))
    assert done.stderr == ""
