"""Common parts of the bindings: the check of the SDK's release, and the words of messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from memory import ConfigError, Message, PluginLoadError
from memory.hosts.table import host_named
from memory.runtime import answer_text, parts_of

M = TypeVar("M")


def check_exists(config: Path) -> None:
    if not config.exists():
        raise ConfigError(
            f"{config} does not exist; write it first: memslot setup {shlex.quote(str(config))}"
        )


@contextmanager
def tested(name: str) -> Iterator[None]:
    """Guard a binding's import of its SDK.

    Raises:
        PluginLoadError: the SDK is missing, or its release was not tested.
    """
    host = host_named(name)
    if (wrong := host.untested) is not None:
        raise PluginLoadError(wrong)
    try:
        yield
    except ImportError as error:
        raise PluginLoadError(
            f"memory.hosts.{host.module} needs {error.name or name}: {host.install}"
        ) from error


# Parts that are left out by design and not counted: thoughts, and calls and results of tools.
_OF_TOOLS = re.compile(
    r"thinking|reasoning|redacted|tool|function|call|compaction|guard|cache|approval", re.IGNORECASE
)


def words(content: Any) -> str:
    """Return the words of a message's content, without pictures, files and thoughts."""
    return "\n".join(text for _, text, _ in parts_of(content) if text)


def left_out(content: Any) -> list[str]:
    """Return the kinds of parts without words, such as ``image``, except for thoughts and tools."""
    return [kind for kind, text, _ in parts_of(content) if text is None and not _OF_TOOLS.search(kind)]


def spoken(found: Iterable[tuple[str, str]]) -> list[Message]:
    """Convert pairs of role and words to messages of the user and the assistant."""
    return [
        Message.model_validate({"role": role, "content": answer_text(text)})
        for role, text in found
        if role in ("user", "assistant") and text.strip()
    ]


_ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "function"})


def unknown(roles: Iterable[str]) -> list[str]:
    """Return the kind of each message whose speaker is unknown. Such a message is left out of a turn."""
    return [f"{role} message" for role in roles if role not in _ROLES]


def conversation(
    messages: Sequence[M], role: Callable[[M], str], content: Callable[[M], Any], calls: Callable[[M], Any]
) -> tuple[list[Message], list[str]]:
    """Return what the user and the assistant said, and the kinds of parts and messages without such words.

    The functions return a message's speaker, its content, and whether it calls a tool; then its words are not
    spoken.
    """
    talk = spoken((role(message), words(content(message))) for message in messages if not calls(message))
    parts = [kind for message in messages for kind in left_out(content(message))]
    return talk, parts + unknown(map(role, messages))


def add_section(content: Any, section: str, *, kind: str = "text") -> Any:
    """Append a section to a message's content. If that is a list, the section is a part of this ``kind``."""
    if isinstance(content, list):
        return [*content, {"type": kind, "text": section}]
    return f"{content}\n\n{section}"
