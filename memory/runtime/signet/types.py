"""Messages between a harness and a daemon, with the daemon's field names. Unknown fields are ignored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.errors import MemslotError


class Wire(BaseModel):
    """Base of the messages: snake case in Python, camel case on the wire."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
        defer_build=True,
    )

    def to_wire(self) -> dict[str, JsonValue]:
        """Return the JSON-ready message without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Refused(MemslotError):
    """A request is refused with an HTTP status, a reason without user text, and the fields of ``more``."""

    def __init__(self, status: int, why: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.more = dict(more or {})


WireT = TypeVar("WireT", bound=Wire)


def parse(model: type[WireT], given: Mapping[str, Any]) -> WireT:
    """Read the parameters of a request.

    Raises:
        Refused: a field is missing or of the wrong type.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        why = "is required" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
        raise Refused(400, f"{'.'.join(map(str, problem['loc']))} {why}") from None


def text_of(given: object) -> str | None:
    """Return a text that can be stored; None if it is blank or no text."""
    if not isinstance(given, str) or not given.strip():
        return None
    return given.encode("utf-8", "replace").decode()


def tags_of(given: Any) -> str | None:
    """Join tags, which clients send as a list or as text, into one text; None if there are no tags."""
    if given is not None and not isinstance(given, (list, str)):
        raise ValueError("must be a text or a list")
    parts = given.split(",") if isinstance(given, str) else given or []
    return ",".join(text for part in parts if (text := str(part).strip().replace(",", " "))) or None


def _moment(given: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a time by ISO 8601") from None


def _without_blanks(given: Any) -> Any:
    if isinstance(given, str) and given != given.strip():
        raise ValueError("must be a number")
    return given


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
Count = Annotated[int, BeforeValidator(_without_blanks), Field(ge=0, le=10**9)]
Tags = Annotated[str | None, BeforeValidator(tags_of)]
Moment = Annotated[datetime, BeforeValidator(_moment)]


class SessionParams(Wire):
    """Fields of every call.

    Blank text counts as absent, because hooks send empty text for values that their host lacks. OpenCode
    omits the session in half of its calls. The original daemon ignores project and agent.
    """

    harness: str | None = None  # the calling host; the daemon requires it for hooks
    # An epoch is added to the session's key.
    session_key: Annotated[str, Field(max_length=MAX_ID_LENGTH - 12)] | None = None  # the conversation
    project: Annotated[str, Field(max_length=4096)] | None = None  # selects the scope, with the agent
    agent_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    runtime_path: str | None = None  # ``plugin`` or ``legacy``, for a daemon

    @model_validator(mode="before")
    @classmethod
    def _blank_is_absent(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {
            name: value
            for name, value in given.items()
            if value is not None and value != [] and not (isinstance(value, str) and not value.strip())
        }


class SessionStartParams(SessionParams):
    """A session begins. ``context`` describes its subject."""

    context: str | None = None


class PromptSubmitParams(SessionParams):
    """The user said something, and no model has answered yet."""

    user_message: str | None = None
    user_prompt: str | None = None  # the name of ``user_message`` in Claude Code's hooks
    prompt: str | None = None  # its name in other hooks
    last_assistant_message: str | None = None
    memory_feedback: object = None


class SessionEndParams(SessionParams):
    """A session ends. ``transcript`` is its text. ``transcript_path`` is a file, which memslot never reads."""

    session_id: str | None = None  # the name of ``session_key`` in some clients
    transcript: str | None = None
    transcript_path: str | None = None
    cwd: str | None = None
    reason: str | None = None


class PreCompactionParams(SessionParams):
    """The host is about to shorten its conversation."""

    session_context: str | None = None
    message_count: int | None = None


class CompactionCompleteParams(SessionParams):
    """The host has shortened its conversation to ``summary``."""

    summary: str | None = None


class SessionStartResult(Wire):
    """The answer to a session's start. ``session_known`` says that the session is resumed."""

    identity: dict[str, object] = Field(default_factory=dict)
    memories: list[dict[str, object]] = Field(default_factory=list)
    inject: str = ""
    stable_system_prompt: str | None = None
    session_known: bool = False
    warnings: list[str] = Field(default_factory=list)


class PromptSubmitResult(Wire):
    """The answer to one prompt. Test ``memory_count``, as ``inject`` may hold a date without memories."""

    inject: str = ""
    memory_count: int = 0
    query_terms: str | None = None
    engine: str | None = None
    warnings: list[str] = Field(default_factory=list)


class SessionEndResult(Wire):
    """The answer to a session's end. The daemon works on it later."""

    memories_saved: int = 0
    queued: bool = False
    job_id: str | None = None
    warnings: list[str] = Field(default_factory=list)


class PreCompactionResult(Wire):
    """The request to the host's model before a compaction."""

    summary_prompt: str = ""
    guidelines: str = ""


class CompactionResult(Wire):
    """The result of keeping a summary. Later daemons may answer without an id."""

    success: bool = False
    memory_id: str | None = None


class RuntimeAdapter(ABC):
    """Translates a harness's events into the daemon's. ``harness`` is its name, such as ``openclaw``.

    Call :meth:`on_user_prompt_submit` before the model answers, because it recalls.
    """

    harness: str

    @abstractmethod
    async def on_session_start(self, params: SessionStartParams) -> SessionStartResult:
        """Handle the start or the resumption of a session."""

    @abstractmethod
    async def on_user_prompt_submit(self, params: PromptSubmitParams) -> PromptSubmitResult:
        """Handle a prompt of the user, and recall for it."""

    @abstractmethod
    async def on_session_end(self, params: SessionEndParams) -> SessionEndResult:
        """Handle the end of a session."""

    @abstractmethod
    async def on_pre_compaction(self, params: PreCompactionParams) -> PreCompactionResult:
        """Handle the approaching compaction of the conversation."""

    @abstractmethod
    async def on_compaction_complete(self, params: CompactionCompleteParams) -> CompactionResult:
        """Handle a finished compaction, and keep its summary."""


class RememberParams(SessionParams):
    """One memory to store, with labels."""

    content: str
    idempotency_key: str | None = None
    type: str | None = None
    tags: Tags = None
    importance: Share = 0.5
    pinned: StrictBool = False
    who: str | None = None


class HookRememberParams(RememberParams):
    """One memory to store, from a hook."""

    harness: str


class RecallParams(SessionParams):
    """A query and filters for its results."""

    query: str | None = None
    keyword_query: str | None = None
    limit: Count = 10
    type: str | None = None
    who: str | None = None
    pinned: StrictBool | None = None
    tags: Tags = None
    importance_min: Number | None = Field(default=None, alias="importance_min")
    min_score: Number | None = Field(default=None, alias="min_score")
    since: Moment | None = None
    until: Moment | None = None

    @property
    def filters(self) -> bool:
        """Whether any filter is set."""
        names = ("type", "who", "pinned", "tags", "importance_min", "min_score", "since", "until")
        return any(getattr(self, name) is not None for name in names)


class ForgetParams(RecallParams):
    """Memories to delete, by ``ids`` or a query. Nothing is deleted unless ``mode`` is ``execute``."""

    ids: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, max_length=1000)
    mode: Literal["preview", "execute"] = "preview"
    reason: str | None = None
    force: StrictBool = False


class ListParams(SessionParams):
    """A page of the known memories."""

    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    offset: Count = 0
    type: str | None = None


class PatchParams(SessionParams):
    """A change to one memory's text or labels."""

    id: str | None = None
    reason: str | None = None
    content: str | None = None
    if_version: Any = Field(default=None, alias="if_version")
    type: str | None = None
    tags: Tags = None
    importance: Share | None = None
    pinned: StrictBool | None = None


class ModifyParams(SessionParams):
    """Changes to several memories. ``reason`` applies to every patch without one."""

    patches: list[PatchParams] = Field(min_length=1, max_length=100)
    reason: str | None = None


class DeleteParams(SessionParams):
    """The deletion of one memory."""

    reason: str
    force: Literal["1", "true", True] | None = None
