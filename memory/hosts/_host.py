"""What is known of each host: which package, which releases were tested, and what its SDK makes impossible.

``cannot`` names promises of :class:`memory.testing.HostContract`; the suite leaves them out with that reason, and
the table in docs/hosts.md is made of the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An agent framework that memslot binds to.

    Attributes:
        name: its word on the command line, its module in ``memory.hosts``, and its extra.
        title: what it calls itself.
        distribution: on PyPI; None where it is no Python package.
        tested: the releases that are tested: from the first, to below the second.
        tested_by: what was tested instead, where it is no Python package.
        shown: what the model is shown, and for how long.
        recorded: when a turn is recorded.
        cannot: promises that its SDK makes impossible -> why.
    """

    name: str
    title: str
    distribution: str | None
    tested: tuple[str, str] | None
    shown: str
    recorded: str
    tested_by: str = ""
    cannot: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

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
        """One sentence where the installed release is outside the tested range; else None."""
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
        """Lines to paste, for a configuration at this path."""
        file = Path(__file__).with_name("_files") / "programs" / f"{self.name}.txt"
        return file.read_text("utf-8").replace("{config}", config)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])
