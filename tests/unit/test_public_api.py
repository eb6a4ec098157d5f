"""What users may rely on: the flat namespace, and an import that costs little (DESIGN sections 3 and 10)."""

import ast
import compileall
import inspect
import json
import pathlib
import re
import shutil
import subprocess
import sys
import types
from importlib.metadata import version

import pytest
from slot_support import ALICE, Obedient

import memory
import memory.adapter
import memory.adapter.stores
import memory.runtime
import memory.testing

SDKS = {
    "mem0", "qdrant_client", "openai", "graphiti_core", "kuzu", "honcho", "memos", "nanobot", "httpx", "numpy",
    "typer", "rich", "jinja2", "torch", "sqlalchemy", "fastapi", "uvicorn", "pytest",
}  # fmt: skip


ROOT = pathlib.Path(memory.__file__).parents[1]
SHOWN = {".md", ".py", ".ipynb", ".tmpl", ".txt"}
IMPORTS = r"^[\s\"]*(?:from|import) +((?:memory|conditions)\b[\w.]*)"
PUBLIC_MODULES = r"memory\.(hosts|stigmem)(\.[a-z]\w*)+|memory\.bench\.data\.sets"
SAID_BY_THE_CLASS = {
    f"Tool.{name}" for name in ("name", "description", "input_schema", "run_before_generation")
}
SAID_BY_THE_CLASS |= {"TokenCounter.name"}
EXPORTED = {
    "memory": """
        AdapterMode BackendError BackendHealth BackendReadiness BackendTimeout BackendUnavailable
        CapabilityNotSupported ConfigError ContextBudget Deadlines FeedbackReceipt InputError
        IsolationError JsonlTraceSink LifecycleError MemoryAdapter MemoryAdapterRegistry MemoryEvent
        MemoryFeedback MemoryScope MemorySlot MemslotError Message ModeReceipt NativeMutationReceipt
        NativeMutationRequest NativeQueryRequest NativeQueryResult open_memory open_memory_sync
        OpenTelemetrySink PluginError PluginLoadError ProvenanceRequest ProvenanceResult
        ReadOnlyError ResetReceipt RetrieveRequest RetrieveResult ScopeError SupportsBulkIngest
        SupportsFeedback SupportsNativeMutation SupportsNativeQuery SupportsProvenance
        SupportsReadiness TokenCounter Trace WriteReceipt
    """,
    "memory.adapter": """
        AdapterSettings AdapterTraits AppendLog awaiting_turn AwareDatetime BackendAuthError
        BackendProtocolError BackendRateLimited BackendRejected BareLibrary BaseAdapter bearer
        BoundedQueue CAPABILITIES check_aware check_text check_url clean_text close_adapter
        ContextEntry count_llm_call counted_openai DataPath Durability EmbedderBlock entry_cost
        environment_kept ErrorTable expect FileLock FILTER_OPERATORS first_problem Frozen hookimpl
        http_client HTTPX_ERRORS IdAlphabet InputFile json_of_answer JsonHttp JsonObject
        LEXICAL_OR_BLOCK LexicalHashEmbedder load_model LocalEmbedder LocalModel model_answer_fault
        ModelEndpoint native_scope_of
        NativeError NativeWorker none_if_404 normalise normalise_error NotBlank OPENAI_ERRORS
        Operation parse_time PluginInfo PluginOptions Prefixes Private Public quiet_loggers
        RecentKeys release remove_directory replace_file route Sampling ScopeEncoder section_overhead
        SequentialBulk server_address ShieldedCalls SqliteFile SqliteLayout staged_directory
        StoreError SupportsEventLookup SupportsModelProbe SupportsProbeScopes SupportsStart
        sweep_directories SynchronousWrites Text trim_heap Utf8TokenCounter warnings_only
        without_nul yield_turn
    """,
    "memory.runtime": """
        AdapterClient AgentOutput AgentSession answer_text Attachment build_slot Channel
        ChannelClosed Checkpoint CommandLine CompactionCompleteParams CompactionResult
        CompletionChunk CompletionOptions CompletionResult Conversations create_adapter
        create_provider event_from_turn Failures HookQueue HookTurn HostStore HostTurns HttpChannel
        Item listening_socket
        load_config memory_tools MemoryItems MemslotConfig open_reach open_shared open_turn_memory
        open_turn_memory_sync PreCompactionParams PreCompactionResult PromptSubmitParams
        PromptSubmitResult Provider ProviderPlugin Recall report_program reports_file run_session
        RuntimeAdapter
        RuntimeAdapterServer said_by_user serve_app SessionEndParams SessionEndResult
        SessionSettings SessionStartParams SessionStartResult ShownSections socket_in SocketOwner
        StopReason StoredObject strip_context Tool ToolCall ToolContext ToolDefinition ToolRegistry
        ToolResult TurnMemory TurnPolicy TurnReport Usage UserTurn waiting_reports
    """,
    "memory.testing": """
        ConformanceProfile FAKE_KEY FakeBackend FakeNativeError FakeNativeStore FakeRow
        FaultInjector Faults Fingerprint HostContract HostModel HostUnderTest Kit LoopbackAnswer
        LoopbackContract LoopbackProcess LoopbackRequest LoopbackServer MemoryContract ModelDown
        ModelTurn person PICTURE Report ScriptedLLM TOOL_RESULT unique_word validate
    """,
}

ANY = {  # why nothing else is true -> of what
    "native JSON, whose shape the reader alone knows": """
        FakeNativeStore.history FakeNativeStore.insert FakeNativeStore.list_rows FakeNativeStore.search
        LoopbackProcess.requests LoopbackProcess.state LoopbackRequest.json MemslotConfig.redacted
        NativeMutationReceipt.raw NativeQueryResult.raw ProvenanceResult.raw RetrieveResult.raw ScriptedLLM.bodies
    """,
    "another's keywords": """
        ConformanceProfile.aids counted_openai http_client Kit.make_slot load_model ModelEndpoint.limits
        Sampling.sampling
    """,
    "whoever overrides or registers it says which": """
        ConformanceProfile.fingerprint ConformanceProfile.native_fault ConformanceProfile.native_peak
        MemoryAdapterRegistry.conformance ProviderPlugin.create
    """,
    "a type of a higher module": "HostContract.host HostContract.turn_memory MemslotError.receipts",
}

DOORS = [memory, memory.adapter, memory.runtime, memory.testing]
PAGES = pytest.mark.parametrize("page", DOORS, ids=lambda page: page.__name__)


@PAGES
def test_everything_exported_exists_and_is_documented(page):
    assert len(set(page.__all__)) == len(page.__all__)
    for name in page.__all__:
        value = getattr(page, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


@PAGES
def test_what_a_page_exports_is_pinned(page):
    """What others may rely on; a name that comes or goes is a decision, and shows here."""
    assert " ".join(sorted(page.__all__, key=str.lower)) == " ".join(EXPORTED[page.__name__].split())


@PAGES
def test_the_table_of_late_names_is_what_type_checkers_read(page):
    tree = ast.parse(inspect.getsource(page))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    read = {node.module: " ".join(alias.name for alias in node.names) for node in checked.body}
    assert {module: " ".join(names.split()) for module, names in page._LATE.items()} == read


def test_an_application_without_sources_imports_every_page(tmp_path):
    """Frozen applications and those that ship bytecode alone have no source to read names from."""
    for package in ("memory", "conditions"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(tmp_path, quiet=1, legacy=True)
    for source in tmp_path.rglob("*.py"):
        source.unlink()
    doors = ", ".join(page.__name__ for page in DOORS)
    script = (
        f"import memory, memory.adapter, memory.runtime, memory.testing\n"
        f"for page in ({doors}):\n"
        "    assert page.__file__.endswith('.pyc'), page.__file__\n"
        "    [getattr(page, name) for name in page.__all__]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@PAGES
def test_every_method_of_a_page_is_documented(page):
    """The API reference leaves out what has no docstring."""
    bare = []
    for kind in filter(inspect.isclass, (getattr(page, name) for name in page.__all__)):
        for name, member in list(vars(kind).items()):  # a parsed type gains some
            method = getattr(member, "__func__", getattr(member, "fget", member))
            is_field = name in getattr(kind, "__dataclass_fields__", ())
            if inspect.isfunction(method) and not is_field and not name.startswith(("_", "test_")):
                bare += [] if inspect.getdoc(method) else [f"{kind.__name__}.{name}"]
    assert set(bare) <= SAID_BY_THE_CLASS


def shown_to_others():
    """Documentation, examples, and what commands write into the projects of others."""
    for folder in ("docs", "examples", "memory/testing/_templates", "memory/hosts/_files"):
        yield from (file for file in (ROOT / folder).rglob("*") if file.suffix in SHOWN)


def test_what_is_shown_to_others_imports_from_the_pages():
    doors = {page.__name__ for page in DOORS}
    for file in shown_to_others():
        if file.name == "_hooks.py":  # builds the site
            continue
        for module in re.findall(IMPORTS, file.read_text(encoding="utf-8"), re.MULTILINE):
            public = module in doors or re.fullmatch(PUBLIC_MODULES, module)
            assert public, f"{file.relative_to(ROOT)} imports {module}"
    assert len(list(shown_to_others())) > 50


def test_no_name_stands_on_two_pages():
    names = [name for page in DOORS for name in page.__all__]
    assert len(names) == len(set(names))


def test_private_modules_carry_no_list_of_exports():
    doors = {pathlib.Path(page.__file__) for page in (*DOORS, memory.adapter.stores)}
    files = {file for room in ("memory", "conditions") for file in ROOT.joinpath(room).rglob("*.py")}
    assert not [file for file in files - doors if "\n__all__" in file.read_text(encoding="utf-8")]


def saying_any():
    """Functions, methods and fields of the pages whose types say ``Any``, by the class that has them."""
    offered = [getattr(page, name) for page in DOORS for name in page.__all__]
    kinds = [kind for value in offered for kind in getattr(value, "__mro__", [value])]
    public = {(kind.__module__, kind.__name__) for kind in kinds if hasattr(kind, "__name__")}
    for module in {module for module, _ in public if module.startswith("memory.")}:
        for top in ast.parse(inspect.getsource(sys.modules[module])).body:
            if (module, getattr(top, "name", "")) in public:
                body = top.body if isinstance(top, ast.ClassDef) else [top]
                fields = [node for node in ast.walk(top) if isinstance(node, ast.AnnAssign)]
                kept = [node for node in fields if node in body or isinstance(node.target, ast.Attribute)]
                for part in kept + [node for node in body if hasattr(node, "args")]:
                    name = getattr(part, "name", "") or ast.unparse(part.target).removeprefix("self.")
                    types = [getattr(part, kind, None) for kind in ("args", "returns", "annotation")]
                    said = (node for kind in types if kind for node in ast.walk(kind))
                    if "Any" in (getattr(node, "id", "") for node in said):
                        yield f"{top.name}.{name}" if body is top.body else name


def test_any_in_a_public_signature_is_a_decision():
    found = {name for name in saying_any() if not re.search(r"(^|\.)_(?!_init__)", name)}
    assert sorted(found) == sorted(" ".join(ANY.values()).split())


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
