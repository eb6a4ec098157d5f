"""The ``memslot`` command. Each command is a module; what is heavy is imported when a command runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``memslot`` script; ends the process with the command's exit code."""
    from memory.cli.app import app

    app()
