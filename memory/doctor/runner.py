"""The checks one after another: what is skipped, what is told meanwhile, and what is cleared in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from memory.doctor.checks import CheckFailed, Outcome, SlotChecks
from memory.doctor.hints import Hints, explained, hides_us
from memory.doctor.report import CHECKS, CheckResult, DoctorReport, Waiting
from memory.doctor.waiting import Patience
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot, open_journal
from memory.plugins.registry import MemoryAdapterRegistry

_NEEDS = {
    "plugin": "config",
    "health": "plugin",
    "setup": "health",
    "capabilities": "setup",
    "models": "setup",
    "write": "models",
    "readiness": "write",
    "write_read": "readiness",
    "isolation": "write",
    "read_only": "write",
    "reset": "plugin",
    "close": "plugin",
}
"""Check -> the one without which it shows nothing."""

_LEAST_RESET_S = 10.0
_CLEAN_UP_S = 15.0


async def run_doctor(
    config: str | Path | Mapping[str, Any] | MemslotConfig,
    *,
    registry: MemoryAdapterRegistry | None = None,
    on_check: Callable[[CheckResult], None] | None = None,
    on_wait: Callable[[Waiting], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
    ready_timeout_s: float = 30.0,
    data_dir: Path | None = None,
) -> DoctorReport:
    """Run every check in order. What needs one that failed is ``skipped``; the reset is tried all the same.

    Args:
        config: a YAML file, its content, or a loaded configuration.
        registry: in place of the installed plugins.
        on_check: called with each result as it comes.
        on_wait: called while a call takes longer than two seconds, and every five seconds from then on.
        on_error: called with each error behind a failed check, for its traceback.
        ready_timeout_s: longest wait for what is derived later, seconds; the resets together get as long, but 10 s.
        data_dir: in place of ``memory.data_dir``.

    Returns:
        The report. Only the callbacks' own errors are raised; the synthetic scopes are reset even then.
    """
    doctor = _Doctor(config, registry or MemoryAdapterRegistry(), ready_timeout_s, data_dir)
    doctor.on_check, doctor.on_error = on_check, on_error
    doctor.patience = Patience(on_wait)
    return await doctor.run()


class _Doctor:
    on_check: Callable[[CheckResult], None] | None
    on_error: Callable[[Exception], None] | None
    patience: Patience

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | MemslotConfig,
        registry: MemoryAdapterRegistry,
        ready_timeout_s: float,
        data_dir: Path | None,
    ) -> None:
        self._source = config
        self._registry = registry
        self._ready_timeout_s = ready_timeout_s
        self._data_dir = data_dir
        self._given: MemslotConfig
        self._kind: str | None = None
        self._label: str | None = None
        self._config: MemslotConfig | None = None
        self._hints = Hints()
        self._checks: SlotChecks | None = None
        self._results: list[CheckResult] = []
        self._culprits: dict[str, str] = {}

    async def run(self) -> DoctorReport:
        async with self.patience.watching():
            try:
                for name in CHECKS:
                    await self._run_check(name)
            finally:
                await self._clean_up()
        config = self._config
        return DoctorReport(
            source=config.problem.source if config else str(self._source),
            provider=config.provider if config else None,
            kind=self._kind,
            label=self._label,
            checks=tuple(self._results),
        )

    async def _run_check(self, name: str) -> None:
        culprit = self._culprits.get(_NEEDS.get(name, ""))
        if culprit is not None:
            self._culprits[name] = culprit
            self._note(
                CheckResult(name=name, status="skipped", evidence=f"not run, because {culprit} failed")
            )
            return
        self.patience.check = name
        started = time.perf_counter()
        fix = None
        try:
            status, evidence = await self._outcome(name)
        except Exception as error:
            self._culprits[name] = name
            status, evidence = "failed", explained(error)
            fix = error.fix if isinstance(error, CheckFailed) else self._hints.fix(error)
            if self.on_error is not None and (error.__cause__ or not isinstance(error, CheckFailed)):
                self.on_error(error)
        took = (time.perf_counter() - started) * 1000
        self._note(CheckResult(name=name, status=status, evidence=evidence, latency_ms=took, fix=fix))

    async def _outcome(self, name: str) -> Outcome:
        if name == "config":
            return self._load()
        if name == "plugin":
            return self._open()
        assert self._checks is not None
        outcome: Outcome = await getattr(self._checks, name)()
        return outcome

    def _note(self, result: CheckResult) -> None:
        self._results.append(result)
        if self.on_check is not None:
            self.on_check(result)

    def _load(self) -> Outcome:
        loaded = load_config(self._source)
        # A reset may be given 300 s in production; nobody sits through that here.
        deadlines = loaded.memory.deadlines
        reset_s = min(deadlines.reset_s, max(self._ready_timeout_s, _LEAST_RESET_S))
        shorter = deadlines.model_copy(update={"reset_s": reset_s})
        # A journal would call a failed write queued, and send it again when the doctor is gone.
        memory = loaded.memory.model_copy(update={"deadlines": shorter, "journal": None})
        self._given, self._config = loaded, replace(loaded, memory=memory)
        self._hints = Hints(loaded)
        journal = "; the journal is left out: nothing of this is kept" if loaded.journal else ""
        beside = [self._source] if isinstance(self._source, (str, Path)) else []
        hidden = hides_us(Path.cwd(), *(Path(path).parent for path in beside))
        note = f"; {hidden}" if hidden else ""
        unread = "".join(f"; {place}" for place in self._registry.unread(loaded))
        served = f"; serve.isolate is {loaded.isolate}" if loaded.isolate else ""
        return "passed", f"memory.{loaded.spelling} is {loaded.provider}{served}{journal}{note}{unread}"

    def _open(self) -> Outcome:
        assert self._config is not None
        info = self._registry.selected(self._config)
        self._hints = Hints(self._config, info)
        known = self._given.config_hash(self._given.parse_options(info.options))
        if self._given.memory.state is not None:
            open_journal(self._given).close()  # the server of hosts and sessions, which nothing below asks
        slot = build_slot(self._config, registry=self._registry, data_dir=self._data_dir)
        traits = slot.traits
        self._kind, self._label = traits.kind, info.label(traits)
        self._checks = SlotChecks(slot, info, self._hints, self.patience, self._ready_timeout_s)
        return "passed", f"{self._label}: {info.summary}; configuration hash {known[:12]}"

    async def _clean_up(self) -> None:
        """After an end in the middle, clear what is still set up, and close."""
        if self._checks is None:
            return
        with anyio.move_on_after(_CLEAN_UP_S, shield=True):
            try:
                await self._checks.abandon()
            except Exception as error:
                if self.on_error is not None:
                    self.on_error(error)
