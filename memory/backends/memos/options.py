"""The options of a ``memos`` block. Imports neither MemOS nor an HTTP client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from memory.adapter import PluginOptions, Public
from memory.adapter.http import server_address

GraphDb = Literal["postgres", "neo4j", "neo4j-community", "polardb"]
_CLOUD_HOSTS = ("memos.memtensor.cn", "api.memt.ai")
_NO_CLOUD = (
    "the MemOS cloud is not supported: it has no cubes to keep scopes apart, and the installed client does not say "
    "what its answers hold; run the product server and give its url"
)
_NO_TEMPLATE = (
    "is no option: a cube's id is made of the scope; "
    "memory.scope.backend_namespace separates runs that share ids"
)


class MemosOptions(PluginOptions):
    """The block ``memory.backends.memos``."""

    FORMER: ClassVar[Mapping[str, str]] = {
        "writable_cube_template": _NO_TEMPLATE,
        "readable_cube_template": _NO_TEMPLATE,
        "readable_cube_ids": "is called readable_cubes; the scope's own cube is always read",
        "writable_cube_ids": "is no option: a scope writes to its own cube alone",
    }

    url: Public[str] = "http://127.0.0.1:8001"
    """Address of the product server, without ``/product``."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Sent as ``Authorization: Bearer``, for a gateway in front; the server asks for none."""
    graph_db: GraphDb = "neo4j-community"
    """The server's GRAPH_DB_BACKEND, by MemOS's own default; filters are written in its dialect. ``postgres``
    ignores filters."""
    neo4j_shared_db: bool = False
    """``true`` once the server runs with MOS_NEO4J_SHARED_DB=true; with ``neo4j`` its default mixes all cubes."""
    async_mode: Literal["async", "sync"] = "async"
    """``async``: a raw memory at once, replaced later by what the model makes of it. ``sync``: the answer waits."""
    mode: Literal["fast", "fine"] = "fine"
    """With ``sync``: ``fine`` extracts with the model, ``fast`` keeps the text. MemOS ignores it with ``async``."""
    search_mode: Literal["fast", "fine", "mixture"] = "fast"
    """How MemOS searches. ``fine`` rewrites what it finds, by its model: such texts have no id, time or source."""
    readable_cubes: tuple[Public[str], ...] = ()
    """Further cubes that every search of every scope reads, such as shared knowledge; never listed, changed or
    reset. Such a cube has to be filled by the user of its own name; a row of another user withholds the answer."""
    top_k: int = Field(default=10, ge=1)
    """How many text memories a search returns where the request sets no ``max_items``."""
    pref_top_k: int = Field(default=6, ge=0)
    """How many preference memories; 0 leaves them out. ``max_items`` bounds each group."""
    tool_mem_top_k: int = Field(default=6, ge=0)
    """How many tool memories; 0 leaves them out."""
    skill_mem_top_k: int = Field(default=3, ge=0)
    """How many skill memories; 0 leaves them out."""
    relativity: float = Field(default=0.0, ge=0.0)
    """Leave out memories less relevant than this. MemOS' own default, 0.45, can empty every result."""
    dedup: Literal["no", "sim", "mmr"] = "no"
    """How MemOS drops similar memories; with ``postgres`` only ``no`` returns anything."""
    rerank: bool = True
    """Use the server's reranker."""
    timeout_s: float = Field(default=60.0, gt=0)
    """For each request, seconds."""
    idle_timeout_s: float = Field(default=30.0, ge=0)
    """How long a reset or a switch to read-only waits for the scheduler to finish, seconds."""

    @field_validator("mode", mode="before")
    @classmethod
    def _is_elsewhere(cls, chosen: Any) -> Any:
        if chosen == "mixture":
            raise ValueError("mixture is a way to search; set search_mode: mixture, and leave mode out")
        return chosen

    @field_validator("readable_cubes")
    @classmethod
    def _are_cube_ids(cls, cubes: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,128}", cube) for cube in cubes):
            raise ValueError("a cube's id takes letters, digits, '.', '_' and '-', at most 128")
        if len(set(cubes)) < len(cubes):
            raise ValueError("names a cube twice; it would be read twice")
        return cubes

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        url = server_address(url, "http://127.0.0.1:8001")
        parts = urlsplit(url)
        if parts.hostname in _CLOUD_HOSTS or "/openmem" in parts.path:
            raise ValueError(_NO_CLOUD)
        return url.removesuffix("/product")

    def problems(self) -> Iterator[str]:
        if self.graph_db == "postgres" and self.dedup != "no":
            yield "dedup: with graph_db: postgres only 'no' returns anything; MemOS answers 200 and empty"
        if self.graph_db == "neo4j" and not self.neo4j_shared_db:
            yield (
                "neo4j_shared_db: by default MemOS leaves the cube out of its searches in neo4j, so scopes would "
                "mix; run the server with MOS_NEO4J_SHARED_DB=true and set this to true, or use neo4j-community"
            )

    @property
    def filters(self) -> bool:
        return self.graph_db != "postgres"
