"""``memslot demo``: a small game, mem0 on a scripted model against the controls, without a key or a server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from typing import Annotated, Any

import typer

from memory.cli._experiments import Out, conclude, play
from memory.plugins.console import AsJson, complain, say

_EXTRA = "memslot[mem0]"
DEMO: dict[str, Any] = {
    "memory": {
        "backend": "mem0",
        "budget": {"max_tokens": 600, "max_items": None},
        "backends": {"mem0": {"llm": {"model": "scripted", "base_url": "${SCRIPTED_LLM_URL}"}}},
        "conditions": {
            "no_memory": {},
            "full_history": {},
            "rolling_summary": {"max_tokens": 600},
            "simple_rag": {},
            "oracle_ipas": {},
        },
    },
    "bench": {
        "game": {"users": 5, "sessions": 14, "tests": 6, "attributes": 6},
        "doctor": False,
        "providers": ["mem0", "no_memory", "full_history", "rolling_summary", "simple_rag", "oracle_ipas"],
    },
}
"""``configs/demo.yaml`` for those who installed memslot without a checkout; a test keeps them equal."""


def demo(
    context: typer.Context,
    out: Out = None,
    install: Annotated[
        bool | None,
        typer.Option(
            "--install/--no-install",
            help=f"Install {_EXTRA} first if it is missing; asked on a terminal otherwise.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a small game with mem0 against the controls: no key, no server, no model but a scripted one."""
    from memory.bench.engine.demo_model import scripted_model
    from memory.bench.engine.matrix import load_experiment

    if importlib.util.find_spec("mem0") is None:
        _offer(install, as_json=as_json)
    if not as_json:
        say(
            "Five people tell an assistant how they want to be dealt with, and change their minds. It is judged "
            "with each memory in turn. Generated data, a scripted model: nothing leaves this machine."
        )
    with scripted_model("SCRIPTED_LLM_URL", wanted=importlib.util.find_spec("mem0") is not None):
        experiment = load_experiment(DEMO, output=out)
        began = time.monotonic()
        outcome = play(context, experiment, as_json=as_json)
    if not as_json:
        say(f"took {time.monotonic() - began:.0f} s", "dim")
    conclude(outcome, as_json=as_json)


def _offer(install: bool | None, *, as_json: bool) -> None:
    """Install mem0's SDK where that is wanted; pip shows how far it is."""
    if install is None and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        install = typer.confirm(f"mem0 is not installed. Install {_EXTRA} now?", default=True)
    if not install:
        return
    command = [sys.executable, "-m", "pip", "install", _EXTRA]
    say(" ".join(["pip", *command[3:]]), "dim")
    if subprocess.run(command, check=False).returncode:
        complain("pip could not install it; the demo goes on without mem0", warning=True)
