"""A real Codex with what ``memslot setup`` wrote; its model is scripted."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback_model import Model
from setting_up import set_up

from memory.hosts._coding_agents import CodexFolder
from memory.runtime import waiting_reports
from memory.testing._http_server import LoopbackAnswer, LoopbackRequest

CODEX = os.environ.get("MEMSLOT_CODEX") or shutil.which("codex")
pytestmark = pytest.mark.skipif(CODEX is None, reason="no codex: npm install @openai/codex, or MEMSLOT_CODEX")


class Responses(Model):
    """Speaks OpenAI's Responses API, which is all that Codex speaks."""

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        body = request.json
        if not body or "input" not in body:
            return None
        self.asked.append(body["input"])
        self.tools.append({str(tool.get("name")) for tool in body.get("tools", ())})
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
        sse = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return LoopbackAnswer(200, sse.encode(), {"content-type": "text/event-stream"})


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
    settings = folder.hook.with_name("settings.json")
    patient = {**json.loads(settings.read_text("utf-8")), "start_s": 60.0}  # on a busy machine too
    settings.write_text(json.dumps(patient), encoding="utf-8")
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
    waiting_reports(folder.directory.parent / "data")  # Codex ends its servers as soon as it ends itself
