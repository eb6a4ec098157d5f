"""The publishable form of a configuration, and its hash.

An allow-list decides. A value is shown if its field's type is harmless (``bool``, numbers, ``Literal``,
enums), if the field is marked :data:`Public`, or if it equals the field's default, which is public in the
source code. Anything else appears as :data:`HIDDEN`.

The hash covers everything that can change what a configuration does, shown or not. It leaves out
credentials, so that a new key gives the same hash, and data paths. An attacker who knows all other values
could guess a private one, so every hash is slow: about 0.1 s per guess.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, JsonValue, RootModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from memory.contract.scope import MemoryScope
from memory.plugins.hookspecs import PluginOptions

HIDDEN = "***"  # in place of a value that is not shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Mark:
    what: Literal["public", "private", "data", "input"]


Public = Annotated[T, _Mark("public")]
"""``Public[str]``: shown, such as a model's name. A URL still loses its credentials, query and fragment."""
Private = Annotated[T, _Mark("private")]
"""``Private[str]``: never shown, but part of the configuration hash, unlike a ``SecretStr``."""
DataPath = Annotated[Path, _Mark("data")]
"""A plugin's data directory, which is no part of the configuration hash."""
InputFile = Annotated[Path, _Mark("input")]
"""A file to read. The configuration hash covers its content, and not its name."""

_origin: Callable[[Any], Any] = get_origin
_ROUNDS = 200_000
_OMITTED: Any = object()
_NO_DEFAULT: Any = object()
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CREDENTIALS = re.compile(
    r"apikey|auth|authorization|bearer|cookie|credentials?|passphrase|passwd|passwords?|pwd|secrets?|token"
)
_KEYS = re.compile(
    r"access|account|admin|api|app|auth|client|encryption|license|master|private|secret|service|shared|signing|storage"
    r"|subscription"
)
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]++)\s*+=\s*+(?:'[^']*+'|[^\s&;]++)")
_USER_PART = re.compile(r"(?<=://)[^/?#\s]*@")


def is_credential(name: str) -> bool:
    """Whether a name denotes a credential: ``X-Api-Key`` and ``pwd`` do, ``partition_key`` does not."""
    before, last = ["", "", *(word.lower() for word in _WORDS.findall(name))][-2:]
    if last in ("key", "keys"):
        return not before or _KEYS.fullmatch(before) is not None
    return _CREDENTIALS.fullmatch(last) is not None


def slow_hash(content: Any) -> str:
    """64 hexadecimal digits over JSON-ready ``content``, independent of the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return _stretched(digest)


@lru_cache(maxsize=256)
def _stretched(digest: bytes) -> str:
    return hashlib.pbkdf2_hmac("sha256", digest, b"memslot ", _ROUNDS).hex()


def resolve_paths(value: T, base: Path) -> T:
    """``value`` (options, or a part of them) with every relative path resolved against ``base``."""
    new: Any = value
    if isinstance(value, PurePath):
        new = base / Path(value).expanduser()
    elif isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        changed = {
            name: moved for name, item in fields.items() if (moved := resolve_paths(item, base)) is not item
        }
        new = value.model_copy(update=changed) if changed else value
    elif isinstance(value, dict):
        new = {key: resolve_paths(item, base) for key, item in value.items()}
    elif type(value) in (list, tuple):
        new = type(value)(resolve_paths(item, base) for item in value)  # type: ignore[attr-defined, call-arg]
    return new  # type: ignore[no-any-return]


def data_paths(options: BaseModel) -> Iterator[Path]:
    for name, field in type(options).model_fields.items():
        value = getattr(options, name)
        if isinstance(value, BaseModel):
            yield from data_paths(value)
        elif isinstance(value, Path) and "data" in _Spot.of_field(field, (name,)).marks:
            yield value


@dataclass(frozen=True, slots=True)
class _Spot:
    """The place of a value: its path in the YAML, its declared types and marks, and its field's default."""

    path: tuple[str, ...]
    types: tuple[tuple[Any, _Mark | None], ...]
    default: Any = _NO_DEFAULT
    within: bool = False  # an item of a container, whose mark makes no credential in it public

    @classmethod
    def of_field(cls, field: FieldInfo, path: tuple[str, ...]) -> _Spot:
        mark = next((item for item in field.metadata if isinstance(item, _Mark)), None)
        default = _NO_DEFAULT if field.is_required() else field.get_default(call_default_factory=False)
        return cls(path, tuple(_alternatives(field.annotation, mark)), default)

    def items(self, value: Any) -> Iterator[tuple[str, Any, _Spot]]:
        """The items of a mapping or sequence: key or position, value, and place."""
        found: list[tuple[Any, _Mark | None]] = []
        for annotation, mark in self.types:
            arguments = [item for item in get_args(annotation) if item is not Ellipsis]
            for item in arguments[1:] if isinstance(value, Mapping) else arguments:
                found.extend(_alternatives(item, mark))
            if not arguments:
                found.append((Any, mark))
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield str(key), item, _Spot((*self.path, str(key)), tuple(found), within=True)

    @property
    def marks(self) -> set[str]:
        return {mark.what for _, mark in self.types if mark is not None}

    @property
    def secret(self) -> bool:
        """Whether the value is a credential, by its type or, if it is not marked public, by its name."""
        declared = any(annotation in (SecretStr, SecretBytes) for annotation, _ in self.types)
        named = self.within or "public" not in self.marks
        name = next((part for part in reversed(self.path) if not part.isdecimal()), "")
        return declared or (named and is_credential(name))

    @property
    def untyped(self) -> bool:
        return all(annotation in (Any, object) for annotation, _ in self.types)

    def plain(self, value: Any) -> bool:
        if isinstance(value, (Enum, MemoryScope)):  # a scope's ids are in every trace anyway
            return True
        number = isinstance(value, (bool, int, float))
        return any(
            (_origin(annotation) is Literal and value in get_args(annotation))
            or (number and annotation in (bool, int, float))
            for annotation, _ in self.types
        )


def _alternatives(annotation: Any, mark: _Mark | None) -> Iterator[tuple[Any, _Mark | None]]:
    """The possible types of a value, with unions and aliases resolved, each with its nearest mark."""
    if hasattr(annotation, "__metadata__"):
        mark = next((item for item in annotation.__metadata__ if isinstance(item, _Mark)), mark)
        yield from _alternatives(annotation.__origin__, mark)
    elif annotation is JsonValue:
        yield Any, mark
    elif _origin(annotation) in (Union, UnionType):
        for item in get_args(annotation):
            yield from _alternatives(item, mark)
    elif hasattr(annotation, "__value__"):
        yield from _alternatives(annotation.__value__, mark)
    else:
        yield annotation, mark


class Redaction:
    """Builds the publishable form and the hashed content of one configuration.

    Args:
        base: the base of relative paths.
        secrets: path of a value from a variable with a credential's name -> the text in the YAML.
    """

    def __init__(self, base: Path, secrets: Mapping[tuple[str, ...], str]) -> None:
        self._base = base
        self._secrets = secrets

    def shown(self, model: BaseModel, path: tuple[str, ...]) -> dict[str, Any]:
        shown = {
            field.alias or name: self._show(
                getattr(model, name), _Spot.of_field(field, (*path, field.alias or name))
            )
            for name, field in type(model).model_fields.items()
        }
        return shown | dict.fromkeys(model.model_extra or {}, HIDDEN)

    def content(self, model: BaseModel, path: tuple[str, ...]) -> dict[str, Any]:
        """The values that a block's hash covers, JSON-ready. Never show them, because some are private."""
        fields = type(model).model_fields
        computed = model.effective() if isinstance(model, PluginOptions) else {}
        effective = {**(model.model_extra or {}), **computed}
        content = {
            name: self._hash(
                effective.get(name, getattr(model, name)), _Spot.of_field(field, (*path, field.alias or name))
            )
            for name, field in fields.items()
        }
        for name in effective.keys() - fields.keys():
            content[name] = self._hash(effective[name], _Spot((*path, name), ((Any, None),)))
        return {name: value for name, value in content.items() if value is not _OMITTED}

    def _from_variable(self, path: tuple[str, ...]) -> str | None:
        above = (path[:length] for length in range(1, len(path) + 1))
        return next((self._secrets[part] for part in above if part in self._secrets), None)

    def _show(self, value: Any, spot: _Spot) -> Any:
        if value is None:
            return None
        if "private" in spot.marks or self._from_variable(spot.path) is not None:
            return HIDDEN
        if isinstance(value, RootModel):
            return self._show(value.root, _Spot.of_field(type(value).model_fields["root"], spot.path))
        if spot.plain(value) or (type(value) is type(spot.default) and value == spot.default):
            return _jsonable(value)
        if isinstance(value, BaseModel):
            return self.shown(value, spot.path)
        if spot.secret:
            return HIDDEN
        if isinstance(value, Mapping):
            if value and "public" not in spot.marks:  # its keys are the user's own
                return HIDDEN
            return {key: self._show(item, place) for key, item, place in spot.items(value)}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._show(item, place) for _, item, place in spot.items(value)]
        if "public" in spot.marks or hasattr(value, "unicode_string"):
            return _bare(value)
        return HIDDEN

    def _hash(self, value: Any, spot: _Spot) -> Any:
        if "data" in spot.marks:
            return _OMITTED
        written = self._from_variable(spot.path)
        if isinstance(value, RootModel):
            return self._hash(value.root, _Spot.of_field(type(value).model_fields["root"], spot.path))
        if spot.plain(value):
            return _jsonable(value)
        if isinstance(value, BaseModel):
            return self.content(value, spot.path)
        if spot.secret:
            return _OMITTED
        if written is not None:
            return written
        if isinstance(value, PurePath):
            return _content_of(self._base / Path(value).expanduser()) if "input" in spot.marks else str(value)
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            hashed = {key: self._hash(item, place) for key, item, place in spot.items(value)}
            kept = {key: item for key, item in hashed.items() if item is not _OMITTED}
            if isinstance(value, Mapping):
                return kept
            every = list(kept.values())
            return sorted(every, key=json.dumps) if isinstance(value, (set, frozenset)) else every
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC)
        text = to_jsonable_python(value, bytes_mode="hex", fallback=lambda item: type(item).__qualname__)
        return _anonymous(text, pairs=spot.untyped) if isinstance(text, str) else text


class Scrubber:
    """Removes texts from foreign messages. It is a last line of defence, because it finds only exact matches.

    Args:
        replacements: text -> its replacement. Texts under six characters stay: many words contain them.
    """

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = {text: new for text, new in replacements.items() if len(text) >= 6}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._replacements, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def __call__(self, value: T) -> T:
        """``value`` (JSON-ready) with those texts replaced, except in the keys of mappings."""
        new: Any = value
        if isinstance(value, str):
            new = self._pattern.sub(lambda found: self._replacements[found[0]], value)
        elif isinstance(value, Mapping):
            new = {key: self(item) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            new = type(value)(self(item) for item in value)
        return new  # type: ignore[no-any-return]


def texts_in(value: Any) -> Iterator[str]:
    """Every string in JSON-ready data, keys of mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


def _jsonable(value: Any) -> Any:
    """A harmless value as JSON. Before pydantic 2.14, pydantic-core cannot serialize a nested model."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else to_jsonable_python(value)


def _content_of(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _bare(value: Any) -> Any:
    """A public value. A URL loses its credentials, query and fragment; an unclear one is :data:`HIDDEN`."""
    text = to_jsonable_python(value)
    if not isinstance(text, str) or "://" not in text:
        return text
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        _ = parts.port
    except ValueError:
        return HIDDEN
    unclear = not parts.scheme or any(sign in host + parts.path for sign in "@;= ")
    rest = parts.query + parts.fragment
    return HIDDEN if unclear or "@" in rest else urlunsplit((parts.scheme, host, parts.path, "", ""))


def _anonymous(text: str, *, pairs: bool) -> str:
    """``text`` without the user part of a URL, and without credentials in a query or connection string."""
    if "://" in text:
        text = _USER_PART.sub("", text)
    elif not pairs:
        return text
    return _ASSIGNED.sub(lambda found: "" if is_credential(found[1]) else found[0], text)
