"""Hermes Agent: a memory provider. ``memslot tools hosts hermes install`` puts it into Hermes' plugin folder.

Hermes silently replaces a provider that does not load with its built-in memory. Therefore this provider
always loads. If the memory cannot be opened, the terminal and the model are informed in every session.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory import MemorySlot, MemslotError, open_memory_sync
from memory.hosts._shared import check_exists, tested
from memory.hosts._tools import ARGUMENTS, DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns

with tested("hermes"):
    from agent.memory_provider import MemoryProvider

log = logging.getLogger("memslot.hosts")

_DRAIN_S = 10.0


@dataclass
class _Shared:
    """A memory that the sessions of this process share, because an embedded store has one owner."""

    config: Path
    memory: MemorySlot
    opened: ExitStack
    users: int = 0


_open: dict[Path, _Shared] = {}
_lock = threading.Lock()


@dataclass
class _Session:
    id: str
    shared: _Shared | None = None
    turns: HostTurns | None = None
    problem: str = ""
    writes: bool = True
    person: str = ""  # platform and user id; empty if Hermes names no user
    refused: bool = False  # whether the current turn names another person
    turn: str = field(default_factory=lambda: uuid.uuid4().hex)


def config_path(hermes_home: str | Path) -> Path:
    """Return the path that ``install`` wrote into ``memslot.json``, else ``memslot.yaml`` in Hermes' home."""
    directory = Path(hermes_home).expanduser()
    try:
        written = json.loads((directory / "memslot.json").read_text("utf-8"))
        return Path(str(written["config"])).expanduser()
    except (OSError, ValueError, KeyError, TypeError):
        return directory / "memslot.yaml"


class SlotProvider(MemoryProvider):  # type: ignore[misc]
    """The memory of a ``memslot.yaml`` for every session of a Hermes process.

    Each user of a gateway has a scope, by platform and user id. The command line uses the scope of the file.
    Hermes names the user when a session begins. A turn that names another user is neither recalled for nor
    recorded, and this is logged and reported as trouble.
    """

    def __init__(self) -> None:
        self._session = _Session("")

    @property
    def name(self) -> str:
        return "memslot"

    def is_available(self) -> bool:
        """Return True always, because Hermes silently replaces an unavailable provider."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        session = self._session = _Session(session_id)
        session.writes = kwargs.get("agent_context", "primary") == "primary"
        try:
            session.shared = _acquire(config_path(kwargs["hermes_home"]))
            session.person = _person(kwargs)
            session.turns = HostTurns(session.shared.memory, "hermes", session.person or None)
        except Exception as error:  # Hermes would ignore it silently
            session.problem = f"{error}" if isinstance(error, MemslotError) else type(error).__name__
            complaint = f"memslot: long-term memory is NOT working: {session.problem}"
            log.error("%s", complaint)
            sys.stderr.write(f"{complaint}\n")
            if (warn := kwargs.get("warning_callback")) is not None:
                warn(complaint)

    def system_prompt_block(self) -> str:
        if not self._session.problem:
            return ""
        return (
            f"Long-term memory is NOT working in this session ({self._session.problem}). Tell the user so in your "
            "first answer; nothing said now will be remembered later."
        )

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Refuse a turn of a person who is not the session's."""
        session, person = self._session, _person(kwargs)
        session.refused = bool(person and session.person and person != session.person)
        if session.refused and session.turns is not None:
            why = "a session of Hermes is one person's; a turn that names another is not recorded"
            log.warning("hermes: %s", why)
            session.turns.memory.note_trouble("write", why)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the memories for the coming turn. Hermes puts them below the user's message."""
        session = self._session
        if session.turns is None or session.refused:
            return ""
        session.turn = uuid.uuid4().hex
        recall = session.turns.recall_blocking(session.turn, query, session_id=session_id or session.id)
        return "\n".join(recall.section.splitlines()[1:-1])  # Hermes adds its own fence of the same name

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Record the turn, without ``messages``, which hold tool calls and results."""
        session = self._session
        if session.turns is not None and session.writes and not session.refused:
            conversation = session_id or session.id
            session.turns.record_blocking(
                session.turn, session_id=conversation, user=user_content, assistant=assistant_content
            )
            session.turn = uuid.uuid4().hex

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        self._session.id = new_session_id

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        turns = self._session.turns
        if turns is not None:
            turns.call_blocking(lambda: turns.memory.drain(_DRAIN_S))

    def shutdown(self) -> None:
        """Release the memory. The last session of the process closes it."""
        session, self._session = self._session, _Session(self._session.id)
        if (shared := session.shared) is not None:
            with _lock:
                shared.users -= 1
                if not shared.users:
                    del _open[shared.config]
                    shared.opened.close()  # under the lock: the next session may open the same store

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return search and store. Hermes asks before the memory is open, and every memory supports these."""
        return [
            {"name": name, "description": description, "parameters": schema(name)}
            for name, description in DESCRIPTIONS.items()
        ]

    def handle_tool_call(self, tool_name: str, args: Mapping[str, Any], **kwargs: Any) -> str:
        """Run a tool. Returns memories as a JSON list, the status of the stored fact, or an error in words."""
        session = self._session
        if session.turns is None:
            return f"error: long-term memory is not working: {session.problem}"
        given = str(args.get(ARGUMENTS[tool_name], ""))
        return ModelTools(session.turns).answer_blocking(tool_name, given, None, session.id)


def _person(given: Mapping[str, Any]) -> str:
    user = given.get("user_id_alt") or given.get("user_id")
    return f"{given.get('platform', 'hermes')}:{user}" if user else ""


def _acquire(config: Path) -> _Shared:
    """Open the memory of a configuration, or share an open one. ``shutdown`` releases it."""
    config = config.absolute()
    with _lock:
        shared = _open.get(config)
        if shared is None:
            check_exists(config)
            opened = ExitStack()
            memory = opened.enter_context(open_memory_sync(config)).slot
            shared = _open[config] = _Shared(config, memory, opened)
        shared.users += 1
        return shared
