"""The agent by HTTP: one POST a turn, its answer as server-sent events, over ``memslot serve``'s application."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
from signet_support import BASE
from slot_support import until

from memory import MemoryScope, MemorySlot, Message
from memory.runtime._conversations import AgentSettings, Conversations
from memory.runtime._policy import TurnMemory, TurnPolicy
from memory.runtime._provider import CompletionChunk, CompletionOptions
from memory.runtime.providers.scripted import ScriptedProvider
from memory.runtime.signet.reach import TokenGrant
from memory.runtime.signet.server import RuntimeAdapterServer
from memory.runtime.signet.settings import ServeSettings
from memory.storage.kept import HostStore
from memory.testing import FakeBackend
from memory.testing._fake_store import FakeNativeStore

TOKENS = {
    "of-ada": TokenGrant(BASE),
    "of-eve": TokenGrant(MemoryScope(run_id="r", persona_id="eve")),
}


class Halting(ScriptedProvider):
    """Streams a word, and the rest once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.resume = anyio.Event()

    async def stream(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> AsyncIterator[CompletionChunk]:
        async for chunk in super().stream(messages, options):
            yield chunk
            await self.resume.wait()


class Talk:
    """A client of one server over one provider."""

    def __init__(self, http: httpx.AsyncClient, server: RuntimeAdapterServer, backend: FakeBackend) -> None:
        self.http = http
        self.server = server
        self.backend = backend

    async def say(self, content: Any, token: str = "", **body: Any) -> tuple[str, list[dict[str, Any]]]:
        """The session's key, and the events of the answer."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await self.http.post("/api/chat", json={"content": content, **body}, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.text.split("\n\n") if line]
        return answer.headers["x-session-key"], [json.loads(line.removeprefix("data: ")) for line in lines]

    async def ask(self, content: str, token: str = "", **body: Any) -> str:
        """The whole answer."""
        _, events = await self.say(content, token, **body)
        assert [event["streaming"] for event in events] == [True] * (len(events) - 1) + [False]
        assert not events[-1]["error"], events
        return str(events[-1]["content"])


@asynccontextmanager
async def talking(
    provider: Any = None,
    store: FakeNativeStore | None = None,
    host_file: Path | None = None,
    **options: Any,
) -> AsyncIterator[Talk]:
    backend = FakeBackend(store)
    policy = TurnPolicy(exclude_session=True, drain_s=20)
    async with MemorySlot(backend, scope=BASE) as slot, TurnMemory(slot, policy) as memory:
        kept = HostStore("fake", host_file)
        model = provider or ScriptedProvider()
        async with Conversations(model, memory, AgentSettings(), kept) as conversations:
            server = RuntimeAdapterServer(memory, store=kept, agent=conversations, **options)
            transport = httpx.ASGITransport(server.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3850") as http:
                yield Talk(http, server, backend)
        kept.close()


async def test_an_answer_streams_and_the_conversation_goes_on() -> None:
    async with talking() as talk:
        key, events = await talk.say("My favourite tea is oolong.")
        assert [event["content"] for event in events] == ["Understood.", "Understood."]
        assert [event["streaming"] for event in events] == [True, False]
        assert "oolong" in await talk.ask("Which tea is my favourite?", sessionKey="another")
        assert len(key) == 32


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    native, file, model = FakeNativeStore(), tmp_path, ScriptedProvider()
    async with talking(model, native, file) as talk:
        await talk.ask("My bike is red.", sessionKey="s")
    async with talking(model, native, file) as talk:
        await talk.ask("What did I say?", sessionKey="s")
        shown, _ = model.requests[-1]
        assert [message.content for message in shown] == ["My bike is red.", "Understood.", "What did I say?"]


async def test_what_a_reset_erased_is_shown_and_kept_by_no_conversation(tmp_path: Path) -> None:
    model = Halting()
    async with talking(model, host_file=tmp_path) as talk:
        slot, store = talk.server.endpoints.memory.slot, talk.server.store
        model.resume.set()
        await talk.ask("My bike is red.", sessionKey="s")
        await slot.reset_scope(BASE)
        await talk.ask("What did I say?", sessionKey="s")
        shown, _ = model.requests[-1]
        assert [message.content for message in shown] == ["What did I say?"]
        assert "bike" not in str(store.get("conversation", BASE, "s"))
        model.resume = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(talk.ask, "My boat is blue.", sessionKey="s"))
            await until(lambda: "boat" in str(model.requests[-1]))
            await slot.reset_scope(BASE)
            model.resume.set()
        assert "boat" not in str(store.get("conversation", BASE, "s"))


async def test_a_client_that_leaves_in_mid_answer_leaves_the_turn_recorded() -> None:
    model = Halting()
    async with talking(model) as talk:
        asked = json.dumps({"content": "My bike is red.", "sessionKey": "s"}).encode()
        sent: list[dict[str, Any]] = []
        inbox = [{"type": "http.request", "body": asked, "more_body": False}]
        left = anyio.Event()

        async def receive() -> dict[str, Any]:
            if inbox:
                return inbox.pop(0)
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(dict(message))
            if b"Understood" in message.get("body", b""):
                left.set()

        request = httpx.Request("POST", "http://127.0.0.1:3850/api/chat")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/api/chat", "raw_path": b"/api/chat", "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 3850),
        }  # fmt: skip
        with anyio.fail_after(30):
            await talk.server.app(scope, receive, send)
        assert not any(b'"streaming":false' in message.get("body", b"") for message in sent)
        model.resume.set()
        # A second turn waits for the first, which is whole in the conversation and in the memory.
        await talk.ask("And now?", sessionKey="s")
        assert [message.content for message in model.requests[-1][0]] == [
            "My bike is red.",
            "Understood.",
            "And now?",
        ]
        await until(lambda: len(talk.backend.store.rows) == 4)
        texts = [row.text for row in talk.backend.store.rows.values()]
        assert texts[:2] == ["My bike is red.", "Understood."]


async def test_two_turns_of_one_conversation_come_one_after_the_other() -> None:
    model = ScriptedProvider()
    async with talking(model) as talk, anyio.create_task_group() as tasks:
        for text in ("one.", "two.", "three."):
            tasks.start_soon(lambda text: talk.ask(text, sessionKey="s"), text)
    assert [len(shown) for shown, _ in model.requests] == [1, 3, 5]


async def test_a_token_reaches_no_other_conversation() -> None:
    model = ScriptedProvider()
    async with talking(model, tokens=TOKENS) as talk:
        await talk.ask("the iguana Rex", "of-ada", sessionKey="s")
        answer = await talk.ask("What was the iguana called?", "of-eve", sessionKey="s")
        shown, options = model.requests[-1]
        assert len(shown) == 1
        assert "Rex" not in f"{options.system_prompt} {answer}"
        await talk.ask("What was the iguana called?", "of-ada", sessionKey="s", project="/p")
        shown, options = model.requests[-1]
        assert (len(shown), "Rex" in str(options.system_prompt)) == (1, False), "a project has its own"
        status = (await talk.http.post("/api/chat", json={"content": "x"})).status_code
        assert status == 401


async def test_a_model_that_fails_is_an_error_in_the_stream_and_the_conversation_lives_on() -> None:
    model = ScriptedProvider([RuntimeError("secret words"), "Here again."])
    async with talking(model) as talk:
        _, events = await talk.say("My bike is red.", sessionKey="s")
        assert [event["error"] for event in events] == ["the model gave no answer: RuntimeError"]
        assert await talk.ask("Hello?", sessionKey="s") == "Here again."


async def test_limits_and_malformed_turns_are_answered_before_the_stream() -> None:
    model = Halting()
    settings = ServeSettings(longest_prompt=50, max_requests=1)
    async with talking(model, settings=settings) as talk:
        for body, wanted in (
            ({}, 400),
            ({"content": " "}, 400),
            ({"content": 1}, 400),
            ({"content": "x" * 51}, 413),
            ({"content": "x", "sessionKey": "k" * 600}, 400),
            ({"content": "x", "attachments": "no"}, 400),
            ({"content": "x", "attachments": [{"name": "a"}]}, 400),
            ({"content": "x", "metadata": []}, 400),
        ):
            answer = await talk.http.post("/api/chat", json=body)
            assert (answer.status_code, set(answer.json())) == (wanted, {"error"}), body
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.ask, "hi")
            await until(lambda: bool(model.requests))
            answer = await talk.http.post("/api/chat", json={"content": "hi"})
            assert answer.status_code == 503, "an answer being streamed is a request in work"
            model.resume.set()


async def test_without_an_agent_it_is_said() -> None:
    async with MemorySlot(FakeBackend(), scope=BASE) as slot, TurnMemory(slot) as memory:
        transport = httpx.ASGITransport(RuntimeAdapterServer(memory).app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3850") as http:
            answer = await http.post("/api/chat", json={"content": "hi"})
    assert (answer.status_code, "agent: block" in answer.json()["error"]) == (404, True)
