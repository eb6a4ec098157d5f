"""MemOS in this process: what it needs, and that importing it changes nothing. ``tests/live`` runs its handlers."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import installed

from memory import ConfigError, PluginLoadError
from memory.backends.memos import inprocess
from memory.backends.memos.inprocess import check_environment, contained
from memory.backends.memos.options import MemosOptions
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

ENVIRONMENT = {
    "GRAPH_DB_BACKEND": "postgres",
    "POSTGRES_HOST": "localhost",
    "POSTGRES_USER": "postgres",
    "POSTGRES_DB": "postgres",
    "OPENAI_API_BASE": "http://127.0.0.1:1/v1",
    "OPENAI_API_KEY": "sk-secret",
    "MOS_CHAT_MODEL": "m",
    "MEMRADER_API_BASE": "http://127.0.0.1:1/v1",
    "MEMRADER_API_KEY": "sk-secret",
    "MEMRADER_MODEL": "m",
    "MOS_EMBEDDER_BACKEND": "universal_api",
    "EMBEDDING_DIMENSION": "256",
    "MOS_RERANKER_BACKEND": "http_bge",
}
NEO4J = {"NEO4J_URI": "bolt://localhost", "NEO4J_USER": "neo4j", "NEO4J_PASSWORD": "secret"}
IMPORTS = """
import json, logging, os, sys, threading
from pathlib import Path
logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
before = (logging.root.handlers[:], logging.root.level, dict(os.environ))
from memory.backends.memos.inprocess import contained
with contained(Path("data")):
    import memos.api.product_models
    settings = [os.environ["MOS_CHAT_MODEL"], os.environ.get("NEW_SETTING")]
logging.getLogger("memos.search").error("what the user asked")
logging.getLogger("SearchHandler").error("what the user asked")
logging.getLogger("other").error("of the host")
print(json.dumps({
    "logging": (logging.root.handlers, logging.root.level) == before[:2],
    "environment": dict(os.environ) == before[2],
    "settings": settings,
    "here": sorted(path.name for path in Path().iterdir()),
    "threads": [thread.name for thread in threading.enumerate()],
    "log": sum(path.stat().st_size for path in Path().rglob("*.log")),
}))
"""


def options(**block: Any) -> MemosOptions:
    return MemosOptions(**{"transport": "inprocess", "graph_db": "postgres", **block})


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "find_spec", lambda name: object())


@pytest.mark.usefixtures("everything_installed")
def test_an_environment_that_agrees_is_taken() -> None:
    check_environment(options(), ENVIRONMENT)
    redis = {**ENVIRONMENT, "MEMSCHEDULER_USE_REDIS_QUEUE": "True"}
    check_environment(options(scheduler="redis"), redis)
    shared = {**ENVIRONMENT, **NEO4J, "GRAPH_DB_BACKEND": "Neo4j", "MOS_NEO4J_SHARED_DB": "true"}
    check_environment(options(graph_db="neo4j", neo4j_shared_db=True), shared)


@pytest.mark.usefixtures("everything_installed")
@pytest.mark.parametrize("name", sorted(ENVIRONMENT.keys() - {"GRAPH_DB_BACKEND"}))
def test_a_missing_setting_is_named(name: str) -> None:
    for environment in (
        {**ENVIRONMENT, name: ""},
        {key: value for key, value in ENVIRONMENT.items() if key != name},
    ):
        with pytest.raises(ConfigError, match=rf"backends\.memos\.transport.* set {name}, or") as caught:
            check_environment(options(), environment)
        assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("everything_installed")
@pytest.mark.parametrize(
    ("block", "setting", "message"),
    [
        ({}, {"GRAPH_DB_BACKEND": "neo4j"}, r"graph_db: is postgres, but GRAPH_DB_BACKEND means neo4j"),
        ({}, {"GRAPH_DB_BACKEND": ""}, r"graph_db: is postgres, but GRAPH_DB_BACKEND"),
        ({}, {"MEMSCHEDULER_USE_REDIS_QUEUE": "true"}, r"scheduler: is local, .* means redis"),
        ({"scheduler": "redis"}, {}, r"scheduler: is redis, .* means local"),
        (
            {"graph_db": "neo4j", "neo4j_shared_db": True},
            {**NEO4J, "GRAPH_DB_BACKEND": "neo4j"},
            r"graph_db: set MOS_NEO4J_SHARED_DB=true",
        ),
        (
            {"graph_db": "polardb"},
            {"GRAPH_DB_BACKEND": "polardb"},
            r"set POLAR_DB_HOST, POLAR_DB_USER, POLAR_DB_PASSWORD, POLAR_DB_DB_NAME",
        ),
    ],
)
def test_a_setting_that_contradicts_an_option_is_named(
    block: dict[str, Any], setting: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_environment(options(**block), {**ENVIRONMENT, **setting})


@pytest.mark.parametrize("absent", ["memos", "chonkie", "psycopg2"])
def test_a_missing_package_comes_with_the_pip_line(monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    monkeypatch.setattr(inprocess, "find_spec", lambda name: None if name == absent else object())
    with pytest.raises(PluginLoadError, match=rf"needs {absent}; pip install"):
        check_environment(options(), ENVIRONMENT)


@pytest.mark.usefixtures("everything_installed")
def test_the_factory_checks_the_environment_and_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    block = {"transport": "inprocess", "graph_db": "postgres"}
    scope = {"run_id": "r", "persona_id": "p"}
    settings = load_config({"memory": {"backend": "memos", "scope": scope, "backends": {"memos": block}}})
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="POSTGRES_HOST"):
        MemoryAdapterRegistry().create(settings, data_dir=tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert MemoryAdapterRegistry().create(settings, data_dir=tmp_path).backend_name == "memos"
    assert "memos" not in sys.modules
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.skipif(not installed("memos"), reason="MemoryOS is not installed")
def test_an_import_of_memos_changes_nothing_outside(tmp_path: Path) -> None:
    # Without a main file, python-dotenv looks in the working directory.
    (tmp_path / ".env").write_text("MOS_CHAT_MODEL=from-dotenv\nNEW_SETTING=from-dotenv\n")
    environment = {name: value for name, value in os.environ.items() if name != "MEMOS_BASE_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env={**environment, "MOS_CHAT_MODEL": "mine"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    (line,) = done.stdout.splitlines()  # nothing but what the script says: stdout may be a protocol
    printed = json.loads(line)
    assert printed == {
        "logging": True,
        "environment": True,
        "settings": ["mine", None],
        "here": [".env", "data"],
        "threads": ["MainThread"],
        "log": 0,
    }
    assert done.stderr == "ERROR:other:of the host\n"


def test_logging_of_others_can_be_set_up_meanwhile(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, dict(os.environ), logging.config.dictConfig)
    with pytest.raises(RuntimeError, match="within"), contained(tmp_path):  # noqa: PT012
        theirs = {"version": 1, "incremental": True, "loggers": {"memslot.test": {"level": "ERROR"}}}
        logging.config.dictConfig(theirs)
        logging.config.dictConfig(
            {"version": 1, "loggers": {"memos": {"level": "DEBUG"}}, "root": {"level": 1}}
        )
        os.environ["MEMSLOT_TEST_NEW"] = "1"
        del os.environ["PATH"]
        root.addHandler(logging.NullHandler())
        root.setLevel(root.level + 1)
        raise RuntimeError("within")
    assert logging.getLogger("memslot.test").level == logging.ERROR
    assert (root.handlers, root.level, dict(os.environ), logging.config.dictConfig) == before


def test_a_level_that_the_host_has_set_for_memos_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logging.getLogger("memos"), "level", logging.ERROR)
    monkeypatch.setenv("MEMOS_BASE_PATH", "elsewhere")
    with contained(tmp_path):
        assert os.environ["MEMOS_BASE_PATH"] == "elsewhere"
    assert logging.getLogger("memos").level == logging.ERROR
