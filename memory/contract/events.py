"""Messages, and the events that an agent loop makes of them (spec section 1)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Literal

from pydantic import Field, model_validator

from memory.contract._model import MAX_EVENT_BYTES, AwareDatetime, Frozen, Id, JsonObject, Text
from memory.contract.errors import InputError
from memory.contract.foreign import fields_of
from memory.contract.scope import MemoryScope

Role = Literal["user", "assistant", "system", "developer", "tool"]


class Message(Frozen):
    """One message, in the OpenAI vocabulary of roles.

    Attributes:
        role: who speaks.
        content: the text; may be empty only if ``tool_calls`` is given.
        name: the speaker's name, or None.
        tool_call_id: the call that a ``tool`` message answers.
        tool_calls: the assistant's tool calls, JSON-ready, kept for backends with tool memory (spec 5.4).
    """

    role: Role
    content: Text = ""
    name: Text | None = None
    tool_call_id: Text | None = None
    tool_calls: tuple[JsonObject, ...] | None = None

    @classmethod
    def from_any(cls, value: object) -> Message:
        """A message from a dict, or from an object of OpenAI, Anthropic or LangChain.

        Parts without words, such as pictures, are left out; :func:`read_message` counts them.

        Raises:
            InputError: the role is unknown, the content is malformed, or no words or tool calls are left.
        """
        message, left_out = read_message(value)
        if message is None:
            held = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
            raise InputError(f"the message has no words{f' ({held})' if held else ''}; leave it out")
        return message

    @model_validator(mode="after")
    def _say_something(self) -> Message:
        if not self.content.strip() and not self.tool_calls:
            raise ValueError("content is blank; leave the message out or give it text")
        return self


def read_message(value: object) -> tuple[Message | None, Counter[str]]:
    """A message from a dict, or from an object of OpenAI, Anthropic or LangChain.

    Returns the message, or None if it has neither words nor tool calls; and the number of its parts without
    words, such as pictures, by kind.

    Raises:
        InputError: the role is unknown, or the content is malformed.
    """
    if isinstance(value, Message):
        return value, Counter()
    fields, left_out = fields_of(value)
    return Message(**fields) if fields is not None else None, left_out


class MemoryEvent(Frozen):
    """Something that happened in the agent loop: the only thing ever written (spec section 1).

    The spec's flat form works as well: ``run_id`` and ``user_id`` mean ``MemoryScope(run_id, persona_id=user_id)``.

    Attributes:
        event_id: unique per event; backends keep it as provenance and, if they can, for idempotence.
        scope: the isolated memory that this event belongs to.
        agent_id: the agent that answered; only a label. The scope decides whether agents are isolated.
        session_id, turn_id: position in the conversation.
        timestamp: when it happened, timezone-aware; kept in UTC. Backends must not use their wall clock.
        messages: one or more messages, in order.
        scenario, context, attribute: the benchmark's CS fields, or None.
        metadata: any JSON object, kept for tracing.

    JSON is nested at most 32 levels deep, and an event's texts and JSON take at most 16,000,000 bytes together.

    Raises:
        InputError: a field is malformed; the message names it and the fix.
    """

    event_id: Id
    scope: MemoryScope
    agent_id: Id = "agent"
    session_id: Id
    turn_id: Id
    timestamp: AwareDatetime
    messages: tuple[Message, ...]
    scenario: Text | None = None
    context: Text | None = None
    attribute: Text | None = None
    metadata: JsonObject = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_flat_ids(cls, data: Any) -> Any:
        if not isinstance(data, dict) or ("run_id" not in data and "user_id" not in data):
            return data
        fields = dict(data)
        flat = {"run_id": fields.pop("run_id", None), "persona_id": fields.pop("user_id", None)}
        if "scope" not in fields:
            return {**fields, "scope": MemoryScope(**flat)}
        scope = MemoryScope.model_validate(fields["scope"])
        if any(value not in (None, getattr(scope, name)) for name, value in flat.items()):
            raise ValueError("run_id and user_id contradict scope; give one or the other")
        return {**fields, "scope": scope}

    @model_validator(mode="after")
    def _check_messages(self) -> MemoryEvent:
        if not self.messages:
            raise ValueError("messages is empty; an event needs at least one message")
        characters, plain = 0, not self.metadata
        for message in self.messages:
            characters += len(message.content)
            plain = plain and not message.tool_calls
        if plain and characters < MAX_EVENT_BYTES // 8:
            return self
        held = [message.model_dump(mode="json") for message in self.messages], self.metadata
        size = len(json.dumps(held, ensure_ascii=False).encode())
        if size > MAX_EVENT_BYTES:
            raise ValueError(f"takes {size} bytes; at most {MAX_EVENT_BYTES} are allowed, so split it")
        return self

    @property
    def run_id(self) -> str:
        """The scope's run."""
        return self.scope.run_id

    @property
    def user_id(self) -> str:
        """The scope's persona."""
        return self.scope.persona_id

    @property
    def cs_fields(self) -> dict[str, str]:
        """``scenario``, ``context`` and ``attribute``, as far as they are set."""
        return cs_fields(self.scenario, self.context, self.attribute)

    @property
    def labels(self) -> dict[str, str]:
        """Labels that a backend keeps in addition to ids, time and words: turn, agent and ``cs_fields``."""
        return {"turn_id": self.turn_id, "agent_id": self.agent_id, **self.cs_fields}

    @property
    def message_fields(self) -> dict[str, dict[str, object]]:
        """Position -> the message's name, tool_call_id and tool_calls, for a backend's metadata."""
        kept = {"name", "tool_call_id", "tool_calls"}
        found = {
            str(at): message.model_dump(mode="json", include=kept, exclude_none=True)
            for at, message in enumerate(self.messages)
        }
        return {at: fields for at, fields in found.items() if fields}


def cs_fields(scenario: str | None, context: str | None, attribute: str | None) -> dict[str, str]:
    fields = {"scenario": scenario, "context": context, "attribute": attribute}
    return {name: value for name, value in fields.items() if value is not None}
