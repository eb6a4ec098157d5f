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
import memory.adapter.fields
import memory.adapter.http
import memory.adapter.models
import memory.adapter.sdk
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
AUTHORS = [
    memory.adapter,
    memory.adapter.fields,
    memory.adapter.http,
    memory.adapter.models,
    memory.adapter.sdk,
    memory.adapter.stores,
]
DOORS = [memory, *AUTHORS, memory.runtime, memory.testing]
PAGES = pytest.mark.parametrize("page", DOORS, ids=lambda page: page.__name__)


@PAGES
def test_everything_exported_exists_and_is_documented(page):
    assert len(set(page.__all__)) == len(page.__all__)
    for name in page.__all__:
        value = getattr(page, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


@pytest.mark.parametrize("page", [page for page in DOORS if hasattr(page, "_LATE")])
def test_the_table_of_late_names_is_what_type_checkers_read(page):
    tree = ast.parse(inspect.getsource(page))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    read = {node.module: " ".join(alias.name for alias in node.names) for node in checked.body}
    assert {module: " ".join(names.split()) for module, names in page._LATE.items()} == read


@pytest.mark.thorough
def test_an_application_without_sources_imports_every_page(tmp_path):
    """Frozen applications and those that ship bytecode alone have no source to read names from."""
    for package in ("memory", "conditions"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(tmp_path, quiet=1, legacy=True)
    for source in tmp_path.rglob("*.py"):
        source.unlink()
    doors = ", ".join(page.__name__ for page in DOORS)
    script = (
        f"import {doors}\n"
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
        if file.suffix == ".py" and file.name.startswith("_"):  # builds the site
            continue
        for module in re.findall(IMPORTS, file.read_text(encoding="utf-8"), re.MULTILINE):
            public = module in doors or re.fullmatch(PUBLIC_MODULES, module)
            assert public, f"{file.relative_to(ROOT)} imports {module}"
    assert len(list(shown_to_others())) > 50


def test_no_name_stands_on_two_pages():
    names = [name for page in DOORS for name in page.__all__]
    assert len(names) == len(set(names))


def test_private_modules_carry_no_list_of_exports():
    doors = {pathlib.Path(page.__file__) for page in DOORS}
    files = {file for room in ("memory", "conditions") for file in ROOT.joinpath(room).rglob("*.py")}
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


@pytest.mark.thorough
def test_importing_and_listing_load_no_sdk():
    code = (
        "import sys, json; from memory.plugins.registry import MemoryAdapterRegistry as R; R().rows();"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert SDKS.isdisjoint(json.loads(done.stdout))
    assert done.stderr == ""


@pytest.mark.parametrize("page", [memory, memory.adapter, memory.runtime])
def test_a_name_that_no_page_has_is_an_attribute_error(page):
    """What ``hasattr`` asks by; another error would end whoever only looks."""
    with pytest.raises(AttributeError, match=f"module '{page.__name__}' has no attribute 'nothing'"):
        _ = page.nothing
