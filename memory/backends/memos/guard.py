"""Importing MemOS without letting it change the process it is imported into.

On import MemOS closes all logging handlers and sets up its own (console, and a file with every request in full),
reads a ``.env`` file over the environment, and makes ``.memos`` in the working directory.
"""

from __future__ import annotations

import logging
import logging.config
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.adapter import environment_kept

__all__ = ["contained"]

_LOGGERS = ("memos", "AddHandler", "SearchHandler", "FeedbackHandler")
_SILENT = logging.CRITICAL + 1


@contextmanager
def contained(directory: Path) -> Iterator[None]:
    """Around everything that imports or starts MemOS: what it does to logging and environment is undone.

    MemOS' loggers stay silent, because they write user text; ``logging.getLogger("memos").setLevel`` changes that.

    Args:
        directory: where ``.memos`` goes, unless ``MEMOS_BASE_PATH`` says otherwise. The first one counts for the
            whole process.
    """
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(_SILENT)
    configure = logging.config.dictConfig
    logging.config.dictConfig = _all_but_memos
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        with (
            environment_kept(
                TRANSFORMERS_NO_ADVISORY_WARNINGS="1",
                MEMOS_BASE_PATH=os.environ.get("MEMOS_BASE_PATH", str(directory)),
            ),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        logging.config.dictConfig = configure


def _all_but_memos(config: Mapping[str, Any]) -> None:
    """``dictConfig`` for everyone else; MemOS keeps this function, and may come back with it at any time."""
    if "memos" not in config.get("loggers", {}):
        logging.config.dictConfigClass(dict(config)).configure()
