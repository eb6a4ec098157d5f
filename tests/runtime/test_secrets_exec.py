"""``secrets/exec``: what is listed runs without a shell, and whatever a command does, the server lives on."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from pydantic import ValidationError
from signet_support import BASE, Daemon, daemon, pair

from memory import ConfigError
from memory.runtime.signet.secrets_exec import SecretsExecSettings

TOKEN = "token-of-ada-0000000"
VALUE = "s3cret-value"
PYTHON = sys.executable
PRINT = (
    "import os, sys; sys.stdout.write(repr(sys.argv[1:])); sys.stdout.write(os.environ.get('MY_ENV', '-'))"
)


def settings(**more: Any) -> SecretsExecSettings:
    given = {"commands": [PYTHON, "true"], "secrets": {"DEMO_KEY": VALUE, "LONGER": f"{VALUE}-and-more"}}
    return SecretsExecSettings.model_validate({**given, **more})


def opened(**more: Any) -> Any:
    return daemon(tokens={TOKEN: BASE}, secrets_exec=settings(**more))


@pytest.fixture
async def signet() -> AsyncIterator[Daemon]:
    async with opened() as served:
        yield served


async def run(signet: Daemon, command: Any, secrets: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    body = {"command": command, "secrets": {} if secrets is None else secrets}
    return await signet.post("/api/secrets/exec", body, authorization=f"Bearer {token}")


def python(code: str, *words: str) -> str:
    return shlex.join([PYTHON, "-c", code, *words])


async def test_a_secret_reaches_the_command_and_not_the_answer(signet: Daemon) -> None:
    code = "import os, sys; v = os.environ['MY_ENV']; print(len(v), v); sys.stderr.write('err' + v); exit(3)"
    status, answer = await run(signet, python(code), {"MY_ENV": "DEMO_KEY"})
    assert (status, answer) == (
        200,
        {"stdout": f"{len(VALUE)} [REDACTED]\n", "stderr": "err[REDACTED]", "code": 3},
    )
    assert set(answer) == set(pair("11b")["response"]["body"])
    _, answer = await run(signet, python(PRINT), {"MY_ENV": "LONGER"})
    assert answer["stdout"] == "[][REDACTED]"  # all of it, not what the shorter one leaves


@pytest.mark.thorough
async def test_what_a_shell_would_do_is_not_done(signet: Daemon, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    for tail in (
        f"; touch {planted}", f"&& touch {planted}", f"| tee {planted}", f"> {planted}", f"`touch {planted}`",
        f"$(touch {planted})", f"& touch {planted}", f"\ntouch {planted}", "$MY_ENV ${MY_ENV} * ~ # x",
    ):  # fmt: skip
        status, answer = await run(signet, f"{python(PRINT)} {tail}", {"MY_ENV": "DEMO_KEY"})
        assert (status, answer["code"]) == (200, 0)
        assert answer["stdout"] == f"{shlex.split(tail)!r}[REDACTED]"
    assert not planted.exists()


@pytest.mark.parametrize(
    ("command", "secrets", "status", "said"),
    [
        ("sh -c true", {}, 403, "first word"),
        ("/usr/bin/true", {}, 403, "first word"),
        ("MY_ENV=x true", {}, 403, "first word"),
        (" ; true", {}, 403, "first word"),
        ("''", {}, 403, "first word"),
        ("true 'x", {}, 400, "not closed"),
        ("true \0", {}, 400, "null"),
        ("true " + "x" * 1_000_000, {}, 400, "longer than"),
        ("", {}, 400, "command is required"),
        (["true"], {}, 400, "command is required"),
        ("true", [], 400, "secrets map is required"),
        ("true", {"MY_ENV": 1}, 400, "names of secrets"),
        ("true", {"MY=ENV": "DEMO_KEY"}, 400, "not allowed"),
        ("true", {"PATH": "DEMO_KEY"}, 400, "not allowed"),
        ("true", {"LD_PRELOAD": "DEMO_KEY"}, 400, "not allowed"),
        ("true", {"MY_ENV": "said by a user"}, 400, "names of secrets"),
    ],
)
async def test_what_is_not_well_formed_or_listed_is_refused(
    signet: Daemon, command: Any, secrets: Any, status: int, said: str
) -> None:
    got, answer = await run(signet, command, secrets)
    assert (got, said in answer["error"]) == (status, True), answer


async def test_the_daemons_errors_are_answered_alike(signet: Daemon) -> None:
    for name in ("11c", "11d"):
        recorded = pair(name)
        answer = await signet.post(
            "/api/secrets/exec", recorded["request"]["body"], authorization=f"Bearer {TOKEN}"
        )
        assert answer == (recorded["response"]["status"], recorded["response"]["body"])


async def test_the_servers_own_environment_is_not_passed_on(
    signet: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "planted-key")
    _, answer = await run(signet, python("import os; print(sorted(os.environ))"), {"MY_ENV": "DEMO_KEY"})
    assert "MY_ENV" in answer["stdout"]
    assert "OPENAI_API_KEY" not in answer["stdout"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_is_stopped(stream: str) -> None:
    flood = f"import sys\nwhile True: sys.{stream}.write('{VALUE}' * 1000)"
    async with opened(max_output_bytes=10_000) as signet:
        status, answer = await run(signet, python(flood))
        assert (status, answer) == (
            502,
            {"error": "the command printed more than 10000 bytes; it was killed"},
        )
        assert (await run(signet, "true"))[0] == 200


@pytest.mark.thorough
async def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"open({str(pid_file)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pid_file)!r} + '.new', {str(pid_file)!r})\n"
        "if sys.argv[1:] == ['wait']: child.wait()"
    )
    async with opened(timeout_s=2) as signet:
        for words in (["wait"], []):  # the second leaves its child behind, which holds the pipes
            status, answer = await run(signet, python(code, *words))
            assert (status, answer["error"]) == (504, "the command did not end within 2 s; it was killed")
            if pid_file.exists():  # on a slow machine it was killed before it wrote
                assert all(gone(int(pid)) for pid in pid_file.read_text().split())
                pid_file.unlink()


def gone(pid: int) -> bool:
    """Whether a process has ended, or is about to: a killed orphan is reaped by whoever adopts it."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


async def test_a_token_is_needed(signet: Daemon) -> None:
    assert (await run(signet, "true", token="another"))[0] == 401
    with pytest.raises(ConfigError, match=r"serve\.secrets_exec: .*set serve\.tokens"):
        async with daemon(secrets_exec=settings()):
            pass


async def test_who_may_only_read_runs_nothing() -> None:
    async with daemon(tokens={TOKEN: BASE}, read_only=frozenset({TOKEN}), secrets_exec=settings()) as signet:
        assert await run(signet, "true") == (403, {"error": ANY})


async def test_off_by_default() -> None:
    async with daemon(tokens={TOKEN: BASE}) as signet:
        assert (await run(signet, "true"))[0] == 403


def test_a_command_with_arguments_is_refused_by_a_sentence() -> None:
    with pytest.raises(ValidationError, match="each must be the name of a program, without arguments"):
        settings(commands=["ls -l"])


@pytest.mark.parametrize(
    "given",
    [
        {"commands": []}, {"commands": ["ls -l"]}, {"commands": ["bin/ls"]}, {"commands": [""]},
        {"secrets": {"A-B": VALUE}}, {"secrets": {"A": "abc"}}, {"secrets": {"A": "abcd\0"}}, {"timeout_s": 0},
    ],
)  # fmt: skip
async def test_a_configuration_that_cannot_be_used_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**given)
    assert VALUE not in str(caught.value)


async def test_shells_by_any_name_and_absent_programs_cannot_be_listed(tmp_path: Path) -> None:
    link = tmp_path / "harmless"
    link.symlink_to("/bin/sh")
    for name, said in (("sh", "runs whatever"), ("env", "runs whatever"), (str(link), "runs whatever"),
                       ("no-such-program", "is no program")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            async with opened(commands=[name]):
                pass
