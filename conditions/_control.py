"""What the conditions share: they are controls (spec section 2.2), and take whole scopes as keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from memory import (
    BackendHealth,
    ConfigError,
    MemoryEvent,
    MemoryScope,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import AdapterTraits, BaseAdapter, ContextEntry, ResetReceipt


class ControlCondition(BaseAdapter):
    """A provider that runs inside this process and is a baseline or a ceiling, never an architecture.

    Args:
        name: the condition's name in the configuration; labels its context sections and traces.
        traits: what it declares; ``kind`` is always ``control``.
    """

    def __init__(self, name: str, traits: AdapterTraits) -> None:
        self.backend_name = name
        # What needs a model tells of it, the others have none.
        self.traits = replace(traits, counts_llm_calls=True)

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The scope's label: there is no backend whose alphabet it would have to fit."""
        return {"scope": scope.label}

    async def health(self) -> BackendHealth:
        """Always ``ok``: there is nothing to reach."""
        return self.health_of()

    def found(
        self,
        request: RetrieveRequest,
        native_operation: str,
        entries: tuple[ContextEntry, ...],
        raw: Mapping[str, Any],
        **trace: Any,
    ) -> RetrieveResult:
        """A retrieval's result; ``trace`` are further fields of its trace."""
        ids = tuple(entry.native_id for entry in entries if entry.native_id is not None)
        return RetrieveResult(
            request=request,
            raw=dict(raw),
            entries=entries,
            trace=self.trace(request.scope, native_operation, native_ids=ids, **trace),
        )


def content_hash(content: JsonValue) -> str:
    """SHA-256 of what a condition was given, so that a run's record tells one truth from another."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_file(path: Path, where: str, wanted: str) -> str:
    """A UTF-8 file that a user named; ConfigError says where and asks for what was ``wanted``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{where}: {path} cannot be read ({error.strerror}); give {wanted}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: {path} is not UTF-8 text; convert it") from None


class FixedCondition(ControlCondition):
    """A condition whose context does not come from what was written, so it keeps nothing of it.

    Attributes:
        volatile: what becomes of a write, said in every receipt.
    """

    volatile = "volatile: this condition keeps nothing of what is written"

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Keep nothing. The receipt says so, and the trace by its native operation, ``none``."""
        return self.receipt(event, "none", warnings=(self.volatile,))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Nothing of a scope is kept, hence nothing is left."""
        return ResetReceipt(scope=scope, verified=True, removed=0, trace=self.trace(scope, "none"))
