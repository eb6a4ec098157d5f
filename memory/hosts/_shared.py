"""A memory that several sessions of one process share (an embedded store has one owner), and what a binding
asks for: that its SDK is there and of a tested release, and that an agent has one memory.
"""

from __future__ import annotations

import shlex
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import ConfigError, Message, PluginLoadError
from memory.hosts._table import HOSTS
from memory.runtime import TurnMemory, answer_text, open_turn_memory_sync


@dataclass
class SharedMemory:
    config: Path
    memory: TurnMemory
    opened: ExitStack
    users: int = 0


def check_exists(config: Path) -> None:
    if not config.exists():
        raise ConfigError(f"{config} does not exist; write it first: memslot init {shlex.quote(str(config))}")


_open: dict[Path, SharedMemory] = {}
_lock = threading.Lock()


def acquire(config: Path) -> SharedMemory:
    """The memory of a configuration, opened by its first user; each gives it back by :func:`release`."""
    config = config.expanduser().absolute()
    with _lock:
        shared = _open.get(config)
        if shared is None:
            check_exists(config)
            opened = ExitStack()
            memory = opened.enter_context(open_turn_memory_sync(config))
            shared = _open[config] = SharedMemory(config, memory, opened)
        shared.users += 1
        return shared


def release(shared: SharedMemory) -> None:
    with _lock:
        shared.users -= 1
        if shared.users:
            return
        _open.pop(shared.config, None)
    shared.opened.close()


@contextmanager
def tested(name: str) -> Iterator[None]:
    """Around a binding's import of its SDK: PluginLoadError where it is missing, or of a release not tested."""
    host = HOSTS[name]
    if (wrong := host.untested) is not None:
        raise PluginLoadError(wrong)
    try:
        yield
    except ImportError as error:
        raise PluginLoadError(
            f"memory.hosts.{host.module} needs {error.name or name}: {host.install}"
        ) from error


_OF_WORDS = ("text", "input_text", "output_text")


def words(content: Any) -> str:
    """The words of a message's content, without pictures, files and thoughts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    said = (part for part in parts if isinstance(part, Mapping) and part.get("type", "text") in _OF_WORDS)
    texts = [part.get("text") for part in said]
    return "\n".join(text for text in texts if isinstance(text, str))


def spoken(found: Iterable[tuple[str, str]]) -> list[Message]:
    """What user and assistant said, of messages given as role and words."""
    return [
        Message.model_validate({"role": role, "content": answer_text(text)})
        for role, text in found
        if role in ("user", "assistant") and text.strip()
    ]


def add_section(content: Any, section: str) -> Any:
    """A message's content, text or a list of parts, with a section below it."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": section}]
    return f"{content}\n\n{section}"


_bound: dict[int, weakref.ref[object]] = {}


def bind(agent: object, host: str) -> None:
    """Note that an agent has a memory now; ConfigError where it had one already."""
    known = _bound.get(id(agent))
    if known is not None and known() is agent:
        raise ConfigError(f"this {host} agent has a memory already; one agent takes one memory")
    _bound[id(agent)] = weakref.ref(agent)


def unbind(agent: object) -> None:
    _bound.pop(id(agent), None)
