"""What the tests of the command line share: running it, and plugins that only it can see."""

import functools
import textwrap
import uuid
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import yaml
from typer import testing
from typer.testing import CliRunner

from memory.cli.app import app
from memory.cli.run import DEMO

# Typer makes all commands of an app anew for each line, which takes longer than most of them.
testing._get_command = functools.cache(testing._get_command)

FULL_HISTORY = "memory: {condition: full_history, conditions: {full_history: {}}}"


def small_demo(directory, monkeypatch):
    """``memslot run demo`` plays one person's ten sessions."""
    content = yaml.safe_load(DEMO.read_text("utf-8"))
    content["bench"]["game"] = {"users": 1, "sessions": 10, "tests": 2, "attributes": 4}
    file = directory / "demo.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    monkeypatch.setattr("memory.cli.run.DEMO", file)


def invoke(*arguments, **options):
    """Run ``memslot`` with these arguments; the result has exit_code, stdout and stderr.

    Args:
        options: of typer's ``CliRunner.invoke``, such as ``env`` and ``input``.
    """
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def error_line(result, code):
    """The one line a failed command leaves."""
    assert result.exit_code == code, (result.exit_code, result.output)
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").strip()


def entry_point(directory, group, name, source, owner, within=""):
    """Of a new module with this source, as the distribution ``owner`` would have installed it."""
    module = f"{group.replace('.', '_')}_{name}_{uuid.uuid4().hex}"
    (directory / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    point = EntryPoint(name, module + within, group)
    vars(point).update(dist=SimpleNamespace(name=owner, version="1.0"))
    return point


FAKE = """
from memory.adapter import PluginInfo, hookimpl
from memory.contract.adapter import capabilities_of
from memory.testing import FakeBackend, FakeNativeStore
{before}
@hookimpl
def memslot_describe():
    return PluginInfo(name="{name}", kind="architecture", {info}, capabilities=capabilities_of(FakeBackend()))

@hookimpl
def memslot_create(settings):
    store = FakeNativeStore({store})
    {then}
    return FakeBackend(store, name="{name}")
"""
LACKING = "pip install 'memslot[elsewhere]'"


def fake_plugin(name, *, info='summary="a test"', before="", store="", then="pass"):
    """Source of a plugin over the reference adapter.

    Args:
        name: the plugin's name.
        info: further arguments of its ``PluginInfo``.
        before: code that comes before its hooks.
        store, then: arguments of its native store, and what is done to ``store``.
    """
    return FAKE.format(name=name, info=info, before=before, store=store, then=then)


def lacking_plugin(name):
    """Source of a plugin whose SDK is not installed; :data:`LACKING` would install it."""
    return fake_plugin(name, info=f'summary="", sdk_modules=("no_such_sdk",), install="{LACKING}"')
