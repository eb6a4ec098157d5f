"""Specs in a process of their own, so that a plugin that never comes back can be cut off by its death.

``python -m memory.testing.contract._worker ORDER`` prints a line of JSON before and after every spec. A spec that
takes too long ends the process, whose stack is then in the file that the order names.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from pydantic import TypeAdapter

from memory import ConfigError, InputError, PluginError
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing.contract._declared import ConformanceProfile
from memory.testing.contract._report import Result
from memory.testing.contract._run import opened, run_spec
from memory.testing.contract._spec import Failure, cut_off, specs

_GRACE_S = 2.0
_NOT_THE_PLUGINS = (str(Path(__file__).parents[2]), "/asyncio/", "/trio/", "/anyio/", "<frozen")
_STDLIB = sysconfig.get_path("stdlib")
_RESULT = TypeAdapter(Result)


def play(
    config: str, chosen: Sequence[tuple[str, str]], *, limit_s: float, profile: str | None = None
) -> Iterator[Result]:
    """The results of specs, each as soon as it is known.

    Args:
        config: path of a configuration.
        chosen: names of specs, each with its loop.
        limit_s: seconds for each.
        profile: ``module:class`` in place of what the plugin's hook names.

    Raises:
        InputError: no adapter can be made: an option is wrong, or an SDK is not installed.
    """
    left = list(chosen)
    while left:
        with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            stack = Path(directory, "stack")
            order = {
                "config": config, "chosen": left, "limit_s": limit_s, "profile": profile, "stack": str(stack),
            }  # fmt: skip
            last, stderr, code = None, Path(directory, "stderr"), 0
            for line in _lines(order, stderr):
                if "ended" in line:
                    code = line["ended"]
                    continue
                if "started" in line:
                    last = tuple(line["started"])
                    continue
                if "refused" in line:
                    raise InputError(line["refused"])
                left.pop(0)
                last = None
                yield _RESULT.validate_python(line)
            if not left:
                return
            spec, loop = last or left[0]
            where = _stack(stack.read_text()) if stack.exists() else []
            if where:
                failure = cut_off(specs()[spec], limit_s, where)
            else:
                failure = _died(spec, code, stderr.read_text(errors="replace"))
            left.pop(0)
            yield Result(spec, loop, "failed", failure=failure, seconds=limit_s if where else 0.0)


def _lines(order: dict[str, Any], stderr: Path) -> Iterator[dict[str, Any]]:
    with (
        stderr.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(order)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TMPDIR": str(stderr.parent)},  # what it leaves goes with it
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield json.loads(line)
            yield {"ended": process.wait()}
        finally:
            process.kill()


def _died(spec: str, code: int, said: str) -> Failure:
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return Failure(
        promise=specs()[spec].promise,
        problem=f"the process that played it ended {how}",
        done=(),
        seen=tuple(_stack(said)[:3] or said.strip().splitlines()[-3:]),
        remedies=("a plugin must not end its process: see what it printed last",),
        anchor="docs/conformance.md#limits",
    )


def _stack(text: str) -> list[str]:
    """The lines of a dumped stack that are the plugin's, innermost first: of the main thread, else of its workers.

    Where nobody is in the plugin, all lines of the main thread.
    """
    frames: list[str] = []
    for thread in text.split("(most recent call first):")[:0:-1]:  # the main thread is dumped last
        lines = [line.strip().removeprefix("File ") for line in thread.splitlines() if "File " in line]
        own = [line for line in lines if not any(part in line for part in _NOT_THE_PLUGINS)]
        own = [line for line in own if _STDLIB not in line or "site-packages" in line]
        if own:
            return own
        frames = frames or lines
    return frames


def profile_of(registry: MemoryAdapterRegistry, settings: MemslotConfig, named: str | None) -> type[Any]:
    """The profile that was named, else the plugin's own, else one without aids."""
    if named is None:
        return registry.conformance(registry.selected(settings).name) or ConformanceProfile
    module, _, name = named.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)  # type: ignore[no-any-return]


def _main(order: dict[str, Any]) -> None:
    faulthandler.enable()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a plugin prints is no result
    stack = Path(order["stack"]).open("w")  # noqa: SIM115 (the watchdog writes to it at the end)
    settings = load_config(order["config"])
    registry = MemoryAdapterRegistry()
    profile = profile_of(registry, settings, order["profile"])
    described = registry.selected(settings)
    limit_s = float(order["limit_s"])

    def send(found: dict[str, Any]) -> None:
        channel.write(json.dumps(found) + "\n")

    async def one_spec(spec: str) -> Result:
        def make(directory: Path) -> Any:
            try:
                return registry.create(settings, data_dir=directory)
            except (ConfigError, PluginError) as error:  # the same for every spec
                send({"refused": str(error)})
                raise SystemExit from None

        return await run_spec(
            specs()[spec], lambda: opened(make, profile, described, in_directory=True), limit_s
        )

    for spec, loop in order["chosen"]:
        send({"started": [spec, loop]})
        faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True, file=stack)
        try:
            result = anyio.run(one_spec, spec, backend=loop)
        except SystemExit:  # which Python would not show
            traceback.print_exc()
            raise
        faulthandler.cancel_dump_traceback_later()
        send(asdict(result))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
