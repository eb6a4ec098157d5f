"""A store as earlier versions left it: one collection for all scopes, written by mem0's own constructor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

ALICE = {"user_id": "alice", "run_id": "run1"}
AGENT = {"user_id": "alice", "run_id": "run1:%n:agent", "agent_id": "agent"}
BOB = {"user_id": "bob", "run_id": "run1"}
SCOPES = {"alice": ALICE, "alice's agent": AGENT, "bob": BOB}


def plain_memory(directory: Path, dimensions: int = 1024) -> Any:
    """mem0 with our embedder, and otherwise nothing of ours."""
    from mem0 import Memory

    from memory.backends.mem0.watch import LexicalEmbedding, NoLlm

    directory.mkdir(parents=True, exist_ok=True)
    model = {"provider": "openai", "config": {"api_key": "unused"}}
    store = {
        "collection_name": "memslot",
        "embedding_model_dims": dimensions,
        "path": str(directory / "qdrant"),
    }
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(directory / "history.db"),
            "embedder": model,
            "llm": model,
        }
    )
    for part in (memory.embedding_model, memory.llm):
        part.client.close()
    memory.embedding_model, memory.llm = LexicalEmbedding(dimensions), NoLlm()
    return memory


def close_plain(memory: Any) -> None:
    memory.vector_store.client.close()
    memory.close()


def write_old_store(
    data_dir: Path, *, own_rows: int = 3, foreign: bool = False, dimensions: int = 1024
) -> None:
    """Memories of three scopes, one of them deleted and one updated, entities, recent messages.

    Args:
        own_rows: memories of each scope.
        foreign: also one that names no run, and so belongs to no scope.
    """
    memory = plain_memory(data_dir / "mem0", dimensions)
    for number in range(own_rows):
        for name, ids in SCOPES.items():
            ids_of = _add(memory, f"{name} drinks tea {number}", ids)
            memory._upsert_entity(f"Tea {number} of {name}", "drink", ids_of, ids)
    memory.update(_add(memory, "bob drinks coffee", BOB), text="bob drinks cocoa")
    gone = _add(memory, "alice drank beer", ALICE)
    memory.delete(gone)
    with memory.db.connection as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS memslot_deleted (memory_id TEXT PRIMARY KEY, session_scope TEXT)"
        )
        connection.execute("INSERT INTO memslot_deleted VALUES (?, 'run_id=run1&user_id=alice')", (gone,))
    memory.db.save_messages([{"role": "user", "content": "bob said hello"}], "run_id=run1&user_id=bob")
    if foreign:
        memory.add("carol drinks water", user_id="carol", infer=False)
    close_plain(memory)


def _add(memory: Any, text: str, ids: Mapping[str, str]) -> str:
    metadata = {"event_id": text, "created_at": "2023-05-08T13:56:00+00:00"}
    answer = memory.add(text, **ids, infer=False, metadata=metadata)
    native_id: str = answer["results"][0]["id"]
    return native_id
