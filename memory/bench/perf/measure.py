"""Compares a backend's library with and without memslot, side by side in one run.

Times differ between machines and loads, so only ratios count. The sides take turns; each round yields one
ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from memory.contract.adapter import SupportsBulkIngest
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent, Message
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.plugins.hookspecs import BareLibrary
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.slot import MemorySlot


def _ratios(more: list[float], less: list[float]) -> list[float]:
    return [late / early for late, early in zip(more, less, strict=True)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a measurement."""

    scopes: int = 50
    memories: int = 200  # in each scope, and in the single scope for comparison
    large: int = 10_000  # memories of the one large scope
    rounds: int = 30  # of calls; a third as many process starts, a fifth as many openings


@dataclass(slots=True)
class Figure:
    """One measurement: milliseconds by contestant (``bare``, ``async``, ``memslot``) and round."""

    name: str
    contestants: dict[str, list[float]] = field(default_factory=dict)

    def median(self, contestant: str) -> float | None:
        """The median in milliseconds; None if the contestant did not take part."""
        times = self.contestants.get(contestant)
        return statistics.median(times) if times else None

    def ratios(self, over: str = "bare") -> list[float]:
        """memslot's time divided by another contestant's, for each round."""
        return _ratios(self.contestants["memslot"], self.contestants[over])

    def to_json(self) -> dict[str, Any]:
        ratios = self.ratios()
        return {
            "name": self.name,
            "ms": {name: _summed_up(times) for name, times in self.contestants.items()},
            "memslot_over_bare": _summed_up(ratios),
            "rounds": len(ratios),
        }


def _summed_up(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values)}


@dataclass(slots=True)
class Report:
    """All figures of a run, in the order of the table."""

    sizes: Sizes
    single: Figure
    large: Figure
    many: Figure
    add: Figure
    spread: Figure
    open: Figure
    cold: Figure

    @property
    def figures(self) -> tuple[Figure, ...]:
        return (self.single, self.large, self.many, self.add, self.spread, self.open, self.cold)

    def growth(self, contestant: str) -> dict[str, list[float]]:
        """The time with many scopes divided by the time with one, for each round of searches and of adds."""
        pairs = {"search": (self.many, self.single), "add": (self.spread, self.add)}
        return {
            name: _ratios(more.contestants[contestant], less.contestants[contestant])
            for name, (more, less) in pairs.items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "sizes": asdict(self.sizes),
            "figures": [figure.to_json() for figure in self.figures],
            "many_scopes_over_one": {
                contestant: {name: _summed_up(ratios) for name, ratios in self.growth(contestant).items()}
                for contestant in ("bare", "memslot")
            },
        }


_START = datetime(2024, 1, 1, tzinfo=UTC)
_TOP_K = 20
_INNER = 3  # calls of one contestant in a round

ReportProgress = Callable[[str, int, int], None]
# Returns the call to time, so that building events and requests is not timed. Each call has another number.
Call = Callable[[int], Callable[[], Awaitable[object]]]


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two sides of the comparison, each with its files below a directory."""

    backend: str
    open_bare: Callable[[Path], BareLibrary]

    def open_slot(self, directory: Path) -> MemorySlot:
        config = {"memory": {"backend": self.backend, "backends": {self.backend: {}}}}
        return build_slot(config, data_dir=directory)


async def measure(
    backend: str,
    directory: Path,
    *,
    sizes: Sizes,
    in_memory: Path | None = None,
    report_progress: ReportProgress = lambda what, done, total: None,
) -> Report:
    """Measure a backend's default configuration side by side with its library.

    Args:
        backend: name of a plugin that offers its library, see :func:`memory.plugins.hookspecs.memslot_bare`.
        directory: an empty directory on the disk on which adding is measured; files stay there.
        in_memory: an empty directory that fills faster, for the stores that are only searched.
        report_progress: called with the activity, the amount done, and the total amount.
    """
    sides = _Sides(backend, MemoryAdapterRegistry().bare(backend))
    searched, scopes = in_memory or directory, sizes.scopes
    plans: Sequence[_Plan] = (
        _Plan("one", f"search, 1 scope of {sizes.memories:,}", 1, sizes.memories),
        _Plan("large", f"search, 1 scope of {sizes.large:,}", 1, sizes.large),
        _Plan("many", f"search, {scopes} scopes of {sizes.memories:,}", scopes, sizes.memories),
    )
    single, large, many = await _figures(sides, searched, plans, _searches, sizes.rounds, report_progress)
    plans = (
        _Plan("one", "add, 1 scope", 1, 2),
        _Plan("many", f"add, spread over {scopes} scopes", scopes, 2),
    )
    stored = directory / "adding"
    add, spread = await _figures(sides, stored, plans, _adds, sizes.rounds, report_progress)
    opened = await _opens(sides, searched, sizes, report_progress)
    cold = await anyio.to_thread.run_sync(_cold_starts, sides, searched, sizes, report_progress)
    return Report(sizes, single, large, many, add, spread, opened, cold)


class _Plan(NamedTuple):
    """Stores to fill: ``scopes`` scopes with ``memories`` memories each, below the directory ``name``."""

    name: str
    figure: str
    scopes: int
    memories: int


async def _figures(
    sides: _Sides,
    directory: Path,
    plans: Sequence[_Plan],
    calls_of: Callable[[BareLibrary, MemorySlot, int], Mapping[str, Call]],
    rounds: int,
    report_progress: ReportProgress,
) -> list[Figure]:
    """One figure for each plan. The calls of all plans take turns."""
    total, filled = sum(plan.scopes * plan.memories for plan in plans), 0
    calls: dict[tuple[str, str], Call] = {}
    async with AsyncExitStack() as stack:
        for plan in plans:
            bare = sides.open_bare(directory / plan.name / "bare")
            stack.callback(bare.close)
            slot = await stack.enter_async_context(sides.open_slot(directory / plan.name / "memslot"))
            for number in range(plan.scopes):
                await _fill(bare, slot, number, plan.memories)
                filled += plan.memories
                report_progress("filling stores", filled, total)
            if plan.memories >= _TOP_K:
                await _check_answers(bare, slot)
            for contestant, call in calls_of(bare, slot, plan.scopes).items():
                if contestant != "async" or plan.name == "one":
                    calls[plan.name, contestant] = call
        times = await _in_turns(calls, rounds, lambda done: report_progress("calling", done, rounds))
    return [
        Figure(plan.figure, {who: found for (name, who), found in times.items() if name == plan.name})
        for plan in plans
    ]


def _searches(bare: BareLibrary, slot: MemorySlot, scopes: int) -> Mapping[str, Call]:
    def asked(number: int) -> tuple[str, str, int]:
        return _question(number), _scope(number % scopes).persona_id, _TOP_K

    return {
        "bare": lambda number: partial(anyio.to_thread.run_sync, bare.search, *asked(number)),
        "memslot": lambda number: partial(slot.retrieve, _request(number, _scope(number % scopes))),
        "async": lambda number: partial(bare.search_async, *asked(number)),
    }


def _adds(bare: BareLibrary, slot: MemorySlot, scopes: int) -> Mapping[str, Call]:
    def added(number: int) -> tuple[str, str]:
        return _text(number), _scope(number % scopes).persona_id

    return {
        "bare": lambda number: partial(anyio.to_thread.run_sync, bare.add, *added(number)),
        "memslot": lambda number: partial(slot.record_event, _event(10**6 + number, _scope(number % scopes))),
        "async": lambda number: partial(bare.add_async, *added(number)),
    }


async def _fill(bare: BareLibrary, slot: MemorySlot, number: int, memories: int) -> None:
    scope = _scope(number)
    await slot.setup_scope(scope)
    events = [_event(turn, scope) for turn in range(memories)]
    bulk = slot.capability(SupportsBulkIngest)
    for start in range(0, memories, 100):
        some = events[start : start + 100]
        if bulk is not None:
            await bulk.record_events(some)
        else:
            for event in some:
                await slot.record_event(event)

    def add() -> None:
        for event in events:
            bare.add(event.messages[0].content, scope.persona_id)

    await anyio.to_thread.run_sync(add)


async def _check_answers(bare: BareLibrary, slot: MemorySlot) -> None:
    """Raises MemslotError if a side finds too little, because an empty search would be a fast one."""
    asked = (_question(0), _scope(0).persona_id, _TOP_K)
    answers = await anyio.to_thread.run_sync(bare.search, *asked)
    entries = (await slot.retrieve(_request(0, _scope(0)))).entries
    for who, count in (("the bare library", len(answers)), ("memslot", len(entries))):
        if count != _TOP_K:
            raise MemslotError(
                f"{who} answers with {count} of {_TOP_K} texts; the two would not do the same work"
            )


async def _opens(sides: _Sides, directory: Path, sizes: Sizes, report_progress: ReportProgress) -> Figure:
    """The time to open the store of many scopes and search one of them, with all imports done."""
    store, rounds = directory / "many", max(1, sizes.rounds // 5)

    def bare(number: int) -> object:
        with closing(sides.open_bare(store / "bare")) as memory:
            return memory.search(_question(number), _scope(number % sizes.scopes).persona_id, _TOP_K)

    async def memslot(number: int) -> object:
        scope = _scope(number % sizes.scopes)
        async with sides.open_slot(store / "memslot") as slot:
            await slot.setup_scope(scope)
            return await slot.retrieve(_request(number, scope))

    calls: dict[tuple[str, str], Call] = {
        ("open", "bare"): lambda number: partial(anyio.to_thread.run_sync, bare, number),
        ("open", "memslot"): lambda number: partial(memslot, number),
    }
    times = await _in_turns(calls, rounds, lambda done: report_progress("opening", done, rounds), inner=1)
    return Figure(
        f"open a store of {sizes.scopes} scopes of {sizes.memories:,}, first result",
        {contestant: values for (_, contestant), values in times.items()},
    )


_COLD_START = """
import asyncio, sys
from memory import ContextBudget, MemoryScope, RetrieveRequest, open_memory
provider, directory, query, user = sys.argv[1:]
async def main():
    scope = MemoryScope(run_id="perf", persona_id=user)
    config = {"memory": {"backend": provider, "backends": {provider: {}}, "data_dir": directory}}
    async with open_memory(config, scope=scope) as memory:
        budget = ContextBudget(max_items=20)
        asked = RetrieveRequest(query=query, scope=scope, session_id="s", budget=budget)
        print(len((await memory.retrieve(asked)).entries))
asyncio.run(main())
"""


def _cold_starts(sides: _Sides, directory: Path, sizes: Sizes, report_progress: ReportProgress) -> Figure:
    """The time of a whole process that opens a store and retrieves once."""
    rounds = max(1, sizes.rounds // 3)
    figure = Figure("cold start of a process, first result", {"bare": [], "memslot": []})
    store, asked = directory / "one", [_question(1), _scope(0).persona_id]
    with closing(sides.open_bare(store / "bare")) as bare:
        program = bare.cold_start
    programs = {
        "bare": ["-c", program, str(store / "bare"), *asked],
        "memslot": ["-c", _COLD_START, sides.backend, str(store / "memslot"), *asked],
    }
    # Both run from bytecode, as installed libraries do, even if the environment disables it.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **compiled}
    for number in range(rounds + 1):
        for contestant in _alternating(["bare", "memslot"], number):
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *programs[contestant]], capture_output=True, text=True, env=environment
            )
            taken = (time.perf_counter() - started) * 1000
            if done.returncode or done.stdout.split()[-1:] != [str(_TOP_K)]:
                last = done.stderr.strip().splitlines()[-1:] or [f"{done.stdout.strip()!r} texts"]
                raise MemslotError(f"the cold start of {contestant} failed: {last[0]}")
            if number:  # round 0 compiles and warms the disk cache
                figure.contestants[contestant].append(taken)
        report_progress("starting processes", number, rounds)
    return figure


async def _in_turns(
    calls: Mapping[tuple[str, str], Call],
    rounds: int,
    report_progress: Callable[[int], None],
    inner: int = _INNER,
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each call by round: the median of ``inner`` calls. The order changes each round."""
    times: dict[tuple[str, str], list[float]] = {contestant: [] for contestant in calls}
    for number in range(rounds + 1):
        for contestant in _alternating(list(calls), number):
            taken = []
            for turn in range(inner):
                call = calls[contestant](number * inner + turn)
                started = time.perf_counter()
                await call()
                taken.append((time.perf_counter() - started) * 1000)
            if number:  # round 0 only warms up
                times[contestant].append(statistics.median(taken))
        report_progress(number)
    return times


def _alternating(contestants: list[Any], number: int) -> Iterator[Any]:
    turned = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
    return iter(turned if number % 2 else turned[::-1])


def _scope(number: int) -> MemoryScope:
    return MemoryScope(run_id="perf", persona_id=f"user{number}")


def _text(number: int) -> str:
    return f"Turn {number}: I would rather have tea number {number % 97} than coffee."


def _question(number: int) -> str:
    return f"Which tea would I rather have than number {number % 89}?"


def _event(number: int, scope: MemoryScope) -> MemoryEvent:
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=f"s{number // 50}",
        turn_id=str(number),
        timestamp=_START + timedelta(minutes=number),
        messages=(Message(role="user", content=_text(number)),),
    )


def _request(number: int, scope: MemoryScope) -> RetrieveRequest:
    budget = ContextBudget(max_items=_TOP_K)
    return RetrieveRequest(query=_question(number), scope=scope, session_id="s", budget=budget)
