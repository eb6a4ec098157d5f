"""What importing and running an SDK may not do to the process it is in, and what it leaves there."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

_DETAIL = re.compile(r"(?<!\s)\s*+[:={\[('\"].*", re.DOTALL)


@contextmanager
def environment_kept(**settings: str) -> Iterator[None]:
    """Around an import: the environment is afterwards what it was before, whatever ``.env`` file was read.

    Args:
        settings: variables that are set meanwhile.
    """
    before = dict(os.environ)
    os.environ.update({"PYTHON_DOTENV_DISABLED": "1", **settings})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def warnings_only(*packages: str) -> None:
    """Leave what SDKs, and the HTTP clients below them, say under WARNING unsaid, unless the host set a level."""
    for name in (*packages, "httpcore", "httpx", "openai"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def quiet_loggers(package: str, *more: str, unsaid: tuple[str, ...] = ()) -> None:
    """Warnings alone by default, cut to the words before the first detail: details repeat what users said.

    Args:
        package: all of its loggers that there are.
        more: loggers of it that may not be there yet.
        unsaid: how records begin that are left out, because health says the same.
    """
    warnings_only(package)
    for name in {*more, *logging.root.manager.loggerDict}:
        if name.partition(".")[0] == package:
            logging.getLogger(name).addFilter(_Discreet(unsaid))


@dataclass(frozen=True)
class _Discreet:
    """A filter that is equal to its like, so that a logger takes it once."""

    unsaid: tuple[str, ...]

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        record.msg, record.args = _DETAIL.sub("", text), ()
        record.exc_info = record.exc_text = record.stack_info = None
        return not text.startswith(self.unsaid)


def trim_heap() -> None:
    """What is freed stays with glibc otherwise, for each thread that has used it. Takes some milliseconds."""
    if sys.platform == "linux" and (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
