"""What a harness implements to run on Signet."""

from __future__ import annotations

from abc import ABC, abstractmethod

from memory.runtime.signet.types import (
    CompactionCompleteParams,
    CompactionResult,
    PreCompactionParams,
    PreCompactionResult,
    PromptSubmitParams,
    PromptSubmitResult,
    SessionEndParams,
    SessionEndResult,
    SessionStartParams,
    SessionStartResult,
)


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
        """It was; keep the summary."""
