"""The ``memslot`` command. Enters: what reads arguments and prints, a module for each command; what is heavy is
imported when a command runs. Stays out: what a program could call as well."""

from __future__ import annotations

import os
import sys
import warnings


def main() -> None:
    """Entry point of the ``memslot`` script; ends the process with the command's exit code."""
    if sys.argv[1:3] == ["tools", "stigmem"]:
        from memory.stigmem.spool import hand_over

        if hand_over(sys.argv[3:]):
            return
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if not sys.warnoptions and "--debug" not in sys.argv:
        # Warnings of SDKs are for their developers, not for people who run a command.
        warnings.simplefilter("ignore")
    from memory.cli.app import app

    app(prog_name="memslot")
