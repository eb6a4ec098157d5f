"""What a binding asks for: that its SDK is there and of a tested release, and that an agent has one memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from memory import ConfigError, PluginLoadError
from memory.hosts._table import HOSTS


@contextmanager
def tested(name: str) -> Iterator[None]:
    """Around a binding's import of its SDK.

    Raises:
        PluginLoadError: the SDK is missing, or of a release that was not tested.
    """
    host = HOSTS[name]
    if (wrong := host.untested) is not None:
        raise PluginLoadError(wrong)
    try:
        yield
    except ImportError as error:
        raise PluginLoadError(
            f"memory.hosts.{host.module} needs {error.name or name}: {host.install}"
        ) from error


_bound: dict[int, weakref.ref[object]] = {}


def bind(agent: object, host: str) -> None:
    """Note that an agent has a memory now.

    Raises:
        ConfigError: it had one already.
    """
    known = _bound.get(id(agent))
    if known is not None and known() is agent:
        raise ConfigError(f"this {host} agent has a memory already; one agent takes one memory")
    _bound[id(agent)] = weakref.ref(agent)


def unbind(agent: object) -> None:
    _bound.pop(id(agent), None)
