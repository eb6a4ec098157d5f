"""What the adapter relies on in ``honcho-ai``, held against the installed version.

Each call is made twice: by the adapter's clients, and by the SDK left to itself. What is sent must be the same, but
for the workspace, which the SDK makes before everything.
"""

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import honcho
import pytest
from honcho import Honcho, Peer, Session
from honcho.api_types import (
    ConclusionResponse,
    MessageResponse,
    PeerConfig,
    PeerContextResponse,
    QueueStatusResponse,
)
from honcho.http import AsyncHonchoHTTPClient
from honcho.pagination import AsyncPage
from honcho.session_context import SessionContext, Summary
from honcho_double import HonchoDouble

from memory.backends.honcho.client import Connections, Transport
from memory.backends.honcho.options import HonchoOptions

Call = Callable[[Any], Awaitable[Any]]
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def user(client):
    return Peer("ada", client)


def session(client):
    return Session("s1", client)


CALLS = {
    "peer": lambda client: client.aio.peer("bot", configuration=PeerConfig(observe_me=False)),
    "peer with metadata": lambda client: client.aio.peer("ada", metadata={"persona_id": "ada"}),
    "session": lambda client: client.aio.session("s1", metadata={"session_id": "s 1"}),
    "add_messages": lambda client: session(client).aio.add_messages(
        [user(client).message("I like tea.", metadata={"event_id": "e1"}, created_at=NOON)]
    ),
    "context": lambda client: session(client).aio.context(
        summary=True, tokens=500, peer_target="ada", search_query="tea\nwork", search_top_k=3,
        max_conclusions=4,
    ),
    "context of the session": lambda client: session(client).aio.context(summary=False, tokens=500),
    "search": lambda client: client.aio.search("tea", filters={"AND": [{"peer_id": "ada"}]}, limit=3),
    "peer.context": lambda client: user(client).aio.context(
        search_query="tea", search_top_k=3, max_conclusions=4
    ),
    "representation": lambda client: user(client).aio.representation("s1", search_query="tea"),
    "chat": lambda client: user(client).aio.chat("tea?", session="s1", reasoning_level=None),
    "get_card": lambda client: user(client).aio.get_card(),
    "set_card": lambda client: user(client).aio.set_card(["Likes tea"]),
    "queue_status": lambda client: client.aio.queue_status(sender="ada"),
    "messages": lambda client: session(client).aio.messages(filters={"peer_id": "ada"}, size=100),
    "get_message": lambda client: session(client).aio.get_message("MESSAGE"),
    "sessions": lambda client: client.aio.sessions(size=100),
    "conclusions.list": lambda client: client.aio.conclusions.list(size=1, filters={"observed_id": "ada"}),
    "conclusions.delete": lambda client: user(client).conclusions.aio.delete("CONCLUSION"),
    "session.delete": lambda client: session(client).aio.delete(),
}  # fmt: skip


def prepared(double):
    """A message and a conclusion that the calls can name."""
    workspace = double.model.workspace("w")
    said = {"content": "I like rain.", "peer_id": "ada", "metadata": {}}
    double.model.add(workspace, double.model.session(workspace, "s1"), [said])
    double.model.advance(to_the_end=True)
    workspace.sessions["s1"].messages[0]["id"] = "MESSAGE"
    workspace.conclusions[0].id = "CONCLUSION"


async def made(client, double, call):
    prepared(double)
    answer = await call(client)
    return [
        (request.method, request.path, dict(request.params), request.json) for request in double.requests
    ], answer


@pytest.mark.parametrize("name", CALLS)
async def test_what_is_sent_is_what_the_sdk_sends(name):
    with HonchoDouble() as double:
        connections = Connections(HonchoOptions(base_url=double.url), "honcho")
        ours, answer = await made(connections.client("w", reads=True), double, CALLS[name])
        await connections.aclose()
    with HonchoDouble() as double:
        client = Honcho(base_url=double.url, workspace_id="w", max_retries=0)
        theirs, expected = await made(client, double, CALLS[name])
        await client._async_http_client.close()
        client._http.close()
    assert theirs[0] == ("POST", "/v3/workspaces", {}, {"id": "w"})
    assert ours == theirs[1:]
    assert type(answer) is type(expected)


@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
def test_the_transport_takes_what_the_sdk_passes(method):
    theirs = inspect.signature(getattr(AsyncHonchoHTTPClient, method)).parameters
    ours = inspect.signature(Transport.request).parameters
    assert set(theirs) <= set(ours)


def test_private_attributes_are_still_what_they_were():
    client = Honcho(base_url="http://127.0.0.1:1", workspace_id="w")
    assert client._async_http is None
    assert client._workspace_ensured is False
    transport = object()
    client._async_http = transport
    assert client._async_http_client is transport
    client._http.close()


def test_models_have_the_fields_that_are_read():
    fields = {
        MessageResponse: {"id", "content", "peer_id", "session_id", "workspace_id", "metadata", "created_at"},
        ConclusionResponse: {"id", "content", "level", "session_id", "observed_id", "created_at"},
        SessionContext: {"messages", "summary", "peer_representation", "peer_card"},
        Summary: {"content", "message_id", "summary_type"},
        PeerContextResponse: {"representation", "peer_card"},
        QueueStatusResponse: {"total_work_units", "pending_work_units", "in_progress_work_units"},
    }
    for model, names in fields.items():
        assert names <= set(model.model_fields), model
    for name in ("items", "total", "get_next_page"):
        assert hasattr(AsyncPage, name)


def test_the_version_is_one_that_was_run():
    assert version("honcho-ai").split(".")[:2] >= ["2", "7"]
    assert honcho.Honcho is Honcho
