"""A spec: one promise of a memory, as an async function of a :class:`~memory.testing.contract._kit.Kit`.

A spec returns if the promise is kept. It raises ``AssertionError`` if the promise is broken, and :class:`NotRun`
if it could not check. A failure names the calls, the expectation, the values and the remedies.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import re
import traceback
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from itertools import groupby
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

from memory import IsolationError, MemslotError, Trace

_REFERENCE = re.compile(r"^(?:Spec|DESIGN) [\d.]+(?:(?:, | and )[\d.]+)*[:,.]? *")
Check = Callable[[Any], Awaitable[None]]  # takes a Kit, a type built on this module
WhyNot = Literal["not declared", "not applicable", "not tested"]
REGISTRY: dict[str, Spec] = {}


class NotRun(Exception):
    """Raised by a spec that cannot check its promise.

    Not declared: the memory does not have the capability. Not applicable: the memory declares the alternative,
    which has its own spec. Not tested: the kit needs something from its caller.
    """

    def __init__(self, outcome: WhyNot, why: str) -> None:
        super().__init__(f"{outcome}: {why}")
        self.outcome, self.why = outcome, why


ON_A_WORKER = "run a synchronous SDK on a NativeWorker"
SHIELDED = "wrap an asynchronous write that must not be cut in half in ShieldedCalls"
HEALTH_OF = (
    "answer health with self.health_of(), which takes name, consistency and filtering from the adapter"
)


@dataclass(frozen=True, slots=True)
class Spec:
    name: str  # the function's name and the anchor in the documentation; pytest's test adds ``test_``
    area: str
    core: bool  # every memory makes this promise; others belong to a capability or a declaration
    remedies: tuple[str, ...]
    check: Check

    @property
    def promise(self) -> str:
        """The promise: the name as a sentence, and details from the docstring."""
        more = _REFERENCE.sub("", " ".join((self.check.__doc__ or "").split()))
        title = f"{self.title[0].upper()}{self.title[1:]}"
        return f"{title}. {more[:1].upper()}{more[1:]}".rstrip()

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def promise(*remedies: str, core: bool = True, recall: bool = False) -> Callable[[Check], Check]:
    """Make a function a spec. Its module's name is its area.

    Remedies are alternatives. A declaration is a remedy only if it is honest for some memory. A promise of
    ``recall`` is skipped for a memory that does not recall its writes.
    """

    def register(check: Check) -> Check:
        @wraps(check)
        async def checked(kit: Any) -> None:
            if recall:
                kit.needs_recall()
            await check(kit)

        name, area = check.__name__, check.__module__.rpartition(".")[2].replace("_", " ")
        REGISTRY[name] = Spec(name, area, core, remedies, checked)
        return check

    return register


of_capability, of_recall = partial(promise, core=False), partial(promise, recall=True)


@cache
def specs() -> Mapping[str, Spec]:
    """Every spec of the kit by its name, in the order of a run."""
    for module in ORDER:
        importlib.import_module(f"{__package__}.specs.{module}")
    in_order = sorted(REGISTRY.values(), key=lambda spec: ORDER.index(spec.area.replace(" ", "_")))
    return {spec.name: spec for spec in in_order}


ORDER = (  # the areas that others rest on come first
    "recording", "details", "cs_and_filters", "isolation", "read_only", "budget", "safety", "failures",
    "concurrency", "lifecycle", "capabilities",
)  # fmt: skip


DOCS = "docs/conformance-specs.md"
MEND = "mend the adapter: no declaration excuses this promise"
RAISED = "no error is expected here: the last line below seen says where it came from"
FOREIGN_ROW = "data_of_one_scope_never_appears_under_another"
_HERE = str(Path(__file__).parent)
_OURS = str(Path(__file__).parents[2])
_STEPS, _LONGEST = 8, 240


@dataclass(frozen=True, slots=True)
class Failure:
    promise: str
    problem: str
    done: tuple[str, ...]  # the last calls of the slot, oldest first
    seen: tuple[str, ...]  # the values that the problem is about
    remedies: tuple[str, ...]
    anchor: str

    def __str__(self) -> str:
        lines = [self.problem, f"  expected: {self.promise}"]
        for label, values in (("done:", self.done), ("seen:", self.seen)):
            lines += [f"  {'' if number else label:<10}{value}" for number, value in enumerate(values)]
        if self.remedies:
            lines.append("  remedies: " + "\n        or: ".join(self.remedies))
        return "\n".join([*lines, f"  more:     {self.anchor}"])


class PromiseBroken(AssertionError):
    """A :class:`Failure` for pytest."""


def failure_of(spec: Spec, error: BaseException, traces: Sequence[Trace]) -> Failure:
    error = _first(error)
    remedies, cause = spec.remedies or (MEND,), error.__cause__
    problem, seen = str(error) or "a promise of the kit is broken", _origins(cause or error)
    if not isinstance(error, AssertionError):  # the check did not run, so the spec's remedies would mislead
        problem = f"{type(error).__name__} was raised: {error}"
        seen = _origins(error)
        remedies = specs()[FOREIGN_ROW].remedies if isinstance(error, IsolationError) else (RAISED, *remedies)
    elif cause is None:
        seen = _values(error)
    elif not isinstance(cause, MemslotError):
        remedies = (RAISED,)
    steps = [(step, len(list(same))) for step, same in groupby(map(_step, traces))][-_STEPS:]
    done = tuple(f"{step} ({times} times)" if times > 1 else step for step, times in steps)
    return Failure(spec.promise, problem, done, tuple(seen), remedies, f"{DOCS}#{spec.name}")


def cut_off(spec: Spec, limit_s: float) -> Failure:
    """The failure of a spec that did not return in time."""
    promise = f"every call comes back, here within {limit_s:g} s. {spec.promise}"
    remedies = ("give the wait a limit of its own", "where the machine is slow, allow more: --limit SECONDS")
    return Failure(promise, f"cut off after {limit_s:g} s", (), (), remedies, f"{DOCS}#{spec.name}")


def shown(value: Any) -> str:
    """A value for people: shortened, with code points beside letters that look like others."""
    text = repr(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    if not isinstance(value, str):
        return text
    strange = {letter for letter in value if not letter.isascii()}
    if value != value.strip():
        strange.add(" ")
    if not strange or len(strange) > 6:  # a text of another script, not a letter in disguise
        return text
    points = ", ".join(f"U+{ord(letter):04X} {unicodedata.name(letter, '?')}" for letter in sorted(strange))
    return f"{text} ({points})"


def _first(error: BaseException) -> BaseException:
    """The first exception of a group, a broken promise before others."""
    while isinstance(error, BaseExceptionGroup):
        broken = [each for each in error.exceptions if isinstance(_first(each), AssertionError)]
        error = (broken or list(error.exceptions))[0]
    return error


def _step(trace: Trace) -> str:
    ended = trace.error or trace.consistency or "done"
    if trace.retrieved_count is not None and trace.error is None:
        ended = f"{trace.retrieved_count} entries"
    of = f" of {shown(trace.scope.persona_id)}" if trace.scope is not None else ""
    return f"{trace.operation}{of}: {ended}"


def _values(error: AssertionError) -> Iterator[str]:
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not frame.f_code.co_filename.startswith(_HERE):
            continue
        source = "".join(linecache.getlines(frame.f_code.co_filename))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or line):
                return iter(dict.fromkeys(_named_values(node.test, frame)))
    return iter(())


def _named_values(test: ast.expr, frame: FrameType) -> Iterator[str]:
    inner = {id(node.value) for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    names = (node for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute)))
    for node in names:
        try:
            value = _value(node, frame)
        except Exception:  # a property may raise anything
            continue
        if id(node) not in inner and not callable(value) and not isinstance(value, (ModuleType, type)):
            yield f"{ast.unparse(node)} = {shown(value)}"


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name or of its attributes. Nothing is called."""
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    assert isinstance(node, ast.Name), "of anything else no value is looked up"
    return frame.f_locals[node.id]


def _origins(error: BaseException) -> Iterator[str]:
    """The origins of an exception and its causes: the raising line, and the plugin's line that memslot called."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        ours = [number for number, frame in enumerate(frames) if frame.filename.startswith(_OURS)]
        called = frames[max(ours, default=-1) + 1 :]
        lines = [f"{frame.filename}:{frame.lineno} ({frame.name})" for frame in called or frames[-1:]]
        if lines:
            through = f", called at {lines[0]}" if len(lines) > 1 else ""
            yield f"{type(cause).__name__} in {lines[-1]}{through}"
        cause = cause.__cause__
