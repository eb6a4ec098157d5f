"""Who sits where: the three roles of an experiment, made from its settings for one cell."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from memory.bench.game.language import load_language
from memory.bench.game.manifest import RoleRecord
from memory.bench.game.matrix import BenchSettings
from memory.bench.game.roles import Roles, RuleAssistant, RuleJudge, RuleSimulator
from memory.bench.timeline import TimelineSet
from memory.contract.errors import MemslotError

__all__ = ["CeilingReached", "Seats", "role_records"]


class CeilingReached(MemslotError):
    """The models' calls or tokens have reached their limit; the run stops, and can be resumed with a higher one."""


def role_records(settings: BenchSettings) -> tuple[RoleRecord, ...]:
    """Who plays, for the manifest."""
    return (
        RoleRecord(role="assistant", kind="rules"),
        RoleRecord(role="simulator", kind="rules"),
        RoleRecord(role="judge", kind="rules"),
    )


class Seats:
    """The roles of one cell; an async context that closes what they opened.

    Args:
        settings: the experiment's.
        data: the timelines.
        directory: of the cell.
    """

    def __init__(self, settings: BenchSettings, data: TimelineSet, directory: Path) -> None:
        language = load_language(settings.game.language)
        self.roles = Roles(RuleAssistant(language), RuleSimulator(), RuleJudge(language))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        return None

    def spent(self) -> dict[str, dict[str, int]]:
        """Calls and tokens of models, by role."""
        return {}
