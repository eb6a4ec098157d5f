"""rolling_summary with a language model: the scripted one, over real HTTP on the loopback."""

import json
import logging

import pytest
from variants import plain

from conditions import rolling_summary
from memory import (
    ContextBudget,
    MemoryScope,
    NativeQueryRequest,
    RetrieveRequest,
    SupportsNativeQuery,
    SupportsReadiness,
    open_memory,
)
from memory.adapter._scripted_rules import ToolCall
from memory.testing import FAKE_KEY, ScriptedLLM
from memory.testing._scripted_api import BadRequest

ALICE = MemoryScope(run_id="run", persona_id="alice")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 0.0)


def config(llm, timeout_s=5.0, **options):
    endpoint = {"base_url": llm.base_url, "model": "scripted", "api_key": FAKE_KEY, "timeout_s": timeout_s}
    block = {"summariser": "llm", "llm": endpoint, **options}
    return {"memory": {"condition": "rolling_summary", "conditions": {"rolling_summary": block}}}


async def ready(slot):
    readiness = slot.capability(SupportsReadiness)
    return await readiness.wait_until_ready(ALICE, 10)


async def ask(slot):
    request = RetrieveRequest(query="?", scope=ALICE, session_id="t", budget=ContextBudget())
    return await slot.retrieve(request)


async def history(slot):
    query = slot.capability(SupportsNativeQuery)
    answer = await query.native_query(NativeQueryRequest(scope=ALICE, operation="history"))
    return list(answer.raw)


async def test_the_model_rewrites_the_memory(llm):
    async with open_memory(config(llm), scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto. How are you?", assistant="Fine.")
        await slot.after_turn(session_id="s2", user="My boat is called Wren.")
        assert (await ready(slot)).state == "ready"
        result = await ask(slot)
        entries = await history(slot)
    assert result.raw["memory"] == "- I live in Porto.\n- My boat is called Wren."
    assert "I live in Porto." in result.formatted_context
    assert result.raw["summariser"] == "llm scripted"
    assert result.raw["consolidations"] == 2
    assert not any("extractive" in warning for warning in result.trace.warnings)
    assert ["I live in Porto." in entry for entry in entries] == [True, False]


async def test_what_the_model_is_sent(llm):
    async with open_memory(config(llm, max_tokens=777), scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto.", assistant="Noted.")
        await slot.after_turn(session_id="s2", user="My boat is called Wren.")
        await ready(slot)
    first, second = llm.bodies("chat/completions")
    asked = first["response_format"]["json_schema"]
    assert asked["schema"]["required"] == ["history_entry", "memory_update"]
    assert "tools" not in first
    assert first["temperature"] == 0.0
    assert first["max_tokens"] == 9024
    assert "777" in first["messages"][0]["content"]
    prompt = first["messages"][1]["content"]
    assert prompt.startswith("## Current Long-term Memory\n(empty)\n\n## Conversation to Process\n[")
    assert "] USER: I live in Porto.\n[" in prompt
    assert prompt.endswith("] ASSISTANT: Noted.")
    assert "## Current Long-term Memory\n- I live in Porto.\n\n" in second["messages"][1]["content"]
    assert "Noted." not in second["messages"][1]["content"]


@pytest.mark.parametrize(("given", "sent"), [({"max_tokens": None}, None), ({"max_tokens": 99}, 99)])
async def test_a_given_limit_is_sent_and_null_sends_none(llm, given, sent):
    settings = config(llm)
    settings["memory"]["conditions"]["rolling_summary"]["llm"] |= given
    async with open_memory(settings, scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto.")
        await ready(slot)
    (body,) = llm.bodies("chat/completions")
    assert body.get("max_tokens") == sent
    assert ("max_tokens" in body) == (sent is not None)


def refuses(*what):
    """A server that knows neither of these fields and values."""

    def rule(request):
        by_schema = request.schema_name == "save_memory"
        if ("schema" in what and by_schema) or (request.forced_tool is not None and "required" in what):
            raise BadRequest("this is not supported")
        return None

    return rule


@pytest.mark.parametrize(("refused", "way"), [(("schema",), "required"), (("schema", "required"), "auto")])
async def test_a_server_is_asked_in_the_way_it_accepts(refused, way):
    with ScriptedLLM(rules=[refuses(*refused)]) as llm:
        async with open_memory(config(llm), scope=ALICE) as slot:
            await slot.after_turn(session_id="s1", user="I live in Porto.")
            assert (await ready(slot)).state == "ready"
            await slot.after_turn(session_id="s2", user="My boat is called Wren.")
            assert (await ready(slot)).state == "ready"
            assert "My boat is called Wren." in (await ask(slot)).raw["memory"]
        choices = [body.get("tool_choice") for body in llm.bodies("chat/completions")]
    assert choices[-2:] == [way, way], "asked once, then known"
    assert len(choices) == 2 + len(refused)


@pytest.mark.parametrize(
    "wrap", ["```json\n{}\n```", "<think>hm {{</think>{}", "Here it is: {} Done.", "[{}]"]
)
async def test_json_in_the_text_counts_where_the_tool_was_not_called(wrap):
    """llama.cpp ignores tools that it does not know, and small models write the call as text."""
    saved = {"history_entry": "[2026-01-01 10:00] ok", "memory_update": "- I live in Porto."}
    text = wrap.replace("{{", "{").replace("{}", json.dumps({"name": "save_memory", "arguments": saved}))
    with ScriptedLLM(rules=[refuses("schema", "required"), lambda request: text]) as llm:
        async with open_memory(config(llm), scope=ALICE) as slot:
            await slot.after_turn(session_id="s1", user="I live in Porto.")
            assert (await ready(slot)).state == "ready"
            assert (await ask(slot)).raw["memory"] == "- I live in Porto."


async def test_calls_and_tokens_are_counted(llm):
    settings = config(llm)
    settings["memory"]["journal"] = False
    async with open_memory(settings, scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto.")
        receipt = await slot.after_turn(session_id="s2", user="My boat is called Wren.")
    assert receipt.trace.llm_calls == 1
    assert receipt.trace.llm_tokens > 0


async def test_a_failed_summary_is_tried_again_later(llm, monkeypatch):
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 30.0)
    llm.faults.add("bad_content", times=None)
    settings = config(llm)
    settings["memory"]["journal"] = False
    async with open_memory(settings, scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto.")
        for number in range(4):
            await slot.after_turn(session_id="s2", user=f"My boat number {number} is called Wren.")
        readiness = slot.capability(SupportsReadiness)
        state = await readiness.wait_until_ready(ALICE, 0.1)
        health = await slot.health()
    assert len(llm.bodies("chat/completions")) == 1, "not again with the same prompt at once"
    assert state.state == "pending"
    assert "the model's answer holds JSON that is incomplete or malformed" in state.detail
    assert health.status == "degraded"
    assert "the last summary failed: BackendProtocolError: " in health.warnings[0]


FAULTS = {
    "401": "BackendAuthError, HTTP 401",
    "429": "BackendRateLimited, HTTP 429: rate limited",
    "500": "BackendUnavailable, HTTP 500",
    "late": "BackendTimeout",
    "reset": "BackendUnavailable",
    "truncated": "BackendUnavailable",
    "bad_content": "the model's answer holds JSON that is incomplete or malformed",
    "empty": "the model's answer is empty",
    "unreadable": "BackendProtocolError",
}


def timeout_s(fault):
    """Seconds to wait for an answer: few only where none is to come."""
    return 0.2 if fault == "late" else 10.0


@pytest.mark.parametrize("fault", plain("500", "bad_content", of=FAULTS))
async def test_three_faults_archive_the_messages_and_say_why(fault, llm, caplog):
    caplog.set_level(logging.DEBUG)
    llm.faults.add(fault, times=3, delay_s=1.0)
    async with open_memory(config(llm, timeout_s=timeout_s(fault)), scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="Marzipan is my secret.")
        state, result = await ready(slot), await ask(slot)
        entries = await history(slot)
    assert state.state == "failed"
    assert state.detail.startswith("1 message went into the history unsummarised (")
    assert FAULTS[fault] in state.detail
    assert len(entries) == 1
    assert entries[0].endswith("USER: Marzipan is my secret.")
    everything_shown = " ".join(
        (state.detail, caplog.text, json.dumps(result.raw), result.trace.model_dump_json())
    )
    assert "Marzipan" not in everything_shown
    assert FAKE_KEY not in everything_shown


async def test_health_asks_the_endpoint(llm):
    async with open_memory(config(llm), scope=ALICE) as slot:
        health = await slot.health()
        assert (health.status, health.warnings) == ("ok", ())
        assert health.details["summariser"] == "llm scripted"
        llm.faults.add("401")
        refused = await slot.health()
        assert refused.status == "unavailable"
        assert refused.warnings[0].endswith("HTTP 401: check llm.api_key")
        llm.faults.add("reset")
        assert (await slot.health()).status == "unavailable"


async def test_an_endpoint_that_does_not_list_its_models_is_taken_to_work(llm):
    settings = config(llm)
    settings["memory"]["conditions"]["rolling_summary"]["llm"]["base_url"] += "/elsewhere"
    async with open_memory(settings, scope=ALICE) as slot:
        assert (await slot.health()).status == "ok"
    assert [request.path for request in llm.requests] == ["elsewhere/models"]


def answers(**arguments):
    return lambda request: ToolCall("save_memory", arguments) if request.tools else arguments


@pytest.mark.parametrize(
    "arguments",
    [
        {"history_entry": "[2026-01-01 10:00] ok"},
        {"memory_update": "text"},
        {"history_entry": " ", "memory_update": "text"},
    ],
)
async def test_incomplete_tool_calls_are_failures(arguments):
    with ScriptedLLM(rules=[answers(**arguments)]) as llm:
        async with open_memory(config(llm), scope=ALICE) as slot:
            await slot.after_turn(session_id="s1", user="I live in Porto.")
            state = await ready(slot)
    assert state.state == "failed"
    assert "BackendProtocolError" in state.detail


async def test_a_blank_update_does_not_wipe_the_memory(llm):
    async with open_memory(config(llm), scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I live in Porto.")
        await ready(slot)
        llm.rules = (answers(history_entry="[2026-01-01 10:00] ok", memory_update=""), *llm.rules)
        await slot.after_turn(session_id="s2", user="My boat is called Wren.")
        assert (await ready(slot)).state == "failed"
        assert (await ask(slot)).raw["memory"] == "- I live in Porto."


async def test_an_update_that_is_too_long_is_cut_and_the_rest_is_in_the_history():
    lines = [f"- fact number {number}" for number in range(50)]
    rule = answers(history_entry="[2026-01-01 10:00] much", memory_update="\n".join(lines))
    with ScriptedLLM(rules=[rule]) as llm:
        async with open_memory(config(llm, max_tokens=60), scope=ALICE) as slot:
            await slot.after_turn(session_id="s1", user="I live in Porto.")
            await ready(slot)
            kept = (await ask(slot)).raw["memory"].splitlines()
            (entry,) = await history(slot)
    assert 5 < len(kept) < 50
    assert kept == lines[: len(kept)]
    assert entry.splitlines()[1:] == ["[CUT FROM MEMORY]", *lines[len(kept) :]]


async def test_objects_where_text_was_asked_for_are_kept_as_json():
    with ScriptedLLM(rules=[answers(history_entry={"when": "now"}, memory_update={"city": "Pörto"})]) as llm:
        async with open_memory(config(llm), scope=ALICE) as slot:
            await slot.after_turn(session_id="s1", user="I live in Porto.")
            assert (await ready(slot)).state == "ready"
            assert (await ask(slot)).raw["memory"] == '{"city": "Pörto"}'
