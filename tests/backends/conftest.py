"""Where backends put what they keep, if a test names no directory: not into the repository."""

import contextlib
import functools
import tempfile

import pytest


@functools.cache
def _elsewhere():
    return tempfile.TemporaryDirectory()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """The default ``data_dir`` lies below the working directory; fixtures of a module use it too."""
    with contextlib.chdir(_elsewhere().name):
        return (yield)
