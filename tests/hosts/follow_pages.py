"""Follows the pages of docs/hosts as a reader does, by copying alone, each in an environment made for it.

What is copied is what stands there, but for two things: ``pip`` takes memslot from this repository, and a model
is scripted, where the page asks for one. Each page is followed twice, in processes of their own: something is said,
and then asked for. Takes minutes, and registries to install from.

    python tests/hosts/follow_pages.py [HOST ...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "hosts"
SUPPORT = [ROOT / "tests" / "support", HERE, HERE / "with_sdks", HERE / "with_nanobot"]
sys.path[:0] = [str(path) for path in SUPPORT]

from loopback_model import Model  # noqa: E402
from test_hooks import mcp_server, run_hook, section_of, turn  # noqa: E402

from memory.hosts._coding_agents import FOLDERS  # noqa: E402
from memory.hosts.table import HOSTS  # noqa: E402

DRIVEN = ("claude-code", "cursor")  # their hooks are driven with the JSON they document
LIKES, ASKS = "I like oolong tea.", "Which tea do I like?"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = f"""
import sys
sys.path[:0] = {[str(path) for path in SUPPORT]!r}
import importlib, test_programs
from host_model import HostModel
name, module, text = sys.argv[1:]
script = HostModel()
given = {{"model": test_programs.MODELS[name](importlib.import_module("test_" + module), script)}}
exec(text, {{**given, "__name__": "program"}})
print("\\n".join(script.shown))
"""


class Reader:
    """Who follows a page, in an empty home with an empty environment."""

    def __init__(self, name: str, workspace: Path, wheel: Path) -> None:
        self.name, self.workspace, self.wheel = name, workspace, wheel
        page = (ROOT / "docs" / "hosts" / f"{name}.md").read_text("utf-8")
        self.blocks = BLOCK.findall(page)[:2]
        subprocess.run([sys.executable, "-m", "venv", workspace / "venv"], check=True)
        kept = {key: os.environ[key] for key in os.environ if key.startswith(("PIP_", "SSL_", "LANG"))}
        self.environment = {
            **kept,
            "PATH": f"{workspace / 'venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(workspace),
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "OTEL_SDK_DISABLED": "true",
        }

    def run(self, *command: str | Path) -> str:
        """What a command prints; raises where it fails."""
        done = subprocess.run(
            command, cwd=self.workspace, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout + done.stderr

    def copy(self, commands: str) -> str:
        """Run commands of the page."""
        return self.run("bash", "-euo", "pipefail", "-c", commands.replace("'memslot[", f"'{self.wheel}["))

    def installed(self) -> str:
        """The release of the SDK that the page's own line installed."""
        distribution = HOSTS[self.name].distribution
        if distribution is None:
            return ""
        told = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
        return f", with {distribution} {self.run('python', '-c', told, distribution).strip()}"

    def follow(self) -> str:
        """What was shown to the model, or answered, when it was asked for what had been said."""
        commands = str(self.blocks[0][1])
        if len(self.blocks) == 2 and self.blocks[1][0] == "python":
            return self._program(commands)
        if self.name == "mcp":
            self.copy(commands)
            return self._server(json.loads(self.blocks[1][1])["mcpServers"]["memory"])
        if self.name in DRIVEN:
            return self._folder(commands)
        return self._agent(commands)

    def _program(self, commands: str) -> str:
        self.copy(commands)
        self.run("pip", "install", "--quiet", "pytest", "pytest-asyncio")  # for the scripted model alone
        lines = [line for line in self.blocks[1][1].splitlines() if not line.endswith("# yours")]
        text, shown = "\n".join(lines), ""
        for said in (LIKES, ASKS):
            given = text.replace(ASKS, said)
            shown = self.run("python", "-c", PROGRAM, self.name, HOSTS[self.name].module, given)
        return shown

    def _server(self, server: dict[str, Any]) -> str:
        called = [
            (
                "initialize",
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                },
            ),
            ("tools/call", {"name": "memory_store", "arguments": {"content": LIKES}}),
            ("tools/call", {"name": "memory_search", "arguments": {"query": ASKS}}),
        ]
        with subprocess.Popen(
            [str(self.workspace / "venv" / "bin" / server["command"]), *server["args"]],
            cwd=self.workspace, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            answer = ""
            for at, (method, given) in enumerate(called):
                asked = {"jsonrpc": "2.0", "id": at, "method": method, "params": given}
                process.stdin.write(json.dumps(asked) + "\n")
                if not at:
                    process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
                process.stdin.flush()
                answer = process.stdout.readline()
            process.stdin.close()
        return answer

    def _folder(self, commands: str) -> str:
        directory = self.workspace / {"claude-code": ".claude", "cursor": ".cursor"}[self.name]
        directory.mkdir()
        self.copy(commands.removesuffix("claude\n"))
        folder: Any = FOLDERS[self.name](directory)
        with mcp_server(folder):
            turn(folder, LIKES, "Noted.", "one")
        with mcp_server(folder):
            shown = section_of(run_hook(folder, "asks", "two", prompt=ASKS))
        self.copy(f"memslot tools hosts {self.name} uninstall")
        assert list(directory.iterdir()) == []
        return shown

    def _agent(self, commands: str) -> str:
        """An agent that is a command of its own; the scripted model is in its own configuration."""
        install, said = commands.split("\n", 1)
        self.copy(install)
        with self._model() as model:
            self._configure(model)
            if self.name == "codex":
                said = self._codex(said)
            # Of the same session Nanobot shows its own history, and no memory.
            first = LIKES if self.name != "nanobot" else f'{LIKES}" -s "cli:first'
            self.copy(said.replace(ASKS, first))
            said, shown = said.replace("memslot setup", "memslot setup --force"), ""
            # Codex ends its server with itself: the next one records first what was said.
            for _ in range(5 if self.name == "codex" else 1):
                shown = shown if "oolong" in shown else self.copy(said)
            return shown

    def _codex(self, commands: str) -> str:
        """Install Codex's hooks, which wait for a server on a busy machine too; how it is asked."""
        self.copy(commands.removesuffix("codex\n"))
        settings = FOLDERS["codex"](self.workspace / ".codex").hook.with_name("settings.json")
        settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), "start_s": 60.0}))
        return f'codex exec --skip-git-repo-check --dangerously-bypass-hook-trust "{ASKS}"\n'

    def _model(self) -> Model:
        if self.name == "codex":
            from test_codex import Responses

            return Responses()
        return Model()

    def _configure(self, model: Model) -> None:
        if self.name == "codex":
            (self.workspace / ".codex").mkdir()
            provider = f'name = "scripted"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\n'
            (self.workspace / ".codex" / "config.toml").write_text(
                f'model = "scripted"\nmodel_provider = "scripted"\n[model_providers.scripted]\n{provider}'
            )
            codex = os.environ.get("MEMSLOT_CODEX")
            self.environment["PATH"] += f":{Path(codex).parent}" if codex else ""
        elif self.name == "hermes":
            named = {
                "provider": "custom",
                "default": "scripted",
                "base_url": f"{model.url}/v1",
                "api_key": "unused",
            }
            settings = {"model": named, "memory": {"memory_enabled": False, "user_profile_enabled": False}}
            (self.workspace / ".hermes").mkdir()
            (self.workspace / ".hermes" / "config.yaml").write_text(json.dumps(settings))
        else:
            from nanobot_support import nanobot_config

            nanobot_config(self.workspace / ".nanobot", model)


def main(names: list[str]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        build = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            directory,
            str(ROOT),
        ]
        subprocess.run(build, check=True)
        (wheel,) = Path(directory).glob("*.whl")
        for name in names or HOSTS:
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as workspace:
                try:
                    reader = Reader(name, Path(workspace), wheel)
                    shown = reader.follow()
                    followed = "followed, by the JSON it documents" if name in DRIVEN else "followed"
                    followed += reader.installed()
                    result = followed if "oolong" in shown else f"FAILED: nothing remembered\n{shown[-3000:]}"
                except Exception as error:
                    result = f"FAILED: {type(error).__name__}: {error}"
            failed += result.startswith("FAILED")
            sys.stdout.write(f"{name:16} {time.monotonic() - began:5.0f} s  {result}\n")
            sys.stdout.flush()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
