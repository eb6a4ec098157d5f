"""The ``memslot`` command. Each command is a module; what is heavy is imported when a command runs."""

from __future__ import annotations

import sys
import warnings

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``memslot`` script; ends the process with the command's exit code."""
    if not sys.warnoptions and "--debug" not in sys.argv:
        # What SDKs warn their developers of is no matter of those who run a command.
        warnings.simplefilter("ignore")
    from memory.cli.app import app

    app()
