"""What a configuration says of a model behind an OpenAI-compatible endpoint. Imports no client."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator, Field, SecretStr

from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import Public


class ModelEndpoint(PluginOptions):
    """Where a model is asked.

    Attributes:
        base_url, api_key: of an OpenAI-compatible endpoint.
        max_retries: within the slot's deadline.
    """

    base_url: Public[str] | None = None
    """Endpoint, such as ``http://localhost:8000/v1``. Default: OpenAI's."""
    api_key: SecretStr | None = None
    """Write ``${OPENAI_API_KEY}``, not the key itself. Default: that variable; unused with a ``base_url``."""
    max_retries: int = Field(default=0, ge=0)
    """Retries of a failed call within the slot's deadline. Safe: nothing is stored before the last answer."""

    def limits(self, deadline_s: float) -> dict[str, Any]:
        """Options of an ``openai`` client that answers within the deadline; its own are 600 s, three times over."""
        return {"timeout": 0.9 * deadline_s / (self.max_retries + 1), "max_retries": self.max_retries}


def _lexical_or_block(value: object) -> object:
    if isinstance(value, str) and value != "lexical":
        raise ValueError("is unknown; write lexical, or a block such as {model: ..., base_url: ...}")
    return value


LEXICAL_OR_BLOCK = BeforeValidator(_lexical_or_block)
"""For a field that takes ``lexical`` or a model's block: says so of any other word."""
