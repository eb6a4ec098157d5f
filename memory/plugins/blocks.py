"""Reads a configuration's YAML, fills its variables in, and checks its blocks against their models.

Errors name file, line, field and fix.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memory.contract._model import is_encodable
from memory.contract.errors import ConfigError, MemslotError, PluginError
from memory.plugins.redaction import is_credential

_TAG = "tag:yaml.org,2002:"
_MAX_VALUES = 100_000
_DEEPEST = 64


class _Loader(yaml.SafeLoader):
    """Loads only the types of JSON. A date stays text, as everywhere else where users write one."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            kind = node.tag.removeprefix(_TAG)
            raise _problem(node, f"this is not a valid {kind}; quote it if it is text") from None


_KINDS = tuple(f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))
_Loader.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in (None, *_KINDS)
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (*_KINDS, f"{_TAG}merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _problem(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


class Lines(dict[tuple[str, ...], int | None]):
    def of(self, path: tuple[str, ...]) -> int | None:
        """The line of a key, or of its nearest existing parent; None without a file."""
        while path and path not in self:
            path = path[:-1]
        return self.get(path)


def shown(path: Iterable[str]) -> str:
    """A field's path for a message, on one line even if a key holds a line break."""
    return "".join(char if char.isprintable() else "?" for char in ".".join(path))


def load_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """The file's mapping, and the lines of its keys. Keys are text as written, even ``1`` and ``yes``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; 'memslot setup' writes one") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError:
        raise ConfigError("the configuration's path holds a NUL character; give the name of a file") from None
    lines = Lines()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}: must be a mapping that starts with 'memory:'")
        _read_keys(node, (), lines, set())
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        why = error.problem or error.context or ""
        fix = "; indent with blanks" if "'\\t'" in why else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {why}{fix}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply to be a configuration") from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise ConfigError(f"{path}: not valid YAML (a character that YAML does not allow)") from None


def _read_keys(node: yaml.Node, path: tuple[str, ...], lines: Lines, seen: set[int]) -> None:
    """Note the line of every key, and make it text as written. Refuse a key that stands twice."""
    if isinstance(node, yaml.ScalarNode) or id(node) in seen:
        return
    seen.add(id(node))  # the fields behind an alias have the line of the key that uses it
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _read_keys(item, (*path, str(index)), lines, seen)
        return
    names: set[str] = set()
    for index, (key, value) in enumerate(node.value):
        if not isinstance(key, yaml.ScalarNode):
            raise _problem(key, "a key is no text; keys are names")
        if key.tag == f"{_TAG}merge":
            raise _problem(key, "'<<' is not read; write the fields out")
        if key.value in names:
            raise _problem(key, f"{key.value!r} stands twice; YAML would keep only one")
        names.add(key.value)
        lines[*path, key.value] = key.start_mark.line + 1
        text = yaml.ScalarNode(f"{_TAG}str", key.value, key.start_mark, key.end_mark)
        node.value[index] = (text, value)
        _read_keys(value, (*path, key.value), lines, seen)


SECTIONS = ("memory", "run", "agent", "serve", "hooks")  # the known sections of a configuration
_VARIABLE = re.compile(r"\$\$|\$\{(?:([A-Za-z_][A-Za-z0-9_]*+)(?::-((?:[^}$]|\$(?!\{))*+))?+\})?+")


@dataclass(frozen=True)
class Problems:
    """Builds errors that name file, line and field in one form: ``file.yaml:11: run.sessions: ...``."""

    source: str = ""  # the file's name as given
    lines: Lines = field(default_factory=Lines)

    def __call__(self, path: tuple[str, ...], what: str) -> ConfigError:
        return ConfigError(f"{self.place(path)}: {what}")

    def place(self, path: tuple[str, ...]) -> str:
        line = self.lines.of(path)
        if line:
            return f"{self.source}:{line}: {shown(path)}"
        return f"{self.source}: {shown(path)}" if self.source else shown(path)

    @contextmanager
    def placing(self, **blocks: str) -> Iterator[None]:
        """Add file and line to errors of the body that begin with a path.

        Args:
            blocks: first name of a path -> the block of this file that it means.
        """
        try:
            yield
        except (ConfigError, PluginError) as error:
            path, separator, what = str(error).partition(": ")
            section, *names = path.split(".")
            if not separator or section not in (*SECTIONS, *blocks):
                raise
            place = self.place((blocks.get(section, section), *names))
            raise type(error)(f"{place}: {what}") from error


NO_FILE = Problems()  # for a configuration without a file


class Resolver:
    """Fills ``${NAME}`` in, and remembers which values come from variables that hold credentials."""

    def __init__(self, env: Mapping[str, str], problem: Problems) -> None:
        self._env = env
        self._problem = problem
        self._filled = 0
        self._unset: list[ConfigError] = []
        self.secrets: dict[tuple[str, ...], str] = {}

    def fill(self, value: Any, path: tuple[str, ...]) -> Any:
        """``value`` with variables filled in.

        Raises:
            ConfigError: variables are unset (one line for each), or a value cannot be kept, shown or hashed.
        """
        self._unset = []
        filled = self._fill(value, path)
        if self._unset:
            raise together(self._unset)
        return filled

    def _fill(self, value: Any, path: tuple[str, ...]) -> Any:
        self._filled += 1
        if len(path) > _DEEPEST or self._filled > _MAX_VALUES:
            raise self._problem(path[:4], "is nested too deeply or too large, or holds itself; write less")
        if isinstance(value, Mapping):
            filled = {str(key): self._fill(item, (*path, str(key))) for key, item in value.items()}
            if len(filled) < len(value):
                raise self._problem(path, "has two keys that are the same as text; rename one")
            for key in filled:
                self._check(key, path)
            return filled
        if isinstance(value, (list, tuple)):
            return [self._fill(item, (*path, str(index))) for index, item in enumerate(value)]
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
            found: str | None = self._env.get(name, default)
            if found is None:
                what = f"needs the environment variable {name}; set it, or write ${{{name}:-default}}"
                self._unset.append(self._problem(path, what))
                return ""
            return found

        return _VARIABLE.sub(replace, value)


ModelT = TypeVar("ModelT", bound=BaseModel)


def parse_block(
    model: type[ModelT], data: Mapping[str, Any], where: str, problem: Problems = NO_FILE
) -> ModelT:
    """Validate one block.

    Args:
        model: the model of the block. Its ``FORMER``, if any, explains former keys.
        data: the block.
        where: the block's path, such as ``memory.backends.mem0``, which begins every message. It is empty for
            a whole file.
        problem: builds errors for the block's file.

    Raises:
        ConfigError: fields are wrong. Each line names one field, the mistake, and for a typo the nearest
            known name. No line repeats a value, which may be a secret.
    """
    path, found = tuple(filter(None, where.split("."))), _Found(model, data)
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        found.add(error)
    except MemslotError:
        raise
    except Exception as error:  # a plugin's validator, which should have raised ValueError
        raise problem(path, f"could not be understood ({type(error).__name__})") from error
    # Conflicts between fields show only without the fields that are wrong by themselves.
    with suppress(Exception):
        try:
            model.model_validate({key: value for key, value in data.items() if key not in found.keys})
        except ValidationError as error:
            found.add(error)
    raise together(problem((*path, *names), what) for names, what in found.problems())


def together(errors: Iterable[ConfigError]) -> ConfigError:
    """Several errors as one, with one line for each."""
    return ConfigError("\n".join(dict.fromkeys(str(error) for error in errors)))


class _Found:
    """The mistakes in a block, by their path in it."""

    def __init__(self, model: type[BaseModel], data: Mapping[str, Any]) -> None:
        self._model = model
        self._data = data
        self._whats: dict[tuple[str, ...], tuple[int, str]] = {}
        self._between: dict[tuple[tuple[str, ...], str], None] = {}  # (path of a block, conflict in it)

    def add(self, error: ValidationError) -> None:
        wrong = self.keys
        for problem in error.errors(include_input=False, include_url=False, include_context=False):
            names, what = self._read(problem)
            if (problem["type"] == "value_error" and "\n" in what) or not names:
                lines = [line for line in what.split("\n") if not wrong & set(re.findall(r"\w+", line))]
                self._between |= {(names, line): None for line in lines}
                continue
            depth = len(problem["loc"])
            known = self._whats.get(names)
            # A value may have several types. The deepest complaint is about the type that the user meant.
            if known is None or known[0] < depth:
                self._whats[names] = depth, what

    @property
    def keys(self) -> set[str]:
        """The keys of the block that are wrong, or contain something wrong."""
        found = (*self._whats, *(names for names, _ in self._between))
        return {names[0] for names in found if names}

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each wrong path and its mistake. A parent of another wrong path is left out as less precise."""
        for names, (_, what) in self._whats.items():
            deeper = (other for other in self._whats if other != names and other[: len(names)] == names)
            if not any(deeper):
                yield names, what
        yield from self._between

    def _read(self, problem: ErrorDetails) -> tuple[tuple[str, ...], str]:
        names, value = _in_data(self._data, problem["loc"], missing=problem["type"] == "missing")
        inner, name = _model_at(self._model, names[:-1]), str(names[-1] if names else "")
        known = inner.model_fields if inner else {}
        what = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            examples = known[name].examples if name in known else None
            what = f"is required, e.g. {examples[0]}" if examples else "is required"
        elif problem["type"] in ("model_type", "dict_type"):
            what = "must be a mapping, such as {name: value}"
        elif problem["type"] == "string_type" and isinstance(value, (int, float)):
            what = "must be text; put it in quotes"
        elif problem["type"] == "extra_forbidden":
            former: Mapping[str, str] = getattr(inner, "FORMER", {})
            what = former.get(name) or f"is not a known field{nearest(name, known)}"
        return tuple(map(str, names)), what


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: similar known names, or else all known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(known)}" if known else ""


def _in_data(data: Any, loc: tuple[int | str, ...], *, missing: bool) -> tuple[list[str | int], Any]:
    """The part of pydantic's location that exists in the data (union branches do not), and its value."""
    path: list[str | int] = []
    for position, part in enumerate(loc):
        inside = isinstance(data, Mapping) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int)):
            path.append(part)
            data = data[part]
        elif missing and position == len(loc) - 1:
            path.append(part)
    return path, data


def _model_at(model: type[BaseModel], path: list[str | int]) -> type[BaseModel] | None:
    current: Any = model
    for part in path:
        options = _models(current)
        if not options:
            return None
        field = options[0].model_fields.get(str(part))
        if field is not None:
            current = field.annotation
    return next(iter(_models(current)), None)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, dict, list, tuple):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []
