"""``memslot tools scripted-llm``: alone or beside a command, and the configuration for it."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli_support import error_line, invoke

from memory.testing import ScriptedLLM

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "scripted_llm.yaml"
MEMSLOT = (sys.executable, "-c", "from memory.cli import main; main()")
ASK = """
import json, os, urllib.request
assert os.environ["OPENAI_BASE_URL"] == os.environ["SCRIPTED_LLM_URL"]
with urllib.request.urlopen(os.environ["SCRIPTED_LLM_URL"] + "/models") as answer:
    assert json.load(answer)["data"]
raise SystemExit(7)
"""


def test_a_command_finds_it_and_its_exit_code_is_ours():
    assert invoke("tools", "scripted-llm", "--", sys.executable, "-c", ASK).exit_code == 7


def test_a_command_that_does_not_exist_is_one_line():
    assert "no-such-command" in error_line(invoke("tools", "scripted-llm", "--", "no-such-command"), 2)


def test_a_port_that_is_taken_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = error_line(invoke("tools", "scripted-llm", "--port", port), 2)
    assert said.startswith(f"--port {port}: cannot be used")


@pytest.mark.thorough
def test_it_says_where_it_is_and_ends_when_interrupted():
    command = [*MEMSLOT, "tools", "scripted-llm", "--port", "0"]
    # Where this runs in the background, SIGINT is ignored, and a child would inherit that.
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=heeds, **pipes) as running:
        url = running.stdout.readline().removeprefix("export SCRIPTED_LLM_URL=").strip()
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello."}]}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", data=body)) as answer:
            assert json.load(answer)["choices"]
        running.send_signal(signal.SIGINT)
        assert running.wait(300) == 130


def test_an_endpoint_that_runs_for_days_keeps_no_request():
    with ScriptedLLM(record=False) as llm, urllib.request.urlopen(f"{llm.base_url}/models") as answer:
        assert answer.headers["x-request-id"] == "req-1"
        assert llm.requests == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("field", "provider", "needs"),
    [
        ("backend", "graphiti", "graphiti_core"),
        ("backend", "mem0", "mem0"),
        ("condition", "rolling_summary", "httpx"),
    ],
)
def test_its_configuration_passes_the_doctor(field, provider, needs, tmp_path, monkeypatch):
    if find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    text = CONFIG.read_text(encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(text.replace("  backend: graphiti", f"  data_dir: {tmp_path}\n  {field}: {provider}"))
    with ScriptedLLM() as llm:
        monkeypatch.setenv("SCRIPTED_LLM_URL", llm.base_url)
        report = json.loads(invoke("doctor", config, "--json").stdout)
    assert {check["status"] for check in report["checks"]} == {"passed"}, report
