"""mem0 as it is without memslot, with one collection for all scopes."""


def plain_memory(directory, dimensions=1024, on=None):
    """mem0 with our embedder, and otherwise nothing of ours, on embedded Qdrant or another store."""
    from mem0 import Memory

    from memory.backends.mem0.models import NoLlm, lexical_embedding

    directory.mkdir(parents=True, exist_ok=True)
    model = {"provider": "openai", "config": {"api_key": "unused"}}
    store = {
        "collection_name": "memslot",
        "embedding_model_dims": dimensions,
        "path": str(directory / "qdrant"),
    }
    memory = Memory.from_config(
        {
            "vector_store": on or {"provider": "qdrant", "config": store},
            "history_db_path": str(directory / "history.db"),
            "embedder": model,
            "llm": model,
        }
    )
    for part in (memory.embedding_model, memory.llm):
        part.client.close()
    memory.embedding_model, memory.llm = lexical_embedding(dimensions), NoLlm()
    return memory


def close_plain(memory):
    for handle in ("client", "connection_pool"):
        if hasattr(closing := getattr(memory.vector_store, handle, None), "close"):
            closing.close()
    memory.close()
