"""The ``memslot`` command. Heavy imports wait until a command runs. Enters: code that reads arguments and
prints, with one module for each command. Stays out: code that a program could call as well."""

from __future__ import annotations

import os
import sys
import warnings


def main() -> None:
    """Entry point of the ``memslot`` script. Ends the process with the command's exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if not sys.warnoptions and "--debug" not in sys.argv:
        # SDKs' warnings are for developers, not for users of a command.
        warnings.simplefilter("ignore")
    from memory.cli.app import app

    app(prog_name="memslot")
