"""The models a configuration may choose: ``scripted``, ``openai``, ``openai_compatible``, ``anthropic``, and what
other distributions offer as entry points of the group ``memslot.providers``.

An entry point names a :class:`ProviderPlugin`. Its module imports no SDK at the top; ``create`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from memory.contract.errors import MemslotError, PluginLoadError, PluginNotFound
from memory.plugins.blocks import NO_FILE, Problems, nearest, parse_block
from memory.runtime._provider import Provider

GROUP = "memslot.providers"


@dataclass(frozen=True)
class ProviderPlugin:
    """A kind of model.

    Attributes:
        options: the model of its YAML block.
        create: builds the provider from the parsed block; no network.
        install: the command that provides its SDK, for messages.
        seeded: whether its API takes a seed.
    """

    options: type[BaseModel]
    create: Callable[[Any], Provider]
    install: str = ""
    seeded: bool = False


def takes_seed(name: str, where: str) -> bool:
    """Whether a provider's API takes a seed; errors as for :func:`create_provider`."""
    return _plugin(name, where).seeded


def provider_options(name: str, options: Mapping[str, Any], where: str) -> BaseModel:
    """A provider's block, checked; arguments as for :func:`create_provider`."""
    return parse_block(_plugin(name, where).options, options, where)


def create_provider(
    name: str,
    options: Mapping[str, Any] | BaseModel,
    where: str = "agent.options",
    problem: Problems = NO_FILE,
) -> Provider:
    """A provider by its name.

    Args:
        name: of an entry point of the group.
        options: its block, parsed or not.
        where: the block's path in the configuration, for messages.
        problem: knows the configuration's file, for messages.

    Raises:
        PluginNotFound: none is called so.
        PluginLoadError: its module is broken, or its SDK is not installed; the message has the pip line.
        ConfigError: the block is wrong.
    """
    plugin = _plugin(name, where, problem)
    if not isinstance(options, BaseModel):
        options = parse_block(plugin.options, options, where, problem)
    try:
        return plugin.create(options)
    except MemslotError:
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
        raise PluginNotFound(f"{problem.place(path)}: no provider is named {name!r}{nearest(name, points)}")
    try:
        plugin = points[name].load()
    except (Exception, SystemExit) as error:
        raise PluginLoadError(f"provider {name}: failed to load ({type(error).__name__})") from error
    if not isinstance(plugin, ProviderPlugin):
        raise PluginLoadError(f"provider {name}: its entry point names no ProviderPlugin")
    return plugin
