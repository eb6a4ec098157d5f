"""Half requests cost nobody else: connections of the server are bounded in number and in time."""

import importlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio
import anyio.to_thread
import httpx
import pytest
import uvicorn
from signet_support import BASE, daemon
from uvicorn.protocols.http import auto

from memory import MemoryScope
from memory.runtime import listening_socket
from memory.runtime._listening import bounded_protocol
from memory.testing._http_server import _bound

HALF = b"POST /api/hooks/session-start HTTP/1.1\r\nhost: x\r\n"


@asynccontextmanager
async def listening(header_s: float, per_address: int, **options: object) -> AsyncIterator[tuple[str, int]]:
    async with daemon(**options) as signet:  # type: ignore[arg-type]
        with listening_socket("127.0.0.1", 0, field="port") as listener:
            config = uvicorn.Config(
                signet.server.app,
                lifespan="off",
                log_level="critical",
                http=bounded_protocol(header_s, per_address),
            )
            server = uvicorn.Server(config)
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                try:
                    yield "127.0.0.1", listener.getsockname()[1]
                finally:
                    server.should_exit = True


@contextmanager
def lines(address: tuple[str, int], count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    opened = [socket.create_connection(address, timeout=20) for _ in range(count)]
    try:
        for line in opened:
            with suppress(OSError):
                line.sendall(sent)
        yield opened
    finally:
        for line in opened:
            line.close()


def closed(line: socket.socket) -> bool:
    try:
        while line.recv(1000):
            pass
        return True
    except ConnectionError:
        return True


async def health(address: tuple[str, int]) -> int:
    async with httpx.AsyncClient(timeout=20) as http:
        return (await http.get(f"http://{address[0]}:{address[1]}/health")).status_code


async def test_a_head_that_never_ends_is_given_up():
    async with listening(0.3, 100) as address:
        with await anyio.to_thread.run_sync(lambda: lines(address, 3, HALF)) as opened:
            started = time.monotonic()
            for line in opened:
                assert await anyio.to_thread.run_sync(closed, line)
            assert time.monotonic() - started < 15
        with lines(address, 1, b"") as (line,):  # and one that never begins
            assert await anyio.to_thread.run_sync(closed, line)


@pytest.mark.parametrize("kind", ["httptools", "h11"])
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"])
async def test_a_head_that_is_too_large_is_given_up(kind, before, monkeypatch):
    pytest.importorskip(kind)
    protocol = {"httptools": "HttpToolsProtocol", "h11": "H11Protocol"}[kind]
    module = importlib.import_module(f"uvicorn.protocols.http.{kind}_impl")
    monkeypatch.setattr(auto, "AutoHTTPProtocol", getattr(module, protocol))
    async with listening(60, 100) as address:
        fits = HALF + b"x: " + b"x" * 20_000 + b"\r\ncontent-length: 90000\r\n\r\n" + b"x" * 90_000
        with lines(address, 1, before + fits) as (line,):
            answers = b""
            while b"HTTP/1.1 4" not in answers:
                answers += await anyio.to_thread.run_sync(line.recv, 1000)
        for head in (b"x: " + b"x" * 400_000, b"x: y\r\n" * 50_000):
            with lines(address, 1, before + HALF + head) as (line,):
                assert await anyio.to_thread.run_sync(closed, line)


async def test_the_head_of_a_further_request_has_its_deadline_too():
    async with listening(0.5, 100) as address:
        with lines(address, 1, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n") as (line,):
            assert (await anyio.to_thread.run_sync(line.recv, 1000)).startswith(b"HTTP/1.1 200")
            line.sendall(HALF)
            assert await anyio.to_thread.run_sync(closed, line)


async def test_one_address_has_so_many_connections_and_no_more():
    async with listening(20, 5) as address:
        with lines(address, 9, HALF) as opened:
            for line in opened[5:]:
                assert await anyio.to_thread.run_sync(closed, line)
        for _ in range(100):
            with suppress(httpx.TransportError):
                assert await health(address) == 200
                break
            await anyio.sleep(0.05)
        else:
            raise AssertionError("closed connections make room")


@pytest.mark.parametrize("trickle", [b"content-length: 100\r\n\r\n{"])
async def test_one_token_leaves_room_for_others(trickle):
    tokens = {"of-ada": BASE, "of-eve": MemoryScope(run_id="r", persona_id="eve")}
    async with listening(20, 100, tokens=tokens, max_requests=6) as address:
        half = HALF + b"authorization: Bearer of-ada\r\n" + trickle
        with lines(address, 6, half):
            url = f"http://{address[0]}:{address[1]}/api/memories"
            async with httpx.AsyncClient(timeout=20) as http:
                for _ in range(100):
                    mine = await http.get(url, headers={"authorization": "Bearer of-ada"})
                    if mine.status_code == 503:
                        break
                    await anyio.sleep(0.02)
                assert mine.status_code == 503
                theirs = await http.get(url, headers={"authorization": "Bearer of-eve"})
                assert theirs.status_code == 200


@pytest.mark.parametrize("kind", ["server", "model of a server"])
def test_an_answer_in_two_parts_waits_for_no_acknowledgement(kind):
    """Each turn of an agent that keeps its connection would take 40 ms longer."""
    address = ("127.0.0.1", 0)
    made = listening_socket(*address, field="port") if kind == "server" else _bound(address)
    with made as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
