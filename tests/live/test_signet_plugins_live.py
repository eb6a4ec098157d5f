"""Real Signet plugins play a conversation against ``memslot serve``.

No Signet package can be installed; plugins are built from the public repository. ``SIGNET_OPENCODE_PLUGIN`` names a
built ``signet.mjs``, ``SIGNET_OPENCLAW_PLUGIN`` a built ``index.js``; node runs them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("signet_plugins.mjs")
PLUGINS = {"opencode": "SIGNET_OPENCODE_PLUGIN", "openclaw": "SIGNET_OPENCLAW_PLUGIN"}


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> str:
    variable = PLUGINS["opencode" if "opencode" in request.node.name else "openclaw"]
    built = os.environ.get(variable)
    if not built or shutil.which("node") is None:
        pytest.skip(f"{variable} names no built plugin, or node is not installed")
    return built


@pytest.fixture
def url(plugin: str, tmp_path: Path) -> Iterator[str]:
    config = tmp_path / "serve.yaml"
    scope = {"run_id": "r", "persona_id": "ada"}
    config.write_text(json.dumps({"memory": {"backend": "mem0", "scope": scope, "data_dir": str(tmp_path)}}))
    command = [
        sys.executable,
        "-c",
        "from memory.cli import main; main()",
        "serve",
        str(config),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
            process.terminate()
            assert process.wait(300) == 0
        finally:
            process.kill()


def played(kind: str, plugin: str, url: str, home: Path) -> dict[str, Any]:
    done = subprocess.run(
        ["node", str(DRIVER), kind, plugin, url],
        capture_output=True, text=True, timeout=300, cwd=home, env={**os.environ, "HOME": str(home)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_opencode_remembers_across_sessions(plugin: str, url: str, tmp_path: Path) -> None:
    told = played("opencode", plugin, url, tmp_path)
    assert told["warnings"] == []
    assert told["first"] == ""
    assert "The pot is blue" in told["searched"]
    assert told["got"] == "The pot is blue"
    assert "The pot is blue" in told["listed"]
    assert told["modified"] == "Memory updated."
    assert told["compacting"].startswith("Summarize this session")
    for remembered in ("My favourite tea is oolong.", "The pot is green", "We spoke of tea."):
        assert remembered in told["second"]
    assert "The pot is green" in told["again"], "it was shown to one request"
    assert "The pot is green" in told["elsewhere"], "from a second project"
    assert told["forgotten"] == "Memory forgotten."
    assert "The pot is green" not in told["third"]


def test_openclaw_remembers_across_sessions(plugin: str, url: str, tmp_path: Path) -> None:
    told = played("openclaw", plugin, url, tmp_path)
    assert all("/api/marketplace/" in one for one in told["warnings"])
    assert told["first"] == ""
    assert "The pot is blue" in told["searched"]
    assert "My favourite tea is oolong." in told["second"]
    assert "The pot is green" in told["second"]
    assert "<signet-memory" in told["second"]
