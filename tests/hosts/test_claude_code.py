"""A real Claude Code with what ``memslot setup`` wrote; its model is scripted."""

import os
import subprocess
from pathlib import Path

import pytest
from loopback_model import Model, as_events
from setting_up import set_up, wait_for_hooks

from memory.hosts._coding_agents import ClaudeCodeFolder
from memory.testing import LoopbackAnswer, LoopbackRequest

# Only a program that is named runs, because one on the PATH may be somebody's own.
CLAUDE = os.environ.get("MEMSLOT_CLAUDE")
pytestmark = pytest.mark.skipif(
    CLAUDE is None, reason="no claude: npm install @anthropic-ai/claude-code, and name it in MEMSLOT_CLAUDE"
)


class Messages(Model):
    """Speaks Anthropic's Messages API."""

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        body = request.json
        if not body or "messages" not in body:
            return None
        self.hear(body, body["messages"])
        message = {"id": "m", "type": "message", "role": "assistant", "model": "scripted"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        text = self.answer_to(body)
        if not body.get("stream"):
            content = [{"type": "text", "text": text}]
            return LoopbackAnswer(
                200, {**message, "content": content, "stop_reason": "end_turn", "usage": usage}
            )
        begun = {**message, "content": [], "stop_reason": None, "usage": usage}
        events = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        return as_events(events)


@pytest.fixture
def folder(tmp_path: Path) -> ClaudeCodeFolder:
    folder = ClaudeCodeFolder(tmp_path / ".claude")
    folder.directory.mkdir()
    set_up(tmp_path, "claude-code")
    return folder


def say(folder: ClaudeCodeFolder, model: Model, said: str) -> str:
    """One ``claude -p`` in a process and a home of its own; what it printed."""
    assert CLAUDE is not None
    home = folder.directory.parent
    done = subprocess.run(
        [CLAUDE, "-p", said],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(folder.directory),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "unused",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_real_claude_code_remembers_across_sessions_and_forgets_its_hooks(folder):
    wait_for_hooks(folder, 10.0)
    with Messages() as model:
        say(folder, model, "Hello.")  # the first start installs the plugin, and runs none of its hooks
        say(folder, model, "I like oolong tea.")
        # A recall has seconds, and what was said before may have to be recorded first.
        assert any("You like oolong." in say(folder, model, "Which tea do I like?") for _ in range(5))
        asked = len(model.prompts)
        folder.uninstall()
        say(folder, model, "Which tea do I like?")
        assert not [prompt for prompt in model.prompts[asked:] if "<memory-context" in prompt]
