"""Breaking a live server from outside: its scripted model, and its processes.

``MODEL_CONTROL`` names the switch of the model: it takes a POST of ``{"do": "fail", "kind": "500"}`` and of
``{"do": "ok"}``. ``RESTART`` is a command that kills the server's processes and starts them again.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

CONTROL = os.environ.get("MODEL_CONTROL")
RESTART = os.environ.get("RESTART")

needs_control = pytest.mark.skipif(not CONTROL, reason="MODEL_CONTROL names no switch of a scripted model")


@contextmanager
def model_fails(kind: str) -> Iterator[None]:
    """The chat model fails with every request."""
    _order(do="fail", kind=kind, endpoint="chat/completions")
    try:
        yield
    finally:
        _order(do="ok")


async def restart() -> None:
    """Kill the server's processes and start them again, where a command for that is named."""
    if RESTART:
        await anyio.run_process(RESTART)


def _order(**order: str) -> None:
    assert CONTROL is not None
    request = urllib.request.Request(CONTROL, json.dumps(order).encode(), method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        assert answer.status == 200
