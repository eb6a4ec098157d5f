"""What the site takes from the code, so that it cannot differ from it: the help of every command, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from memory.cli.app import app
from memory.runtime.signet.endpoints import parity as parity_rows

MARK = "<!-- every command -->"
PARITY_MARK = "<!-- parity -->"
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>(~?)([\w.]+)</code>")
ANCHOR = re.compile(r'<h\d id="([\w.]+)"')


def on_config(config: Any) -> Any:
    (section,) = (entry["Backends"] for entry in config.nav if "Backends" in entry)
    pages = (f"backends/{page.name}" for page in Path(config.docs_dir, "backends").glob("*.md"))
    section += sorted(set(pages) - set(section))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = markdown.replace(PARITY_MARK, "\n".join(parity())) if PARITY_MARK in markdown else markdown
    return markdown.replace(MARK, "\n".join(commands())) if MARK in markdown else markdown


def on_page_content(html: str, **_: Any) -> str:
    """What a docstring refers to by a role of Sphinx is shown as code, with a link where this page has it."""
    anchors = ANCHOR.findall(html)

    def shown(role: re.Match[str]) -> str:
        short, name = role.groups()
        places = [anchor for anchor in anchors if f".{anchor}".endswith(f".{name}")]
        code = f"<code>{name.rpartition('.')[2] if short else name}</code>"
        return f'<a href="#{places[0]}">{code}</a>' if len(places) == 1 else code

    return ROLE.sub(shown, html)


def parity() -> Iterator[str]:
    yield "| Action | Endpoint | SDK | Client | Server | Why |\n|---|---|---|---|---|---|"
    for row in parity_rows():
        yield f"| {row.action} | `{row.endpoint}` | {row.sdk} | {row.client} | {row.server} | {row.reason} |"


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
