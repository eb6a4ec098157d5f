"""A reset of a memory that lives on a server, killed at every request it makes, with every kind of answer.

The servers are the wire-level models, in this process; whoever resets is a process of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from backends import double
from said import said, wanted

from memory import BackendError, BackendUnavailable, MemoryScope, SupportsReadiness, open_memory
from memory.adapter import BackendRejected
from memory.adapter.http import JsonHttp

pytestmark = pytest.mark.thorough

HonchoDouble = double("honcho_double", "HonchoDouble")
MemosDouble = double("memos_double", "MemosDouble")
StigmemDouble = double("stigmem_double", "StigmemDouble")
ADMIN_KEY = double("stigmem_node_model", "ADMIN_KEY")

ADA = MemoryScope(run_id="r", persona_id="ada")
WORDS = ("oolong", "passport")
EVENTS = [
    said(ADA, f"I keep the {word} in the blue drawer.", number=at, session_id=f"s{at}")
    for at, word in enumerate(WORDS, 1)
]
ANSWERS = ("not sent", "done", "no answer", "refused")


@contextmanager
def server_of(backend):
    """The options for a server of the backend, while it runs."""
    if backend == "honcho":
        with HonchoDouble() as honcho:
            yield {"base_url": honcho.url, "quiet_period_s": 0.05, "poll_s": 0.005, "retry_pause_s": 0.01}
    elif backend == "memos":
        with MemosDouble() as memos:
            yield {"url": memos.url, "graph_db": memos.model.graph_db, "idle_timeout_s": 20}
    else:
        with StigmemDouble(auth=True, multi_tenant=True) as stigmem:
            yield {"url": stigmem.url, "api_key": ADMIN_KEY}


async def shown(slot):
    """The words that a question finds, once everything written is derived."""
    readiness = slot.capability(SupportsReadiness)
    while readiness is not None and (await readiness.readiness(ADA)).state == "pending":  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    question = f"Where do I keep the {' and the '.join(WORDS)}?"
    context = (await slot.retrieve(wanted(question, ADA))).formatted_context
    return [word for word in WORDS if word in context]


async def reset_and_die(config, number, answer):
    """Write, reset, and be gone at a request of the reset: before it, behind it, or when its failure was heard."""
    async with open_memory(json.loads(config)) as slot:
        for event in EVENTS:
            await slot.record_event(event)
        assert await shown(slot) == list(WORDS)
        left = int(number)
        ask = JsonHttp.request

        async def request(http, method, path, **given):
            nonlocal left
            left -= 1
            if left != 0:
                return await ask(http, method, path, **given)
            if answer == "not sent":
                os._exit(9)
            if answer == "refused":
                raise BackendRejected("refused", backend_name="test", diagnostics={"status": 400})
            try:
                await ask(http, method, path, **given)
            finally:
                if answer == "done":
                    os._exit(9)
            raise BackendUnavailable("no answer", backend_name="test")

        JsonHttp.request = request
        try:
            await slot.reset_scope(ADA)
        except BackendError:
            assert left <= 0
        os._exit(9 if left <= 0 else 8)


CHILD = "import sys, asyncio; from test_remote_resets import reset_and_die as run; asyncio.run(run(*sys.argv[1:]))"


def config_of(backend, options, directory):
    scope = {"run_id": "r", "persona_id": "ada"}
    kept = {"data_dir": str(directory), "journal": True, "scope": scope}
    return {"memory": {"backend": backend, "backends": {backend: options}, **kept}}


def killed(config, number, answer):
    """Whether the reset made so many requests."""
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    died = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(config), str(number), answer],
        env={**os.environ, "PYTHONPATH": places},
        check=False,
        stderr=subprocess.PIPE,
    )
    assert died.returncode in (8, 9), died.stderr.decode()
    return died.returncode == 9


async def check(config, answer):
    """No erased word is found, and no receipt lies."""
    async with open_memory(config) as slot:
        found = await shown(slot)
        if answer == "refused" and found:
            assert found == list(WORDS), "a reset that was refused has cleared a part"
        else:
            assert found == []
        for event in EVENTS:
            assert (await slot.record_event(event)).status in ("committed", "queued")
        assert await shown(slot) == list(WORDS)
        await slot.reset_scope(ADA)
        assert await shown(slot) == []


@pytest.mark.parametrize("backend", ["honcho", "memos", "stigmem"])
def test_no_erased_word_is_found_and_no_receipt_lies(backend, tmp_path):
    number, reached = 0, True
    while reached:
        number += 1
        # A quarter of them, or with a thousand rounds every answer at every request.
        for answer in (
            ANSWERS if int(os.environ.get("MEMSLOT_ROUNDS", "0")) >= 1000 else ANSWERS[number % 4 :][:1]
        ):
            directory = tmp_path / f"{number} {answer}"
            directory.mkdir()
            with server_of(backend) as options:
                config = config_of(backend, options, directory)
                reached = killed(config, number, answer)
                if reached:
                    asyncio.run(check(config, answer))
    assert number > 4
