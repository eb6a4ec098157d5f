"""Filling ``${NAME}`` into a configuration's values, and refusing what could not be kept, shown or hashed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from memory.contract._model import is_encodable
from memory.contract.errors import ConfigError
from memory.plugins.redaction import is_credential
from memory.plugins.yaml import Lines, shown

SECTIONS = ("memory", "run", "agent", "serve")
"""What a configuration may hold."""

_VARIABLE = re.compile(r"\$\$|\$\{(?:([A-Za-z_][A-Za-z0-9_]*+)(?::-((?:[^}$]|\$(?!\{))*+))?+\})?+")
_DEEPEST = 64
_MAX_VALUES = 100_000


@dataclass(frozen=True)
class Problems:
    """Builds errors that say file, line and field, all in one form: ``file.yaml:11: run.sessions: ...``.

    Attributes:
        source: the file's name as it was given, or empty.
        lines: lines of its keys, where it is a file.
    """

    source: str = ""
    lines: Lines = field(default_factory=Lines)

    def __call__(self, path: tuple[str, ...], what: str) -> ConfigError:
        return ConfigError(f"{self.place(path)}: {what}")

    def place(self, path: tuple[str, ...]) -> str:
        """``file.yaml:11: run.sessions``, or as much of it as is known."""
        line = self.lines.of(path)
        file = f"{self.source}:{line}: " if line else f"{self.source}: " if self.source else ""
        return f"{file}{shown(path)}"

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Puts file and line before errors from within that begin with a path."""
        try:
            yield
        except ConfigError as error:
            path, separator, what = str(error).partition(": ")
            names = tuple(path.split("."))
            if not separator or names[0] not in SECTIONS:
                raise
            raise self(names, what) from error


NO_FILE = Problems()
"""Of what stands in no file."""


class Resolver:
    """Fills ``${NAME}`` in, remembering which values come from variables that hold credentials."""

    def __init__(self, env: Mapping[str, str], problem: Problems) -> None:
        self._env = env
        self._problem = problem
        self._filled = 0
        self.secrets: dict[tuple[str, ...], str] = {}

    def fill(self, value: Any, path: tuple[str, ...]) -> Any:
        """``value`` with variables filled in.

        Raises:
            ConfigError: a variable is not set, or a value could not be kept, shown or hashed.
        """
        self._filled += 1
        if len(path) > _DEEPEST or self._filled > _MAX_VALUES:
            raise self._problem(path[:4], "is nested too deeply or too large, or holds itself; write less")
        if isinstance(value, Mapping):
            filled = {str(key): self.fill(item, (*path, str(key))) for key, item in value.items()}
            if len(filled) < len(value):
                raise self._problem(path, "has two keys that are the same as text; rename one")
            for key in filled:
                self._check(key, path)
            return filled
        if isinstance(value, (list, tuple)):
            return [self.fill(item, (*path, str(index))) for index, item in enumerate(value)]
        if isinstance(value, str) and "$" in value:
            value = self._with_variables(value, path)
        self._check(value, path)
        return value

    def _check(self, value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, str) and ("\0" in value or not is_encodable(value)):
            raise self._problem(
                path, "holds a NUL character or half a surrogate pair; write it as plain text"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self._problem(path, "is larger than any number a backend takes; quote it if it is text")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._problem(path, "must be a finite number; leave it out for no limit")

    def _with_variables(self, value: str, path: tuple[str, ...]) -> str:
        def replace(match: re.Match[str]) -> str:
            name, default = match.groups()
            if match.group() == "$$":
                return "$"
            if name is None:
                raise self._problem(
                    path,
                    "holds '${' without a variable; write ${NAME} or ${NAME:-default}, or $${ for the sign",
                )
            if is_credential(name):
                self.secrets[path] = value
            found = self._env.get(name, default)
            if found is None:
                raise self._problem(
                    path, f"needs the environment variable {name}; set it, or write ${{{name}:-default}}"
                )
            return found

        return _VARIABLE.sub(replace, value)
