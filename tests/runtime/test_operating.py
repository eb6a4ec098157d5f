"""What operators need of ``memslot serve``: tokens from a file, figures, traces, an end that a proxy notices."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest
from signet_support import BASE, daemon

from memory import ConfigError
from memory.plugins.config import load_config
from memory.runtime._serving import settings_of

ADA, EVE = "token-of-ada-0000000", "token-of-eve-0000000"


def write(directory, serve):
    memory = {"condition": "full_history", "scope": {"run_id": "r", "persona_id": "ada"}, "data_dir": "kept"}
    file = directory / "serve.yaml"
    file.write_text(json.dumps({"memory": memory, "serve": {"port": 0, **serve}}))
    return file


@contextmanager
def serving(config):
    command = [sys.executable, "-c", "from memory.cli import main; main()", "serve", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with httpx.Client(base_url=process.stdout.readline().split()[-1], timeout=30) as http:
            yield http, process
    finally:
        process.kill()
        process.communicate()


def status(http, token, path="/api/memories"):
    return http.get(path, headers={"authorization": f"Bearer {token}"}).status_code


def until(http, token, wanted):
    for _ in range(100):
        if status(http, token) == wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"never {wanted}")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "no such file"),
        ("tokens: []", "tokens"),
        ("tokens: [{token: short-secret, persona_id: ada}]", "at least 16 characters"),
        (f"tokens: [{{token: {ADA}, persona_id: ' '}}]", "tokens.0.persona_id: must not be blank"),
        (f"tokens: [{{token: {ADA}, persona_id: a, run_id: ''}}]", "tokens.0.run_id: must not be blank"),
        (
            f"tokens: [{{token: {ADA}, persona_id: a}}, {{token: {ADA}, persona_id: b}}]",
            "two of them are the same",
        ),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_refused_at_the_start(tmp_path, content, wanted):
    if content is not None:
        (tmp_path / "tokens.yaml").write_text(content)
    with pytest.raises(ConfigError, match=wanted) as caught:
        settings_of(load_config(write(tmp_path, {"tokens_file": "tokens.yaml"})), None, None)
    assert ADA not in str(caught.value)
    both = write(tmp_path, {"tokens_file": "tokens.yaml", "tokens": [{"token": ADA, "persona_id": "ada"}]})
    with pytest.raises(ConfigError, match="keep one of the two"):
        settings_of(load_config(both), None, None)


async def test_counts_are_told_to_callers_and_hold_no_text():
    async with daemon(tokens={ADA: BASE}) as signet:
        headers = {"authorization": f"Bearer {ADA}"}
        body = {"harness": "t", "sessionKey": "s", "userMessage": "an unspeakable word"}
        await signet.http.post("/api/hooks/user-prompt-submit", json=body, headers=headers)
        await signet.drain()
        assert (await signet.http.get("/health/ready")).status_code == 401
        answer = await signet.http.get("/health/ready", headers=headers)
    found = answer.json()
    counted = [found[name] for name in ("recalls", "recalls_failed", "recorded", "not_recorded", "waiting")]
    assert counted == [1, 0, 1, 0, 0]
    assert found["recall_circuit"] == "closed"
    assert "unspeakable" not in answer.text


@pytest.mark.thorough
def test_traces_go_to_opentelemetry_where_they_are_asked_for(tmp_path):
    """By the provider that the process has, which ``opentelemetry-instrument`` sets up."""
    script = tmp_path / "traced.py"
    script.write_text(
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
        "import sys\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))\n"
        "trace.set_tracer_provider(provider)\n"
        "from memory.cli import main\nmain()\n"
    )
    config = write(tmp_path, {"opentelemetry": True})
    process = subprocess.Popen(
        [sys.executable, str(script), "serve", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = process.stdout.readline().split()[-1]
    body = {"harness": "t", "sessionKey": "s", "userMessage": "an unspeakable word"}
    assert httpx.post(f"{url}/api/hooks/user-prompt-submit", json=body, timeout=30).status_code == 200
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert {'"name": "memslot.retrieve"', '"name": "memslot.record_event"'} <= {
        line.strip().rstrip(",") for line in said.splitlines()
    }
    assert "unspeakable" not in said
