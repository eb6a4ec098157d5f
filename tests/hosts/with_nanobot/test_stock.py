"""A stock ``nanobot agent``: no code, one YAML file, and memory across sessions whatever the backend."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_model import Model
from nanobot_support import files, memory_config, nanobot_config
from setting_up import set_up


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        yield model


def agent(directory: Path, model: Model, said: str, session: str) -> str:
    """One answer of a process of its own."""
    environment = {**os.environ, "HOME": str(directory), "MEMSLOT_CONFIG": str(directory / "memslot.yaml")}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("nanobot")), "agent", "-c", str(nanobot_config(directory, model)),
         "-m", said, "-s", session, "--no-markdown", "--logs"],
        env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("backend", [None, "mem0"])
def test_it_remembers_across_sessions_and_keeps_no_trace_of_what_it_was_shown(backend, model, tmp_path):
    if backend:
        memory_config(tmp_path, backend)
    else:
        assert f"export MEMSLOT_CONFIG={tmp_path / 'memslot.yaml'}\n" in set_up(tmp_path, "nanobot")
    agent(tmp_path, model, "I like oolong tea.", "cli:one")
    answer = agent(tmp_path, model, "Which tea do I like?", "cli:two")
    assert "You like oolong." in answer
    assert "<memory-context" in model.prompts[-1]
    assert "<memory-context" not in files(tmp_path)
    assert "memory_search" in model.tools[-1]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"backend": "full_histroy"}, "did you mean full_history?"),
        ({"backend": "honcho"}, "pip install 'memslot[honcho]'"),
        ("memory: [", "memslot.yaml"),
    ],
)
def test_a_memory_that_cannot_be_used_costs_no_turn_and_one_line(config, wanted, model, tmp_path):
    if isinstance(config, str):
        (tmp_path / "memslot.yaml").write_text(config, encoding="utf-8")
    else:
        memory_config(tmp_path, **config)
    printed = agent(tmp_path, model, "I like oolong tea.", "cli:one")
    assert "Noted, 1." in printed
    assert len([line for line in printed.splitlines() if wanted in line]) == 1
    assert "Traceback" not in printed
    assert "memory_search" not in model.tools[-1]
