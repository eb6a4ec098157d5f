"""``memslot tools scripted-llm``: a scripted endpoint, to try an extracting memory without a key."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from memory.contract.errors import InputError
from memory.plugins.console import say

PORT = 8099  # what ``configs/scripted_llm.yaml`` falls back to
commands = typer.Typer(add_completion=False, rich_markup_mode=None)


@commands.command()
def scripted_llm(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="Run it beside the endpoint, and end with it."),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on the loopback; 0 takes a free one.", min=0, max=65535)
    ] = PORT,
) -> None:
    """Start an OpenAI-compatible endpoint with scripted answers. It needs no key, no model and no network.

    It knows the prompts of mem0, Graphiti and the rolling summary, and extracts by simple rules what a model would
    understand: good for trying, worthless for measuring. Runs until interrupted, or until COMMAND ends, which finds
    the address in SCRIPTED_LLM_URL and OPENAI_BASE_URL.
    """
    from memory.testing._scripted_llm import ScriptedLLM

    llm = ScriptedLLM(port=0 if command else port, record=False)
    with ExitStack() as stack:
        try:
            stack.enter_context(llm)
        except OSError as error:
            raise InputError(f"--port {port}: cannot be used ({error.strerror}); give another") from error
        if command:
            path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
            given = {"SCRIPTED_LLM_URL": llm.base_url, "OPENAI_BASE_URL": llm.base_url, "PATH": path}
            environment = {**os.environ, **given, "OPENAI_API_KEY": "unused"}
            raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)
        say(f"export SCRIPTED_LLM_URL={llm.base_url}")
        say("export OPENAI_BASE_URL=$SCRIPTED_LLM_URL OPENAI_API_KEY=unused")
        typer.echo("answers until interrupted", err=True)
        threading.Event().wait()
