"""Fixtures of the slot's and the command line's tests, each in a directory of its own and on both event loops."""

from importlib.metadata import entry_points

import pytest
from both_loops import anyio_backend as anyio_backend
from cli_support import entry_point
from slot_support import ALICE, BOB, QUICK, Obedient, Sink

from memory import MemorySlot


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """A memory lies below the working directory unless it is told where; what a test leaves, no other finds."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def adapter():
    return Obedient()


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
async def slot(adapter, sink):
    async with MemorySlot(adapter, scope=ALICE, deadlines=QUICK, trace_sink=sink) as opened:
        await opened.setup_scope(BOB)
        sink.clear()
        yield opened


@pytest.fixture
def add_plugin(tmp_path, monkeypatch):
    """Offers a backend beside the installed ones: its name, and the source of its module."""
    added = []
    directory = tmp_path / "plugins"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(
        "memory.plugins.registry.entry_points",
        lambda group: [*entry_points(group=group), *(point for point in added if point.group == group)],
    )

    def add(name, source):
        added.append(entry_point(directory, "memslot.backends", name, source, f"memslot-{name}"))

    return add
