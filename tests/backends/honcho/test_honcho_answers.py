"""Answers that are no answers: nothing, the wrong shape, another workspace's records, the same record twice."""

import json

import pytest
from both_loops import anyio_backend as anyio_backend
from honcho_support import ADA, ask, event, slot_on, stored

from memory import SupportsReadiness
from memory.adapter import BackendProtocolError
from memory.testing import LoopbackAnswer


def _answering(double, monkeypatch, path, change):
    """Change what the routes that end with ``path`` answer."""
    handle = double.handle

    def changed(request):
        answer = handle(request)
        if not request.path.endswith(path):
            return answer
        body = answer.body if not isinstance(answer.body, (bytes, str)) else json.loads(answer.body)
        return LoopbackAnswer(answer.status, change(body))

    monkeypatch.setattr(double, "handle", changed)


@pytest.mark.parametrize("body", [None, [], {}, "", 0])
async def test_a_server_that_answers_nothing_is_not_well(double, monkeypatch, body):
    async with slot_on(double) as slot:
        _answering(double, monkeypatch, "", lambda _: body)
        assert (await slot.health()).status == "unavailable"


@pytest.mark.parametrize("body", [None, [], "text"])
async def test_an_answer_of_the_wrong_shape_names_its_route(double, monkeypatch, body):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        _answering(double, monkeypatch, "/context", lambda _: body)
        with pytest.raises(BackendProtocolError, match=r"GET /v3/workspaces/\{id\}/sessions/\{id\}/context"):
            await ask(slot)
        _answering(double, monkeypatch, "/queue/status", lambda _: body)
        readiness = slot.capability(SupportsReadiness)
        assert readiness is not None
        with pytest.raises(BackendProtocolError, match="queue/status"):
            await readiness.readiness(ADA)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [{**row, "workspace_id": "another"} for row in rows],
        lambda rows: [{**row, "session_id": "another"} for row in rows],
        lambda rows: None,
        lambda rows: [None for _ in rows],
    ],
)
async def test_a_write_answered_with_other_records_is_looked_up(double, monkeypatch, change):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        _answering(double, monkeypatch, "/messages", change)
        receipt = await slot.record_event(event(2, "I like tea."))
        assert receipt.native_ids, "looked up, and not taken from that answer"
        assert receipt.status == "queued", "what Honcho concludes from it is still to come"
        assert receipt.native_ids == (stored(double)[-1]["id"],)
