"""Tools for a model, and a registry that turns their errors and delays into results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import anyio

from memory.contract._model import Frozen, Id, Text
from memory.contract._surviving import ends_the_task
from memory.contract.errors import ConfigError, InputError, MemslotError, PluginLoadError
from memory.contract.scope import MemoryScope
from memory.runtime._items import Item, MemoryItems
from memory.runtime._provider import ToolCall, ToolDefinition, encodable
from memory.slot.slot import MemorySlot

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True)
class ToolContext:
    """The session that calls a tool. Tools access the memory through it.

    Attributes:
        session_key: the conversation's name.
        project: the project's name.
        items: the memories of the session's scope.
    """

    session_key: str
    project: str
    items: MemoryItems

    @property
    def slot(self) -> MemorySlot:
        """The memory."""
        return self.items.slot

    @property
    def scope(self) -> MemoryScope:
        """The scope of the session."""
        return self.items.scope


@runtime_checkable
class Tool(Protocol):
    """A tool.

    ``input_schema`` is a JSON Schema of an object. With ``run_before_generation`` it is called with
    ``{"query": <what the user said>}`` before the model sees the turn.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, object]: ...
    @property
    def run_before_generation(self) -> bool: ...

    async def execute(self, input: Mapping[str, object], context: ToolContext) -> object:
        """Run the tool and return a JSON-ready result. An error goes back to the model."""


class ToolResult(Frozen):
    """The result of a call. ``content`` is plain text or JSON text; with ``is_error``, it is the error."""

    call_id: Id
    name: Text
    content: Text
    is_error: bool = False


class ToolRegistry:
    """The tools of a session.

    Args:
        tools: see :meth:`register`.
        timeout_s: seconds for one call.
        longest: the most characters of a result. A longer result is cut and marked as cut.

    Raises:
        PluginLoadError: jsonschema is not installed.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, timeout_s: float = 30.0, longest: int = 20_000) -> None:
        try:
            from jsonschema import Draft202012Validator
        except ImportError as error:
            why = "an agent's session needs jsonschema: pip install 'memslot[runtime]'"
            raise PluginLoadError(why) from error
        self._validator = Draft202012Validator
        self._timeout_s = timeout_s
        self._longest = longest
        self._tools: dict[str, tuple[Tool, Any]] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Offer a tool.

        Raises:
            ConfigError: the name or the schema is invalid, or another tool has the name.
        """
        from jsonschema import SchemaError

        if not _NAME.match(tool.name):
            raise ConfigError(f"tool {tool.name!r}: a name is 1 to 64 letters, digits, '_' and '-'")
        if tool.name in self._tools:
            raise ConfigError(f"tool {tool.name}: another tool has this name; rename one")
        try:
            self._validator.check_schema(tool.input_schema)
        except SchemaError as error:
            why = f"tool {tool.name}: input_schema is no JSON Schema ({error.message})"
            raise ConfigError(why) from error
        if tool.input_schema.get("type") != "object":
            raise ConfigError(f"tool {tool.name}: input_schema must be of type object")
        self._tools[tool.name] = (tool, self._validator(tool.input_schema))

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the tools' descriptions for a model."""
        return tuple(
            ToolDefinition(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
            for tool, _ in self._tools.values()
        )

    def before_generation(self) -> tuple[str, ...]:
        """Return the names of the tools that run before the model sees a turn."""
        return tuple(name for name, (tool, _) in self._tools.items() if tool.run_before_generation)

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Call a tool. A failure becomes a result that describes it."""
        if call.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            return failed_call(call, f"there is no tool of this name; there are: {known}")
        tool, validator = self._tools[call.name]
        try:
            arguments = _normalised(call.arguments, tool.input_schema)
            wrong = call.problem or _wrong(validator, arguments)
            if wrong:
                return failed_call(call, wrong)
            with anyio.move_on_after(self._timeout_s):
                return self._result(call, await tool.execute(arguments, context))
            return failed_call(call, f"it did not end within {self._timeout_s:g} s")
        except MemslotError as error:
            return failed_call(call, f"{type(error).__name__}: {error}")
        except BaseException as error:
            if ends_the_task(error):
                raise
            return failed_call(call, f"it failed ({type(error).__name__})")

    def _result(self, call: ToolCall, answer: Any) -> ToolResult:
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        if len(text) > self._longest:
            text = f"{text[: self._longest]}\n[cut; it was {len(text)} characters long]"
        text = encodable(text) if text.strip() else "(nothing)"
        return ToolResult(call_id=call.id, name=call.name, content=text)


def failed_call(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=f"error: {why}", is_error=True)


def _normalised(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Adapt a call's arguments to the schema.

    Clients send null for an unset optional argument and numbers in strings. Gemini sends every whole number
    as a float.
    """
    properties, required = schema.get("properties", {}), schema.get("required", ())
    meant = {}
    for name, value in arguments.items():
        allowed = properties.get(name, {})
        if (
            value is None
            and name in properties
            and name not in required
            and "null" not in allowed.get("type", ())
        ):
            continue
        if isinstance(value, str) and "string" not in allowed.get("type", "string"):
            with suppress(ValueError, RecursionError):  # the schema refuses what is no JSON
                value = json.loads(value)
        if isinstance(value, float) and value.is_integer() and allowed.get("type") == "integer":
            value = int(value)
        meant[name] = value
    return meant


def _wrong(validator: Any, arguments: Mapping[str, Any]) -> str | None:
    """Describe the problem with the input: the field and the rule, never the value. None if there is none."""
    error = next(validator.iter_errors(dict(arguments)), None)
    if error is None:
        return None
    where = ".".join(map(str, error.absolute_path)) or "input"
    if error.validator in ("required", "additionalProperties"):
        return f"{where}: {error.message}"
    return f"{where}: does not fit {error.validator}: {json.dumps(error.validator_value)}"


@dataclass(frozen=True)
class _MemoryTool:
    name: str
    description: str
    input_schema: Mapping[str, Any]
    run_before_generation: bool = False

    async def execute(self, input: Mapping[str, Any], context: ToolContext) -> Any:
        items = context.items
        match self.name:
            case "memory_search":
                limit, session_id = input.get("limit", 10), context.session_key
                found = await items.search(input["query"], limit, session_id=session_id)
                return list(map(_row, found)) or "no memories were found"
            case "memory_store":
                stored = await items.store(input["content"])
                return {"id": (*stored.native_ids, stored.event_id)[0], "status": stored.status}
            case "memory_get":
                if (item := await items.get(input["id"])) is None:
                    raise InputError("there is no memory of this id")
                return {"id": item.id, "content": item.content}
            case "memory_modify":
                return {"status": (await items.modify(input["id"], input["content"])).status}
            case _:
                return {"status": (await items.forget(input["id"])).status}


def _row(item: Item) -> dict[str, Any]:
    when = item.timestamp.isoformat() if item.timestamp else None
    return {"id": item.id, "content": item.content, "score": item.score, "timestamp": when}


def memory_tools(slot: MemorySlot) -> list[Tool]:
    """Return those of the five tools for search, store, get, modify and forget that the backend supports."""
    # Any scope will do, because capabilities do not depend on it.
    scope = slot.scope or MemoryScope(run_id="tools", persona_id="nobody")
    offered = {f"memory_{name}" for name in MemoryItems(slot, scope).offered}
    return [tool for tool in _TOOLS if tool.name in offered]


def _object(**properties: Any) -> dict[str, Any]:
    required = [name for name in properties if name != "limit"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TEXT = {"type": "string", "minLength": 1, "maxLength": 20_000}
_ID = {"type": "string", "minLength": 1, "maxLength": 512}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 100}
_TOOLS: tuple[Tool, ...] = (
    _MemoryTool("memory_search", "Search long-term memory.", _object(query=_TEXT, limit=_LIMIT)),
    _MemoryTool("memory_store", "Keep something in long-term memory.", _object(content=_TEXT)),
    _MemoryTool("memory_get", "Read one memory by its id.", _object(id=_ID)),
    _MemoryTool("memory_modify", "Correct the text of one memory.", _object(id=_ID, content=_TEXT)),
    _MemoryTool("memory_forget", "Delete one memory.", _object(id=_ID)),
)
