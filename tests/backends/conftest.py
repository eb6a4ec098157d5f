"""Where backends put what they keep, if a test names no directory: not into the repository."""

import contextlib
import functools
import tempfile
from collections.abc import Generator

import pytest


@functools.cache
def _elsewhere() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """The default ``data_dir`` lies below the working directory; fixtures of a module use it too."""
    with contextlib.chdir(_elsewhere().name):
        return (yield)
