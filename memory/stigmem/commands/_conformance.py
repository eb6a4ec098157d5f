"""``memslot stigmem conformance``: does a node do what the vectors say?"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.plugins.console import AsJson, print_json, print_table, say
from memory.stigmem.commands._shared import Wait, within

if TYPE_CHECKING:
    from memory.stigmem.conformance.wire import Row


def conformance(
    vectors: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Vectors of the Stigmem project, as JSON.")
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            help="Put into the vectors' entities, so that a node can be tried again; a new one if not given. "
            "'' sends the vectors as they are."
        ),
    ] = None,
    expire_scope: Annotated[
        bool, typer.Option("--expire-scope", help="Also run what expires every fact of scope public.")
    ] = False,
    wait: Wait = 600.0,
    as_json: AsJson = False,
) -> None:
    """Run conformance vectors against STIGMEM_URL, those of FILE and our own; fails where one fails.

    A node cannot delete facts, so a run leaves its own behind.
    """

    async def run() -> list[Row]:
        from memory.stigmem.abi import StigmemAbi
        from memory.stigmem.conformance.run import load_vectors, run_conformance

        url = StigmemAbi.from_env("process").open_node().url
        given = load_vectors(vectors) if vectors is not None else None
        return await run_conformance(
            url,
            given,
            api_key=os.environ.get("STIGMEM_API_KEY", "").strip() or None,
            tag=f"t{uuid.uuid4().hex[:8]}" if tag is None else tag,
            expire_scope=expire_scope,
        )

    rows = within(wait, run)

    from memory.stigmem.conformance.wire import Status

    counts = {status.value: sum(row.status is status for row in rows) for status in Status}
    if as_json:
        results = [
            {"id": row.id, "set": row.group, "ours": row.ours, "result": row.status.value, "why": row.why}
            for row in rows
        ]
        print_json({"counts": counts, "vectors": results})
    else:
        shown = [(row.id, row.group + " (ours)" * row.ours, row.status.value, row.why) for row in rows]
        print_table(("vector", "set", "result", "why"), shown)
        total = ", ".join(f"{count} {status}" for status, count in counts.items())
        say(f"{len(rows)} vectors: {total}")
    if counts["failed"]:
        raise typer.Exit(1)
