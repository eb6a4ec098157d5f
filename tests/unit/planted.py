"""Every options model with something private in every field, built by introspection: new fields are planted too."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, JsonValue, SecretStr

from memory import MemoryScope

SECRET = "s3cr3t"
SENTENCE = "my aunt's allergy"
NUMBER = 987654321


@dataclass
class Planted:
    """What was planted where.

    Attributes:
        other: the place that gets another value than usual.
        leaves: place -> public, text, untyped, secret, data, input or plain.
    """

    other: str | None = None
    leaves: dict[str, str] = field(default_factory=dict)

    def model(self, kind, where=""):
        """An instance whose validators were not asked, with something planted in every field."""
        values = {}
        for name, field_info in kind.model_fields.items():
            mark = next((mark.what for mark in field_info.metadata if hasattr(mark, "what")), None)
            values[name] = self.value(field_info.annotation, mark, f"{where}.{name}" if where else name)
        return kind.model_construct(**values)

    def value(self, annotation, mark, where):
        """The most private value the annotation allows."""
        options = sorted(_alternatives(annotation, mark), key=_privacy_order)
        annotation, mark = options[0]
        if annotation is MemoryScope:  # ids are in every trace and receipt
            return MemoryScope(run_id="r", persona_id="p")
        origin = get_origin(annotation) or annotation
        if isinstance(origin, type) and issubclass(origin, BaseModel):
            return self.model(origin, where)
        if origin is dict:
            return self._mapping(get_args(annotation) or (str, Any), mark, where)
        if origin in (list, tuple, set, frozenset):
            inside = [argument for argument in get_args(annotation) if argument is not Ellipsis] or [Any]
            return origin(
                self.value(element_type, mark, f"{where}.{at}") for at, element_type in enumerate(inside)
            )
        return self._leaf(annotation, mark, where)

    def _mapping(self, arguments, mark, where):
        """Something under each type the values may have; where they may be anything, what users write there."""
        if arguments[1] is not Any:
            every = list(_alternatives(arguments[1], mark))
            return {
                f"{SENTENCE} {at}": self.value(allowed, its, f"{where}.{at}")
                for at, (allowed, its) in enumerate(every)
            }
        secret = ("X-Api-Key", "Ocp-Apim-Subscription-Key", "pwd", "passphrase", "http_auth")
        return {
            **{name: self._note(f"{where}.{name}", "secret") for name in secret},
            **{name: self._note(f"{where}.{name}", "untyped") for name in ("partition_key", "host")},
            "http_auth": [self._note(f"{where}.http_auth.{at}", "secret") for at in range(2)],
            "url": f"https://h.example/?api_key={self._note(f'{where}.url', 'secret')}".replace(" ", "+"),
            "deep": [{"a": self._note(f"{where}.deep", "untyped"), "n": NUMBER}],
        }

    def _note(self, where, kind):
        self.leaves[where] = kind
        return f"{SECRET} {where}" + (" changed" if self.other == where else "")

    def _leaf(self, annotation, mark, where):
        changed = self.other == where
        if get_origin(annotation) is Literal:
            choices = get_args(annotation)
            self.leaves[where] = "plain" if len(choices) > 1 else "fixed"
            return choices[-1 if changed else 0]
        if annotation is SecretStr:
            return SecretStr(self._note(where, "secret"))
        if annotation is Path:
            return Path(f"/home/{self._note(where, mark or 'text')}/{SENTENCE}")
        if annotation in (bool, int, float):
            self.leaves[where] = "plain"
            return annotation(changed) if annotation is bool else annotation(NUMBER + changed)
        if annotation in (datetime, AwareDatetime):
            self.leaves[where] = mark or "text"
            return datetime(2026, 1, 1 + changed, tzinfo=UTC)
        if annotation is str and mark == "public":
            self.leaves[where] = "public"
            host = "other.example" if changed else "host.example"
            return f"https://{SECRET}:{SECRET}@{host}/v1?api_key={SECRET}&q={SENTENCE}#{SECRET}"
        if annotation is str or annotation is Any:
            return f"{SENTENCE}: {self._note(where, 'text')}"
        raise AssertionError(f"{where}: nothing is planted in {annotation}; teach this module how")


def _alternatives(annotation, mark):
    if annotation is JsonValue:
        yield Any, mark
    elif get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        marks = [extra.what for extra in metadata if hasattr(extra, "what")]
        yield from _alternatives(inner, marks[0] if marks else mark)
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member, mark)
    elif annotation is not type(None):
        yield annotation, mark


def _privacy_order(option):
    annotation = get_origin(option[0]) or option[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return 0
    return 2 if annotation is Literal else 1
