"""What all models behind an address share: their options, their key, their errors and their end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import Field, SecretStr, field_validator

from memory.adapter._bounded import MAX_ANSWER_BYTES, bounded_answers, server_address
from memory.contract.errors import BackendError, BackendProtocolError, ConfigError
from memory.contract.native_errors import ErrorTable, normalise_error
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
    max_answer_bytes: int = Field(default=MAX_ANSWER_BYTES, gt=0)
    """Of one answer, unpacked; a longer one is an error."""
    max_retries: int = Field(default=2, ge=0, le=10)
    """Attempts after one that was answered with 408, 409, 429 or 5xx, or not at all."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        return None if url is None else server_address(url, cls.example_url)


class ServiceProvider:
    """Base of the providers over an SDK's client: ``operation`` is its call, ``errors`` what it raises."""

    operation: ClassVar[str]
    errors: ClassVar[ErrorTable]
    _lists_models: ClassVar[dict[str, Any]] = {}

    def __init__(self, id: str, client: Any, options: ServiceOptions) -> None:
        self.id = id
        self._client = client
        http = client._client  # neither SDK takes a hook beside its own client's settings
        http.headers["accept-encoding"] = "gzip"
        http.event_hooks = {"response": [bounded_answers(id, options.max_answer_bytes)]}

    async def available(self) -> bool:
        """``models.list``; a server without that list counts as available where it says so itself (404)."""
        try:
            with self._mapped_errors():
                await self._client.with_options(timeout=5.0, max_retries=0).models.list(**self._lists_models)
        except BackendError as error:
            return error.status in (404, 405, 501)
        return True

    async def aclose(self) -> None:
        await self._client.close()

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except BackendError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, BackendError):  # an answer without end, as the SDK words it
                raise error.__cause__ from None
            raise normalise_error(
                error, backend_name=self.id, operation=self.operation, table=self.errors
            ) from error

    def _unusable(self, why: str) -> BackendProtocolError:
        message = f"{self.id}: the answer cannot be used: {why}"
        return BackendProtocolError(message, backend_name=self.id, operation=self.operation)


def key_of(options: ServiceOptions, variable: str, provider: str) -> str:
    key = options.api_key.get_secret_value() if options.api_key else os.environ.get(variable)
    if not key:
        raise ConfigError(f"provider {provider}: has no key; set api_key, or {variable} in the environment")
    return key
