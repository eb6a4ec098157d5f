"""Shared by the tests of the MemOS backend: configurations, slots, events, requests."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime

from said import said

from memory import MemoryFeedback, MemoryScope, RetrieveRequest, SupportsReadiness, open_memory
from memory.backends.memos.options import MemosOptions
from memory.backends.memos.translate import Requests

ALICE = MemoryScope(run_id="run1", persona_id="alice")
BOB = MemoryScope(run_id="run1", persona_id="bob")
START = datetime(2024, 3, 1, 9, 30, tzinfo=UTC)


def config(url, **block):
    """A configuration with the block's options as given."""
    return {
        "memory": {"backend": "memos", "backends": {"memos": {"url": url, "graph_db": "postgres", **block}}}
    }


@asynccontextmanager
async def opened(double, *scopes, deadlines=None, **block):
    """An open slot with Alice's scope, and others, set up."""
    block = {"graph_db": double.model.graph_db, "idle_timeout_s": 20, **block}
    settings = config(double.url, **block)
    settings["memory"]["deadlines"] = deadlines or {}
    async with open_memory(settings, scope=ALICE) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
        yield slot


def options(**block):
    """The block's options."""
    return MemosOptions.model_validate({"graph_db": "postgres", **block})


def requests(**block):
    """A builder of requests for the block."""
    return Requests(options(**block))


def event(*texts, scope=ALICE, **fields):
    """An event of user messages."""
    return said(scope, *texts, **{"timestamp": START, **fields})


def question(query="Which tea?", scope=ALICE, **fields):
    """A request."""
    return RetrieveRequest(**{"query": query, "scope": scope, "session_id": "s2", **fields})


def verdict(content="No, I like sencha.", **fields):
    """A feedback."""
    return MemoryFeedback(
        **{
            "feedback_id": "f1",
            "scope": ALICE,
            "session_id": "s1",
            "timestamp": START,
            "content": content,
            **fields,
        }
    )


async def ask(slot, query="Which tea?", **fields):
    """Alice's answer."""
    return await slot.retrieve(question(query, **fields))


async def ready(slot, timeout_s=60.0):
    """Whether Alice's memory is ready, waited for."""
    readiness = slot.capability(SupportsReadiness)
    return await readiness.wait_until_ready(ALICE, timeout_s)
