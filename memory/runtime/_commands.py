"""The commands of the agent's side: ``memslot chat``, ``memslot serve``, ``memslot tools signet``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from memory.plugins.console import AsJson, ConfigFile, print_json, print_table, say

signet = typer.Typer(
    help="Signet's runtime contract.", add_completion=False, rich_markup_mode=None, no_args_is_help=True
)
chatting = typer.Typer(add_completion=False, rich_markup_mode=None)
serving = typer.Typer(add_completion=False, rich_markup_mode=None)


@serving.command()
def serve(
    config: ConfigFile,
    host: Annotated[str | None, typer.Option(help="In place of serve.host.", show_default=False)] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="In place of serve.port; 0 takes a free one.", min=0, max=65535, show_default=False
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Answer, and change nothing in the memory.")
    ] = False,
) -> None:
    """Serve a memory to agents over HTTP, as a Signet daemon does.

    Without serve.tokens it answers this machine alone, for memory.scope. At SIGTERM or SIGINT it answers the
    requests in work, writes what waits, and ends.
    """
    import gc

    import anyio

    from memory.plugins.config import load_config
    from memory.runtime._serving import FAST_LOOP, settings_of
    from memory.runtime._serving import serve as run

    loaded = load_config(config)
    settings = settings_of(loaded, host, port, read_only=read_only)

    def ready(url: str) -> None:
        gc.freeze()  # the loaded modules stay, and collections that walk them would delay requests
        say(f"serving {loaded.provider} at {url}")

    anyio.run(run, loaded, settings, ready, backend_options=FAST_LOOP)


@chatting.command()
def chat(
    config: ConfigFile,
    session: Annotated[str | None, typer.Option(help="Name of the conversation.", show_default=False)] = None,
) -> None:
    """Talk to a model that has your memory, and see what it is given.

    Without an agent: block the model is scripted. It repeats what it remembers, and needs no key. Without a
    terminal each line of standard input is a turn. /help lists what else you can say.
    """
    import anyio

    from memory.plugins.config import load_config
    from memory.runtime._chat import Chat

    async def talk() -> None:
        await Chat(load_config(config), None, partial(typer.echo, err=True)).run(session)

    anyio.run(talk)


@signet.callback()
def _root() -> None:
    """Signet's runtime contract, as this version covers it."""


@signet.command()
def parity(as_json: AsJson = False) -> None:
    """List what of Signet is covered, partial or absent. It names each route and SDK method, and says why."""
    from memory.contract.errors import PluginLoadError

    try:
        from memory.runtime.signet.endpoints import parity as parity_rows
    except ImportError as error:
        why = f"the table is made of the server, which needs {error.name}: pip install 'memslot[signet]'"
        raise PluginLoadError(why) from error

    found = parity_rows()
    if as_json:
        print_json([row._asdict() for row in found])
        return
    rows = [(row.action, row.endpoint, row.sdk, row.client, row.server, row.reason) for row in found]
    print_table(("action", "endpoint", "SDK", "client", "server", "why"), rows)
