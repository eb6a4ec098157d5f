"""Which tests a run is made of, and where: ``--fast`` leaves the thorough ones out, and its last lines say so."""

import contextlib
import functools
import gc
import importlib
import os
import re
import shutil
import sqlite3
import ssl
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

# The kit's summary, which the workers of xdist cannot print.
pytest_plugins = ["memory.testing.pytest_plugin"]
LIVE = Path(__file__).parent / "live"
WHOLLY_THOROUGH = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.thorough", re.MULTILINE)
ON_EITHER_LOOP = ("test_slot", "test_one_way", "test_closing", "test_shielded", "test_worker")
"""How the names of files begin whose tests ``--fast`` runs on trio as well as on asyncio."""
SHARED_MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 * 1024**3
WITHOUT_SERVER = pytest.StashKey[dict[str, int]]()
"""How many live tests were left out, by what they lack."""


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out the tests marked as thorough")


def pytest_configure(config):
    """Processes that tests start import what tests share, as this one does by ``pythonpath``.

    Embedded stores wait for the disk at every write, which takes longer than all else: their files lie in memory,
    where there is room and nobody chose another place.
    """
    if "TMPDIR" not in os.environ and has_room(SHARED_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        give_tests_a_home(config)
    certificates, bundle = ssl.get_default_verify_paths().capath, os.environ.get("SSL_CERT_FILE")
    if certificates is not None and (bundle is None or Path(bundle).parent == Path(certificates)):
        # Looked up there once they are needed: of a bundle every client reads all, which takes 20 ms of CPU.
        os.environ.pop("SSL_CERT_FILE", None)
        os.environ["SSL_CERT_DIR"] = certificates
    if config.pluginmanager.hasplugin("hypothesispytest"):
        choose_examples(config)
    if sys.version_info >= (3, 13):
        spare_qdrant_its_question()
    gc.disable()  # until everything is collected: thousands of items stay, and a search through them frees none
    shared = [str(config.rootpath / folder) for folder in config.getini("pythonpath")]
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*shared, *before])))


def give_tests_a_home(config):
    """Set HOME to a new, empty directory, and delete it at the end of the run.

    Sockets of deep directories lie in the home. A file of an earlier run must not meet a test of this one. The path
    is short, because a socket's path may have 103 bytes. Caches stay where they were.
    """
    home = tempfile.mkdtemp(prefix="memslot-", dir="/tmp")
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ["HOME"] = home
    config.add_cleanup(functools.partial(shutil.rmtree, home, ignore_errors=True))


def spare_qdrant_its_question():
    """Answer what embedded Qdrant asks SQLite once in a process.

    It leaves the connection of that question open, and Python 3.13 warns of it in any later test.
    """
    with contextlib.suppress(ImportError):
        from qdrant_client.local.persistence import CollectionPersistence

        CollectionPersistence.CHECK_SAME_THREAD = sqlite3.threadsafety != 3


def choose_examples(config):
    """A run fails by what was changed, never by the examples it happens on or by what else the machine does.

    ``--hypothesis-profile=exploring`` makes up others at every run.
    """
    from hypothesis import HealthCheck, settings

    settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("repeatable", settings.get_profile("exploring"), derandomize=True)
    settings.load_profile("repeatable")
    if config.getoption("--fast"):
        settings.register_profile("fast", max_examples=30)
        settings.load_profile("fast")


# A test may import mem0 before memslot does. Its telemetry would lock a file in the home directory for all workers.
os.environ.setdefault("MEM0_TELEMETRY", "False")
os.environ.pop("COLUMNS", None)  # of the terminal that started the workers


@pytest.fixture
def anyio_backend():
    """One event loop; where both matter, a folder or a module says so itself."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres():
    """URL of a PostgreSQL with pgvector that is this run's own."""
    for needed in ("pgserver", "psycopg"):
        pytest.importorskip(needed)
    from embedded_stores import postgres as served

    with served() as url:
        yield url


@pytest.fixture
def state_url(postgres):
    """URL of a PostgreSQL that keeps no state yet."""
    from postgres import ask

    ask(postgres, "SET client_min_messages TO error", "DROP SCHEMA IF EXISTS memslot CASCADE")
    return postgres


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.thorough)])
def each_store(request, monkeypatch):
    """What ``journals.open_journal`` opens: a file, then a server, which is handed over."""
    if request.param == "file":
        return None
    for needed in ("pgserver", "psycopg"):
        pytest.importorskip(needed)
    url = request.getfixturevalue("state_url")
    monkeypatch.setattr("journals.server", url)
    monkeypatch.setattr("memory.storage.leases.LEASE_S", 0.3)
    monkeypatch.setenv("MEMSLOT_TEST_STATE", url)
    return url


@pytest.fixture
def llm(scripted_llm):
    """Answers every prompt that a backend may have, on a port of its own."""
    return scripted_llm


def pytest_ignore_collect(collection_path, config):
    """``--fast`` imports no module that is thorough as a whole, and no live test unless its folder is named."""
    if not config.getoption("--fast"):
        return None
    if collection_path == LIVE:
        return True if not any("live" in Path(name).parts for name in config.args) else None
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return True if WHOLLY_THOROUGH.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """``--fast`` makes no items of what is thorough: thousands of them would cost each worker seconds."""
    if not collector.config.getoption("--fast"):
        return None
    if isinstance(obj, type) and len(getattr(obj, "anyio_backends", ())) > 1:
        obj.anyio_backends = obj.anyio_backends[:1]
    if name in getattr(getattr(collector, "cls", None), "thorough", ()):
        return []
    owners = obj.__mro__ if isinstance(obj, type) else (obj,)
    marks = [mark for owner in owners for mark in marks_of(owner)]
    return [] if any(mark.name == "thorough" for mark in marks) else None


def marks_of(owner):
    """The marks of a class or function itself: pytest takes one as well as a list."""
    own = getattr(owner, "__dict__", {}).get("pytestmark", [])
    return own if isinstance(own, list) else [own]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    lacking = {item: lack for item in items if LIVE in item.path.parents and (lack := lack_of(item))}
    config.stash[WITHOUT_SERVER] = dict(Counter(lacking.values()))
    fast = config.getoption("--fast")
    left_out = {item for item in items if item in lacking or (fast and is_thorough(item))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def lack_of(item):
    """The server that a live test needs and nobody named or installed; an empty string where it is there."""
    if item.path.name.startswith("test_memos") and not os.environ.get("MEMOS_URL"):
        return memos_lacks()
    return next((mark.kwargs["reason"] for mark in item.iter_markers("skipif") if mark.args[0]), "")


@functools.cache
def memos_lacks():
    """What a MemOS server of our own needs and is not installed; to look for it takes a while."""
    return str(importlib.import_module("memos_rig").missing())


def pytest_collection_finish():
    """What was collected stays to the end; the garbage collector need not look through it over and over."""
    gc.enable()
    gc.collect()
    gc.freeze()


def has_room(directory):
    """Whether files may be written there, and many."""
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free >= ROOM_BYTES


def is_thorough(item):
    """Whether ``--fast`` leaves a test out: by its mark, by its class, or because it repeats another on trio."""
    if item.get_closest_marker("thorough"):
        return True
    if getattr(item, "originalname", None) in getattr(getattr(item, "cls", None), "thorough", ()):
        return True
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters.get("anyio_backend") == "trio" and not item.path.name.startswith(ON_EITHER_LOOP)


def pytest_sessionfinish(session):
    gc.unfreeze()  # Hypothesis asks it what is still in use
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["without_server"] = session.config.stash.get(WITHOUT_SERVER, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every worker of xdist collects everything, so that one of them knows."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[WITHOUT_SERVER] = output.get("without_server", {})


def pytest_terminal_summary(terminalreporter, config):
    if lacking := config.stash.get(WITHOUT_SERVER, {}):
        terminalreporter.section("live tests without a server")
        for lack, count in sorted(lacking.items()):
            terminalreporter.line(f"{count} left out: {lack}")
    if config.getoption("--fast"):
        terminalreporter.section("fast selection")
        terminalreporter.line(
            "these tests were left out: the conformance kit on further variants of a provider, second event loops,"
        )
        terminalreporter.line(
            "mutants of the kit, kills and other rounds of processes, growth with size, pages in a browser, live"
        )
        terminalreporter.line("servers; of inputs that are made up, most of the examples.")
        terminalreporter.line("`make test-all` runs them too, as CI does.")
