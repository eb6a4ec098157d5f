"""A host's files with its user's settings. memslot adds entries to them, and removes them again."""

from __future__ import annotations

import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory import ConfigError
from memory.adapter.stores import replace_file

_BEGIN, _END = (
    "\n# From here on by 'memslot tools hosts install', which 'uninstall' takes away.\n",
    "# To here.\n",
)


class HostFile(ABC):
    """A file of a host. It need not exist."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @abstractmethod
    def before(self) -> str:
        """Return the file's text without memslot's entries; empty if nothing else is in it."""

    @abstractmethod
    def after(self) -> str:
        """Return the file's text with memslot's entries.

        Raises:
            ConfigError: the content is not what the host documents, or has an entry of the same name.
        """

    def write(self) -> None:
        """Add the entries, in place of older ones."""
        _write(self.file, self.after())

    def remove(self) -> bool:
        """Remove the entries, and the file if nothing else is in it. Returns whether there were entries."""
        before = self.before()
        found = before != _read(self.file)
        if found and (before or self.file.is_symlink()):
            _write(self.file, before or "{}\n")
        elif found:
            self.file.unlink()
        return found


class JsonEntries(HostFile):
    """memslot's entries in a JSON file.

    Args:
        file: the host's file.
        entries: (key of an object, key in it) -> value. A list extends an existing list.
        mark: a text that identifies memslot's values. A plain ``True`` needs no mark.
        base: the content of a new file.
    """

    def __init__(self, file: Path, entries: Mapping[tuple[str, str], Any], mark: str, **base: Any) -> None:
        super().__init__(file)
        self._entries, self._mark, self._base = entries, mark, base

    def before(self) -> str:
        text = _read(self.file)
        without, found = self._without(text)
        if not found:
            return text
        return "" if without in ({}, self._base) else _printed(without, like=text)

    def after(self) -> str:
        text = _read(self.file)
        content = {**self._base, **self._without(text)[0]}
        for (group, key), value in self._entries.items():
            place = content.setdefault(group, {})
            extends = isinstance(value, list)
            if not isinstance(place, dict) or (extends and not isinstance(place.get(key, []), list)):
                raise ConfigError(f"{self.file}: {group} is not what its host documents; mend it first")
            if extends:
                place[key] = [*place.get(key, []), *value]
            elif key in place:
                raise ConfigError(f"{self.file} has {group}.{key} already; take it out first")
            else:
                place[key] = value
        return _printed(content, like=text)

    def _without(self, text: str) -> tuple[dict[str, Any], bool]:
        """Return the content without memslot's entries and keys left empty, and whether there were any."""
        try:
            content = json.loads(text or "{}")
        except ValueError as error:
            raise ConfigError(f"{self.file} is not JSON; mend it first") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{self.file} is not a JSON object; mend it first")
        found = False
        for (group, key), value in self._entries.items():
            place, mark = content.get(group), "" if value is True else self._mark
            if not isinstance(place, dict) or key not in place:
                continue
            before = place[key]
            if isinstance(before, list):
                place[key] = [element for element in before if mark not in json.dumps(element)]
            elif mark in json.dumps(before):
                place[key] = None
            found = found or place[key] != before
            if not place[key]:
                del place[key]
            if not place:
                del content[group]
        return content, found


class TomlTables(HostFile):
    """memslot's tables at the end of a TOML file, between two comments."""

    def __init__(self, file: Path, tables: str) -> None:
        super().__init__(file)
        self._tables = tables

    def before(self) -> str:
        return re.sub(re.escape(_BEGIN) + ".*?" + re.escape(_END), "", _read(self.file), flags=re.DOTALL)

    def after(self) -> str:
        before = self.before()
        after = f"{before}{_BEGIN}{self._tables}{_END}"
        for text, problem in ((before, "is not TOML"), (after, "has a table of this name already")):
            try:
                tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{self.file} {problem} ({error}); mend it first") from error
        return after


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            return opened.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__})") from error


def _printed(content: Mapping[str, Any], *, like: str) -> str:
    indent = re.match(r"\s*\{\s*?\n([ \t]+)", like)
    end = "\n" if like.endswith("\n") or not like else ""
    return json.dumps(content, indent=indent[1] if indent else 2, ensure_ascii=False) + end


def _write(file: Path, text: str) -> None:
    """Write a file atomically. It follows symbolic links."""
    try:
        replace_file(file.resolve(), text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror})") from error
