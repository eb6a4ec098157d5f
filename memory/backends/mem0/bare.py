"""mem0 without memslot, as the reference for ``memslot tools perf``.

It uses one collection for all users, embedded Qdrant and memslot's embedder, so both sides do the same work.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.adapter.models import LexicalHashEmbedder
from memory.backends.mem0.adapter import set_environment

_RUN = "perf"


def _config(directory: str) -> dict[str, Any]:
    model = {"provider": "openai", "config": {"api_key": "unused"}}
    store = {"collection_name": "bare", "embedding_model_dims": 1024, "path": f"{directory}/qdrant"}
    return {
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": f"{directory}/history.db",
        "embedder": model,
        "llm": model,
    }


# Runs in a separate process, which loads only the embedder's file from memslot.
_COLD_START = f"""
import importlib.util, os, sys, types
from typing import Any
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=sys.argv[1])
from mem0 import Memory
spec = importlib.util.spec_from_file_location("lexical", {inspect.getfile(LexicalHashEmbedder)!r})
lexical = sys.modules["lexical"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lexical)
class Embedding:
    def __init__(self):
        self.embedder = lexical.LexicalHashEmbedder(1024)
        self.config = types.SimpleNamespace(embedding_dims=1024)
    def embed(self, text, action=None):
        return self.embedder.embed_query(text)
directory, query, user = sys.argv[1:]
{inspect.getsource(_config)}
memory = Memory.from_config(_config(directory))
memory.embedding_model = Embedding()
filters = {{"user_id": user, "run_id": "{_RUN}"}}
print(len(memory.search(query, filters=filters, top_k=20, threshold=0.0)["results"]))
memory.vector_store.client.close()
memory.close()
"""


class BareMem0:
    cold_start = _COLD_START

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        set_environment(directory)
        from mem0 import AsyncMemory, Memory

        from memory.backends.mem0.models import lexical_embedding

        self._memory = Memory.from_config(_config(str(directory)))
        self._memory.embedding_model = lexical_embedding()
        # The constructor of AsyncMemory would open the store that ``Memory`` has locked.
        self._async = AsyncMemory.__new__(AsyncMemory)
        vars(self._async).update(vars(self._memory))

    def add(self, text: str, user: str) -> object:
        return self._memory.add(text, user_id=user, run_id=_RUN, infer=False)

    def search(self, query: str, user: str, top_k: int) -> Sequence[str]:
        found = self._memory.search(query, filters=_filters(user), top_k=top_k, threshold=0.0)
        return [row["memory"] for row in found["results"]]

    async def add_async(self, text: str, user: str) -> object:
        return await self._async.add(text, user_id=user, run_id=_RUN, infer=False)

    async def search_async(self, query: str, user: str, top_k: int) -> Sequence[str]:
        found = await self._async.search(query, filters=_filters(user), top_k=top_k, threshold=0.0)
        return [row["memory"] for row in found["results"]]

    def close(self) -> None:
        """Close the clients first: mem0's own ``close`` leaves the store open and locked."""
        for part in (self._memory.llm, self._memory.vector_store):
            part.client.close()
        self._memory.close()


def _filters(user: str) -> dict[str, str]:
    return {"user_id": user, "run_id": _RUN}
