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
    http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP on this machine's loopback instead of stdio.")
    ] = False,
    port: Annotated[int, typer.Option(help="For --http; 0 takes a free one.", min=0, max=65535)] = 8765,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer no tool that writes, and write nothing.")
    ] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Answer the hooks of coding agents as well; over stdio only.")
    ] = False,
) -> None:
    """Serve a memory to an MCP client. Tools search, store, get, modify and forget, as far as the backend can.

    Over stdio, stdout carries the protocol alone. It ends when the client closes stdin.
    """
    from functools import partial

    import anyio

    from memory.runtime import load_config

    loaded = load_config(config)
    from memory.hosts.mcp.running import serve_http, serve_stdio

    def ready(url: str) -> None:
        typer.echo(f"serving {loaded.provider} at {url}", err=True)

    if http:
        anyio.run(partial(serve_http, loaded, port, ready, read_only=read_only))
    else:
        anyio.run(partial(serve_stdio, loaded, read_only=read_only, hooks=hooks))
