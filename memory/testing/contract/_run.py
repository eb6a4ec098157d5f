"""Runs specs and reports the level that a memory reaches, for people and for programs."""

from __future__ import annotations

import faulthandler
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import anyio

from memory import AdapterMode, ConfigError, InputError, MemoryAdapter, PluginError
from memory.adapter import PluginInfo
from memory.contract._loops import on_trio
from memory.plugins.config import MemslotConfig
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing.contract._declared import ConformanceProfile
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import DOCS, Failure, NotRun, Spec, cut_off, failure_of, specs

Outcome = Literal["passed", "not applicable", "not declared", "not tested", "failed", "not run"]
OUTCOMES: tuple[Outcome, ...] = (  # from best to worst; over several event loops the worst counts
    "not run", "not applicable", "not declared", "passed", "not tested", "failed",
)  # fmt: skip
SHOWN: tuple[Outcome, ...] = ("failed", "passed", "not declared", "not tested", "not run")
CORE, DECLARED, FULL = "CORE", "CORE+DECLARED", "FULL"
LEVELS = (CORE, DECLARED, FULL)


@dataclass(frozen=True, slots=True)
class Result:
    spec: str
    loop: str
    outcome: Outcome
    why: str = ""  # the reason it did not run
    failure: Failure | None = None
    seconds: float = 0.0


@dataclass
class Tally:
    core: Mapping[str, bool]  # each expected spec -> whether every memory promises it
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def add(self, spec: str, outcome: Outcome) -> None:
        before = self.outcomes.get(spec, "not run")
        self.outcomes[spec] = max(before, outcome, key=OUTCOMES.index)

    def counts(self, level: str = FULL) -> Counter[str]:
        """The number of specs of a level by outcome, without ``not applicable``."""
        wanted = (spec for spec, core in self.core.items() if level != CORE or core)
        found = Counter[str](self.outcomes.get(spec, "not run") for spec in wanted)
        del found["not applicable"]
        return found

    def reached(self, level: str) -> bool:
        """Whether the memory keeps every promise of a level. An undeclared capability prevents ``FULL`` alone."""
        counts = self.counts(level)
        missing = counts["failed"] + counts["not tested"] + counts["not run"]
        return not missing and (level != FULL or not counts["not declared"])

    @property
    def level(self) -> str:
        """The highest level reached, ``FAILED`` if a promise is broken, or ``BELOW CORE``."""
        if self.counts()["failed"]:
            return "FAILED"
        return next((level for level in reversed(LEVELS) if self.reached(level)), "BELOW CORE")

    def line(self, level: str) -> str:
        reached = "reached" if self.reached(level) else "not reached"
        return f"{level:<14}{reached:<13}{in_words(self.counts(level))}"


def in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in SHOWN if counts.get(name))


@dataclass
class Report:
    """A run of the kit.

    Attributes:
        memory: the name of the tested memory.
        versions: distribution -> version of the plugin, if known.
        results: one for each spec and event loop.
    """

    memory: str
    versions: Mapping[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        """The outcome of each spec."""
        tally = Tally({spec.name: spec.core for spec in specs().values()})
        for result in self.results:
            tally.add(result.spec, result.outcome)
        return tally

    @property
    def level(self) -> str:
        """See :attr:`Tally.level`."""
        return self.tally.level

    @property
    def failed(self) -> list[Result]:
        """The failed specs, one for each event loop."""
        return [result for result in self.results if result.outcome == "failed"]

    def reasons(self) -> Iterator[str]:
        """Each reason why specs did not run, with their number."""
        for outcome in ("not declared", "not tested"):
            found = {(result.spec, result.why) for result in self.results if result.outcome == outcome}
            for why, count in Counter(why for _, why in found).most_common():
                yield f"{outcome}: {why} ({count})"

    def to_text(self) -> str:
        """The report for a terminal."""
        lines = []
        alike: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
        for result in self.failed:
            alike[result.spec, _problem(result)].append(result)
        for (spec, _), results in alike.items():
            loops = ", ".join(result.loop for result in results)
            lines += [f"FAILED {spec} ({loops})", f"  {results[0].failure}".replace("\n", "\n  "), ""]
        if lines:
            lines += [f"Each promise and its remedies: {DOCS}, or memslot tools conform --specs.", ""]
        seconds = sum(result.seconds for result in self.results)
        lines.append(f"{self.memory}: {self.level} ({seconds:.1f} s)")
        lines += [f"  {self.tally.line(level)}" for level in LEVELS]
        lines += [f"  {reason}" for reason in self.reasons()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        tally, levels = self.tally, {}
        for level in LEVELS:
            counts = {name.replace(" ", "_"): tally.counts(level)[name] for name in SHOWN}
            levels[level] = {"reached": tally.reached(level), **counts}
        specs = [asdict(result) for result in self.results]
        for spec in specs:
            spec |= {"why": spec["why"] or None, "seconds": round(spec["seconds"], 3)}
        made = {"memory": self.memory, "versions": dict(self.versions), "level": self.level, "levels": levels}
        return {**made, "specs": specs}


def _problem(result: Result) -> str:
    return result.failure.problem.splitlines()[0] if result.failure else ""


def catalogue(known: Iterable[Spec]) -> str:
    """The page of all specs in ``DOCS``: each promise, and what to do if it is broken."""
    known = list(known)
    counted = f"{len(known)} promises, {sum(spec.core for spec in known)} of them CORE"
    written = f"Written by `memslot tools conform --specs`: {counted}. A failure names its promise here."
    lines = ["# The specs of the kit", "", written]
    for area in dict.fromkeys(spec.area for spec in known):
        lines += ["", f"## {area[0].upper()}{area[1:]}"]
        for spec in (spec for spec in known if spec.area == area):
            lines += ["", f"### {spec.title} {{#{spec.name}}}", "", spec.promise, ""]
            lines += [f"- {remedy}" for remedy in spec.remedies]
            lines += [""] if spec.remedies else []
            lines.append(f"`{spec.name}`, {'CORE' if spec.core else 'of a capability or a declaration'}.")
    return "\n".join(lines) + "\n"


OpenKit = Callable[[], AbstractAsyncContextManager[Kit]]


async def validate(
    memory: MemoryAdapter | Callable[[], MemoryAdapter],
    *,
    profile: type[ConformanceProfile] = ConformanceProfile,
    described: PluginInfo | None = None,
    level: str = "full",
    limit_s: float = 60.0,
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Run the kit against a memory, on the running event loop.

    Args:
        memory: a function that makes adapters of one native system; the kit closes each. Or one adapter, which
            stays open; specs that need a second one are not tested.
        profile: the promises that the memory does not make, and the aids of its author.
        described: the plugin's description of the memory.
        level: ``core`` runs the promises of every memory, ``full`` runs all.
        limit_s: seconds for each spec. A call that blocks the event loop is not cut off.
        progress: called with each result.

    Returns:
        Counts, failures and the level. A broken promise raises nothing.
    """
    report = Report(memory=described.name if described else getattr(memory, "backend_name", "memory"))
    for spec in of_level(level):
        result = await run_spec(spec, lambda: opened(memory, profile, described), limit_s)
        report.results.append(result)
        if progress is not None:
            progress(result)
    return report


def of_level(level: str) -> list[Spec]:
    return [spec for spec in specs().values() if spec.core or level != "core"]


async def run_spec(spec: Spec, open_kit: OpenKit, limit_s: float) -> Result:
    """Run one spec. Its exceptions become its result."""
    loop = "trio" if on_trio() else "asyncio"
    began = time.monotonic()
    found = Result(spec.name, loop, "passed")
    traces: list[Any] = []
    try:
        with anyio.fail_after(limit_s):
            async with open_kit() as kit:
                traces = kit.traces.all
                await spec.check(kit)
    except TimeoutError:
        found = replace(found, outcome="failed", failure=cut_off(spec, limit_s))
    except Exception as error:
        left: BaseException = error  # or the only exception in a group
        while isinstance(left, BaseExceptionGroup) and len(left.exceptions) == 1:
            left = left.exceptions[0]
        if isinstance(left, NotRun):
            found = replace(found, outcome=left.outcome, why=left.why)
        else:
            found = replace(found, outcome="failed", failure=failure_of(spec, error, traces))
    return replace(found, seconds=time.monotonic() - began)


@asynccontextmanager
async def opened(
    memory: MemoryAdapter | Callable[[], MemoryAdapter] | Callable[[Path], MemoryAdapter],
    profile: type[ConformanceProfile],
    described: PluginInfo | None,
    *,
    in_directory: bool = False,
) -> AsyncIterator[Kit]:
    """A kit over a memory, for one spec. ``in_directory`` passes an empty directory to the adapters' maker."""
    with TemporaryDirectory(prefix="memslot-kit-", ignore_cleanup_errors=True) as name:
        declared = profile(Path(name))
        make: Any = memory if isinstance(memory, type) or not isinstance(memory, MemoryAdapter) else None
        if make is not None and in_directory:
            make = partial(make, Path(name))
        adapter: Any = memory if make is None else make()
        aids = declared.aids(adapter, described=described, make_adapter=make)
        kit = Kit(adapter, declared=declared, aids=aids, loop="trio" if on_trio() else "asyncio")
        if make is None:  # the caller owns this adapter
            kit.patch(adapter, "aclose", anyio.lowlevel.checkpoint)
            await adapter.set_mode(AdapterMode(read_only=False))  # an earlier spec may have left it read-only
        with kit.patched:
            async with kit.slot:
                yield kit
                await kit.close(clean_up=declared.clean_up)


def play(
    registry: MemoryAdapterRegistry,
    config: MemslotConfig,
    chosen: Sequence[tuple[Spec, str]],
    limit_s: float,
) -> Iterator[Result]:
    """Run specs on their event loops against the memory of a configuration. Yields each result at once.

    A spec that blocks its event loop for ``limit_s`` seconds ends the process and leaves its stack on stderr.

    Raises:
        InputError: no adapter can be made, because an option is wrong or an SDK is missing.
    """
    described = registry.selected(config)
    profile = registry.conformance(described.name) or ConformanceProfile
    refused: list[str] = []

    def make(directory: Path) -> MemoryAdapter:
        try:
            return registry.create(config, data_dir=directory)
        except (ConfigError, PluginError) as error:
            refused.append(str(error))
            raise

    for spec, loop in chosen:
        faulthandler.dump_traceback_later(limit_s + 2.0, exit=True)
        kit = partial(opened, make, profile, described, in_directory=True)
        result = anyio.run(run_spec, spec, kit, limit_s, backend=loop)
        faulthandler.cancel_dump_traceback_later()
        if refused:
            raise InputError(refused[0])
        yield result
