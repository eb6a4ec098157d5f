"""Importing Graphiti without its side effects."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from typing import Any

from memory.adapter import PluginLoadError, environment_kept, quiet_loggers
from memory.backends.graphiti.options import Driver
from memory.backends.graphiti.stores import store_module

__all__ = ["import_sdk"]

_TELEMETRY = "GRAPHITI_TELEMETRY_ENABLED"
_MODULES = ("memory.backends.graphiti.models", "memory.backends.graphiti.client")


def import_sdk(driver: Driver = "kuzu") -> None:
    """Import ``graphiti_core``: no telemetry, and no variables from whatever ``.env`` file it finds.

    Raises:
        PluginLoadError: the client of the graph database is not installed.
    """
    os.environ[_TELEMETRY] = "false"
    with environment_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own code
        for name in _MODULES:
            importlib.import_module(name)
        try:
            store_module(driver)
        except ImportError as error:
            extra = "graphiti-falkordb" if driver == "falkordb" else "graphiti"
            raise PluginLoadError(
                f"graphiti: driver: {driver} needs {error.name}, which is not installed: "
                f"pip install 'memslot[{extra}]'"
            ) from error
    _make_linear()
    quiet_loggers("graphiti_core")


def _make_linear() -> None:
    """Whether a fact speaks of the future is asked on the host's loop, in a time that grew with a word's square.

    ``[a-z]+'ll`` is only searched for, so one letter before it says the same.
    """
    module: Any = importlib.import_module("graphiti_core.utils.maintenance.temporal_edge_utils")
    native: re.Pattern[str] = module._FUTURE_ASSERTION_RE
    module._FUTURE_ASSERTION_RE = re.compile(native.pattern.replace("[a-z]+'ll", "[a-z]'ll"), native.flags)
