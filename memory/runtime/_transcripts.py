"""Conversations read from files: exports of chat programs, data sets of chats, and memslot's own JSON lines.

Most exports are never in memory as a whole. The file's content decides its kind, unless the caller names it:

=============== =====================================================================================
``chatgpt``     ``conversations.json`` of a ChatGPT export, or the zip file itself
``claude``      ``conversations.json`` of a Claude.ai export, or the zip file itself
``claude_code`` a session file of Claude Code (JSON lines)
``sharegpt``    ``{"id", "conversations": [{"from", "value"}]}``, as a list or as JSON lines
``openai``      ``{"messages": [{"role", "content"}]}`` as a list or as JSON lines, or one bare list of messages
``langchain``   a list of LangChain messages, ``{"type", "data": {"content"}}``
``mem0``        the result of mem0's ``get_all``; each memory becomes a message of the user
``memslot``     one line per message (``session``, ``role``, ``content``, ``time``) or question
``journal``     the output of ``memslot export``: recorded events with their ids, times and metadata
=============== =====================================================================================

A conversation holds the messages of the user, the assistant and the system. ``left_out`` counts everything
else, such as tool calls, pictures and other branches. ``problems`` collects what cannot be read, with its
place; without that list, the first problem is raised.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from memory.contract.errors import ConfigError
from memory.runtime._transcript_items import KINDS, Conversation, Item, Kind, Problem, Question, items_of
from memory.runtime._transcript_kinds import conversations


def read_conversations(
    path: str | Path,
    kind: Kind | None = None,
    *,
    problems: list[Problem] | None = None,
    questions: list[Question] | None = None,
) -> Iterator[Conversation]:
    """Yield the conversations of a file, in its order.

    Files of ``claude_code``, ``memslot`` and ``journal`` are read whole first, because the lines of a
    conversation may be anywhere in the file. ``questions`` collects the questions of ``memslot`` lines.
    ``problems`` collects what cannot be read, and reading goes on.

    Raises:
        ConfigError: the file does not exist, is not UTF-8 text or is of no known kind. Also raised for the
            first problem if there is no list.
    """
    source = Path(path).expanduser()
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}")

    def wrong(problem: Problem) -> None:
        if problems is None:
            raise ConfigError(str(problem))
        problems.append(problem)

    seen: dict[tuple[str | None, str], list[int]] = {}  # hashes of the messages, by user and conversation id
    with _explained(source):
        for name, items in _items(source, wrong):
            for found in conversations(items, kind, Path(name).stem, wrong, questions):
                same = seen.setdefault((found.user, found.conversation_id), [])
                holds = hash(tuple((said.at, said.message.model_dump_json()) for said in found.messages))
                if holds in same:
                    wrong(Problem(found.place, f"the conversation occurs twice in {source.name}"))
                    continue
                same.append(holds)
                name = found.conversation_id if len(same) == 1 else f"{found.conversation_id} ({len(same)})"
                yield replace(found, conversation_id=name)


def _items(source: Path, wrong: Callable[[Problem], None]) -> Iterator[tuple[str, Iterator[Item]]]:
    """Yield the name and the items of each file."""
    if not zipfile.is_zipfile(source):
        with source.open(encoding="utf-8-sig") as text:
            yield source.name, items_of(text, source.name, wrong)
        return
    with zipfile.ZipFile(source) as archive:
        paths = sorted(name for name in archive.namelist() if Path(name).match("conversations*.json"))
        if not paths:
            raise ConfigError(f"{source.name} is a zip file without conversations.json; unpack it")
        for path in paths:
            with archive.open(path) as raw, TextIOWrapper(raw, encoding="utf-8-sig") as text:
                yield Path(path).name, items_of(text, Path(path).name, wrong)


@contextmanager
def _explained(source: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ConfigError(f"{source} does not exist; give the path of a file") from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise ConfigError(f"{source.name} is a damaged zip file; fetch it again") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source.name} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{source.name} cannot be read ({error.strerror})") from None


def first_item(path: Path) -> Any:
    """Return the first JSON value of a file; None if there is no readable value."""
    with _explained(path):
        for _, items in _items(path, lambda _: None):
            return next((item.value for item in items), None)
    return None
