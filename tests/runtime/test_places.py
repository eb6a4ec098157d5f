"""Where files lie, which is fixed when a memory opens, and who may read them."""

import json
import logging
import os

import pytest
from typer.testing import CliRunner

from memory import open_memory
from memory.runtime import _serving as serving
from memory.runtime._import_commands import exporting

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")


def config(backend, **memory):
    return {
        "memory": {
            "backend": backend,
            "scope": {"run_id": "r", "persona_id": "ada"},
            "data_dir": "data",
            **memory,
        }
    }


@pytest.mark.parametrize("backend", ["full_history", "mem0"])
async def test_a_program_that_changes_its_directory_moves_no_memory(tmp_path, monkeypatch, backend):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number in range(2):
        monkeypatch.chdir(tmp_path)
        async with open_memory(config(backend)) as memory:
            monkeypatch.chdir(elsewhere)
            view = memory.for_scope(persona_id="bob")
            if not number:
                await view.after_turn(user="I like oolong.", session_id="s")
            assert "oolong" in await view.before_turn("What do I like?", session_id="q")
    assert list(elsewhere.iterdir()) == []


def test_a_token_file_that_others_can_read_is_named(tmp_path, caplog):
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{token: {'t' * 20}, persona_id: ada}}]\n", "utf-8")
    file.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        serving.read_tokens(file)
        assert caplog.text == ""
        file.chmod(0o644)
        serving.read_tokens(file)
    assert f"chmod 600 {file}" in caplog.text
    assert "t" * 20 not in caplog.text


@pytest.mark.parametrize("umask", [0o022, 0o000])
@pytest.mark.parametrize("backend", ["full_history", "rolling_summary", "mem0"])
async def test_nobody_else_may_read_what_a_memory_keeps(tmp_path, backend, umask):
    before = os.umask(umask)
    try:
        async with open_memory(config(backend, journal=True, data_dir=str(tmp_path / "data"))) as memory:
            await memory.after_turn(user="I like oolong.", session_id="s")
    finally:
        os.umask(before)
    # Whatever lies below a directory of this user alone is out of reach.
    kept = [tmp_path / "data", *(tmp_path / "data").iterdir()]
    assert [path.name for path in kept if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("existing", [False, True])
async def test_nobody_else_may_read_an_export(tmp_path, existing):
    file, out = tmp_path / "m.yaml", tmp_path / "export.jsonl"
    file.write_text(json.dumps(config("full_history", journal=True)), "utf-8")
    async with open_memory(file) as memory:
        await memory.after_turn(user="I like oolong.", session_id="s")
    if existing:
        out.touch(0o644)
    before = os.umask(0)
    try:
        invoked = CliRunner().invoke(exporting, [str(file), "--out", str(out)])
    finally:
        os.umask(before)
    assert invoked.exit_code == 0, invoked.output
    assert "oolong" in out.read_text("utf-8")
    assert out.stat().st_mode & 0o777 == 0o600
