"""Hosts that take a folder: what is written for them, and taken away again."""

from __future__ import annotations

import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memory import ConfigError, __version__
from memory.runtime import load_config

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


class ClaudeCodeFolder(HostFolder):
    """A marketplace of one plugin below Claude Code's directory, named in its ``settings.json``."""

    def usual(self) -> Path:
        return Path(os.environ.get("CLAUDE_CONFIG_DIR", "~/.claude"))

    @property
    def _marketplace(self) -> Path:
        return self.directory / "memslot"

    def install(self, config: Path) -> list[str]:
        from memory.hosts.claude_code import socket_path, spool_directory

        self.check(config)
        spool = spool_directory(load_config(config).data_dir)
        plugin, python = self._marketplace / "memslot", sys.executable
        command = f'"{python}" -I -S "${{CLAUDE_PLUGIN_ROOT}}/hooks/hook.py"'
        hooks = {event: [{"hooks": [{"type": "command", "command": command}]}] for event in _EVENTS}
        memslot = str(Path(python).with_name("memslot"))
        server = {"command": memslot, "args": ["mcp", str(config), "--hooks"]}
        about = {"name": "memslot", "description": "Long-term memory, whatever the backend."}
        for path, content in {
            self._marketplace / ".claude-plugin" / "marketplace.json": {
                "name": "memslot",
                "owner": {"name": "memslot"},
                "plugins": [{**about, "source": "./memslot"}],
            },
            plugin / ".claude-plugin" / "plugin.json": {**about, "version": __version__},
            plugin / "hooks" / "hooks.json": {"hooks": hooks},
            plugin / "hooks" / "settings.json": {"spool": str(spool), "socket": str(socket_path(spool))},
            plugin / ".mcp.json": {"mcpServers": {"memory": server}},
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=2), "utf-8")
        shutil.copyfile(_FILES / "claude-code" / "hook.py.txt", plugin / "hooks" / "hook.py")
        with self._settings() as settings:
            source = {"source": "directory", "path": str(self._marketplace)}
            settings.setdefault("extraKnownMarketplaces", {})["memslot"] = {"source": source}
            settings.setdefault("enabledPlugins", {})["memslot@memslot"] = True
        return [
            f"wrote {self._marketplace}, for the memory of {config}, and named it in settings.json",
            "next: say something in claude, end it, start it again, and ask for it",
        ]

    def uninstall(self) -> list[str]:
        if not self._marketplace.exists():
            return [f"nothing of memslot is in {self.directory}"]
        lines = [f"removed {self._marketplace}"]
        with suppress(OSError, ValueError, KeyError):
            written = json.loads(
                (self._marketplace / "memslot" / "hooks" / "settings.json").read_text("utf-8")
            )
            spool = Path(written["spool"])
            if left := len(list(spool.glob("*.json"))):
                lines.append(
                    f"{left} turns in {spool} are not recorded; 'memslot mcp CONFIG --hooks' does it"
                )
            else:
                shutil.rmtree(spool)
        shutil.rmtree(self._marketplace)
        with self._settings() as settings:
            for name, entry in (("extraKnownMarketplaces", "memslot"), ("enabledPlugins", "memslot@memslot")):
                if isinstance(settings.get(name), dict):
                    settings[name].pop(entry, None)
                    if not settings[name]:
                        del settings[name]
        return lines

    @contextmanager
    def _settings(self) -> Iterator[dict[str, Any]]:
        """Claude Code's settings, changed and written back; a file that is not JSON is left alone."""
        file = self.directory / "settings.json"
        try:
            settings = json.loads(file.read_text("utf-8")) if file.exists() else {}
        except ValueError as error:
            raise ConfigError(f"{file} is not JSON; mend it first") from error
        yield settings
        if settings or file.exists():
            file.write_text(json.dumps(settings, indent=2), "utf-8")


_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
FOLDERS: dict[str, Callable[[Path | None], HostFolder]] = {
    "hermes": HermesFolder,
    "claude-code": ClaudeCodeFolder,
}
