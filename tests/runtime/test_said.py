"""Which words of a prompt are the user's."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from growth_support import assert_growth

from memory.runtime import TurnPolicy, _said, said_by_user

NOTICE = "<task-notification><task-id>b1</task-id><status>completed</status></task-notification>"


@pytest.mark.parametrize(
    ("host", "prompt"),
    [
        ("claude-code", NOTICE),
        ("langchain", NOTICE),
        ("strands", "<system-reminder>\nbackground task b1 done\n</system-reminder>"),
        ("claude-code", "<system-reminder>cut off by the host"),
        ("claude-code", f"{NOTICE}\n<System-Reminder a='b'>x</system-reminder>"),
        ("claude-code", "<command-name>/compact</command-name>\n<command-args></command-args>"),
        ("claude-code", "[Request interrupted by user for tool use]"),
        ("claude-code", "Stop hook feedback:\n- run the tests"),
        ("claude-code", "This session is being continued from a previous conversation that ran out"),
        ("claude-code", "/compact"),
        ("cursor", "/compact keep the parser"),
        ("codex", "/plugin:review"),
        ("codex", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
        ("codex", "<permissions instructions>x</permissions instructions>"),
        ("hermes", "[System note: The previous turn was interrupted]"),
        ("hermes", "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns"),
        ("nanobot", "[Subagent 'search' completed successfully]"),
        ("nanobot", "/status"),
        ("hermes", "/compress now"),
        ("codex", "# AGENTS.md instructions for /x\n\nBe brief."),
        ("cursor", "<system_notification>a task has ended</system_notification>"),
        ("langchain", "Here is a summary of the conversation to date:\n\nAda likes tea."),
        ("", "  \n"),
    ],
)
def test_what_a_host_says_in_the_users_name_is_not_the_users(host, prompt):
    assert said_by_user(prompt, host) == ""


@pytest.mark.parametrize(
    ("host", "prompt", "said"),
    [
        ("claude-code", "I like tea.\n<system-reminder>be brief</system-reminder>", "I like tea."),
        ("claude-code", "<ide_selection>x = 1</ide_selection>What is this?", "What is this?"),
        ("claude-code", "What does <system-reminder> mean?", "What does <system-reminder> mean?"),
        ("claude-code", "/etc/hosts is wrong, mend it", "/etc/hosts is wrong, mend it"),
        ("langchain", "/compact", "/compact"),
        ("", "[System: I am not Hermes.", "[System: I am not Hermes."),
        ("claude-code", " \u0130I like tea. ", " \u0130I like tea. "),
        ("claude-code", "\u0130<system-reminder>x</system-reminder>I like tea.", "\u0130I like tea."),
    ],
)
def test_the_users_own_words_stay(host, prompt, said):
    assert said_by_user(prompt, host) == said


def test_a_caller_adds_patterns_of_its_own():
    policy = TurnPolicy(not_said=("HEARTBEAT",))
    assert said_by_user("HEARTBEAT 12:00", "langchain", policy.not_said) == ""
    assert said_by_user("What is a HEARTBEAT?", "langchain", policy.not_said)


def test_long_prompts_take_linear_time():
    for part in ("a <system-reminder>", "a <system-reminder", "a </system-reminder>", "< system-reminder "):
        assert_growth(lambda size: partial(said_by_user, part * (size // len(part)), "claude-code"))  # noqa: B023


def test_the_rules_import_the_standard_library_alone():
    code = (
        "import sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('said', {str(Path(_said.__file__))!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert module.said_by_user('/compact', 'codex') == ''\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
