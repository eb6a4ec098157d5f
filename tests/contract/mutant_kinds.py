"""Makes broken adapters: a ``FakeBackend`` with one call that does something else, each a class of its own."""

from dataclasses import replace
from typing import Any

from memory import Message, RetrieveResult
from memory.testing import FakeBackend

Entries = tuple[Any, ...]
Messages = tuple[Message, ...]


def wrong(call, method, base=FakeBackend):
    """The call becomes ``method(adapter, sound, *arguments)``; ``sound`` is the call without the fault."""

    async def called(self, *arguments):
        return await method(self, getattr(super(made, self), call), *arguments)

    made = type(f"Wrong_{call}", (base,), {call: called})
    return made


def answers(call, answer):
    """Gives ``answer(*arguments)`` without asking the store."""

    async def method(adapter, sound, *arguments):
        return answer(*arguments)

    return wrong(call, method)


def swallows(call, answer):
    """Gives ``answer(adapter, *arguments)`` where the call failed."""

    async def method(adapter, sound, *arguments):
        try:
            return await sound(*arguments)
        except Exception:
            return answer(adapter, *arguments)

    return wrong(call, method)


def given(call, change, base=FakeBackend):
    """Changes fields of what the call is given."""

    async def method(adapter, sound, subject):
        result = await sound(subject.model_copy(update=change(subject)))
        return (
            result.model_copy(update={"request": subject}) if isinstance(result, RetrieveResult) else result
        )

    return wrong(call, method, base)


def told(call, change):
    """Changes fields of what the call answers."""

    async def method(adapter, sound, *arguments):
        result = await sound(*arguments)
        return result.model_copy(update=change(result))

    return wrong(call, method)


def entries(change):
    """Shows other entries than were found."""
    return told("retrieve", lambda result: {"entries": change(result.entries)})


def each_entry(change):
    """Shows entries with other fields."""
    return entries(lambda found: tuple(replace(entry, **change(entry)) for entry in found))


def messages(change):
    """Stores other messages than were said."""
    return given("record_event", lambda event: {"messages": change(event.messages)})


def each_text(change):
    """Stores messages with other words."""

    def changed(message):
        return message.model_copy(update={"content": change(message.content or "")})

    return messages(lambda said: tuple(changed(message) for message in said))
