"""The kit's own rules: no standard test goes missing quietly, and every promise of spec section 9 has one."""

import ast
import itertools
import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from memory.testing import ConformanceProfile, FakeBackend, MemoryContract
from memory.testing.contract._run import opened, run_spec
from memory.testing.contract._spec import specs

STANDARD = {name: getattr(MemoryContract, name) for name in dir(MemoryContract) if name.startswith("test_")}
TEST = "test_a_new_scope_is_empty_and_that_is_no_error"


def test_every_promise_of_spec_section_9_is_cited():
    cited = {
        int(number) for test in STANDARD.values() for number in re.findall(r"9\.(\d+)", test.__doc__ or "")
    }
    assert cited == set(range(1, 12))
    assert all(test.__doc__ for test in STANDARD.values())


def test_a_standard_test_cannot_be_replaced():
    async def harmless(self: object) -> None: ...

    for replacement in (
        harmless,
        None,
        pytest.mark.skip(reason="busy")(harmless),
        pytest.mark.xfail(harmless),
    ):
        with pytest.raises(TypeError, match=f"Sly.{TEST} replaces a standard test.*xfail"):
            type("Sly", (MemoryContract,), {TEST: replacement})
    mixin = type("Mixin", (), {TEST: harmless})
    with pytest.raises(TypeError, match="replaces a standard test"):
        type("Sly", (mixin, MemoryContract), {})


def test_an_expected_failure_with_a_reason_may_stand_in_and_is_inherited():
    class Honest(MemoryContract):
        @pytest.mark.xfail(reason="the backend seeds every scope with a greeting", strict=True)
        async def test_a_new_scope_is_empty_and_that_is_no_error(self, kit):
            raise AssertionError

    class Heir(Honest):
        """Adds nothing."""

    with pytest.raises(TypeError, match="replaces a standard test"):

        class Sly(Honest):
            async def test_a_new_scope_is_empty_and_that_is_no_error(self, kit: object) -> None: ...


@pytest.mark.thorough
def test_a_class_without_a_provider_says_what_to_do(tmp_path):
    module = tmp_path / "test_mine.py"
    module.write_text(
        "from memory.testing import MemoryContract\nclass TestMine(MemoryContract):\n    pass\n"
    )
    run = _pytest(tmp_path, "-k", "test_is_an_adapter")
    assert run.returncode == 1
    assert "TestMine: set config, or override the adapter_factory fixture" in run.stdout


@pytest.mark.thorough
def test_the_plugin_loads_no_sdk_and_brings_the_scripted_llm(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["memory.testing.pytest_plugin"]\n')
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "SDKS = {'mem0', 'qdrant_client', 'openai', 'honcho', 'graphiti_core', 'memos'}\n"
        "EARLY = SDKS & set(sys.modules)\n"
        "def test_early(scripted_llm):\n"
        "    assert not EARLY\n"
        "    assert scripted_llm.base_url\n"
    )
    run = _pytest(tmp_path)
    assert run.returncode == 0, run.stdout


@pytest.mark.thorough
def test_specs_fakes_and_the_scripted_llm_need_no_pytest():
    code = (
        "import sys; from memory.testing import FakeBackend, ScriptedLLM, validate; "
        "from memory.testing.contract._spec import specs; specs(); "
        "assert 'pytest' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300)


def _pytest(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


GIVEN = """
import pytest
from memory.adapter import PluginInfo
from memory.contract.adapter import capabilities_of
from memory.testing import FakeBackend, FakeNativeStore, MemoryContract


class TestMine(MemoryContract):
    anyio_backends = ("asyncio",)
    native_query = ("list", {})

    @pytest.fixture
    def adapter_factory(self):
        store = FakeNativeStore()
        return lambda: FakeBackend(store)

    @pytest.fixture
    def described(self):
        offered = capabilities_of(FakeBackend())
        return PluginInfo(name="fake", kind="architecture", summary="x", capabilities=offered)
"""


@pytest.mark.thorough
def test_what_a_class_gives_the_kit_nothing_for_is_skipped_with_the_reason(tmp_path):
    (tmp_path / "test_mine.py").write_text(GIVEN)
    run = _pytest(tmp_path, "-rs", "-k", "failing_backend or fingerprint or is_an_adapter")
    assert run.returncode == 0, run.stdout
    assert "not tested: native_fault: without it nothing can be made to fail" in run.stdout
    assert "not tested: fingerprint" in run.stdout


def test_every_assert_of_the_kit_says_what_is_wrong():
    """Whoever reads a failure has written an adapter, and not the kit."""
    import memory.testing.contract as kit

    bare = [
        f"{source.name}:{node.lineno}"
        for source in sorted(Path(kit.__path__[0]).rglob("*.py"))
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and node.msg is None
    ]
    assert not bare


def close_again_and_again(made):
    """What the spec says of an adapter that leaves nothing; ``made`` hears which one is being made."""
    count = itertools.count()

    def adapter():
        made(next(count))
        return FakeBackend()

    spec = specs()["closing_leaves_nothing_behind"]
    return anyio.run(run_spec, spec, lambda: opened(adapter, ConformanceProfile, None), 30.0).outcome


@pytest.mark.thorough
def test_what_ended_meanwhile_is_not_left_behind():
    """A thread of another library, which happens to end between two rounds, is no leak of the provider."""
    end, rounds = threading.Event(), []
    stranger = threading.Thread(target=end.wait, name="stranger", daemon=True)
    stranger.start()

    def made(number):
        rounds.append(number)
        if number == 3:
            end.set()
            stranger.join()

    assert close_again_and_again(made) == "passed"
    assert rounds == [0, 1, 2, 3]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("opening", "outcome"), [({3}, "passed"), ({3, 4, 5}, "passed"), (range(99), "failed")]
)
def test_a_file_that_other_code_opens_meanwhile_is_not_left_behind(opening, outcome):
    """What the provider leaves grows with every round."""
    with ExitStack() as files:

        def made(number):
            if number in opening:
                files.enter_context(open(os.devnull))

        assert close_again_and_again(made) == outcome
