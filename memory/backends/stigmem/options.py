"""The options of a ``stigmem`` block. Imports no HTTP client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from memory.adapter import PluginOptions, Public
from memory.adapter.http import server_address

SCOPE_FIELD = "{scope}"


class StigmemOptions(PluginOptions):
    """The block ``memory.backends.stigmem``."""

    url: Public[str] = "http://127.0.0.1:8765"
    """The node's address. With ``isolation: node`` it may hold ``{scope}``, such as ``http://{scope}.mem.internal``."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """The bearer key. With ``isolation: tenant`` an admin key, from which the key of each scope is derived."""
    isolation: Literal["tenant", "node"] = "tenant"
    """What keeps scopes apart: a tenant each (the node runs the multi-tenant plugin), or a node each."""
    allow_sharing: bool = False
    """With ``isolation: node``: let scopes share a node, kept apart by nothing but a mark in their facts."""
    top_k: int = Field(default=100, gt=0, le=500)
    """How many facts a recall returns where the request sets no ``max_items``; 100 is the node's own default."""
    semantic_weight: float = Field(default=0.0, ge=0.0, le=0.95)
    """Weight of meaning over words in recall; above 0 only on a node that embeds."""
    timeout_s: float = Field(default=10.0, gt=0)
    """For each request, seconds."""
    retry_pause_s: float = Field(default=2.0, ge=0)
    """Wait before the one retry after a 5xx answer or a lost one, seconds."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        return server_address(url.replace(SCOPE_FIELD, "scope")) and url.rstrip("/")

    def problems(self) -> Iterator[str]:
        if self.isolation == "tenant":
            if SCOPE_FIELD in self.url:
                yield "{scope} belongs to isolation: node; set that, or give one url"
            if self.allow_sharing:
                yield "allow_sharing belongs to isolation: node; set that, or drop allow_sharing"
        elif not self.allow_sharing and SCOPE_FIELD not in self.url:
            yield (
                "one url for every scope shares the node between them: put {scope} into url, use "
                "isolation: tenant, or set allow_sharing: true if a mark in the facts is separation enough"
            )
