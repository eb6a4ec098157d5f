"""Advice about failures. A hint that does not fit is worse than none, so each kind of failure has its own."""

from __future__ import annotations

import json
import re
import traceback
import urllib.request
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import anyio.to_thread

from memory.contract.errors import (
    BackendAuthError,
    BackendError,
    BackendRateLimited,
    BackendTimeout,
    BackendUnavailable,
    IsolationError,
    MemslotError,
    PluginNotFound,
)
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginInfo

LEAK = "do not use this configuration: memory would leak between users"

_REACHED = "it was reached and failed: the backend's own log says why"
_FULL = frozenset({"ENOSPC", "EDQUOT", "EFBIG", "SQLITE_FULL", "SQLITE_IOERR_WRITE"})
_LISTED_S = 5.0
_LONGEST_LIST = 4_000_000  # bytes
_CONTEXT_FIELDS = ("max_model_len", "n_ctx", "context_length", "max_context_length")
_UNREACHED = re.compile(r"ConnectionRefused|ConnectError|ConnectTimeout|gaierror")


def unreached(diagnostics: Mapping[str, Any]) -> bool:
    """Whether a failure's diagnostics show that nothing answered at the address."""
    names = [diagnostics.get("exception", ""), *diagnostics.get("causes", ())]
    return "status" not in diagnostics and any(_UNREACHED.search(str(name)) for name in names)


def hides_us(*folders: Path) -> str | None:
    """A warning about a file that scripts in these folders import as ``memory`` in place of this package."""
    ours = Path(__file__).resolve().parents[1]
    for folder, name in product(folders, ("memory.py", "memory/__init__.py")):
        if (folder / name).is_file() and (folder / name).resolve().parent != ours:
            return (
                f'{name} beside it hides this package from scripts there, which end with "cannot import name '
                "'open_memory'\"; rename yours"
            )
    return None


def explained(error: Exception) -> str:
    """An error in words without user text: memslot's own message, or the place of a defect."""
    if isinstance(error, MemslotError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"unexpected {type(error).__name__} in {place}, a defect of the plugin or of memslot"


class Hints:
    """Advice about one configuration, as far as it and its plugin could be loaded."""

    def __init__(self, config: MemslotConfig | None = None, info: PluginInfo | None = None) -> None:
        self._config = config
        self._info = info

    def fix(self, error: Exception, model: str = "") -> str | None:
        """Advice about an error, perhaps of a model. None if the message contains it, or there is none."""
        if isinstance(error, PluginNotFound):
            return "see 'memslot doctor' for what is installed"
        if not isinstance(error, MemslotError):
            return "add --debug for the traceback, and report it to the plugin's author"
        if isinstance(error, IsolationError):
            return LEAK
        if not isinstance(error, BackendError):
            return None  # messages of configuration, input, scope and plugin errors name the fix
        if (known := self._local(error.diagnostics, model)) is not None:
            return known
        if isinstance(error, BackendAuthError):
            return self._key(model)
        if isinstance(error, BackendRateLimited):
            return "the quota is used up: wait, or use another key"
        if isinstance(error, BackendTimeout):
            return "see what keeps it, in the backend's own log; or raise memory.deadlines"
        return _REACHED if isinstance(error, BackendUnavailable) else None

    def unavailable(self, diagnostics: Mapping[str, Any]) -> str | None:
        """Advice about an ``unavailable`` backend. None if its warnings are enough."""
        if (known := self._local(diagnostics)) is not None:
            return known
        if "deadline_s" in diagnostics:
            return (
                f"see whether it runs at its address in {self._block()}; or raise memory.deadlines.health_s"
            )
        status = diagnostics.get("status") or 0
        if status in (401, 403):
            return self._key()
        return _REACHED if status >= 500 else None

    def _local(self, diagnostics: Mapping[str, Any], model: str = "") -> str | None:
        """Advice about a package, a disk or an address; None if the backend was reached."""
        if "module" in diagnostics:
            return (self._info.install or None) if self._info else None
        if "disk" in diagnostics:
            return self._disk(str(diagnostics["disk"]))
        return f"start it, or correct its address in {self._block(model)}" if unreached(diagnostics) else None

    @property
    def templates(self) -> str:  # for two scopes with the same native id
        return f"let the id templates in {self._block()} tell scopes apart: use {{run_id}} and {{persona_id}}"

    def _disk(self, code: str) -> str:
        where = str(self._config.data_dir) if self._config else "the directory of memory.data_dir"
        full = code in _FULL
        what = "the disk, or a quota of it, is full" if full else "this user must not write"
        mend = "make room" if full else "change its owner or mode"
        return f"{what} ({code}) at {where} or at a path among its options: {mend}, or set another memory.data_dir"

    def _key(self, model: str = "") -> str:
        return f"correct the key in {self._block(model)}: it is missing, wrong, expired, or may not do this"

    def _block(self, model: str = "") -> str:
        where = self._config.where if self._config else "the configuration"
        return f"{where}.{model}" if model else where

    async def model_context(self) -> int | None:
        """How many tokens the extracting model accepts, if its endpoint tells; else None."""
        block = self._config.options.get("llm") if self._config else None
        if not isinstance(block, Mapping) or not block.get("base_url"):
            return None
        return await anyio.to_thread.run_sync(_context_of, block)


def _context_of(block: Mapping[str, Any]) -> int | None:
    """The context in the endpoint's list of models, as vLLM, llama.cpp, OpenRouter or LM Studio name it."""
    key = {"Authorization": f"Bearer {block['api_key']}"} if block.get("api_key") else {}
    try:
        request = urllib.request.Request(f"{str(block['base_url']).rstrip('/')}/models", headers=key)
        with urllib.request.urlopen(request, timeout=_LISTED_S) as answer:
            listed = json.loads(answer.read(_LONGEST_LIST))["data"]
        named = [model for model in listed if model["id"] == block.get("model")] or listed
        (model,) = named
        told = {**(model.get("meta") or {}), **model}
        return next((int(told[name]) for name in _CONTEXT_FIELDS if told.get(name)), None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
