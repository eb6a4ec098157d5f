"""A host's files with its user's settings. memslot adds entries to them, and removes them without a trace."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory import ConfigError
from memory.adapter.stores import replace_file

_BEGIN, _END = (
    "\n# From here on by 'memslot tools hosts install', which 'uninstall' takes away.\n",
    "# To here.\n",
)


class JsonEntries:
    """memslot's entries in a JSON file. The file need not exist.

    Args:
        file: the host's file.
        copy: a backup of the original file, which removal restores byte for byte.
        entries: path of keys -> value. A list extends an existing list.
        mark: a text that identifies memslot's values. A plain ``True`` needs no mark.
        base: the content of a new file.
    """

    def __init__(
        self,
        file: Path,
        copy: Path,
        entries: Mapping[tuple[str, ...], Any],
        mark: str,
        base: Mapping[str, Any] | None = None,
    ) -> None:
        self.file, self.copy = file, copy
        self._entries, self._mark, self._base = entries, mark, dict(base or {})

    def before(self) -> str:
        """Return the file's text without memslot's entries; empty if there would be no file."""
        text = _read(self.file)
        without, found = self._without(text)
        if not found:
            return text
        copied = _read(self.copy)
        if self._without(copied)[0] == without:
            return copied
        return "" if without in ({}, self._base) else _printed(without, like=text)

    def after(self) -> str:
        """Return the file's text with the entries.

        Raises:
            ConfigError: the content is not what the host documents, or has an entry of the same name.
        """
        before = self.before()
        content = {**self._base, **self._without(before)[0]}
        try:
            for (*way, last), value in self._entries.items():
                place = content
                for key in way:
                    place = place.setdefault(key, {})
                if isinstance(value, list):
                    place.setdefault(last, []).extend(value)
                elif last in place:
                    raise ConfigError(f"{self.file} has {'.'.join((*way, last))} already; take it out first")
                else:
                    place[last] = value
        except (AttributeError, TypeError) as error:
            raise ConfigError(
                f"{self.file}: {'.'.join(way)} is not what its host documents; mend it first"
            ) from error
        return _printed(content, like=before)

    def _without(self, text: str) -> tuple[dict[str, Any], bool]:
        """Return the content without memslot's entries and keys left empty, and whether there were any."""
        try:
            content = json.loads(text or "{}")
        except ValueError as error:
            raise ConfigError(f"{self.file} is not JSON; mend it first") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{self.file} is not a JSON object; mend it first")
        taken = [
            _take_out(content, way, "" if value is True else self._mark)
            for way, value in self._entries.items()
        ]
        return content, any(taken)


class TomlTables:
    """memslot's tables at the end of a TOML file, between two comments. The file need not exist."""

    def __init__(self, file: Path, tables: str) -> None:
        self.file, self._tables = file, tables

    def before(self) -> str:
        text = _read(self.file)
        return re.sub(re.escape(_BEGIN) + ".*?" + re.escape(_END), "", text, flags=re.DOTALL)

    def after(self) -> str:
        before = self.before()
        after = f"{before}{_BEGIN}{self._tables}{_END}"
        for text, problem in ((before, "is not TOML"), (after, "has a table of this name already")):
            try:
                tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{self.file} {problem} ({error}); mend it first") from error
        return after


def write_entries(file: JsonEntries | TomlTables) -> None:
    before, after = file.before(), file.after()
    if isinstance(file, JsonEntries) and before:
        _write(file.copy, before)
    _write(file.file, after)


def take_entries(file: JsonEntries | TomlTables) -> bool:
    """Remove the entries, and the file if nothing else is in it. Returns whether there were entries."""
    before = file.before()
    found = before != _read(file.file)
    if found and before:
        _write(file.file, before)
    elif found:
        file.file.unlink()
    return found


def _take_out(content: Any, way: tuple[str, ...], mark: str) -> bool:
    key, *rest = way
    if not isinstance(content, dict) or key not in content:
        return False
    found, taken = content[key], False
    if rest:
        taken = _take_out(found, tuple(rest), mark)
    elif isinstance(found, list):
        content[key] = [element for element in found if mark not in json.dumps(element)]
        taken = content[key] != found
    elif mark in json.dumps(found):
        del content[key]
        taken = True
    if content.get(key) in ({}, []):
        del content[key]
    return taken


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
    """Write a file atomically. It follows symbolic links and keeps the file's mode."""
    target = file.resolve()
    mode = target.stat().st_mode if target.exists() else None
    umask = os.umask(0o077)
    try:
        replace_file(target, text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror})") from error
    finally:
        os.umask(umask)
    if mode is not None:
        target.chmod(mode)
