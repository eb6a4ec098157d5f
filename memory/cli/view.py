"""``memslot view``: the runs of a directory in a browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from memory.plugins.console import say


def view(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the results.")] = Path(
        "manifests"
    ),
    port: Annotated[int, typer.Option(help="Of 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 0,
) -> None:
    """Serve the runs of a directory as one list, to a browser of this machine; until interrupted."""
    from memory import ConfigError
    from memory.bench.report.view import RunServer, runs_below

    runs = runs_below(directory)
    try:
        server = RunServer(directory, port)
    except OSError as error:
        raise ConfigError(f"--port {port}: {error.strerror or error}; 0 takes a free one") from error
    with server:
        say(f"{len(runs)} run{'s' * (len(runs) != 1)} at {server.url} (Ctrl+C ends it)")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
