"""Hosts that take a folder: what is written for them, and taken away again."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from memory import ConfigError

_FILES = Path(__file__).with_name("_files")


class HostFolder(ABC):
    """A plugin folder of one host.

    Args:
        directory: the host's own directory, in place of its usual one.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or self.usual()).expanduser().absolute()

    @abstractmethod
    def usual(self) -> Path:
        """Where the host looks by default."""

    @abstractmethod
    def install(self, config: Path) -> list[str]:
        """Write the folder, in place of an older one; what was done and what is left to do.

        Raises:
            ConfigError: the configuration or the host's directory does not exist.
        """

    @abstractmethod
    def uninstall(self) -> list[str]:
        """Take away all that ``install`` wrote; what was done and what is left to do."""

    def check(self, config: Path) -> None:
        if not config.exists():
            raise ConfigError(f"{config} does not exist; write it first: memslot init {config}")
        if not self.directory.is_dir():
            raise ConfigError(f"{self.directory} does not exist; start the host once, or name --directory")


class HermesFolder(HostFolder):
    """``plugins/memslot`` in Hermes' directory, and the path of the configuration beside it."""

    def usual(self) -> Path:
        return Path(os.environ.get("HERMES_HOME", "~/.hermes"))

    def install(self, config: Path) -> list[str]:
        self.check(config)
        plugin = self.directory / "plugins" / "memslot"
        plugin.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_FILES / "hermes" / "plugin.py.txt", plugin / "__init__.py")
        shutil.copyfile(_FILES / "hermes" / "plugin.yaml", plugin / "plugin.yaml")
        (self.directory / "memslot.json").write_text(json.dumps({"config": str(config)}), "utf-8")
        return [
            f"wrote {plugin}, for the memory of {config}",
            "next: hermes config set memory.provider memslot",
            "then say something, start Hermes again, and ask for it",
        ]

    def uninstall(self) -> list[str]:
        plugin, named = self.directory / "plugins" / "memslot", self.directory / "memslot.json"
        found = plugin.exists() or named.exists()
        shutil.rmtree(plugin, ignore_errors=True)
        named.unlink(missing_ok=True)
        if not found:
            return [f"nothing of memslot is in {self.directory}"]
        return [f"removed {plugin}", "next: hermes config set memory.provider ''"]


FOLDERS: dict[str, Callable[[Path | None], HostFolder]] = {"hermes": HermesFolder}
