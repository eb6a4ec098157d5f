"""Parts of single backends, for tests over all of them: one that was removed is a skip, not an error."""

import importlib

import pytest


def missing_is_none(path):
    """As :func:`of_backend`; None where the backend was removed."""
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(f"memory.backends.{module}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("memory.backends."):
            raise
        return None
    return getattr(found, name) if name else found


def of_backend(path):
    """A module or name of a backend, such as ``honcho.client:ERRORS``; skips where the backend was removed."""
    found = missing_is_none(path)
    if found is None:
        pytest.skip(f"memory.backends.{path.partition('.')[0]} was removed")
    return found


def double(module, name):
    """The model of a backend's server; skips the whole module that asks if the backend's tests were removed."""
    return getattr(pytest.importorskip(module, reason=f"{module} was removed with its backend"), name)
