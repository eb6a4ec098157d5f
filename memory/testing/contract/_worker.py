"""Runs specs in another process, so that the kit can end a plugin that never returns.

``python -m memory.testing.contract._worker ORDER`` prints a line of JSON after each spec. A spec that takes too
long ends the process. Its stack is then in the file that the order names.
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
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from pydantic import TypeAdapter

from memory import ConfigError, InputError, PluginError
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing.contract._declared import ConformanceProfile
from memory.testing.contract._run import Result, opened, run_spec
from memory.testing.contract._spec import Failure, cut_off, specs

_NOT_THE_PLUGINS = (str(Path(__file__).parents[2]), "/asyncio/", "/trio/", "/anyio/", "<frozen")
_STDLIB = sysconfig.get_path("stdlib")
_RESULT = TypeAdapter(Result)


def play(
    config: str, chosen: Sequence[tuple[str, str]], *, limit_s: float, profile: str | None = None
) -> Iterator[Result]:
    """Yield the result of each spec and loop at once. ``profile`` is ``module:class``.

    Raises:
        InputError: no adapter can be made, because an option is wrong or an SDK is missing.
    """
    left = list(chosen)
    while left:
        with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            stack, stderr, code = Path(directory, "stack"), Path(directory, "stderr"), 0
            order = {"config": config, "chosen": left, "limit_s": limit_s, "profile": profile}
            for line in _lines({**order, "stack": str(stack)}, stderr):
                if "refused" in line:
                    raise InputError(line["refused"])
                if "ended" in line:
                    code = line["ended"]
                    continue
                left.pop(0)
                yield _RESULT.validate_python(line)
            if not left:
                return
            spec, loop = left.pop(0)
            where = _stack(stack.read_text()) if stack.exists() else []
            failure = cut_off(specs()[spec], limit_s, where)
            if not where:
                said = stderr.read_text(errors="replace")
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
                seen = tuple(_stack(said)[:3] or said.strip().splitlines()[-3:])
                problem, promise = f"the process that played it ended {how}", specs()[spec].promise
                remedy = "a plugin must not end its process: see what it printed last"
                failure = Failure(promise, problem, (), seen, (remedy,), "docs/conformance.md#limits")
            yield Result(spec, loop, "failed", failure=failure, seconds=limit_s if where else 0.0)


def _lines(order: dict[str, Any], stderr: Path) -> Iterator[dict[str, Any]]:
    with (
        stderr.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(order)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TMPDIR": str(stderr.parent)},  # its files go with the directory
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                yield json.loads(line)
            yield {"ended": process.wait()}
        finally:
            process.kill()


def _stack(text: str) -> list[str]:
    """The plugin's lines of a dumped stack, innermost first: of the main thread, else a worker, else all."""
    frames: list[str] = []
    for thread in text.split("(most recent call first):")[:0:-1]:  # the dump ends with the main thread
        lines = [line.strip().removeprefix("File ") for line in thread.splitlines() if "File " in line]
        own = [line for line in lines if not any(part in line for part in _NOT_THE_PLUGINS)]
        own = [line for line in own if _STDLIB not in line or "site-packages" in line]
        if own:
            return own
        frames = frames or lines
    return frames


def _main(order: dict[str, Any]) -> None:
    faulthandler.enable()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps the plugin's output out of the results
    stack = Path(order["stack"]).open("w")  # noqa: SIM115 (the watchdog writes to it at the end)
    settings, registry = load_config(order["config"]), MemoryAdapterRegistry()
    described = registry.selected(settings)
    limit_s, named = float(order["limit_s"]), order["profile"]
    own = registry.conformance(described.name) if named is None else resolve_name(named)
    profile = own or ConformanceProfile

    def send(found: dict[str, Any]) -> None:
        channel.write(json.dumps(found) + "\n")

    async def one_spec(spec: str) -> Result:
        def make(directory: Path) -> Any:
            try:
                return registry.create(settings, data_dir=directory)
            except (ConfigError, PluginError) as error:  # every spec would meet it
                send({"refused": str(error)})
                raise SystemExit from None

        kit = partial(opened, make, profile, described, in_directory=True)
        return await run_spec(specs()[spec], kit, limit_s)

    for spec, loop in order["chosen"]:
        faulthandler.dump_traceback_later(limit_s + 2.0, exit=True, file=stack)
        try:
            result = anyio.run(one_spec, spec, backend=loop)
        except SystemExit:  # Python prints nothing for it
            traceback.print_exc()
            raise
        faulthandler.cancel_dump_traceback_later()
        send(asdict(result))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
