"""What doctor tells: a result for each check, and what it is waiting for."""

from __future__ import annotations

from typing import Literal

from memory.contract._model import Frozen

CHECKS = (
    "config",
    "plugin",
    "health",
    "setup",
    "capabilities",
    "models",
    "write",
    "readiness",
    "write_read",
    "isolation",
    "read_only",
    "reset",
    "close",
)
"""Names of the checks, in order."""

CheckStatus = Literal["passed", "failed", "pending", "skipped"]


class CheckResult(Frozen):
    """One check.

    Attributes:
        name: one of :data:`CHECKS`.
        status: ``pending`` could not be seen in time or at all; ``skipped`` was not tried.
        evidence: what was seen, in words.
        latency_ms: how long it took, None where it was not tried.
        fix: what to do about it, None where the evidence says so itself or nothing is wrong.
    """

    name: str
    status: CheckStatus
    evidence: str
    latency_ms: float | None = None
    fix: str | None = None


class DoctorReport(Frozen):
    """All checks of one configuration.

    Attributes:
        source: the file, or ``config``.
        provider, kind: what it selects; None where that could not be read.
        label: the provider's name, and what the name alone would hide.
        checks: in order, one for each of :data:`CHECKS`.
    """

    source: str
    provider: str | None
    kind: str | None
    label: str | None
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        return not self.failed and not self.pending

    @property
    def failed(self) -> tuple[str, ...]:
        return self._named("failed")

    @property
    def pending(self) -> tuple[str, ...]:
        """Names of the checks that could not be settled: no failures, and not green either."""
        return self._named("pending")

    def _named(self, status: CheckStatus) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if check.status == status)


class Waiting(Frozen):
    """A call that is taking its time; ``elapsed_s`` and ``limit_s`` count from its beginning."""

    check: str
    what: str
    elapsed_s: float
    limit_s: float
