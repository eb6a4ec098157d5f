"""A spec: one promise of a memory, as an async function of a :class:`~memory.testing.contract._kit.Kit`.

It returns where the promise is kept. An ``AssertionError`` says that it is broken, and :class:`NotRun` why it could
not be looked at. How often and where it runs is its runner's; pytest is one of three.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NoReturn

_REFERENCE = re.compile(r"^(?:Spec|DESIGN) [\d.]+(?:(?:, | and )[\d.]+)*[:,.]? *")
Check = Callable[[Any], Awaitable[None]]  # of a Kit, which is built on specs
WhyNot = Literal["not declared", "not applicable", "not tested"]
REGISTRY: dict[str, Spec] = {}


class NotRun(Exception):
    """A promise that was not looked at.

    Attributes:
        outcome: ``not declared``: the memory says that it has not got it; ``not applicable``: it declares the
            alternative, which another spec looks at; ``not tested``: who runs the kit has to give something.
        why: what is not declared, or what is to be given.
    """

    def __init__(self, outcome: WhyNot, why: str) -> None:
        super().__init__(f"{outcome}: {why}")
        self.outcome: WhyNot = outcome
        self.why = why


def not_declared(what: str) -> NoReturn:
    """Leave a spec: the memory says that it does not have this."""
    raise NotRun("not declared", what)


def not_applicable(why: str) -> NoReturn:
    """Leave a spec: the memory declares the alternative, which has a spec of its own."""
    raise NotRun("not applicable", why)


def not_tested(why: str) -> NoReturn:
    """Leave a spec for want of something that whoever runs the kit can give."""
    raise NotRun("not tested", why)


ON_A_WORKER = "run a synchronous SDK on a NativeWorker"
SHIELDED = "wrap an asynchronous write that must not be cut in half in ShieldedCalls"
HEALTH_OF = (
    "answer health with self.health_of(), which takes name, consistency and filtering from the adapter"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """One promise.

    Attributes:
        name: of its function, and its anchor in the documentation; pytest's test is ``test_`` and it.
        area: what it is about, such as ``isolation``.
        core: every memory makes it; otherwise it belongs to a capability or a declaration.
        remedies: what to do where it is broken, each alternative, the honest declaration included.
        check: the function.
    """

    name: str
    area: str
    core: bool
    remedies: tuple[str, ...]
    check: Check

    @property
    def promise(self) -> str:
        """What is promised: the name as a sentence, and more where there is more to say."""
        more = _REFERENCE.sub("", " ".join((self.check.__doc__ or "").split()))
        title = f"{self.title[0].upper()}{self.title[1:]}"
        return f"{title}. {more[:1].upper()}{more[1:]}".rstrip()

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def promise(*remedies: str, core: bool = True) -> Callable[[Check], Check]:
    """Make a function a spec; its module's name says what it is about.

    Args:
        remedies: what to do where it is broken, each an alternative. A declaration stands among them only where it
            is honest for some memory.
        core: every memory makes this promise.
    """

    def register(check: Check) -> Check:
        name, area = check.__name__, check.__module__.rpartition(".")[2].replace("_", " ")
        REGISTRY[name] = Spec(name, area, core, remedies, check)
        return check

    return register


@cache
def specs() -> Mapping[str, Spec]:
    """Every spec of the kit by its name, in the order in which they are played."""
    from memory.testing.contract import specs as package

    for module in ORDER:
        importlib.import_module(f"{package.__name__}.{module}")
    in_order = sorted(REGISTRY.values(), key=lambda spec: ORDER.index(spec.area.replace(" ", "_")))
    return {spec.name: spec for spec in in_order}


ORDER = (
    "recording", "details", "cs_and_filters", "isolation", "read_only", "budget", "safety", "failures",
    "concurrency", "lifecycle", "capabilities", "traces",
)  # fmt: skip
"""The modules of the specs: what everything else rests on comes first."""
