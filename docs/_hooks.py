"""What the site takes from the code, so that it cannot differ from it: the help of every command, and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from memory.cli.app import app
from memory.runtime.signet.parity import PARITY

MARK = "<!-- every command -->"
PARITY_MARK = "<!-- parity -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = markdown.replace(PARITY_MARK, "\n".join(parity())) if PARITY_MARK in markdown else markdown
    return markdown.replace(MARK, "\n".join(commands())) if MARK in markdown else markdown


def parity() -> Iterator[str]:
    yield "| Action | Endpoint | Client | Server | Why |\n|---|---|---|---|---|"
    for row in PARITY:
        yield f"| {row.action} | `{row.endpoint}` | {row.client} | {row.server} | {row.reason} |"


def commands() -> Iterator[str]:
    root = get_command(app)
    with typer.Context(root, info_name="memslot") as context:
        yield from sections(root, context, 2)


def sections(command: Any, context: Any, level: int) -> Iterator[str]:
    if level > 2:
        yield f"{'#' * min(level, 4)} `{context.command_path}`\n"
        yield f"```text\n{command.get_help(context)}\n```\n"
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    for name in names:
        child = command.get_command(context, name)
        with type(context)(child, info_name=name, parent=context) as inner:
            yield from sections(child, inner, level + 1)
