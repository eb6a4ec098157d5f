"""The client of a Signet daemon: the recorded pairs, played back on the loopback; and the parity table."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from cli_support import invoke
from signet_support import daemon, pair

from memory import BackendError, BackendUnavailable, ConfigError
from memory.runtime.signet.client import DEFAULT_URL, AdapterClient, create_adapter
from memory.runtime.signet.endpoints import parity
from memory.runtime.signet.types import (
    CompactionCompleteParams,
    PreCompactionParams,
    PromptSubmitParams,
    RuntimeAdapter,
    SessionEndParams,
    SessionStartParams,
)
from memory.testing import LoopbackAnswer, LoopbackRequest
from memory.testing._http_server import HttpServer

PROJECT, KEY = "/home/user/proj", "sess-1"
HELIX = "41d677da-93ab-4828-8d8c-8d11ef60dd90"


class ScriptedServer(HttpServer):
    """Answers each request with the next answer it was given."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.asked: list[LoopbackRequest] = []

    def respond(self, request):
        self.asked.append(request)
        return self.answers.pop(0)


def recorded(name):
    answer = pair(name)["response"]
    return LoopbackAnswer(answer["status"], answer["body"])


Call = Callable[[AdapterClient], Awaitable[Any]]
CALLS = {
    "01": lambda c: c.on_session_start(
        SessionStartParams(
            project=PROJECT, session_key=KEY, agent_id="default", context="hello", runtime_path="plugin"
        )
    ),
    "06": lambda c: c.on_user_prompt_submit(
        PromptSubmitParams(
            project=PROJECT,
            session_key=KEY,
            user_message="which helix editor does user_a prefer for python work?",
            last_assistant_message="hi",
        )
    ),
    "08": lambda c: c.on_pre_compaction(
        PreCompactionParams(session_key=KEY, message_count=42, session_context="talked about editors")
    ),
    "09": lambda c: c.on_compaction_complete(
        CompactionCompleteParams(session_key=KEY, summary="User discussed editors; prefers zed.")
    ),
    "32": lambda c: c.on_session_end(SessionEndParams(session_key="sB", reason="clear")),
    "03": lambda c: c.remember(
        "[editor,python]: user_a prefers the helix editor for python work",
        who="user_a",
        project=PROJECT,
        sessionKey=KEY,
        idempotencyKey="evt-1",
        runtimePath="plugin",
    ),
    "04": lambda c: c.recall("helix editor python", limit=5),
    "05": lambda c: c.get(HELIX),
    "07": lambda c: c.modify(
        [
            {
                "id": HELIX,
                "content": "user_a prefers the zed editor for python work",
                "reason": "corrected",
                "if_version": 1,
            }
        ]
    ),
    "11b": lambda c: c.run_with_secrets(
        "printf '%s|%s' \"$MY_ENV\" ok; printf err >&2; exit 3", {"MY_ENV": "DEMO_KEY"}
    ),
    "00": lambda c: c.health(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_sends_what_was_recorded_and_reads_the_answer(name):
    asked = pair(name)["request"]
    with ScriptedServer(recorded(name)) as server:
        async with AdapterClient(server.url, harness="nanobot") as client:
            result = await CALLS[name](client)
        request = server.asked[0]
    assert (request.method, request.path) == (asked["method"], asked["path"])
    assert request.json == asked["body"]
    assert request.headers["x-signet-runtime-path"] == "plugin"
    expected = pair(name)["response"]["body"]
    if name == "01":
        assert (result.identity, result.inject) == (expected["identity"], expected["inject"])
    if name == "06":
        assert (result.memory_count, result.query_terms) == (1, expected["queryTerms"])
    if name == "08":
        assert result.guidelines == expected["guidelines"]
    if name == "09":
        assert (result.success, result.memory_id) == (True, expected["memoryId"])
    if name == "03":
        assert result == expected["id"]
    if name in ("04", "07"):
        assert result == expected["results"]
    if name in ("00", "05", "11b"):
        assert result == expected


async def test_an_empty_recall_is_known_by_its_count_not_its_text():
    with ScriptedServer(recorded("02")) as server:
        async with AdapterClient(server.url, harness="t") as client:
            result = await client.on_user_prompt_submit(PromptSubmitParams(user_message="which editor?"))
    assert result.inject
    assert result.memory_count == 0


async def test_a_failed_item_is_told_in_its_row_and_a_missing_memory_is_none():
    with ScriptedServer(recorded("07b"), recorded("10d"), recorded("05b"), recorded("05c")) as server:
        async with AdapterClient(server.url, harness="t") as client:
            assert (await client.modify([{"id": "x"}], "r"))[0]["status"] == "version_conflict"
            assert (await client.forget(["x"], "r"))[0]["status"] == "pinned_requires_force"
            assert await client.get("nope") is None
            assert await client.get(HELIX) is None
        assert server.asked[1].json["mode"] == "execute"


async def test_the_job_of_a_later_daemon_is_returned():
    job = {"jobId": "j/1", "status": "pending"}
    with ScriptedServer(LoopbackAnswer(202, job)) as server:
        async with AdapterClient(server.url, harness="t") as client:
            assert await client.run_with_secrets("true", {}) == job


@pytest.mark.parametrize(
    "answer",
    [
        LoopbackAnswer(200, "hello"),
        LoopbackAnswer(200, b"\xff"),
        LoopbackAnswer(200, [1]),
        LoopbackAnswer(200, b"[" * 100_000),
        LoopbackAnswer(200, {"results": {}}),
        LoopbackAnswer(200, {}),
        LoopbackAnswer(200, {"results": []}, send=5),
        None,
        LoopbackAnswer(302, {}, {"location": "/elsewhere"}),
        LoopbackAnswer(500, {"error": "planted secret"}),
    ],
)
async def test_a_daemon_that_answers_nonsense_is_a_clear_error(answer):
    with ScriptedServer(answer) as server:
        async with AdapterClient(server.url, harness="t", timeout_s=20) as client:
            with pytest.raises(BackendError) as caught:
                await client.recall("planted secret")
        assert len(server.asked) == 1
    assert "planted" not in f"{caught.value} {caught.value.diagnostics}"


async def test_nobody_there_is_unavailable():
    with ScriptedServer() as server:
        url = server.url
        with server.down():
            async with AdapterClient(url, harness="t") as client:
                with pytest.raises(BackendUnavailable):
                    await client.health()


async def test_the_token_leaves_this_machine_encrypted_or_not_at_all():
    for url in ("http://memory.example:3850", "http://localhost.evil.example", "http://10.0.0.1"):
        with pytest.raises(ConfigError, match="use an https address"):
            AdapterClient(url, harness="t", token="sk-1")
    assert AdapterClient("https://memory.example:3850", harness="t", token="sk-1")
    with ScriptedServer(recorded("00")) as server:
        async with AdapterClient(server.url, harness="t", token="sk-1") as client:
            await client.health()
        assert server.asked[0].headers["authorization"] == "Bearer sk-1"


def test_an_adapter_is_a_runtime_adapter():
    adapter = create_adapter("openclaw")
    assert isinstance(adapter, RuntimeAdapter)
    assert (adapter.harness, adapter.url) == ("openclaw", "http://127.0.0.1:3850")


@pytest.fixture
async def routes():
    async with daemon() as signet:
        yield {f"{method} {path}" for method, path in await signet.routes()}


async def test_the_parity_table_says_what_is_there(routes):
    rows = parity()
    assert {
        row.endpoint for row in rows if row.endpoint.startswith(("GET", "POST", "PATCH", "DELETE"))
    } == routes
    absent = [row.endpoint for row in rows if row.server == "absent"]
    assert not [path for path in absent if any(f" {path}" in route for route in routes)]
    for row in rows:
        assert (
            hasattr(AdapterClient, row.method) == (row.client != "absent")
            if row.method
            else row.client == "absent"
        )
        assert row.reason or (row.client, row.server) == ("covered", "covered"), row
    methods = ", ".join(filter(None, (row.sdk for row in rows))).split(", ")
    assert len(methods) == len(set(methods)) == 133, "every method of the SDK stands in one row"


def test_parity_is_printed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    done = invoke("tools", "signet", "parity", "--json")
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)) == len(parity())
    plain = invoke("tools", "signet", "parity")
    assert all(row.endpoint in plain.stdout for row in parity() if " " in row.endpoint)


async def test_no_address_means_the_daemon_of_this_machine():
    async with create_adapter("x", None) as client:
        assert client.url == DEFAULT_URL
