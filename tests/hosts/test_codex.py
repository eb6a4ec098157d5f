"""A real Codex with what ``memslot setup`` wrote; its model is scripted."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback_model import Model, as_events
from setting_up import set_up, wait_for_hooks

from memory.hosts._coding_agents import CodexFolder
from memory.testing import LoopbackAnswer, LoopbackRequest

CODEX = os.environ.get("MEMSLOT_CODEX") or shutil.which("codex")
pytestmark = pytest.mark.skipif(CODEX is None, reason="no codex: npm install @openai/codex, or MEMSLOT_CODEX")


class Responses(Model):
    """Speaks OpenAI's Responses API, which is all that Codex speaks."""

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        body = request.json
        if not body or "input" not in body:
            return None
        self.hear(body, body["input"])
        part = {"type": "output_text", "text": self.answer_to(body), "annotations": []}
        message = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        done: dict[str, Any] = {"id": "r", "status": "completed", "output": [message]}
        done["usage"] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "output_index": 0, "item": message},
            {"type": "response.completed", "response": done},
        ]
        return as_events(events)


@pytest.fixture
def folder(tmp_path: Path) -> CodexFolder:
    folder = CodexFolder(tmp_path / ".codex")
    folder.directory.mkdir()
    (folder.directory / "config.toml").write_text("# mine\n", encoding="utf-8")
    set_up(tmp_path, "codex")
    return folder


def say(folder: CodexFolder, model: Model, said: str) -> str:
    """One ``codex exec`` in a process of its own; what it printed."""
    assert CODEX is not None
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", said]
    provider = f'{{name = "scripted", base_url = "{model.url}/v1", wire_api = "responses"}}'
    given = [
        "-c",
        "model=scripted",
        "-c",
        "model_provider=scripted",
        "-c",
        f"model_providers.scripted={provider}",
    ]
    done = subprocess.run(
        [CODEX, *arguments[:1], *given, *arguments[1:]],
        env={**os.environ, "CODEX_HOME": str(folder.directory), "HOME": str(folder.directory.parent)},
        cwd=folder.directory.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_real_codex_remembers_across_sessions_and_forgets_its_hooks(folder):
    wait_for_hooks(folder, 60.0)
    with Responses() as model:
        assert "hook: Stop Completed" in say(folder, model, "I like oolong tea.")
        # A recall has seconds, and what was said before may have to be recorded first.
        assert any("You like oolong." in say(folder, model, "Which tea do I like?") for _ in range(5))
        asked = len(model.prompts)
        folder.uninstall()
        assert "hook:" not in say(folder, model, "Which tea do I like?")
        assert "<memory-context" not in model.prompts[asked]
    assert (folder.directory / "config.toml").read_text("utf-8") == "# mine\n"
    assert not (folder.directory / "hooks.json").exists()
