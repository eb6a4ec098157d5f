"""Plugins: listing imports no SDK, loading takes exactly one, a broken one breaks nothing else."""

import sys
import textwrap
from importlib.metadata import EntryPoint

import pytest

from memory import ConfigError, PluginLoadError
from memory.contract.errors import PluginNotFound
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

PLUGIN = """
from memory.adapter import AdapterTraits, BaseAdapter, PluginInfo, PluginOptions, hookimpl

class Options(PluginOptions):
    top_k: int = 5

class Adapter(BaseAdapter):
    backend_name = "{name}"
    def __init__(self, settings):
        self.settings = settings
    def native_scope(self, scope): return {{}}
    async def record_event(self, event): ...
    async def retrieve(self, request): ...
    async def reset_scope(self, scope): ...
    async def health(self): ...

@hookimpl
def memslot_describe():
    return PluginInfo(name="{name}", kind="{kind}", summary="a test", options=Options{extra})

@hookimpl
def memslot_create(settings):
    {create}
"""


class Dist:
    def __init__(self, name):
        self.name, self.version = name, "1.0"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a plugin module and returns its entry point, as an installed distribution would provide it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(
        name,
        *,
        kind="architecture",
        extra="",
        create="return Adapter(settings)",
        text=None,
        dist="third-party",
    ):
        module = f"plugin_{name}_{len(made)}"
        made.append(module)
        source = text if text is not None else PLUGIN.format(name=name, kind=kind, extra=extra, create=create)
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        group = "memslot.backends" if kind == "architecture" else "memslot.conditions"
        point = EntryPoint(name, module, group)
        vars(point).update(dist=Dist(dist))
        return point

    yield make
    for module in made:
        sys.modules.pop(module, None)


def config(name, field="backend", **options):
    return load_config({"memory": {field: name, f"{field}s": {name: options}}})


def test_a_plugin_is_listed_and_created(plugin):
    registry = MemoryAdapterRegistry([plugin("good", extra=', capabilities=frozenset({"readiness"})')])
    (row,) = registry.rows()
    assert (row.name, row.distribution, row.version, row.installed) == ("good", "third-party", "1.0", True)
    assert row.to_json()["capabilities"] == ["readiness"]
    adapter = registry.create(config("good", top_k=9))
    assert adapter.settings.options.top_k == 9
    assert adapter.settings.deadlines["write_s"] == 60.0


def test_names_import_nothing(plugin):
    point = plugin("good", text="raise SystemExit('imported')")
    assert MemoryAdapterRegistry([point]).names() == ["good"]
    assert point.module not in sys.modules


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import surely_not_installed", "ModuleNotFoundError"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("this is no python", "SyntaxError"),
        ("", "no memslot_describe"),
        (
            "from memory.adapter import hookimpl\n@hookimpl\ndef memslot_descrbe(): ...",
            "PluginValidationError",
        ),
        (
            "from memory.adapter import hookimpl\n@hookimpl\ndef memslot_create(setings): ...",
            "PluginValidationError",
        ),
        (
            "from memory.adapter import hookimpl\n@hookimpl\ndef memslot_describe(): return 5",
            "returns a PluginInfo",
        ),
        (
            "from memory.adapter import hookimpl, PluginInfo\n@hookimpl\ndef memslot_describe():\n"
            "    return PluginInfo(name='broken', kind='architecture', summary='')",
            "no memslot_create",
        ),
        (
            "from memory.adapter import hookimpl, PluginInfo\n@hookimpl\ndef memslot_describe():\n"
            "    return PluginInfo(name='other', kind='architecture', summary='')",
            "describes itself as architecture 'other'",
        ),
        (
            "from memory.adapter import hookimpl, PluginInfo\n@hookimpl\ndef memslot_describe():\n"
            "    return PluginInfo('broken', 'architecture', '', capabilities=frozenset({'telepathy'}))",
            "telepathy",
        ),
    ],
)
def test_a_broken_plugin_is_a_row_and_breaks_nothing_else(plugin, text, complaint):
    registry = MemoryAdapterRegistry([plugin("broken", text=text, dist="bad-dist"), plugin("good")])
    rows = {row.name: row for row in registry.rows()}
    assert rows["good"].installed
    assert not rows["broken"].installed
    assert complaint in rows["broken"].error
    assert "bad-dist" in rows["broken"].error
    registry.create(config("good"))
    with pytest.raises(PluginLoadError, match="broken"):
        registry.create(config("broken"))


def test_what_a_plugin_prints_is_no_output_of_the_listing(plugin, capfd):
    text = "import os\nprint('by Python')\nos.write(1, b'by C')\nraise ValueError"
    MemoryAdapterRegistry([plugin("broken", text=text)]).rows()
    sys.stdout.write("an answer\n")
    printed = capfd.readouterr()
    assert printed.out == "an answer\n"
    assert "by Python" in printed.err
    assert "by C" in printed.err


def test_two_owners_are_both_named(plugin):
    registry = MemoryAdapterRegistry([plugin("mine", dist="dist-a"), plugin("mine", dist="dist-b")])
    with pytest.raises(PluginLoadError, match="offered by dist-a and dist-b; uninstall one"):
        registry.create(config("mine"))
    assert [row.error is None for row in registry.rows()] == [False, False]


def test_an_unknown_name_gets_the_nearest(plugin):
    registry = MemoryAdapterRegistry(
        [plugin("graphiti"), plugin("mem0"), plugin("full_history", kind="control")]
    )
    with pytest.raises(
        PluginNotFound, match=r"memory\.backend: no plugin is named 'graphity'; did you mean graphiti"
    ):
        registry.create(config("graphity"))
    with pytest.raises(PluginNotFound, match="known: full_history, graphiti, mem0"):
        registry.create(config("xyz"))
    with pytest.raises(PluginNotFound, match="none is installed"):
        MemoryAdapterRegistry([]).create(config("xyz"))
    assert registry.selected(config("full_history")).kind == "control"


def test_a_condition_made_of_a_backend_has_its_options_and_goes_by_its_own_name(plugin):
    made_of = ', made_of="engine", fixed={"top_k": 3}'
    create = 'return settings.create("engine", settings.options)'
    engine = plugin("engine", extra=', capabilities=frozenset({"readiness"}), sdk_modules=("json",)')
    registry = MemoryAdapterRegistry([engine, plugin("rag", kind="control", extra=made_of, create=create)])
    info = registry.info("rag")
    assert (info.capabilities, info.sdk_modules) == ({"readiness"}, ("json",))
    settings = registry.create(config("rag", "condition")).settings
    assert (settings.name, settings.kind, settings.where) == ("rag", "control", "memory.conditions.rag")
    assert settings.options.top_k == 3
    with pytest.raises(ConfigError, match=r"memory\.conditions\.rag\.top_k: "):
        registry.create(config("rag", "condition", top_k=4))


def test_a_condition_made_of_a_backend_that_is_not_there_is_a_row_and_breaks_nothing_else(plugin):
    lost = plugin("lost", kind="control", extra=', made_of="lost"')
    rows = {row.name: row for row in MemoryAdapterRegistry([lost, plugin("good")]).rows()}
    assert rows["lost"].error == "lost is made of lost: no other plugin has this name"
    assert rows["good"].installed


@pytest.mark.parametrize("folder", [False, True], ids=["nothing", "a folder of its name"])
def test_a_missing_sdk_says_the_pip_line(plugin, tmp_path, monkeypatch, folder):
    if folder:
        (tmp_path / "surely_not_installed").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
    extra = ', sdk_modules=("surely_not_installed",), install="pip install \'memslot[x]\'"'
    registry = MemoryAdapterRegistry([plugin("needy", extra=extra)])
    (row,) = registry.rows()
    assert (row.missing, row.installed) == (("surely_not_installed",), False)
    assert row.to_json()["install"] == "pip install 'memslot[x]'"
    with pytest.raises(PluginLoadError, match=r"needs surely_not_installed.*pip install 'memslot\[x\]'"):
        registry.create(config("needy"))


@pytest.mark.parametrize(
    ("create", "complaint"),
    [
        ("import surely_not_installed", "cannot be imported"),
        (
            "open('/sk-secret/file', 'w')",
            r"^failing: its files cannot be used \(No such file or directory\); memory\.data_dir, or a path among "
            r"its options, says where they are$",
        ),
        ("raise KeyError('sk-secret')", r"factory failed \(KeyError in \w+\.py:\d+\); add --debug"),
        ("raise SystemExit('sk-secret')", r"factory failed \(SystemExit in "),
        (
            "return object()",
            "object is no MemoryAdapter: it lacks backend_name, setup_scope, set_mode, record_event, retrieve, "
            "format_context, reset_scope, health; add them",
        ),
        ("return None", "NoneType is no MemoryAdapter"),
        (
            "Adapter.retrieve = None; del Adapter.retrieve; return Adapter(settings)",
            "it lacks retrieve; add them, or inherit from",
        ),
    ],
)
def test_a_failing_factory_is_one_clear_error(plugin, create, complaint):
    registry = MemoryAdapterRegistry([plugin("failing", create=create)])
    with pytest.raises(PluginLoadError, match=complaint) as caught:
        registry.create(config("failing"))
    assert "sk-secret" not in str(caught.value)


def test_an_option_that_the_factory_alone_can_judge_names_its_path(plugin):
    create = "from memory import InputError; raise InputError('api_key: holds a blank')"
    registry = MemoryAdapterRegistry([plugin("good", create=create)])
    with pytest.raises(ConfigError, match=r"memory\.backends\.good\.api_key: holds a blank"):
        registry.create(config("good"))


def test_a_wrong_option_names_its_path(plugin):
    registry = MemoryAdapterRegistry([plugin("good")])
    with pytest.raises(
        ConfigError, match=r"memory\.backends\.good\.topk: is not a known field; did you mean top_k"
    ):
        registry.create(config("good", topk=1))


def test_the_built_ins_are_plugins_like_any_other():
    rows = {row.name: row for row in MemoryAdapterRegistry().rows() if row.distribution == "memslot"}
    assert {name for name, row in rows.items() if row.kind == "control"} == {
        "no_memory",
        "rolling_summary",
        "full_history",
        "simple_rag",
        "static_profile",
        "oracle_ipas",
    }
    assert "mem0" in rows
    assert [row.error for row in rows.values()] == [None] * len(rows)
