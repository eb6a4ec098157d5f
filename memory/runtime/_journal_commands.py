"""``memslot journal``: list, retry and forget the entries of the outbox."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.contract._quantity import quantity
from memory.contract.errors import ConfigError
from memory.plugins.console import AsJson, ConfigFile, Persona, print_json, print_table, say

if TYPE_CHECKING:
    from memory.plugins.config import MemslotConfig
    from memory.storage.entries import Entry
    from memory.storage.journal import Journal
    from memory.storage.store import Store

commands = typer.Typer(
    help="List, retry or erase the events that the journal keeps.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@commands.command("list")
def list_(
    config: ConfigFile,
    persona: Persona = None,
    as_json: AsJson = False,
) -> None:
    """List every entry by its number. It shows ids, times and state, and no words."""
    from memory.storage.entries import list_entries

    with _outbox(config) as store:
        entries = [entry for entry in list_entries(store, "seq > 0") if persona in (None, entry.persona)]
    rows = [_row(entry) for entry in entries]
    counts = Counter(entry.state for entry in entries)
    if as_json:
        print_json({"entries": rows, "counts": counts})
        return
    if rows:
        known = [name for name in rows[0] if name not in ("run", "destination")]
        names = [name for name in known if any(row[name] for row in rows)]
        print_table(names, [[_cell(row[name]) for name in names] for row in rows])
    say("; ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "the outbox is empty")


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return re.sub(r"(?<=\d)T(\d\d:\d\d:\d\d)[.\d]*Z$", r" \1", text)


def _row(entry: Entry) -> dict[str, Any]:
    from memory.storage.store import scope_of

    return {
        "number": entry.seq,
        "kind": entry.kind,
        "persona": entry.persona,
        "run": scope_of(entry.scope).run_id if entry.scope else None,
        "key": entry.key,
        "destination": entry.destination,
        "recorded_at": entry.recorded_at,
        "status": entry.state,
        "attempts": entry.attempts,
        "error": entry.error if entry.readable else "Unreadable",
    }


@contextmanager
def _outbox(config: Path) -> Iterator[Store]:
    from memory.plugins.config import load_config
    from memory.storage.entries import OUTBOX

    with closing(load_config(config).store()) as place:
        if not place.begun:
            raise ConfigError(f"{config}: nothing was recorded yet ({place.place} does not exist)")
        with closing(place.handle(OUTBOX)) as store:
            yield store


@commands.command()
def retry(
    config: ConfigFile,
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Numbers of entries; all that are set aside by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let entries that were set aside wait for their delivery again."""
    from memory.storage.entries import retry_entries

    with _outbox(config) as store:
        found = retry_entries(store, numbers or ())
    if as_json:
        print_json({"retried": found})
        return
    listed = f": {', '.join(map(str, found))}" if found else ""
    say(quantity(len(found), "entries wait again", "entry waits again") + listed)


@commands.command()
def forget(
    config: ConfigFile,
    persona: Annotated[str | None, typer.Option(help="Whose events are removed.", show_default=False)] = None,
    number: Annotated[
        list[int] | None, typer.Option(help="An entry to remove, in place of a person's.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person's events, and reset their scopes in the backend."""
    import anyio

    from memory.plugins.config import load_config
    from memory.plugins.opening import recorded_journal
    from memory.runtime._hook_turns import drop_reports
    from memory.storage.entries import forget_entries

    if number:
        with _outbox(config) as store:
            gone = forget_entries(store, number)
        if as_json:
            print_json({"forgotten": gone})
        else:
            say(f"{quantity(len(gone), 'entries')} removed")
        return
    if persona is None:
        raise ConfigError("give --persona, or --number of an entry")
    if not yes:
        typer.confirm(f"Remove all events of {persona} and reset their memory?", abort=True, err=True)
    loaded = load_config(config)
    with recorded_journal(config) as journal:
        scopes, recorded, left = anyio.run(_forgotten, journal, persona, loaded)
    if (own := loaded.memory.scope) is not None and own.persona_id == persona:  # hooks report for it alone
        recorded |= drop_reports(loaded.data_dir)
    if as_json:
        print_json({"persona": persona, "scopes": scopes, "left": left})
        return
    what = f"forgot {persona}: {quantity(scopes, 'scopes')}"
    if not recorded:
        what = f"nothing was recorded of {persona!r}"
    say("; left in the backend: ".join([what, *(["; ".join(left)] if left else [])]))


async def _forgotten(journal: Journal, persona: str, loaded: MemslotConfig) -> tuple[int, bool, list[str]]:
    """Reset a person's scopes, then remove their events from the journal for good.

    If the backend is down, the events stay, because they tell which scopes to reset. Returns the number of
    scopes, whether anything was recorded, and phrases for the data that remains elsewhere.
    """
    from memory.plugins.opening import build_slot
    from memory.storage.resets import JournalKey

    # The journal is open already, and each scope of the person is reset by its own name.
    memory = loaded.memory.model_copy(update={"scope": None, "journal": None})
    events = (entry.event for entry in journal.entries(everything=True))
    scopes = {event.scope for event in events if event.scope.persona_id == persona}
    left: list[str] = []
    reset: set[JournalKey] = set()
    if scopes:
        async with build_slot(dataclasses.replace(loaded, memory=memory)) as slot:
            for scope in scopes:
                reset.add(JournalKey.of_adapter(slot, scope))
                await slot.setup_scope(scope)
                receipt = await slot.reset_scope(scope)
                left.extend(receipt.left)
                if not receipt.verified:
                    left.append(f"scope {scope.label} was not verified empty")
    removed = journal.forget(persona)  # the resets have already removed some events
    for other in sorted({key.destination for key in removed if key not in reset}):
        left.append(f"what was delivered to {other}; run forget with its configuration")
    return len(scopes), bool(scopes or removed), left
