"""Runs the checks in order: skips dependent ones, reports meanwhile, and clears the scopes in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from memory.doctor.checks import CheckFailed, Outcome, SlotChecks
from memory.doctor.hints import Hints, explained, hides_us
from memory.doctor.report import CHECKS, NEEDS, CheckResult, DoctorReport
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.opening import build_slot, open_journal
from memory.plugins.registry import MemoryAdapterRegistry

_LEAST_RESET_S = 10.0
_CLEAN_UP_S = 15.0


@dataclass
class Doctor:
    """Runs every check in order. A check that depends on a failed one is ``skipped``.

    Only the callbacks' own errors are raised; the synthetic scopes are reset even then.

    Args:
        source: a YAML file, its content, or a loaded configuration.
        registry, write_s, data_dir: replace the installed plugins, the deadline in seconds (to time a slow
            model), and the directory.
        on_check, on_begin: get each result, and the name of each check before it runs.
        on_error: gets each error behind a failed check.
        ready_timeout_s: longest wait, in seconds, for asynchronous derivation. Each reset gets this time, but
            at least 10 s and at most the configured deadline.
    """

    source: str | Path | Mapping[str, Any] | MemslotConfig
    registry: MemoryAdapterRegistry = field(default_factory=MemoryAdapterRegistry)
    on_check: Callable[[CheckResult], None] | None = None
    on_begin: Callable[[str], None] | None = None
    on_error: Callable[[Exception], None] | None = None
    ready_timeout_s: float = 30.0
    write_s: float | None = None
    data_dir: Path | None = None
    kind: str | None = field(default=None, init=False)
    label: str | None = field(default=None, init=False)
    given: MemslotConfig | None = field(default=None, init=False)
    # ``given`` with the doctor's deadlines, and without a journal
    config: MemslotConfig | None = field(default=None, init=False)
    hints: Hints = field(default_factory=Hints, init=False)
    checks: SlotChecks | None = field(default=None, init=False)
    results: list[CheckResult] = field(default_factory=list, init=False)
    culprits: dict[str, str] = field(default_factory=dict, init=False)

    async def run(self) -> DoctorReport:
        try:
            for name in CHECKS:
                await self._run_check(name)
        finally:
            await self._clean_up()
        source = "config" if isinstance(self.source, Mapping) else str(self.source)
        return DoctorReport(
            source=self.config.problem.source if self.config else source,
            provider=self.config.provider if self.config else None,
            kind=self.kind,
            label=self.label,
            checks=tuple(self.results),
            write_s=self.checks.needed_write_s if self.checks else None,
        )

    async def _run_check(self, name: str) -> None:
        culprit = self.culprits.get(NEEDS.get(name, ""))
        if culprit is not None:
            self.culprits[name] = culprit
            why = f"not run, because {culprit} failed"
            return self._note(CheckResult(name=name, status="skipped", evidence=why))
        if self.on_begin is not None:
            self.on_begin(name)
        started = time.perf_counter()
        fix = None
        try:
            opening = {"config": self._load, "plugin": self._open}
            status, evidence = await (opening.get(name) or getattr(self.checks, name))()
        except Exception as error:
            self.culprits[name] = name
            status, evidence = "failed", explained(error)
            fix = error.fix if isinstance(error, CheckFailed) else self.hints.fix(error)
            if self.on_error is not None and (error.__cause__ or not isinstance(error, CheckFailed)):
                self.on_error(error)
        took = (time.perf_counter() - started) * 1000
        self._note(CheckResult(name=name, status=status, evidence=evidence, latency_ms=took, fix=fix))

    def _note(self, result: CheckResult) -> None:
        self.results.append(result)
        if self.on_check is not None:
            self.on_check(result)

    async def _load(self) -> Outcome:
        loaded = load_config(self.source, options_of=self.registry.options_of)
        # A reset may take 300 s in production, which is too long for a person who waits for the doctor.
        deadlines = loaded.memory.deadlines
        reset_s = min(deadlines.reset_s, max(self.ready_timeout_s, _LEAST_RESET_S))
        shorter = deadlines.model_copy(
            update={"reset_s": reset_s, "write_s": self.write_s or deadlines.write_s}
        )
        # A journal would report a failed write as queued, and send it again after the doctor has ended.
        memory = loaded.memory.model_copy(update={"deadlines": shorter, "journal": None})
        self.given, self.config = loaded, replace(loaded, memory=memory)
        self.hints = Hints(loaded)
        journal = "; the journal is left out: nothing of this is kept" if loaded.journal else ""
        beside = [self.source] if isinstance(self.source, (str, Path)) else []
        hidden = hides_us(Path.cwd(), *(Path(path).parent for path in beside))
        note = f"; {hidden}" if hidden else ""
        unread = "".join(f"; {place}" for place in self.registry.unread(loaded))
        return "passed", f"memory.{loaded.spelling} is {loaded.provider}{journal}{note}{unread}"

    async def _open(self) -> Outcome:
        assert self.config is not None
        assert self.given is not None
        info = self.registry.selected(self.config)
        self.hints = Hints(self.config, info)
        known = self.given.config_hash(self.given.parse_options(info.options))
        if self.given.memory.state is not None:
            open_journal(self.given).close()  # no other check would notice that the server is down
        slot = build_slot(self.config, registry=self.registry, data_dir=self.data_dir)
        self.kind, self.label = slot.traits.kind, info.label(slot.traits)
        self.checks = SlotChecks(slot, info, self.hints, self.ready_timeout_s)
        return "passed", f"{self.label}: {info.summary}; configuration hash {known[:12]}"

    async def _clean_up(self) -> None:
        """Clear the scopes that are still set up, and close, after an early end."""
        if self.checks is None:
            return
        with anyio.move_on_after(_CLEAN_UP_S, shield=True):
            try:
                await self.checks.abandon()
            except Exception as error:
                if self.on_error is not None:
                    self.on_error(error)
