"""Reading YAML strictly: one mapping, no duplicate keys, every problem with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from memory.contract.errors import ConfigError

__all__ = ["Lines", "load_yaml"]


class _Loader(yaml.SafeLoader):
    """YAML's JSON subset of types: a date stays the text it is, as in every other place where users write one."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Lines:
    """Line numbers of a document's keys, by path."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], int] = {}

    def note(self, path: tuple[str, ...], line: int) -> None:
        self._lines[path] = line

    def of(self, path: tuple[str, ...]) -> int | None:
        """Line of the key, or of the nearest one above it that exists; None without a file."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


def load_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """The file's mapping, and where its keys are.

    Raises:
        ConfigError: unreadable, not UTF-8, not YAML (with line and column), a key twice, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; 'memslot init' writes a commented one") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    lines = Lines()
    try:
        node = yaml.compose(text, Loader=_Loader)
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: not valid YAML (a character that YAML does not allow)") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping that starts with 'memory:'")
    _note_keys(path, node, (), lines)
    return content, lines


def _note_keys(file: Path, node: Any, path: tuple[str, ...], lines: Lines) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_keys(file, item, (*path, str(index)), lines)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        name = str(key.value)
        line = key.start_mark.line + 1
        if name in seen:
            raise ConfigError(
                f"{file}:{line}: {'.'.join((*path, name))}: stands twice; YAML would keep only one"
            )
        seen.add(name)
        lines.note((*path, name), line)
        _note_keys(file, value, (*path, name), lines)
