"""Scopes, and their encoding into the ids that a backend accepts (DESIGN section 7).

It is injective: two scopes never share a native id, whatever the backend's alphabet, case rule or length
limit. An unsafe byte becomes ``<escape>hh``. A long id ends in ``<escape>z<hash>`` (``z`` is no hex digit).
"""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Self

from pydantic import model_validator

from memory.contract._model import Frozen, Id
from memory.contract.errors import ScopeError

ISOLATING_FIELDS = ("run_id", "persona_id", "backend_namespace", "agent_id")


class MemoryScope(Frozen):
    """The isolated memory of one persona in one run (spec section 3).

    Attributes:
        run_id: the run, replicate or deployment.
        persona_id: whose memory it is.
        backend_namespace: separates runs that share ids, or None.
        agent_id: set only where each agent keeps a memory of its own, or None.

    Raises:
        ScopeError: an id is blank, over 512 characters, not encodable, or holds the wildcard ``*``.
    """

    _error: ClassVar[type[ScopeError]] = ScopeError

    run_id: Id
    persona_id: Id
    backend_namespace: Id | None = None
    agent_id: Id | None = None

    @model_validator(mode="after")
    def _no_wildcards(self) -> Self:
        for name in ISOLATING_FIELDS:
            if "*" in (getattr(self, name) or ""):
                raise ValueError(f"{name} holds the wildcard '*', which some backends read as every scope")
        return self

    @property
    def label(self) -> str:
        """A readable, unambiguous name for the context section, traces and messages."""
        return _LABELS.encode(self)["id"]


@dataclass(frozen=True)
class IdAlphabet:
    """The alphabet that a backend allows in an id.

    Args:
        safe: characters that stay unchanged, besides ``a-z`` and ``0-9``.
        escape: the character that introduces an escaped byte; never in ``safe``.
        separator: stands between fields. It holds a character that is neither safe nor the escape, or the
            escape followed by a character that no escaped text has there.
        max_length: longest native id, in characters; at least 40.
        prefix: begins every id, for backends that require, say, a letter first.
    """

    safe: str = string.ascii_uppercase + "-._"
    escape: str = "%"
    separator: str = ":"
    max_length: int = 512
    prefix: str = ""
    _plain: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = frozenset(string.ascii_lowercase + string.digits + self.safe)
        object.__setattr__(self, "_plain", plain)
        if len(self.escape) != 1 or self.escape in plain:
            raise ValueError("escape must be one character that is not safe")
        if self.max_length < 40:
            raise ValueError("max_length below 40 leaves no room for a collision-free hash")
        if not self._separates(self.separator):
            raise ValueError("separator could be mistaken for escaped text")

    def _separates(self, literal: str) -> bool:
        if any(char not in self._plain and char != self.escape for char in literal):
            return True
        start = literal.find(self.escape)
        following = literal[start + 1 : start + 2]
        return start >= 0 and following != "" and following not in "0123456789abcdefnz"

    def escape_text(self, value: str) -> str:
        """``value`` in safe characters; decodable, and so injective. It has no length limit."""
        if self._plain.issuperset(value):
            return value
        data = value.encode("utf-8", "surrogatepass")
        return "".join(chr(byte) if chr(byte) in self._plain else f"{self.escape}{byte:02x}" for byte in data)

    def escape_field(self, value: str | None) -> str:
        """Like :meth:`escape_text`. An absent field gets a form that no present one has."""
        return f"{self.escape}n" if value is None else self.escape_text(value)

    def escape_literal(self, literal: str) -> str:
        """A template's literal text. Each character outside the alphabet becomes the separator."""
        allowed = self._plain | set(self.separator)
        return "".join(char if char in allowed else self.separator for char in literal)

    def limit(self, rendered: str) -> str:
        """The finished id. One that is too long keeps a readable start and ends in a 130-bit hash."""
        native = self.prefix + rendered
        if len(native) <= self.max_length:
            return native
        digest = base64.b32encode(hashlib.sha256(rendered.encode()).digest()).decode().lower()[:26]
        tail = f"{self.escape}z{digest}"
        return native[: self.max_length - len(tail)] + tail

    def encode(self, *values: str | None) -> str:
        """One id from a fixed number of values, in order; ``encode("a", None)`` and ``encode("a", "")`` differ."""
        present = len(values)
        while present > 1 and values[present - 1] is None:
            present -= 1
        return self.limit(self.separator.join(self.escape_field(value) for value in values[:present]))


class ScopeEncoder:
    """Turns a scope into a backend's native ids, with one template for each.

    Args:
        alphabet: the characters that the backend allows.
        templates: native id name -> template such as ``"{run_id}:{persona_id}"``. Every field is escaped.
            ``None`` means one id, named ``id``, of all four fields.
        allow_sharing: accept templates that leave out an isolating field, so that scopes share memory. None
            refuses them like False, but the error then names no such option.
        owner: the setting's name in errors, such as ``memory.backends.mem0``.

    Raises:
        ScopeError: a template is malformed, two of its fields could run into each other, or (unless
            ``allow_sharing``) no template uses ``run_id`` or ``persona_id``.
    """

    def __init__(
        self,
        alphabet: IdAlphabet,
        templates: Mapping[str, str] | None = None,
        *,
        allow_sharing: bool | None = None,
        owner: str = "scope",
    ) -> None:
        self.alphabet = alphabet
        self.allow_sharing = allow_sharing
        self._owner = owner
        texts = templates or {"id": _WHOLE_SCOPE}
        self._parts = {name: self._parse(name, text) for name, text in texts.items()}
        self._default = templates is None
        used = {item for parts in self._parts.values() for _, item in parts if item}
        self._dropped = [name for name in ISOLATING_FIELDS if name not in used]
        self._cached = lru_cache(maxsize=1024)(self._encode)
        self._refuse([name for name in ("run_id", "persona_id") if name in self._dropped])

    def _parse(self, name: str, template: str) -> list[tuple[str, str | None]]:
        where = f"{self._owner}.{name}"
        try:
            parsed = list(string.Formatter().parse(template))
        except ValueError:
            raise ScopeError(f"{where}: the template has an unbalanced brace") from None
        parts: list[tuple[str, str | None]] = []
        for position, (literal, item, spec, conversion) in enumerate(parsed):
            if item is not None and (item not in ISOLATING_FIELDS or spec or conversion):
                raise ScopeError(f"{where}: {{{item}}} is unknown; use {_braced(ISOLATING_FIELDS)}")
            text = self.alphabet.escape_literal(literal)
            if f"{self.alphabet.escape}z" in text:
                raise ScopeError(f"{where}: {literal!r} could be mistaken for a hash; choose another literal")
            if position and item is not None and not self.alphabet._separates(text):
                raise ScopeError(f"{where}: put a separator such as ':' before {{{item}}}")
            parts.append((text, item))
        return parts

    def _refuse(self, dropped: Iterable[str]) -> None:
        names = list(dropped)
        if names and not self.allow_sharing:
            raise ScopeError(
                f"{self._owner}: no template uses {_braced(names)}, so different scopes would share memory; "
                f"add the field{_SHARING if self.allow_sharing is False else ''}"
            )

    def encode(self, scope: MemoryScope) -> dict[str, str]:
        """The scope's native ids by name, e.g. ``{"user_id": "alice", "run_id": "run1"}``.

        Raises:
            ScopeError: the scope sets a field that no template uses.
        """
        return dict(self._cached(scope))

    def _encode(self, scope: MemoryScope) -> dict[str, str]:
        if self._default:
            return {"id": self.alphabet.encode(*(getattr(scope, name) for name in ISOLATING_FIELDS))}
        if self._dropped and not self.allow_sharing:
            self._refuse(name for name in self._dropped if getattr(scope, name) is not None)
        return {name: self._render(parts, scope) for name, parts in self._parts.items()}

    def _render(self, parts: list[tuple[str, str | None]], scope: MemoryScope) -> str:
        escape = self.alphabet.escape_field
        pieces = [literal + (escape(getattr(scope, item)) if item else "") for literal, item in parts]
        return self.alphabet.limit("".join(pieces))


def _braced(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


_SHARING = ", or set allow_sharing: true if that is what you want"
_WHOLE_SCOPE = ":".join(f"{{{name}}}" for name in ISOLATING_FIELDS)
_LABELS = ScopeEncoder(IdAlphabet())
