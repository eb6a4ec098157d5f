"""``memslot import`` and ``memslot export``: conversations into and out of a memory."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.contract._quantity import quantity
from memory.contract.errors import ConfigError, InputError
from memory.plugins.console import AsJson, ConfigFile, Persona, print_json, progress, say

if TYPE_CHECKING:
    from memory.plugins.config import MemslotConfig
    from memory.runtime._importing import ImportReport, Source
    from memory.storage.journal import Journal

importing = typer.Typer(add_completion=False, rich_markup_mode=None)
exporting = typer.Typer(add_completion=False, rich_markup_mode=None)
_NAMED = 20  # problems printed in full; --json lists all


@importing.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="An export, or a zip file of one.", show_default=False)],
    into: Annotated[Path, typer.Option(help="The YAML file of the memory.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help="chatgpt, claude, claude_code, sharegpt, openai, langchain, mem0, memslot or "
            "journal; detected by default.",
            show_default=False,
        ),
    ] = None,
    only_read: Annotated[bool, typer.Option("--dry-run", help="Read the file, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring in conversations of ChatGPT, Claude, mem0 and others.

    Each message of the user becomes one event with its time, together with the answers to it. The same command
    again goes on where it stopped. A newer export adds what is new. Exits with 1 if something is not stored.
    """
    import anyio

    from memory.plugins.config import load_config
    from memory.runtime._importing import dry_run

    loaded = load_config(into)
    source = _source(loaded, file, kind)
    began = time.monotonic()
    report = dry_run(source, loaded.token_counter())
    if not report.events and not report.problems:
        raise InputError(f"{file.name} holds no message of a user or an assistant; nothing was imported")
    if not as_json:
        held = {"conversations": report.kinds.total(), "events": report.events, "tokens": report.tokens}
        counts = ", ".join(quantity(count, what) for what, count in held.items())
        say(f"{file.name}, read as {' and '.join(report.kinds)}: {counts}")
    if not only_read and report.events:
        anyio.run(_imported, loaded, source, report)
    seconds = time.monotonic() - began
    if as_json:
        counted = {**vars(report), "conversations": report.kinds.total()}
        problems = [asdict(problem) for problem in report.problems]
        took = {"dry_run": only_read, "seconds": round(seconds, 1)}
        print_json({**counted, "problems": problems, **took})
    else:
        _show(report, loaded.provider, only_read=only_read, seconds=seconds)
    if not only_read and not report.complete:
        raise typer.Exit(1)


def _source(loaded: MemslotConfig, file: Path, kind: str | None) -> Source:
    from memory.runtime._importing import Source
    from memory.runtime._transcript_items import KINDS

    if kind is not None and kind not in KINDS:
        raise InputError(f"--as {kind}: is one of {', '.join(KINDS)}")
    if loaded.memory.scope is None:
        raise ConfigError(
            "memory.scope is not set; give run_id and persona_id, so that it is known whose it is"
        )
    return Source(file, loaded.memory.scope, kind)


async def _imported(loaded: MemslotConfig, source: Source, report: ImportReport) -> None:
    from memory.plugins.opening import build_slot
    from memory.runtime._importing import import_conversations
    from memory.storage.kept import HostStore

    async with build_slot(loaded) as slot:
        with (
            HostStore(slot.backend_name, slot.delivery.store, max_objects=2**62) as store,
            progress() as bars,
        ):
            await import_conversations(source, slot, store, report, bars)


def _show(report: ImportReport, provider: str, *, only_read: bool, seconds: float) -> None:
    for problem in report.problems[:_NAMED]:
        say(f"skipped: {problem}")
    if len(report.problems) > _NAMED:
        say(f"skipped: {len(report.problems) - _NAMED} more; --json lists them all")
    for what, count in sorted(report.left_out.items()):
        say(f"left out: {quantity(count, what)}")
    if report.undated:
        undated = quantity(report.undated, "events have no time", "event has no time")
        say(f"{undated} in the file; the file's own time is taken")
    if only_read:
        say("dry run: nothing was written")
        return
    if report.unknown:
        say(f"{quantity(len(report.unknown), 'events')} got no answer, and may or may not be stored")
    written = quantity(report.written, "events")
    say(f"{provider}: {written} written, {report.earlier:,} there before, {seconds:.0f} s")


@exporting.command()
def export(
    config: ConfigFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; standard output by default.", show_default=False),
    ] = None,
    persona: Persona = None,
    as_json: AsJson = False,
) -> None:
    """Write a memory's recorded events as JSON lines.

    It reads the journal ('journal: true'), and writes a head and then one event on each line. 'memslot import' or
    any other tool reads the file. It holds what was said.
    """
    from memory.plugins.opening import recorded_journal

    with recorded_journal(config) as journal:
        lines = exported(journal, persona)
        if out is None:
            for line in lines:
                sys.stdout.write(line + "\n")
            return
        # Lines go straight to a pipe or a device. A regular file appears only once it is complete.
        part = out.with_name(out.name + ".part") if out.is_file() or not out.exists() else out
        count = -1
        try:
            with open(part, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                for line in lines:
                    file.write(line + "\n")
                    count += 1
            if part != out:
                part.replace(out)
        finally:
            if part != out:
                part.unlink(missing_ok=True)
    if as_json:
        print_json({"file": str(out), "events": count})
    else:
        say(f"{quantity(count, 'events')} in {out}")


def exported(journal: Journal, persona: str | None = None) -> Iterator[str]:
    """Yield the lines of an export, without line breaks. They hold user text.

    Raises:
        InputError: the journal holds no events, or none of this person.
    """
    if not any(persona in (None, scope.persona_id) for scope, _ in journal.scopes()):
        whom = f" of persona {persona!r}" if persona else ""
        raise InputError(f"{journal.place} holds no events{whom}; nothing was exported")
    yield json.dumps({"format": "memslot-journal-1"})
    for entry in journal.entries():
        if persona in (None, entry.event.scope.persona_id):
            event = entry.event.model_dump(mode="json", exclude_none=True)
            line = {"event": event, "status": entry.kept.state, "destination": entry.kept.destination}
            yield json.dumps(line, ensure_ascii=False)
