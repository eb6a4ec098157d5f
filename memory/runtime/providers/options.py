"""What the configuration says of any model behind an address."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, SecretStr, field_validator

from memory.adapter._address import server_address
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import Public


class ServiceOptions(PluginOptions):
    """A model, and the service it is asked at."""

    example_url: ClassVar[str]

    model: Public[str] = Field(examples=["llama3.2"])
    """The model, as the service calls it."""
    base_url: Public[str] | None = None
    """Default: the service's own."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Where the service asks for one; write ``${NAME}``. Default: its variable of the environment."""
    timeout_s: float = Field(default=60.0, gt=0)
    """For each attempt, seconds."""
    max_retries: int = Field(default=2, ge=0, le=10)
    """Attempts after one that was answered with 408, 409, 429 or 5xx, or not at all."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        return None if url is None else server_address(url, cls.example_url)
