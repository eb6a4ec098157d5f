"""``memslot tools mcp``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer(add_completion=False, rich_markup_mode=None)


@commands.command()
def mcp(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file of the memory.", show_default=False)
    ],
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer no tool that writes, and write nothing.")
    ] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Answer the hooks of coding agents as well.")
    ] = False,
) -> None:
    """Serve a memory to an MCP client. Tools search, store, get, modify and forget, as far as the backend can.

    stdout carries the protocol alone. It ends when the client closes stdin. 'memslot serve' does the same over
    HTTP.
    """
    from functools import partial

    import anyio

    from memory.runtime import load_config

    loaded = load_config(config)
    from memory.hosts.mcp.running import serve_stdio

    anyio.run(partial(serve_stdio, loaded, read_only=read_only, hooks=hooks))
