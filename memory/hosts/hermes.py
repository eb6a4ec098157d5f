"""Hermes Agent: a memory provider. ``memslot tools hosts hermes install`` puts it into Hermes' plugin folder.

Hermes silently replaces a provider that does not load with its built-in memory. Therefore this provider
always loads. If the memory cannot be opened, the terminal and the model are informed in every session.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory import MemoryScope, MemslotError
from memory.hosts._shared import SharedMemory, acquire, release, tested
from memory.hosts._tools import DESCRIPTIONS, SEARCH, schema
from memory.runtime import HostTurns, MemoryItems, load_config

with tested("hermes"):
    from agent.memory_provider import MemoryProvider

log = logging.getLogger("memslot.hosts")

_DRAIN_S = 10.0


@dataclass
class _Session:
    id: str
    shared: SharedMemory | None = None
    turns: HostTurns | None = None
    problem: str = ""
    writes: bool = True
    person: str = ""  # platform and user id; empty if Hermes names no user
    refused: bool = False  # whether the current turn names another person
    turn: str = field(default_factory=lambda: uuid.uuid4().hex)


def config_path(hermes_home: str | Path) -> Path:
    """Return ``MEMSLOT_CONFIG``, else the path in ``memslot.json``, else ``memslot.yaml`` in Hermes' home."""
    directory = Path(hermes_home).expanduser()
    if named := os.environ.get("MEMSLOT_CONFIG"):
        return Path(named).expanduser()
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
            session.shared = acquire(config_path(kwargs["hermes_home"]))
            own = session.shared.memory.delivery.scope_or_default()
            session.turns = HostTurns(session.shared.memory, "hermes", _scope(own, kwargs))
            session.person = _person(kwargs)
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

    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Write waiting events before Hermes compresses the conversation."""
        self.on_session_end(messages)
        return ""

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        turns = self._session.turns
        if turns is not None:
            turns.call_blocking(lambda: turns.memory.drain(_DRAIN_S))

    def shutdown(self) -> None:
        """Release the memory. The last session of the process closes it."""
        session, self._session = self._session, _Session(self._session.id)
        if session.shared is not None:
            release(session.shared)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return search and store. Hermes asks before the memory is open, and every memory supports these."""
        return [
            {"name": name, "description": description, "parameters": schema(name)}
            for name, description in DESCRIPTIONS.items()
        ]

    def handle_tool_call(self, tool_name: str, args: Mapping[str, Any], **kwargs: Any) -> str:
        """Run a tool. Returns JSON with ``result`` or ``error``."""
        if (turns := self._session.turns) is None:
            return json.dumps({"error": f"long-term memory is not working: {self._session.problem}"})
        items = MemoryItems(turns.memory.slot, turns.scope)
        try:
            if tool_name == SEARCH:
                found = turns.call_blocking(lambda: items.search(str(args.get("query", ""))))
                return json.dumps({"result": [item.content for item in found]}, ensure_ascii=False)
            content = str(args.get("content", ""))
            receipt = turns.call_blocking(lambda: items.store(content, agent_id="hermes"))
            return json.dumps({"result": receipt.status})
        except MemslotError as error:
            return json.dumps({"error": str(error)})

    def get_config_schema(self) -> list[dict[str, Any]]:
        path = {"key": "config", "description": "Path of memslot.yaml", "default": "~/.hermes/memslot.yaml"}
        return [{**path, "required": True}]

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        (Path(hermes_home) / "memslot.json").write_text(json.dumps({"config": values["config"]}), "utf-8")

    def backup_paths(self) -> list[str]:
        """Return the configuration and its data directory, for ``hermes backup``."""
        config = config_path(os.environ.get("HERMES_HOME", "~/.hermes"))
        try:
            return [str(config), str(load_config(config).data_dir)]
        except MemslotError:
            return [str(config)]


def _person(given: Mapping[str, Any]) -> str:
    user = given.get("user_id_alt") or given.get("user_id")
    return f"{given.get('platform', 'hermes')}:{user}" if user else ""


def _scope(own: MemoryScope, given: Mapping[str, Any]) -> MemoryScope:
    person = _person(given)
    return own.model_copy(update={"persona_id": person} if person else {})
