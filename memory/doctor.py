"""The checks a backend passes before it is trusted with a run (spec 4.3, steps 4 to 10).

Everything is tried on two synthetic scopes, which are reset afterwards whatever happens. A check that cannot be
settled in time is ``pending``, never green.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from memory.contract._model import Frozen
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import BackendReadiness, RetrieveResult
from memory.contract.requests import AdapterMode, ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.slot import MemorySlot

__all__ = ["CHECKS", "CheckResult", "DoctorReport", "run_doctor"]

CHECKS = (
    "config",
    "plugin",
    "health",
    "setup",
    "capabilities",
    "isolation",
    "readiness",
    "write_read",
    "read_only",
    "reset",
)
"""Names of the checks, in order."""

CheckStatus = Literal["passed", "failed", "pending", "skipped"]


class CheckResult(Frozen):
    """One check: what was seen, how long it took (ms), and for a failure what to do."""

    name: str
    status: CheckStatus
    evidence: str
    latency_ms: float | None = None
    fix: str | None = None


class DoctorReport(Frozen):
    """All checks of one configuration."""

    source: str
    provider: str | None
    kind: str | None
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """No check failed. Pending checks are not failures, and not green either."""
        return all(check.status != "failed" for check in self.checks)

    @property
    def pending(self) -> tuple[str, ...]:
        """Names of the checks that could not be settled."""
        return tuple(check.name for check in self.checks if check.status == "pending")


class CheckFailed(MemslotError):
    """A check saw something it must not see."""


Outcome = tuple[CheckStatus, str]


async def run_doctor(
    config: str | Path | Mapping[str, Any] | MemslotConfig,
    *,
    registry: MemoryAdapterRegistry | None = None,
    on_check: Callable[[CheckResult], None] | None = None,
    ready_timeout_s: float = 30.0,
) -> DoctorReport:
    """Run every check in order; after a failure the rest are ``skipped``, but for the reset.

    Args:
        config: a YAML file, its content, or a loaded configuration.
        registry: in place of the installed plugins.
        on_check: called with each result as it comes, for progress.
        ready_timeout_s: how long to wait for readiness, in seconds.
    """
    return await _Doctor(config, registry or MemoryAdapterRegistry(), on_check, ready_timeout_s).run()


class _Doctor:
    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | MemslotConfig,
        registry: MemoryAdapterRegistry,
        on_check: Callable[[CheckResult], None] | None,
        ready_timeout_s: float,
    ) -> None:
        self._source = config
        self._registry = registry
        self._on_check = on_check
        self._ready_timeout_s = ready_timeout_s
        self._config: MemslotConfig | None = None
        self._slot: MemorySlot | None = None
        self._readiness: BackendReadiness | None = None
        self._results: list[CheckResult] = []
        run = f"memslot-doctor-{uuid.uuid4().hex[:12]}"
        self._ours = MemoryScope(run_id=run, persona_id="doctor-a")
        self._other = MemoryScope(run_id=run, persona_id="doctor-b")
        self._marker = f"oolong{uuid.uuid4().hex[:8]}"

    async def run(self) -> DoctorReport:
        steps: dict[str, Callable[[], Awaitable[Outcome]]] = {
            name: getattr(self, f"_check_{name}") for name in CHECKS if name != "reset"
        }
        try:
            for name, step in steps.items():
                if any(result.status == "failed" for result in self._results):
                    failed = next(result.name for result in self._results if result.status == "failed")
                    self._note(
                        CheckResult(name=name, status="skipped", evidence=f"not run, because {failed} failed")
                    )
                else:
                    await self._pass(name, step)
            await self._pass("reset", self._check_reset)
        finally:
            if self._slot is not None:
                await self._slot.aclose()
        config = self._config
        return DoctorReport(
            source=config.source if config else str(self._source),
            provider=config.provider if config else None,
            kind=config.kind if config else None,
            checks=tuple(self._results),
        )

    async def _pass(self, name: str, step: Callable[[], Awaitable[Outcome]]) -> None:
        started = time.perf_counter()
        fix = None
        try:
            status, evidence = await step()
        except MemslotError as error:
            status, evidence = "failed", str(error)
            fix = _FIXES.get(name)
        self._note(
            CheckResult(
                name=name,
                status=status,
                evidence=evidence,
                latency_ms=(time.perf_counter() - started) * 1000,
                fix=fix,
            )
        )

    def _note(self, result: CheckResult) -> None:
        self._results.append(result)
        if self._on_check is not None:
            self._on_check(result)

    @property
    def slot(self) -> MemorySlot:
        assert self._slot is not None
        return self._slot

    # -- the checks --------------------------------------------------------------------------------------

    async def _check_config(self) -> Outcome:
        self._config = load_config(self._source)
        field = "backend" if self._config.kind == "architecture" else "condition"
        return "passed", f"memory.{field} is {self._config.provider}; hash {self._config.config_hash[:12]}"

    async def _check_plugin(self) -> Outcome:
        assert self._config is not None
        info = self._registry.info(self._config.provider, self._config.kind)
        self._slot = build_slot(self._config, registry=self._registry)
        return "passed", f"{info.summary}"

    async def _check_health(self) -> Outcome:
        health = await self.slot.health()
        notes = "; ".join(health.warnings)
        if health.status == "unavailable":
            raise CheckFailed(notes or "the backend is unavailable")
        versions = ", ".join(f"{name} {version}" for name, version in sorted(health.versions.items()))
        return "passed", "; ".join(part for part in (health.status, versions, notes) if part)

    async def _check_setup(self) -> Outcome:
        for scope in (self._ours, self._other):
            await self.slot.setup_scope(scope)
        ids = self.slot.native_scope(self._ours)
        if ids and ids == self.slot.native_scope(self._other):
            raise CheckFailed("two personas got the same native ids; the templates share memory between them")
        return "passed", ", ".join(f"{name}={value}" for name, value in ids.items()) or "no native ids"

    async def _check_capabilities(self) -> Outcome:
        assert self._config is not None
        offered = self.slot.capabilities()
        undeclared = offered - self._registry.info(self._config.provider, self._config.kind).capabilities
        if undeclared:
            raise CheckFailed(
                f"offers {', '.join(sorted(undeclared))}, which its description does not declare"
            )
        traits = self.slot.traits
        listed = ", ".join(sorted(offered)) or "none"
        return "passed", f"{listed}; {traits.consistency}; CS filtering {traits.cs_filtering}"

    async def _check_isolation(self) -> Outcome:
        event = MemoryEvent(
            event_id=uuid.uuid4().hex,
            scope=self._ours,
            session_id="doctor",
            turn_id="1",
            timestamp=datetime.now(UTC),
            messages=(
                Message(role="user", content=f"My favourite tea is {self._marker}."),
                Message(role="assistant", content=f"I will remember that you like {self._marker}."),
            ),
        )
        receipt = await self.slot.record_event(event)
        if receipt.status == "unknown":
            raise CheckFailed("the write got no answer, so nothing can be said about isolation")
        await self._wait()
        if self._seen(await self._ask(self._other)):
            raise CheckFailed("an event written for one persona was retrieved for another")
        return "passed", f"written for doctor-a ({receipt.status}), not retrievable for doctor-b"

    async def _check_readiness(self) -> Outcome:
        ready = self._readiness
        if ready is None:
            return "passed", f"no readiness to ask for; {self.slot.traits.consistency} by declaration"
        if ready.state == "failed":
            raise CheckFailed(f"processing failed: {ready.detail}")
        waited = f" after {ready.waited_ms:.0f} ms" if ready.waited_ms is not None else ""
        status: CheckStatus = "passed" if ready.state == "ready" else "pending"
        return status, f"{ready.state}{waited}" + (f": {ready.detail}" if ready.detail else "")

    async def _check_write_read(self) -> Outcome:
        result = await self._ask(self._ours)
        seen = self._seen(result)
        if not self.slot.traits.recalls_writes:
            if seen:
                raise CheckFailed("declares that it does not recall what is written, and did")
            return "passed", f"does not recall what is written, by design; context has {_size(result)}"
        if seen:
            return "passed", f"found what was written; context has {_size(result)}"
        if self._readiness is not None and self._readiness.state != "ready":
            return "pending", f"not retrievable yet, and readiness is {self._readiness.state}"
        raise CheckFailed(f"what was written was not found; {_size(result)} came back")

    async def _check_read_only(self) -> Outcome:
        await self.slot.set_mode(AdapterMode(read_only=True, reason="doctor"))
        try:
            receipt = await self.slot.after_turn(session_id="doctor", user="not to be kept", scope=self._ours)
            if receipt.status != "skipped_read_only":
                raise CheckFailed(f"a write in read-only mode was {receipt.status}")
        finally:
            await self.slot.set_mode(AdapterMode(read_only=False, reason="doctor"))
        return "passed", "a write in read-only mode was skipped"

    async def _check_reset(self) -> Outcome:
        if self._slot is None or self._results[CHECKS.index("setup")].status != "passed":
            return "skipped", "nothing was written"
        left: list[str] = []
        for scope in (self._ours, self._other):
            receipt = await self.slot.reset_scope(scope)
            if not receipt.verified:
                raise CheckFailed("the scope was not empty after its reset")
            left.extend(receipt.left)
        return "passed", "both scopes verified empty" + (
            f"; stays: {', '.join(sorted(set(left)))}" if left else ""
        )

    # -- what they share --------------------------------------------------------------------------------

    async def _wait(self) -> None:
        readiness = self.slot.capability(SupportsReadiness)
        if readiness is not None:
            self._readiness = await readiness.wait_until_ready(self._ours, self._ready_timeout_s)

    async def _ask(self, scope: MemoryScope) -> RetrieveResult:
        request = RetrieveRequest(
            query=f"favourite tea {self._marker}",
            scope=scope,
            session_id="doctor",
            budget=ContextBudget(max_tokens=2000, max_items=10),
        )
        return await self.slot.retrieve(request)

    def _seen(self, result: RetrieveResult) -> bool:
        return (
            any(self._marker in entry.text for entry in result.entries)
            or self._marker in result.formatted_context
        )


def _size(result: RetrieveResult) -> str:
    return f"{len(result.included)} entries, {result.trace.token_count} tokens"


_FIXES = {
    "plugin": "see 'memslot backends' for what is installed",
    "health": "start the backend, or correct its address and credentials in the configuration",
    "setup": "check the id templates of the configuration",
    "isolation": "do not use this configuration: memory would leak between users",
    "write_read": "check the embedder and the LLM behind the backend; 'memslot doctor' shows them under health",
    "reset": "clear the scopes named memslot-doctor-* by hand",
}
