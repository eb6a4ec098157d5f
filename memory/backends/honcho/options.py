"""The options of a ``honcho`` block. Imports no SDK."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator

from memory.adapter import PluginOptions, Public
from memory.adapter.http import server_address

CLOUD = "https://api.honcho.dev"  # the SDK's default
MAX_TOKENS = 100_000  # of ``session.context(tokens=)``
MAX_ROWS = 100  # results of a search, conclusions of a representation, messages of a call
OTHERS_PEER = "system"  # the peer of all other messages


class HonchoOptions(PluginOptions):
    """Settings of the Honcho backend. The models and the deriver are configured on the server."""

    base_url: Public[str] | None = Field(default=None, examples=["http://127.0.0.1:8000"])
    """The server's address. Default: ``$HONCHO_URL``, else Honcho's public cloud, as the SDK chooses."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Write ``${HONCHO_API_KEY}``. With the server's auth on, an admin key: every scope is a workspace."""
    workspace_template: Public[str] | None = None
    """Name of a scope's workspace, such as ``{run_id}_x{persona_id}``. Default: all fields of the scope."""
    assistant_peer: Public[str] = "assistant"
    """Peer id of the agent; the user's is made of ``persona_id``."""
    observe_assistant: bool = False
    """Let Honcho derive what it concludes of the assistant, too; doubles the cost of its models."""
    retrieval: Literal["context", "search"] = "context"
    """``context``: what Honcho makes of the session and the user (``session.context``). ``search``: messages found
    by the question, with scenario, context and attribute as filters."""
    supplement: Literal["none", "representation"] = "none"
    """``representation``: a second call for prose on the user found by the question (``peer.context``). The context
    is then not asked for the same again."""
    context_tokens: int = Field(default=8000, gt=0, le=MAX_TOKENS)
    """``tokens`` of a context where the request sets no ``max_tokens``."""
    top_k: int = Field(default=25, gt=0, le=MAX_ROWS)
    """Conclusions of a context or search results, where the request sets no ``max_items``."""
    summary: bool = True
    """Ask for the session's summary."""
    quiet_period_s: float = Field(default=2.0, ge=0)
    """How long the queue must stay idle where its counts cannot tell that all is processed, seconds."""
    poll_s: float = Field(default=0.25, gt=0)
    """Pause between looks at the server while waiting, seconds."""
    timeout_s: float = Field(default=60.0, gt=0)
    """For each request, seconds. A write abandoned at the slot's deadline ends within it."""
    retry_pause_s: float = Field(default=0.5, ge=0)
    """Wait before the one retry of a read that was answered with 5xx or not at all, seconds."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        return None if url is None else server_address(url, "http://127.0.0.1:8000")

    @field_validator("api_key")
    @classmethod
    def _not_blank(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not key.get_secret_value().strip():
            raise ValueError("is blank; set the variable it comes from, or leave it out")
        return key

    @field_validator("assistant_peer")
    @classmethod
    def _is_peer_id(cls, peer: str) -> str:
        if not re.fullmatch(r"[a-zA-Z0-9-]{1,512}", peer):
            raise ValueError("takes letters, digits and '-', at most 512")
        if peer == OTHERS_PEER:
            raise ValueError(f"{OTHERS_PEER} speaks for roles other than user and assistant; choose another")
        return peer

    def problems(self) -> Iterator[str]:
        if self.base_url is None and "HONCHO_URL" in os.environ:
            try:
                self._is_address(os.environ["HONCHO_URL"])
            except ValueError as error:
                yield f"base_url: the environment variable HONCHO_URL {error}"

    def effective(self) -> Mapping[str, Any]:
        return {"base_url": self.address}

    @property
    def address(self) -> str:
        return self.base_url or self._is_address(os.environ.get("HONCHO_URL", CLOUD)) or CLOUD
