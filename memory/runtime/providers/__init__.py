"""The models that a configuration may choose: memslot's own, and entry points of the group
``memslot.providers``.

An entry point names a :class:`ProviderPlugin`. Its module must not import an SDK; ``create`` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field, SecretStr, field_validator

from memory.adapter._bounded import bounded_answers, server_address
from memory.contract import errors
from memory.contract.errors import BackendError, BackendProtocolError, PluginLoadError
from memory.contract.native_errors import ErrorTable, normalise_error
from memory.plugins.blocks import NO_FILE, Problems, nearest, parse_block
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import Public
from memory.runtime._provider import Provider

GROUP = "memslot.providers"


@dataclass(frozen=True)
class ProviderPlugin:
    """A kind of model.

    Attributes:
        options: the pydantic model of its YAML block.
        create: builds the provider from the parsed block, without network access.
        install: the command that installs its SDK, for messages.
        seeded: whether its API takes a seed.
    """

    options: type[BaseModel]
    create: Callable[[Any], Provider]
    install: str = ""
    seeded: bool = False


def takes_seed(name: str, where: str) -> bool:
    """Whether a provider's API takes a seed. Arguments and errors are those of :func:`create_provider`."""
    return _plugin(name, where).seeded


def provider_options(name: str, options: Mapping[str, Any], where: str) -> BaseModel:
    """Parse and check a provider's block. Arguments and errors are those of :func:`create_provider`."""
    return parse_block(_plugin(name, where).options, options, where)


def create_provider(
    name: str,
    options: Mapping[str, object] | BaseModel,
    where: str = "agent.options",
    problem: Problems = NO_FILE,
) -> Provider:
    """Create a provider by its name.

    Args:
        name: the name of an entry point of the group.
        options: the provider's block, parsed or not.
        where: the block's path in the configuration, for messages.
        problem: the configuration's file and lines, for messages.

    Raises:
        PluginNotFound: no provider has this name.
        PluginLoadError: the module is broken, or its SDK is not installed. The message has the pip command.
        ConfigError: the block is invalid.
    """
    plugin = _plugin(name, where, problem)
    if not isinstance(options, BaseModel):
        options = parse_block(plugin.options, options, where, problem)
    try:
        return plugin.create(options)
    except errors.MemslotError:
        raise
    except ImportError as error:
        hint = f": {plugin.install}" if plugin.install else ""
        raise PluginLoadError(f"provider {name}: its SDK cannot be imported ({error.name}){hint}") from error
    except Exception as error:
        raise PluginLoadError(f"provider {name}: could not be made ({type(error).__name__})") from error


def _plugin(name: str, where: str, problem: Problems = NO_FILE) -> ProviderPlugin:
    from memory.plugins.installed import entry_points

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        path = (*where.removesuffix(".options").removesuffix(".provider").split("."), "provider")
        why = f"{problem.place(path)}: no provider is named {name!r}{nearest(name, points)}"
        raise errors.PluginNotFound(why)
    try:
        plugin = points[name].load()
    except (Exception, SystemExit) as error:
        raise PluginLoadError(f"provider {name}: failed to load ({type(error).__name__})") from error
    if not isinstance(plugin, ProviderPlugin):
        raise PluginLoadError(f"provider {name}: its entry point names no ProviderPlugin")
    return plugin


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


class ServiceProvider:
    """Base of the providers over an SDK. ``operation`` names its call, and ``errors`` maps its errors."""

    operation: ClassVar[str]
    errors: ClassVar[ErrorTable]
    _lists_models: ClassVar[dict[str, Any]] = {}

    def __init__(self, id: str, client: Any, options: ServiceOptions) -> None:
        self.id = id
        self._client = client
        http = client._client  # neither SDK accepts a hook together with its own client settings
        http.headers["accept-encoding"] = "identity"
        http.event_hooks = {"response": [bounded_answers(id)]}

    async def available(self) -> bool:
        """Ask for ``models.list``. A server without that list (404, 405 or 501) is available, too."""
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
            if isinstance(error.__cause__, BackendError):  # bounded_answers raised it; the SDK wraps it
                raise error.__cause__ from None
            name, operation = self.id, self.operation
            raise normalise_error(error, backend_name=name, operation=operation, table=self.errors) from error

    def _unusable(self, why: str) -> BackendProtocolError:
        message = f"{self.id}: the answer cannot be used: {why}"
        return BackendProtocolError(message, backend_name=self.id, operation=self.operation)


def given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def key_of(options: ServiceOptions, variable: str, provider: str) -> str:
    key = options.api_key.get_secret_value() if options.api_key else os.environ.get(variable)
    if not key:
        why = f"provider {provider}: has no key; set api_key, or {variable} in the environment"
        raise errors.ConfigError(why)
    return key
