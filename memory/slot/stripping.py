"""Recalled context is not written again, whatever it comes in, or a memory would feed on itself (DESIGN 5.6)."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from memory.contract._model import Frozen, words_of
from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import strip_json
from memory.contract.requests import MemoryFeedback, NativeMutationRequest

ModelT = TypeVar("ModelT", bound=Frozen)
SaidT = TypeVar("SaidT", MemoryEvent, MemoryFeedback, NativeMutationRequest)

_REFERENCES = {MemoryFeedback: {"native_ids"}, NativeMutationRequest: {"operation", "native_id"}}
"""Texts that name something; every other text and JSON of a type is stripped, whichever fields it gets."""


def without_recalled_context(said: SaidT) -> SaidT:
    """An event, feedback or mutation without any memory section.

    Sections go from what was said and from the names, tool calls, labels and metadata beside it.

    Raises:
        InputError: nothing else was in it, or in an argument of a mutation.
    """
    if isinstance(said, MemoryEvent):
        messages = [_stripped(message, Message) for message in said.messages]
        kept = tuple(message for message in messages if message.content or message.tool_calls)
        if kept != said.messages:
            said = said.model_copy(update={"messages": kept})
        return _something(_stripped(said, MemoryEvent), kept)
    if isinstance(said, MemoryFeedback):
        said = _stripped(said, MemoryFeedback)
        return _something(said, said.content or said.corrected_answer)
    before, said = said.arguments, _stripped(said, NativeMutationRequest)
    for name, value in said.arguments.items():
        _something(said, value or not before.get(name), f".arguments.{name}")
    return said


@cache
def _names(model: type[Frozen]) -> tuple[str, ...]:
    return tuple(name for name in words_of(model) if name not in _REFERENCES.get(model, ()))


def _something(said: SaidT, left: object, where: str = "") -> SaidT:
    if not left:
        raise InputError(
            f"{type(said).__name__}{where} holds nothing but recalled context; nothing was written"
        )
    return said


def _stripped(said: ModelT, model: type[Frozen]) -> ModelT:
    """With sections taken out of these fields; a text of which nothing is left is absent, where that is allowed."""
    changed: dict[str, Any] = {}
    for name in _names(model):
        if not (before := getattr(said, name)):
            continue
        after = strip_json(before)
        if after is not before and after != before:
            optional = type(said).model_fields[name].default is None
            changed[name] = None if optional and not after else after
    return said.model_copy(update=changed) if changed else said
