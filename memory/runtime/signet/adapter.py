"""What a harness implements to run on Signet, and the adapter that is a thin client of a daemon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from memory.runtime.signet.client import AdapterClient

DEFAULT_URL = "http://127.0.0.1:3850"
"""Where a daemon listens unless it is told otherwise."""


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


def create_adapter(harness: str, daemon_url: str = DEFAULT_URL, *, token: str | None = None) -> AdapterClient:
    """An adapter whose every method is a call of a daemon.

    Args:
        harness: who calls; the daemon requires it.
        daemon_url: its address.
        token: bearer token; see :class:`~memory.runtime.signet.client.AdapterClient`.

    Raises:
        ConfigError: the address is none, or the token would leave this machine.
        PluginLoadError: aiohttp is not installed.
    """
    from memory.runtime.signet.client import AdapterClient

    return AdapterClient(daemon_url, harness=harness, token=token)
