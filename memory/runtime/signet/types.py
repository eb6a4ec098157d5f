"""Messages between a harness and a daemon, in the daemon's field names.

Both sides read tolerantly: unknown fields are ignored, a field of the wrong kind counts as absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from memory.contract.errors import MemslotError


class Wire(BaseModel):
    """Base: snake case here, camel case on the wire."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
        defer_build=True,
    )

    def to_wire(self) -> dict[str, JsonValue]:
        """JSON-ready, without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Refused(MemslotError):
    """A request that is answered with an HTTP status, why, never in words of a user, and ``more`` fields."""

    def __init__(self, status: int, why: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.more = dict(more or {})


WireT = TypeVar("WireT", bound=Wire)


def read(model: type[WireT], data: Mapping[str, Any]) -> WireT:
    """``data`` as far as it can be understood."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors(include_input=False, include_url=False)}
        # A field may stand there by both its names.
        sound = {key: value for key, value in data.items() if not {key, to_camel(key)} & wrong}
        return model.model_validate(sound)


class SessionParams(Wire):
    """Fields of every lifecycle call.

    A blank text counts as absent, because hooks send an empty text for what their host did not say. OpenCode leaves
    the session out of half its calls. The original daemon ignores project and agent.
    """

    harness: str | None = None  # the calling host; the daemon requires it
    session_key: str | None = None  # the conversation
    project: str | None = None  # with the agent, it selects the scope
    agent_id: str | None = None
    runtime_path: str | None = None  # ``plugin`` or ``legacy``; a session is claimed by one of them

    @field_validator("harness", "session_key", "project", "agent_id")
    @classmethod
    def _absent_if_blank(cls, value: str | None) -> str | None:
        return value if value and value.strip() else None


class SessionStartParams(SessionParams):
    """A session begins; ``context`` is what is known of its subject."""

    context: str | None = None


class PromptSubmitParams(SessionParams):
    """The user said something, and no model has answered yet."""

    user_message: str | None = None
    last_assistant_message: str | None = None
    memory_feedback: object = None


class SessionEndParams(SessionParams):
    """A session ends. ``transcript`` is its text; ``transcript_path`` a file on the daemon's own disk."""

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
    bypassed: bool = False
    warnings: list[str] = Field(default_factory=list)


class PromptSubmitResult(Wire):
    """The answer to one prompt. Test ``memory_count``: ``inject`` may hold a date and nothing remembered."""

    inject: str = ""
    memory_count: int = 0
    query_terms: str | None = None
    engine: str | None = None
    bypassed: bool = False
    warnings: list[str] = Field(default_factory=list)


class SessionEndResult(Wire):
    """The answer to a session's end. The daemon works on it later."""

    memories_saved: int = 0
    queued: bool = False
    job_id: str | None = None
    bypassed: bool = False
    warnings: list[str] = Field(default_factory=list)


class PreCompactionResult(Wire):
    """The request to the host's model before a compaction."""

    summary_prompt: str = ""
    guidelines: str = ""
    bypassed: bool = False


class CompactionResult(Wire):
    """Where the summary is kept; later daemons may answer without an id."""

    success: bool = False
    memory_id: str | None = None


class RuntimeAdapter(ABC):
    """A harness's translation of its own events into the daemon's. ``harness`` names it, such as ``openclaw``.

    Call :meth:`on_user_prompt_submit` before the model answers: recall happens inside it.
    """

    harness: str

    @abstractmethod
    async def on_session_start(self, params: SessionStartParams) -> SessionStartResult:
        """A session begins, or is resumed."""

    @abstractmethod
    async def on_user_prompt_submit(self, params: PromptSubmitParams) -> PromptSubmitResult:
        """The user said something."""

    @abstractmethod
    async def on_session_end(self, params: SessionEndParams) -> SessionEndResult:
        """A session ends."""

    @abstractmethod
    async def on_pre_compaction(self, params: PreCompactionParams) -> PreCompactionResult:
        """The conversation is about to be shortened."""

    @abstractmethod
    async def on_compaction_complete(self, params: CompactionCompleteParams) -> CompactionResult:
        """The conversation was shortened; keep the summary."""


class RememberParams(Wire):
    """One memory to store; prefixes of ``content`` label it. Further fields are labels, too."""

    content: str
    idempotency_key: str | None = None
    project: str | None = None
    session_key: str | None = None


class HookRememberParams(RememberParams):
    """As :class:`RememberParams`, from a hook."""

    harness: str


class RecallParams(Wire):
    """A question; further fields filter what is found."""

    query: str
    limit: int | None = None
    project: str | None = None
    session_key: str | None = None


class PatchParams(Wire):
    """A change of one memory."""

    reason: str
    content: str | None = None
    if_version: int | None = Field(default=None, alias="if_version")


class ListedPatchParams(PatchParams):
    """One of many changes."""

    id: str


class ModifyParams(Wire):
    """Changes of several memories."""

    patches: list[ListedPatchParams]


class ForgetParams(Wire):
    """Memories to delete, by ``ids`` or ``query``. Nothing is deleted unless ``mode`` is ``execute``."""

    ids: list[str] = Field(default_factory=list)
    query: str | None = None
    mode: str = "preview"
    reason: str | None = None
    force: bool = False


class FeedbackParams(Wire):
    """Which of the memories that were injected were of use: id -> -1 (harmful) to 1."""

    session_key: str
    feedback: dict[str, float]


class BypassParams(Wire):
    """Whether the hooks of a session do nothing."""

    enabled: bool


class SecretsExecParams(Wire):
    """A command, and the variables it gets: name -> name of the secret."""

    command: str
    secrets: dict[str, str]


class ChatParams(SessionParams):
    """A message of the user to the agent."""

    content: str


def text_of(body: Any, name: str) -> str | None:
    """A field that is a text and not blank, else None."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, str) and value.strip() else None
