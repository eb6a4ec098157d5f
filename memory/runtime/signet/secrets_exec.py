"""``POST /api/secrets/exec``: listed commands with secrets in their environment. Off by default; no shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import anyio
from pydantic import Field, SecretStr, field_validator

from memory.contract.errors import ConfigError
from memory.plugins.hookspecs import PluginOptions
from memory.runtime.signet.types import Refused

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")  # inherited; every other variable may hold a credential
_LOADERS = ("LD_", "DYLD_", "PYTHON", "BASH_", "NODE_", "GIT_", "PERL", "RUBY")
_SHELLS = frozenset(
    {"sh", "ash", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "pwsh"}
    | {"busybox", "env", "xargs", "sudo"}
)
_MIN_SECRET = 4
_AT_ONCE = 4
_MAX_COMMAND = 10_000  # characters, because splitting a command takes time


class SecretsExecSettings(PluginOptions):
    """The ``serve.secrets_exec`` block: what clients with a token may run."""

    commands: list[str] = Field(min_length=1)
    """Programs that may be run: names on the PATH or absolute paths, and no shells. Arguments are the client's."""
    secrets: dict[str, SecretStr] = Field(default_factory=dict, repr=False)
    """Name of a secret -> its value; write ``${NAME}``. At least 4 characters."""
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Seconds; then the command is killed."""
    max_output_bytes: int = Field(default=200_000, gt=0)
    """Of stdout and of stderr; a command that prints more is killed."""

    @field_validator("commands")
    @classmethod
    def _programs(cls, commands: list[str]) -> list[str]:
        for program in commands:
            if not program or program.split() != [program] or not program.isprintable():
                raise ValueError("each must be the name of a program, without arguments")
            if "/" in program and not program.startswith("/"):
                raise ValueError("each must be a name on the PATH or an absolute path")
        return commands

    @field_validator("secrets")
    @classmethod
    def _values(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in secrets.items():
            text = value.get_secret_value()
            if not _NAME.match(name):
                raise ValueError("names are letters, digits and '_', 64 at most")
            if len(text.strip()) < _MIN_SECRET or "\0" in text:
                raise ValueError(f"{name}: must be at least {_MIN_SECRET} characters, without a null")
        return secrets


class SecretCommands:
    """Runs the commands of clients.

    Raises:
        ConfigError: a listed command is not on this machine, or is a shell.
    """

    def __init__(self, settings: SecretsExecSettings) -> None:
        self._settings = settings
        self._programs = {name: _program(name) for name in settings.commands}
        self._secrets = {name: value.get_secret_value() for name, value in settings.secrets.items()}
        self._running = 0

    async def run(self, command: Any, secrets: Any) -> dict[str, Any]:
        """Run a command and return ``{stdout, stderr, code}`` with redacted secrets.

        Raises:
            Refused: the command is not allowed, fails to start, takes too long or prints too much. For an
                unknown secret the status is 500, as in the daemon.
        """
        argv, environment = self._argv(command), self._environment(secrets)
        if self._running >= _AT_ONCE:
            raise Refused(503, "too many commands at once; try again")
        self._running += 1
        try:
            return await self._run(argv, environment)
        finally:
            self._running -= 1

    def _argv(self, command: Any) -> list[str]:
        if not isinstance(command, str) or not command.strip():
            raise Refused(400, "command is required")
        if len(command) > _MAX_COMMAND:
            raise Refused(400, f"command is longer than {_MAX_COMMAND} characters")
        if "\0" in command:
            raise Refused(400, "command must not hold a null")
        try:
            words = shlex.split(command)
        except ValueError:
            raise Refused(400, "command: a quote or an escape is not closed") from None
        if not words or words[0] not in self._programs:
            raise Refused(403, "command: its first word is not listed in serve.secrets_exec.commands")
        return [self._programs[words[0]], *words[1:]]

    def _environment(self, wanted: Any) -> dict[str, str]:
        if not isinstance(wanted, Mapping):
            raise Refused(400, "secrets map is required")
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        for variable, secret in wanted.items():
            if not _NAME.match(variable) or variable in _KEPT or variable.startswith(_LOADERS):
                raise Refused(400, "secrets: a variable's name is not allowed")
            if not isinstance(secret, str) or not _NAME.match(secret):
                raise Refused(400, "secrets: maps names of variables to names of secrets")
            if secret not in self._secrets:
                raise Refused(500, f"Secret '{secret}' not found")
            environment[variable] = self._secrets[secret]
        return environment

    async def _run(self, argv: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
        max_bytes, within_s = self._settings.max_output_bytes, self._settings.timeout_s
        with _Pipe() as stdout, _Pipe() as stderr:
            try:
                process = await anyio.open_process(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout.write,
                    stderr=stderr.write,
                    env=environment,
                    start_new_session=True,
                )
            except OSError:
                raise Refused(500, "command: the program could not be started") from None
            code: int | None = None
            try:
                with anyio.move_on_after(within_s) as waiting:
                    async with anyio.create_task_group() as group:
                        for pipe in (stdout, stderr):
                            pipe.write.close()  # otherwise the output would not end with the command
                            group.start_soon(pipe.take, max_bytes, group.cancel_scope)
                    if not (stdout.flooded or stderr.flooded):
                        code = await process.wait()
            finally:
                if code is None:  # kill the command and its children, even if this task is cancelled
                    # A program that runs as another user cannot be killed, so the wait has a limit.
                    with anyio.move_on_after(5.0, shield=True):
                        with suppress(ProcessLookupError, PermissionError):
                            os.killpg(process.pid, signal.SIGKILL)
                        await process.wait()
            if waiting.cancelled_caught:
                raise Refused(504, f"the command did not end within {within_s:g} s; it was killed")
            if code is None:
                raise Refused(502, f"the command printed more than {max_bytes} bytes; it was killed")
            return {"stdout": self._shown(stdout.taken), "stderr": self._shown(stderr.taken), "code": code}

    def _shown(self, output: bytes | bytearray) -> str:
        text = output.decode("utf-8", "replace")
        for value in sorted(self._secrets.values(), key=len, reverse=True):  # a secret may contain another
            text = text.replace(value, "[REDACTED]")
        return text


class _Pipe(AbstractContextManager["_Pipe"]):
    """A pipe for a command's output. Leaving the context closes both ends in this process."""

    def __init__(self) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        self.read, self.write = os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)
        self.taken = bytearray()
        self.flooded = False

    def __exit__(self, *_: object) -> None:
        self.write.close()
        self.read.close()

    async def take(self, max_bytes: int, group: anyio.CancelScope) -> None:
        """Read to the end. Output over ``max_bytes`` bytes cancels the reading of both streams."""
        while True:
            await anyio.wait_readable(self.read)
            piece = os.read(self.read.fileno(), 65_536)
            if not piece:
                return
            self.taken += piece
            if len(self.taken) > max_bytes:
                self.flooded = True
                group.cancel()
                return


def _program(name: str) -> str:
    """Return the absolute path of a command. It is found once, so that later changes of PATH have no effect.

    Raises:
        ConfigError: the command does not exist, or is a shell.
    """
    where = f"serve.secrets_exec.commands: {name}"
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{where} is no program on this machine")
    if {Path(found).name, Path(found).resolve().name} & _SHELLS:
        raise ConfigError(f"{where} runs whatever it is given; list the programs themselves")
    return os.path.abspath(found)
