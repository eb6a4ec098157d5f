"""Folders that memslot writes for a host on install, and removes on uninstall."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from memory import ConfigError
from memory.hosts._foreign_files import HostFile
from memory.hosts._shared import check_exists
from memory.hosts.hooks import socket_path
from memory.hosts.table import HOSTS
from memory.runtime import load_config, report_program, reports_file

_FILES = Path(__file__).with_name("_files")
_START_S = 5.0  # longest wait of a session's first turn for the server that its host is starting


class HostFolder(ABC):
    """What memslot writes into a host's directory."""

    home: ClassVar[tuple[str, str]]  # the variable that names the directory, and the directory without it

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or Path(os.environ.get(*self.home))).expanduser().absolute()

    @abstractmethod
    def install(self, config: Path) -> list[str]:
        """Write the folder, and replace an older one. Returns lines for the user: results and next steps."""

    @abstractmethod
    def uninstall(self) -> list[str]: ...

    def check(self, config: Path) -> None:
        check_exists(config)
        if not self.directory.is_dir():
            raise ConfigError(f"{self.directory} does not exist; start the host once, or name --directory")


class HermesFolder(HostFolder):
    """``plugins/memslot`` in Hermes' directory, and ``memslot.json`` with the path of the configuration."""

    home = ("HERMES_HOME", "~/.hermes")

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


class HookFolder(HostFolder):
    """``memslot`` in the directory of a coding agent: the hook and its settings."""

    name: ClassVar[str]
    events: ClassVar[Sequence[str]]
    next: ClassVar[str]

    @property
    def folder(self) -> Path:
        return self.directory / "memslot"

    @property
    def hook(self) -> Path:
        return self.folder / "hook.py"

    def named(self, config: Path) -> Sequence[HostFile]:
        """Return memslot's entries in the host's own files."""
        raise NotImplementedError

    def install(self, config: Path) -> list[str]:
        self.check(config)
        files = self.named(config)
        for file in files:
            file.after()  # raises for an unusable file before anything is written
        loaded = load_config(config)
        settings = {
            "host": self.name,
            "outbox": str(reports_file(loaded.data_dir)),
            "socket": str(socket_path(loaded.data_dir)),
            "persona": loaded.memory.scope.persona_id if loaded.memory.scope else "",
            "start_s": _START_S,
        }
        self.hook.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_FILES / "hooks" / "hook.py.txt", self.hook)
        # The hook runs a copy, because a search in site-packages would take too long.
        shutil.copyfile(report_program(), self.hook.with_name("outbox_insert.py"))
        write_json(self.hook.with_name("settings.json"), settings)
        self.write_more(config)
        for file in files:
            file.write()
        named = " and ".join(file.file.name for file in files)
        server = HOSTS["mcp"]
        missing = server.untested or (None if server.installed else server.install)
        return [
            f"wrote {self.folder}, for the memory of {config}, and named it in {named}",
            *([f"to be installed, or no hook is answered: {missing}"] if missing else []),
            f"next: {self.next}",
        ]

    def write_more(self, config: Path) -> None:
        """Write further files that this host needs."""

    def uninstall(self) -> list[str]:
        found = [file.remove() for file in self.named(Path())]
        if not (any(found) or self.folder.exists()):
            return [f"nothing of memslot is in {self.directory}"]
        shutil.rmtree(self.folder, ignore_errors=True)
        return [f"removed {self.folder}"]

    def _command(self) -> str:
        return f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(self.hook))}"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), "utf-8")
