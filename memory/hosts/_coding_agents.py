"""The folders of coding agents, and every host that memslot can be installed for."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memory import __version__
from memory.hosts._foreign_files import HostFile, JsonEntries, TomlTables
from memory.hosts._installing import HermesFolder, HookFolder, HostFolder, write_json

_TIMEOUT_S = 15  # a hook's time limit; the first recall of a session takes longest
_HOOK = "/memslot/hook.py"  # a part of each of memslot's commands, for any quoting


class ClaudeCodeFolder(HookFolder):
    """A marketplace with one plugin, registered in ``settings.json``."""

    name = "claude-code"
    home = ("CLAUDE_CONFIG_DIR", "~/.claude")
    events = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
    next = "start and end claude once, so that it installs the plugin; then say something and ask later"

    @property
    def hook(self) -> Path:
        return self.folder / "memslot" / "hooks" / "hook.py"

    def named(self, config: Path) -> Sequence[HostFile]:
        source = {"source": {"source": "directory", "path": str(self.folder)}}
        entries = {
            ("extraKnownMarketplaces", "memslot"): source,
            ("enabledPlugins", "memslot@memslot"): True,
        }
        return [JsonEntries(self.directory / "settings.json", entries, "/memslot")]

    def write_more(self, config: Path) -> None:
        plugin = self.folder / "memslot"
        command = f'{shlex.quote(sys.executable)} -I -S "${{CLAUDE_PLUGIN_ROOT}}/hooks/hook.py"'
        about = {"name": "memslot", "description": "Long-term memory, whatever the backend."}
        for path, content in {
            self.folder / ".claude-plugin" / "marketplace.json": {
                "name": "memslot",
                "owner": {"name": "memslot"},
                "plugins": [{**about, "source": "./memslot"}],
            },
            plugin / ".claude-plugin" / "plugin.json": {**about, "version": __version__},
            plugin / "hooks" / "hooks.json": {"hooks": {event: _group(command) for event in self.events}},
            plugin / ".mcp.json": {"mcpServers": {"memory": _server(config)}},
        }.items():
            write_json(path, content)


class CodexFolder(HookFolder):
    """Hooks in ``hooks.json``, the MCP server in ``config.toml``."""

    name = "codex"
    home = ("CODEX_HOME", "~/.codex")
    events = ClaudeCodeFolder.events
    next = "start codex, trust the hooks by /hooks, say something, start it again, and ask for it"

    def named(self, config: Path) -> Sequence[HostFile]:
        entries = {("hooks", event): _group(self._command()) for event in self.events}
        server = "".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in _server(config).items()
        )
        return [
            JsonEntries(self.directory / "hooks.json", entries, _HOOK),
            TomlTables(self.directory / "config.toml", f"[mcp_servers.memslot]\n{server}"),
        ]


class CursorFolder(HookFolder):
    """Hooks in ``hooks.json``, the MCP server in ``mcp.json``."""

    name = "cursor"
    home = ("", "~/.cursor")
    events = ("sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "stop", "preCompact", "sessionEnd")
    next = "open a new chat in Cursor, say something, open another, and ask for it"

    def named(self, config: Path) -> Sequence[HostFile]:
        entries = {
            ("hooks", event): [{"command": self._command(), "timeout": _TIMEOUT_S}] for event in self.events
        }
        return [
            JsonEntries(self.directory / "hooks.json", entries, _HOOK, version=1),
            JsonEntries(self.directory / "mcp.json", {("mcpServers", "memslot"): _server(config)}, "--hooks"),
        ]


def _group(command: str) -> list[dict[str, Any]]:
    """Return a hook in the format of Claude Code and Codex. The timeout is in seconds."""
    return [{"hooks": [{"type": "command", "command": command, "timeout": _TIMEOUT_S}]}]


def _server(config: Path) -> dict[str, Any]:
    return {
        "command": str(Path(sys.executable).with_name("memslot")),
        "args": ["tools", "mcp", str(config), "--hooks"],
    }


FOLDERS: dict[str, Callable[[Path | None], HostFolder]] = {
    "hermes": HermesFolder,
    "claude-code": ClaudeCodeFolder,
    "codex": CodexFolder,
    "cursor": CursorFolder,
}
