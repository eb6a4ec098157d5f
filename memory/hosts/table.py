"""The table of hosts, read from ``hosts.toml``. The table in docs/hosts.md has the same source."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from memory import PluginLoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An agent framework that memslot binds to."""

    name: str  # the name on the command line, of the module in ``memory.hosts`` and of the extra
    title: str
    shown: str  # what the model sees, and for how long
    recorded: str
    distribution: str | None = None  # the package on PyPI; None if the host is not a Python package
    tested: tuple[str, str] | None = None  # the first tested release, and the first untested one after it
    tested_by: str = ""  # for a host that is not a Python package
    cannot: Mapping[str, str] = field(default_factory=dict)  # a promise that does not hold -> why

    @property
    def install(self) -> str:
        return f"pip install 'memslot[{self.name if self.distribution else 'mcp'}]'"

    @property
    def installed(self) -> str | None:
        try:
            return metadata.version(self.distribution) if self.distribution else None
        except metadata.PackageNotFoundError:
            return None

    @property
    def untested(self) -> str | None:
        """One sentence if the installed release is outside the tested range; else None."""
        version = self.installed
        if version is None or self.tested is None:
            return None
        lowest, below = self.tested
        if _numbers(lowest) <= _numbers(version) < _numbers(below):
            return None
        return (
            f"{self.distribution} {version} is installed; memory.hosts.{self.module} was tested with "
            f"{lowest} and newer, below {below}: pip install '{self.distribution}>={lowest},<{below}'"
        )

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    def program(self, config: str) -> str:
        """Return the program to paste, for a configuration at this path."""
        file = Path(__file__).with_name("_files") / "programs" / f"{self.name}.txt"
        program = file.read_text("utf-8")
        # Programs that begin with "#" are shell commands. JSON and Python quote strings in the same way.
        quoted = (
            shlex.quote(config) if program.startswith("#") else json.dumps(config, ensure_ascii=False)[1:-1]
        )
        return program.replace("{config}", quoted)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _read() -> dict[str, Host]:
    table = tomllib.loads(Path(__file__).with_name("hosts.toml").read_text("utf-8"))
    hosts = {}
    for name, row in table.items():
        why = {promise: reason for reason, promises in row.pop("cannot", {}).items() for promise in promises}
        tested = row.pop("tested", None)
        hosts[name] = Host(name=name, cannot=why, tested=tested and tuple(tested), **row)
    return hosts


HOSTS = _read()


def host_named(name: str) -> Host:
    """Return a host by its name.

    Raises:
        PluginLoadError: the table has no such host.
    """
    if name not in HOSTS:
        raise PluginLoadError(f"the table has no host {name!r}; add it to memory/hosts/hosts.toml")
    return HOSTS[name]
