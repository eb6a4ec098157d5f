"""``memslot chat``: a conversation over every memory that needs no key, and what it says of itself."""

import io
import json

import pytest
from cli_support import invoke

from conditions.full_history import FullHistory
from memory import BackendUnavailable, InputError
from memory.plugins.config import load_config
from memory.runtime import CommandLine, reports_file
from memory.runtime._chat import Chat
from memory.runtime._hook_turns import drop_reports
from memory.storage.insert import insert

REMEMBERS = ("mem0", "simple_rag", "full_history", "rolling_summary")


def config(directory, provider, agent=None, **options):
    memory = {
        "backend": provider,
        "scope": {"run_id": "r", "persona_id": "ada"},
        "data_dir": "kept",
        "backends": {provider: options},
    }
    file = directory / "chat.yaml"
    file.write_text(json.dumps({"memory": memory, **({"agent": agent} if agent else {})}))
    return file


async def talk(file, *lines):
    """What was answered, and what was said beside it."""
    left, out, notices = [f"{line}\n" for line in lines], io.StringIO(), []

    def read():
        if not left:
            raise EOFError
        return left.pop(0)

    await Chat(load_config(file), CommandLine(read, out), notices.append).run()
    return out.getvalue(), notices


@pytest.mark.parametrize("provider", REMEMBERS)
async def test_a_memory_that_needs_no_key_remembers_the_next_time(tmp_path, provider):
    file = config(tmp_path, provider)
    said, notices = await talk(file, "My favourite tea is oolong.", "/memory")
    assert said == "Understood.\n"
    assert notices[0].startswith(f"scripted with {provider}")
    said, notices = await talk(file, "Which tea is my favourite?", "/memory")
    assert "oolong" in said
    assert "My favourite tea is oolong." in notices[1]
    assert "tokens by utf8-bytes/4" in notices[1]


async def test_an_empty_recall_is_explained(tmp_path):
    _, notices = await talk(config(tmp_path, "mem0"), "My favourite tea is oolong.", "/memory")
    assert "0 of 0 memories" in notices[1]
    assert "nothing of an earlier conversation fits this question" in notices[1]
    assert "the model sees this conversation anyway" in notices[1]


@pytest.mark.thorough
async def test_what_cannot_be_written_is_kept_for_the_next_chat(tmp_path, monkeypatch):
    async def refuse(self, event):
        raise BackendUnavailable("down", sent=False)

    file = config(tmp_path, "full_history", {"policy": {"drain_s": 5.0}})
    with monkeypatch.context() as down:
        down.setattr(FullHistory, "record_event", refuse)
        await talk(file, "My favourite tea is oolong.")
    await talk(file, "Good morning.")
    _, notices = await talk(file, "Which tea is my favourite?", "/memory")
    assert "My favourite tea is oolong." in notices[1]


async def test_only_a_confirmed_command_forgets(tmp_path):
    file = config(tmp_path, "full_history")
    await talk(file, "My favourite tea is oolong.")
    _, notices = await talk(file, "/forget", "/memory")
    assert notices[1].startswith("/forget is not understood\n/memory ")
    assert notices[2] == "nothing was asked yet"
    insert(reports_file(tmp_path / "kept"), "hook", "1", "{}")
    said, notices = await talk(file, "/forget yes", "Which tea is my favourite?")
    assert notices[1].startswith("deleted")
    assert "oolong" not in said
    assert not drop_reports(tmp_path / "kept"), "turns of hooks are of this scope, too"


async def test_a_tool_and_a_window_are_the_configurations(tmp_path):
    soul = tmp_path / "SOUL.md"
    soul.write_text("Be terse.")
    agent = {"provider": "scripted", "options": {"lines": ["First line."]}, "soul": "SOUL.md", "tools": False}
    said, _ = await talk(config(tmp_path, "full_history", agent), "hello")
    assert said == "First line.\n"


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"provider": "opnai"}, "agent.provider: no provider is named 'opnai'; did you mean openai"),
        ({"providr": "openai"}, "did you mean provider"),
        ({"provider": "openai_compatible", "options": {"model": "m"}}, "agent.options"),
        ({"options": {"lines": ["${UNSET_LINE}"]}}, "UNSET_LINE"),
        ({"window_tokens": 0}, "agent.window_tokens"),
        ({"soul": "nowhere.md"}, "nowhere.md"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, agent, said):
    done = invoke("chat", str(config(tmp_path, "full_history", agent)), input="hi\n")
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_answers_go_to_stdout_and_the_rest_to_stderr(tmp_path):
    done = invoke("chat", config(tmp_path, "full_history"), input="My bike is red.\n/memory\n")
    assert done.exit_code == 0
    assert done.stdout == "Understood.\n"
    assert "recall took" in done.stderr


async def test_what_a_model_says_moves_nothing_on_the_terminal(tmp_path):
    agent = {
        "provider": "scripted",
        "options": {"lines": ["\x1b]0;pwned\x07\x1b[2Jred\x9b31m\u202e\ttea\r\n", "\x1b ok"]},
    }
    said, _ = await talk(config(tmp_path, "full_history", agent), "hi", "and?")
    assert said == "]0;pwned[2Jred31m\ttea\n\n ok\n"


async def test_a_name_no_memory_takes_is_refused_before_anything_is_said(tmp_path):
    loaded = load_config(config(tmp_path, "full_history"))
    for name in ("k" * 513, " "):
        with pytest.raises(InputError, match=r"session_key: (is 513|must not be blank)"):
            await Chat(loaded, CommandLine(["hi"].pop), lambda _: None).run(name)


async def test_without_standard_input_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    await Chat(load_config(config(tmp_path, "full_history")), None, lambda _: None).run()


async def test_an_unknown_command_is_named(tmp_path):
    _, notices = await talk(config(tmp_path, "full_history"), "/forgt", "/memory now", "/help")
    assert [notice.partition("\n")[0] for notice in notices[1:3]] == [
        "/forgt is not understood",
        "/memory now is not understood",
    ]
    assert notices[3].startswith("/memory ")
