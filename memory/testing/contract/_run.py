"""Playing specs: one on the event loop that runs, or all of a memory's; pytest is not needed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import sniffio

from memory.adapter import MemoryAdapter, PluginInfo
from memory.testing.contract._declared import ConformanceProfile
from memory.testing.contract._kit import Kit
from memory.testing.contract._report import Report, Result
from memory.testing.contract._spec import NotRun, Spec, cut_off, failure_of, specs

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
    """Play the kit against a memory, on the event loop that runs.

    Args:
        memory: a function that makes adapters of one native system, each closed by the kit; or one adapter, which
            stays open, so that what needs a second one is not tested.
        profile: what the memory does not promise, and what only its author can show.
        described: what its plugin says of it.
        level: ``core`` plays what every memory promises, ``full`` everything.
        limit_s: seconds for each spec. A call that blocks the event loop is cut off by ``memslot conform`` alone.
        progress: called with each result.

    Returns:
        Counts, failures and the level; nothing raises for a promise that is broken.
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
    """Play one spec; nothing it does wrong escapes."""
    loop = sniffio.current_async_library()
    began = time.monotonic()
    found = Result(spec.name, loop, "passed")
    traces: list[Any] = []
    try:
        with anyio.fail_after(limit_s):
            async with open_kit() as kit:
                traces = kit.traces.all
                await spec.check(kit)
    except TimeoutError:
        found = replace(found, outcome="failed", failure=cut_off(spec, limit_s, ()))
    except Exception as error:
        left: BaseException = error  # or the one exception of a group of tasks
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
    """A kit over a memory, for one spec; ``in_directory`` hands an empty directory to what makes adapters."""
    with TemporaryDirectory(prefix="memslot-kit-", ignore_cleanup_errors=True) as name:
        declared, make = profile(Path(name)), None if isinstance(memory, MemoryAdapter) else memory
        if make is not None and in_directory:
            make = partial(make, Path(name))
        adapter: Any = memory if make is None else make()  # type: ignore[call-arg]
        aids = declared.aids(adapter, described=described, make_adapter=make)
        kit = Kit(adapter, declared=declared, aids=aids, loop=sniffio.current_async_library())
        if make is None:  # not the kit's to close
            kit.patch(adapter, "aclose", anyio.lowlevel.checkpoint)
        with kit.patched:
            async with kit.slot:
                yield kit
                await kit.close(clean_up=declared.clean_up)
