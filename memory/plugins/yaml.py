"""Reading YAML strictly: one mapping, no duplicate keys, JSON's types, every problem with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from memory.contract.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_MAX_NODES = 100_000
_DEEPEST = 64


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

    def note(self, path: tuple[str, ...], line: int | None) -> None:
        """Say where a key stands; None is nowhere."""
        if line is not None:
            self._lines[path] = line

    def of(self, path: tuple[str, ...]) -> int | None:
        """Line of the key, or of the nearest one above it that exists; None without a file."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


def shown(path: Iterable[str]) -> str:
    """A field's path as a message shows it, on one line whatever its keys hold."""
    return "".join(char if char.isprintable() else "?" for char in ".".join(path))


def load_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """The file's mapping, and where its keys are. Keys are text as written: ``1`` and ``yes`` too.

    Raises:
        ConfigError: unreadable, not UTF-8, not YAML (with line and column), a key twice, a value that is not what
            its tag says, too deep or too large to be a configuration, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; 'memslot init' writes a commented one") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError:
        raise ConfigError("the configuration's path holds a NUL character; give the name of a file") from None
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {error.problem or error.context}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply to be a configuration") from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise ConfigError(f"{path}: not valid YAML (a character that YAML does not allow)") from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: must be a mapping that starts with 'memory:'")
    builder = _Builder(path)
    return builder.mapping(node, ()), builder.lines


class _Builder:
    """Plain data of YAML nodes; every alias is a value of its own, so how much there may be is bounded."""

    def __init__(self, file: Path) -> None:
        self.lines = Lines()
        self._file = file
        self._nodes = 0
        of = yaml.constructor.SafeConstructor()
        self._scalars: dict[str, Callable[[yaml.ScalarNode], Any]] = {
            "null": of.construct_yaml_null,
            "bool": of.construct_yaml_bool,
            "int": of.construct_yaml_int,
            "float": of.construct_yaml_float,
            "str": lambda node: node.value,
            "value": lambda node: node.value,
        }

    def value(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise self._problem(
                node, path, "makes this more than a configuration by its aliases; write it out"
            )
        if len(path) > _DEEPEST:
            raise self._problem(node, path[:4], f"is nested over {_DEEPEST} deep, or stands within itself")
        tag = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            return [self.value(item, (*path, str(index))) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode) or tag not in self._scalars:
            raise self._problem(node, path, f"has the tag {tag!r}; write text, a number, a list or a mapping")
        try:
            return self._scalars[tag](node)
        except (ValueError, LookupError, AttributeError, OverflowError):
            raise self._problem(node, path, f"is not a valid {tag}; quote it if it is text") from None

    def mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        own: dict[str, yaml.Node] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._problem(key, path, "has a key that is no text; keys are names")
            if key.tag == f"{_TAG}merge":
                merged = {**self._merged(value, path), **merged}
            elif key.value in own:
                raise self._problem(key, (*path, key.value), "stands twice; YAML would keep only one")
            else:
                own[key.value] = value
                self.lines.note((*path, key.value), key.start_mark.line + 1)
        return {**merged, **{name: self.value(value, (*path, name)) for name, value in own.items()}}

    def _merged(self, node: yaml.Node, path: tuple[str, ...]) -> dict[str, Any]:
        """What ``<<`` brings in: of one mapping, or of several, the first of which counts."""
        found = self.value(node, (*path, "<<"))
        merged: dict[str, Any] = {}
        for merging in found if isinstance(found, list) else [found]:
            if not isinstance(merging, dict):
                raise self._problem(node, (*path, "<<"), "merges what is not a mapping")
            merged = {**merging, **merged}
        return merged

    def _problem(self, node: yaml.Node, path: tuple[str, ...], what: str) -> ConfigError:
        return ConfigError(f"{self._file}:{node.start_mark.line + 1}: {shown(path)}: {what}")
