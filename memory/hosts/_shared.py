"""A memory that several sessions of one process share: an embedded store has one owner."""

from __future__ import annotations

import shlex
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from memory import ConfigError
from memory.runtime import TurnMemory, open_turn_memory_sync


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
    """The memory of a configuration, opened by its first user; each gives it back by :func:`release`.

    Raises:
        ConfigError, PluginError, BackendError: it cannot be opened.
    """
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
