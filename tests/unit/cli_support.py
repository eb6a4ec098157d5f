"""What the tests of the command line share: running it, and plugins that only it can see."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory.cli.app import app

Invoke = Callable[..., Any]

FULL_HISTORY = "memory: {condition: full_history, conditions: {full_history: {}}}"


def invoke(*arguments: object) -> Any:
    """Run ``memslot`` with these arguments; the result has exit_code, stdout and stderr."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def error_line(result: Any, code: int) -> str:
    """The one line a failed command leaves."""
    assert result.exit_code == code, (result.exit_code, result.output)
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").strip()


class Distribution:
    def __init__(self, name: str) -> None:
        self.name, self.version = name, "1.0"


@pytest.fixture
def add_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Offers a backend beside the installed ones: its name, and the source of its module."""
    added: list[EntryPoint] = []
    directory = tmp_path / "plugins"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(
        "memory.plugins.registry.entry_points",
        lambda group: [*entry_points(group=group), *(point for point in added if point.group == group)],
    )

    def add(name: str, source: str) -> None:
        module = f"cli_plugin_{name}_{tmp_path.name.replace('-', '_')}"
        (directory / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        point = EntryPoint(name, module, "memslot.backends")
        vars(point).update(dist=Distribution(f"memslot-{name}"))
        added.append(point)

    return add


FAKE = """
from memory.adapter import PluginInfo, hookimpl
from memory.contract.adapter import CAPABILITIES
from memory.testing import FakeBackend, FakeNativeStore
{before}
@hookimpl
def memslot_describe():
    return PluginInfo(name="{name}", kind="architecture", {info}, capabilities=frozenset(CAPABILITIES))

@hookimpl
def memslot_create(settings):
    store = FakeNativeStore({store})
    {then}
    return FakeBackend(store, name="{name}")
"""
LACKING = "pip install 'memslot[elsewhere]'"


def fake_plugin(
    name: str, *, info: str = 'summary="a test"', before: str = "", store: str = "", then: str = "pass"
) -> str:
    """Source of a plugin over the reference adapter.

    Args:
        name: the plugin's name.
        info: further arguments of its ``PluginInfo``.
        before: code that comes before its hooks.
        store, then: arguments of its native store, and what is done to ``store``.
    """
    return FAKE.format(name=name, info=info, before=before, store=store, then=then)


def lacking_plugin(name: str) -> str:
    """Source of a plugin whose SDK is not installed; :data:`LACKING` would install it."""
    return fake_plugin(name, info=f'summary="", sdk_modules=("no_such_sdk",), install="{LACKING}"')
