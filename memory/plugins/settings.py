"""The ``memory:`` block of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, field_validator, model_validator

from memory.contract.formatting import Utf8TokenCounter
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import DataPath, Public
from memory.slot.calls import Deadlines
from memory.storage.shared_file import Durability


class JournalSettings(PluginOptions):
    """The block ``memory.journal``; ``true`` means its defaults."""

    durability: Durability = "process"
    """``process`` survives the end of the process at any moment; ``machine`` a power cut as well."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        return {} if given is True else given


class ContextSettings(PluginOptions):
    """The block ``memory.context``: what sections show."""

    native_ids: bool = False
    """Show the backend's own id of each entry. Off by default: equal memories then give equal bytes."""


class MemorySettings(PluginOptions):
    """The ``memory:`` block."""

    backend: Public[str] | None = None
    condition: Public[str] | None = None
    scope: MemoryScope | None = None
    read_only_test_sessions: bool = True
    budget: ContextBudget = Field(default_factory=lambda: ContextBudget(max_tokens=2000, max_items=20))
    context: ContextSettings = ContextSettings()
    deadlines: Deadlines = Field(default_factory=Deadlines)
    token_counter: Public[str] = Utf8TokenCounter.name
    data_dir: DataPath = Path(".memslot")
    journal: JournalSettings | None = None
    state: SecretStr | None = Field(default=None, repr=False)
    """``postgresql://...``: keeps everything of memslot's own there, for several machines. By default a file in
    ``data_dir`` does."""
    backends: dict[str, dict[str, Any] | None] = Field(default_factory=dict)
    conditions: dict[str, dict[str, Any] | None] = Field(default_factory=dict)

    @field_validator("scope", mode="before")
    @classmethod
    def _scope_as_written(cls, given: Any) -> Any:
        """Accept ``user_id`` for ``persona_id``. Refuse a number, because YAML reads 007 as 7."""
        if not isinstance(given, Mapping):
            return given
        for name, value in given.items():
            if isinstance(value, int) and not isinstance(value, bool):
                raise ValueError(f"{name} must be text; put it in quotes")
        if "user_id" in given and "persona_id" not in given:
            return {"persona_id" if name == "user_id" else name: value for name, value in given.items()}
        return given

    @field_validator("journal", mode="before")
    @classmethod
    def _no_journal(cls, given: Any) -> Any:
        return None if given is False else given

    @field_validator("state")
    @classmethod
    def _of_postgres(cls, state: SecretStr | None) -> SecretStr | None:
        if state and not state.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must be postgresql://user:password@host:5432/database")
        return state

    def problems(self) -> Iterator[str]:
        if self.state and self.journal and self.journal.model_fields_set:
            yield "journal: durability is a file's; with state, write journal: true"
