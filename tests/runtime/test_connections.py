"""Half requests cost nobody else: connections of the server are bounded in number and in time."""

import socket
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio
import anyio.to_thread
import httpx
import pytest
import uvicorn
from signet_support import BASE, daemon

from memory import MemoryScope
from memory.runtime import listening_socket

HALF = b"POST /api/hooks/session-start HTTP/1.1\r\nhost: x\r\n"


@asynccontextmanager
async def listening(**options):
    async with daemon(**options) as signet:
        with listening_socket("127.0.0.1", 0, field="port") as listener:
            config = uvicorn.Config(signet.server.app, lifespan="off", log_level="critical")
            server = uvicorn.Server(config)
            server.install_signal_handlers = lambda: None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                try:
                    yield "127.0.0.1", listener.getsockname()[1]
                finally:
                    server.should_exit = True


@contextmanager
def lines(address, count, sent):
    opened = [socket.create_connection(address, timeout=20) for _ in range(count)]
    try:
        for line in opened:
            with suppress(OSError):
                line.sendall(sent)
        yield opened
    finally:
        for line in opened:
            line.close()


@pytest.mark.parametrize("trickle", [b"content-length: 100\r\n\r\n{"])
async def test_one_token_leaves_room_for_others(trickle):
    tokens = {"of-ada": BASE, "of-eve": MemoryScope(run_id="r", persona_id="eve")}
    async with listening(tokens=tokens, max_requests=6) as address:
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


def test_an_answer_in_two_parts_waits_for_no_acknowledgement():
    """Each turn of an agent that keeps its connection would take 40 ms longer."""
    with listening_socket("127.0.0.1", 0, field="port") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
