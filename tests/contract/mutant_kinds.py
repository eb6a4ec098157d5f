"""Makes broken adapters: a ``FakeBackend`` with one call that does something else, each a class of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from memory import Message, RetrieveResult
from memory.testing import FakeBackend

Entries = tuple[Any, ...]
Messages = tuple[Message, ...]


def wrong(
    call: str, method: Callable[..., Awaitable[Any]], base: type[FakeBackend] = FakeBackend
) -> type[FakeBackend]:
    """The call becomes ``method(adapter, sound, *arguments)``; ``sound`` is the call without the fault."""

    async def called(self: FakeBackend, *arguments: Any) -> Any:
        return await method(self, getattr(super(made, self), call), *arguments)

    made = type(f"Wrong_{call}", (base,), {call: called})
    return made


def answers(call: str, answer: Callable[..., Any]) -> type[FakeBackend]:
    """Gives ``answer(*arguments)`` without asking the store."""

    async def method(adapter: FakeBackend, sound: Any, *arguments: Any) -> Any:
        return answer(*arguments)

    return wrong(call, method)


def swallows(call: str, answer: Callable[..., Any]) -> type[FakeBackend]:
    """Gives ``answer(adapter, *arguments)`` where the call failed."""

    async def method(adapter: FakeBackend, sound: Any, *arguments: Any) -> Any:
        try:
            return await sound(*arguments)
        except Exception:
            return answer(adapter, *arguments)

    return wrong(call, method)


def given(
    call: str, change: Callable[[Any], dict[str, Any]], base: type[FakeBackend] = FakeBackend
) -> type[FakeBackend]:
    """Changes fields of what the call is given."""

    async def method(adapter: FakeBackend, sound: Any, subject: Any) -> Any:
        result = await sound(subject.model_copy(update=change(subject)))
        return (
            result.model_copy(update={"request": subject}) if isinstance(result, RetrieveResult) else result
        )

    return wrong(call, method, base)


def told(call: str, change: Callable[[Any], dict[str, Any]]) -> type[FakeBackend]:
    """Changes fields of what the call answers."""

    async def method(adapter: FakeBackend, sound: Any, *arguments: Any) -> Any:
        result = await sound(*arguments)
        return result.model_copy(update=change(result))

    return wrong(call, method)


def entries(change: Callable[[Entries], Entries]) -> type[FakeBackend]:
    """Shows other entries than were found."""
    return told("retrieve", lambda result: {"entries": change(result.entries)})


def each_entry(change: Callable[[Any], dict[str, Any]]) -> type[FakeBackend]:
    """Shows entries with other fields."""
    return entries(lambda found: tuple(replace(entry, **change(entry)) for entry in found))


def messages(change: Callable[[Messages], Messages]) -> type[FakeBackend]:
    """Stores other messages than were said."""
    return given("record_event", lambda event: {"messages": change(event.messages)})


def each_text(change: Callable[[str], str]) -> type[FakeBackend]:
    """Stores messages with other words."""

    def changed(message: Message) -> Message:
        return message.model_copy(update={"content": change(message.content or "")})

    return messages(lambda said: tuple(changed(message) for message in said))
