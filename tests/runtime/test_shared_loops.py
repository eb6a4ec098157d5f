"""One failure ends no loop that others share: every exception class, thrown into every loop by one item."""

from __future__ import annotations

import asyncio
import builtins
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from signet_support import daemon

from memory import BackendHealth, MemoryEvent, RetrieveRequest, WriteReceipt
from memory.contract import errors
from memory.contract._surviving import Failures
from memory.runtime import ToolCall, ToolContext, ToolRegistry, TurnPolicy
from memory.runtime import _serving as serving
from memory.runtime._circuit import Background
from memory.testing import FakeBackend


def _made(kind: type[BaseException]) -> BaseException:
    if issubclass(kind, BaseExceptionGroup):
        return kind("several", [ValueError("secret")])
    if issubclass(kind, UnicodeDecodeError):
        return kind("utf-8", b"\xff", 0, 1, "secret")
    if issubclass(kind, UnicodeEncodeError):
        return kind("utf-8", "\ud800", 0, 1, "secret")
    if issubclass(kind, UnicodeTranslateError):
        return kind("\ud800", 0, 1, "secret")
    return kind("secret")


BUILT_IN = [
    kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)
]
OURS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
KINDS = list(dict.fromkeys([*BUILT_IN, *OURS, asyncio.CancelledError]))
THROWN = [_made(kind) for kind in KINDS]


class Throwing(FakeBackend):
    """Throws what it is told to, in every call; without that it remembers."""

    thrown: BaseException | None = None

    def _throw(self) -> None:
        if self.thrown is not None:
            raise self.thrown

    async def retrieve(self, request: RetrieveRequest) -> Any:
        self._throw()
        return await super().retrieve(request)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        self._throw()
        return await super().record_event(event)

    async def health(self) -> BackendHealth:
        self._throw()
        return await super().health()


def test_there_are_sixty_classes_and_more() -> None:
    assert len(KINDS) >= 60
    assert {SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError} <= set(KINDS)


@pytest.mark.parametrize("thrown", THROWN, ids=[kind.__name__ for kind in KINDS])
async def test_a_loop_names_and_counts_the_failed_item_and_goes_on(
    thrown: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    done, failures = [], Failures("the loop", logging.getLogger("memslot.test"))
    for item in range(3):
        with failures.survived(f"item {item}"):
            if item == 1:
                raise thrown
            done.append(item)
    assert (done, failures.count) == ([0, 2], 1)
    assert "item 1" in str(failures.last)
    if type(thrown).__module__ != errors.__name__:
        assert "secret" not in caplog.text


async def test_the_cancellation_of_the_loop_itself_passes() -> None:
    failures = Failures("the loop", logging.getLogger("memslot.test"))
    with anyio.move_on_after(0.01) as scope:
        with failures.survived("an item"):
            await anyio.sleep_forever()
        pytest.fail("the loop went on")
    assert scope.cancelled_caught
    assert failures.count == 0


async def test_the_server_answers_on_whatever_its_memory_throws() -> None:
    backend = Throwing()
    async with daemon(backend, TurnPolicy(open_after=10_000, drain_s=1)) as signet:
        for number, thrown in enumerate(THROWN):
            backend.thrown = thrown
            for path, body in (
                ("/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": "tea", "sessionKey": "s"}),
                ("/api/memory/recall", {"query": "tea"}),
                ("/api/memory/remember", {"content": f"note {number}"}),
                ("/api/hooks/session-end", {"harness": "t", "transcript": "User: hello"}),
            ):
                status, answer = await signet.post(path, body)
                assert status < 600
                assert "secret" not in str(answer) or isinstance(thrown, errors.MemslotError)
            await signet.send("GET", "/api/diagnostics")
        backend.thrown = None
        status, answer = await signet.post("/api/memory/remember", {"content": "I like oolong."})
        assert status == 200, answer
        assert (await signet.post("/api/memory/recall", {"query": "oolong"}))[1]["results"]


async def test_tools_and_background_tasks_go_on_whatever_one_throws() -> None:
    class Tool:
        name, description, input_schema = "throw", "", {"type": "object"}
        run_before_generation = False

        async def execute(self, given: Any, context: ToolContext) -> Any:
            raise thrown

    tools, background = ToolRegistry([Tool()]), Background()
    context: Any = None
    for thrown in THROWN:
        result = await tools.execute(ToolCall(id="1", name="throw", arguments={}), context)
        assert result.is_error

        async def work(thrown: BaseException = thrown) -> None:
            raise thrown

        background.start(work)
    with anyio.fail_after(20):
        while background.failures.count < len(THROWN):  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_the_tokens_file_is_watched_on_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens.yaml"
    monkeypatch.setattr(serving, "_LOOK_S", 0.001)
    taken: list[Any] = []

    def write(persona: str) -> None:
        file.write_text(f"tokens: [{{token: {'t' * 20}, persona_id: '{persona}'}}]\n", "utf-8")

    def take(tokens: Any) -> None:
        if tokens[0].persona_id.startswith("raise"):
            raise THROWN[int(tokens[0].persona_id.removeprefix("raise"))]
        serving._grants(tokens, None)
        taken.append(tokens[0].persona_id)

    write("begin")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serving.watch_tokens, file, take)
        with anyio.fail_after(60):
            for number, persona in enumerate(["team*", *(f"raise{n}" for n in range(len(THROWN)))], 1):
                await anyio.sleep(0.005)
                write(persona)
                while caplog.text.count("the former tokens stay") < number:  # noqa: ASYNC110
                    await anyio.sleep(0.002)
            write("ada")
            while not taken:  # noqa: ASYNC110
                await anyio.sleep(0.002)
        tasks.cancel_scope.cancel()
    assert taken == ["ada"]
