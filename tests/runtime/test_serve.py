"""``memslot serve`` as a process: it answers, keeps users apart, and loses no write when it is told to end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import anyio
import httpx
import pytest
from cli_support import invoke

from memory.plugins.config import load_config
from memory.runtime import listening_socket
from memory.runtime._serving import serve, settings_of

TOKENS = {"ADA_TOKEN": "token-of-ada-0000000", "EVE_TOKEN": "token-of-eve-0000000"}


def write(directory, served, agent=None, **memory):
    given = {"condition": "full_history", "data_dir": "kept", **memory}
    file = directory / "serve.yaml"
    blocks = {"memory": given, "serve": {"port": 0, **served}}
    file.write_text(json.dumps(blocks | ({"agent": agent} if agent is not None else {})))
    return file


@contextmanager
def served(config):
    command = [sys.executable, "-c", "from memory.cli import main; main()", "serve", str(config)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **TOKENS}
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving full_history at http://127.0.0.1:"), (line, process.stderr)
        yield line.split()[-1], process
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert errors == ""


def prompt(http, number):
    body = {"harness": "t", "sessionKey": f"s{number % 4}", "userMessage": f"fact number {number}."}
    return http.post("/api/hooks/user-prompt-submit", json=body).status_code


@pytest.mark.thorough
def test_started_read_only_it_recalls_every_project_of_every_token(tmp_path):
    of_ada = {"token": TOKENS["ADA_TOKEN"], "persona_id": "ada"}
    headers = {"authorization": f"Bearer {TOKENS['ADA_TOKEN']}"}
    fact = {"content": "I like oolong", "project": "/alpha"}
    for read_only in (False, True):
        config = write(tmp_path, {"tokens": [of_ada], "read_only": read_only})
        with served(config) as (url, _), httpx.Client(base_url=url, headers=headers, timeout=60) as http:
            stored = http.post("/api/memory/remember", json=fact)
            asked = {"query": "oolong"}
            recalled = http.post("/api/memory/recall", json=asked)
            key = f"read only: {read_only}"
            body = {"harness": "t", "sessionKey": key, "project": "/alpha", "userMessage": "Which tea?"}
            shown = http.post("/api/hooks/user-prompt-submit", json=body).json()
    assert stored.status_code == 403
    assert "I like oolong" in [found["content"] for found in recalled.json()["results"]]
    assert "oolong" in shown["inject"]
    assert shown["warnings"] == []


@pytest.mark.thorough
async def test_a_signal_as_soon_as_it_says_that_it_serves_ends_it(tmp_path):
    loaded = load_config(write(tmp_path, {}, scope={"run_id": "r", "persona_id": "ada"}))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with anyio.fail_after(30):
            await serve(
                loaded, settings_of(loaded, None, None), lambda _: signal.raise_signal(signal.SIGTERM)
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.thorough
def test_a_client_that_hangs_up_unanswered_is_recorded_all_the_same(tmp_path):
    config = write(tmp_path, {}, scope={"run_id": "r", "persona_id": "ada"})
    with served(config) as (url, _), httpx.Client(base_url=url, timeout=60) as http:
        address = httpx.URL(url)
        body = json.dumps({"harness": "t", "userMessage": "My bike is red."}).encode()
        head = f"POST /api/hooks/user-prompt-submit HTTP/1.1\r\nhost: {address.netloc.decode()}\r\n"
        with socket.create_connection((address.host, address.port)) as line:
            line.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            line.shutdown(socket.SHUT_WR)
            while line.recv(1000):
                pass
        with socket.create_connection((address.host, address.port)) as line:  # and one in mid-body
            line.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:10])
        found = http.post("/api/memory/recall", json={"query": "bike"}).json()["results"]
        for _ in range(600):
            if found:
                break
            time.sleep(0.05)
            found = http.post("/api/memory/recall", json={"query": "bike"}).json()["results"]
        assert [row["content"] for row in found] == ["My bike is red."]


@pytest.mark.parametrize(
    ("serve", "options", "said"),
    [
        ({}, ["--host", "0.0.0.0"], "set serve.tokens first"),
        ({"host": "nowhere.invalid"}, [], "set serve.tokens first"),
        ({"host": "203.0.113.1", "tokens": [{"token": "x" * 16, "persona_id": "a"}]}, [], "cannot listen"),
        ({"tokens": [{"token": "short", "persona_id": "a"}]}, [], "at least 16 characters"),
        ({"tokens": [{"token": "${UNSET_TOKEN}", "persona_id": "a"}]}, [], "UNSET_TOKEN"),
        ({"tokens": [{"token": "x" * 16, "persona_id": "a"}] * 2}, [], "two of them are the same"),
        ({"prot": 1}, [], "did you mean port"),
        ({"policy": {"recall": 1}}, [], "serve.policy.recall"),
        ({"policy": {"recall_s": 0}}, [], "recall_s"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(tmp_path, serve, options, said):
    config = write(tmp_path, serve, scope={"run_id": "r", "persona_id": "ada"})
    done = invoke("serve", config, *options)
    assert done.exit_code == 2
    assert said in done.output
    assert "x" * 16 not in done.output
    assert not (tmp_path / "kept").exists()


def test_whose_memory_it_is_must_be_said(tmp_path):
    done = invoke("serve", str(write(tmp_path, {})))
    assert (done.exit_code, "memory.scope" in done.output) == (2, True)


@pytest.mark.thorough
def test_other_commands_need_no_token(tmp_path):
    config = write(tmp_path, {"tokens": [{"token": "${UNSET_TOKEN}", "persona_id": "a"}]})
    assert invoke("tools", "config", "show", config).exit_code == 0


def test_an_answer_in_two_parts_waits_for_no_acknowledgement():
    """Each turn of an agent that keeps its connection would take 40 ms longer."""
    with listening_socket("127.0.0.1", 0, field="port") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
