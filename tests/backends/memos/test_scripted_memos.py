"""The scripted LLM's rules for MemOS, with the prompts of the installed package."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from string import Template
from types import ModuleType
from typing import Any

import pytest
from installed import installed
from scripted_rules_memos import rules

from memory.adapter._scripted_rules import ChatMessage, ChatRequest, answer, general_rules

CHAT = (
    "user: [2024-01-01 10:00:00]: I like oolong tea. Is it raining?\n"
    "assistant: [2024-01-01 10:00:00]: I suggest a gaiwan for it. Sure.\n"
)
TOOLS = (
    "user: [10:00 AM]: Book me a table\n"
    'assistant: [10:00 AM]: [tool_calls]: [{"id": "t1", "function": {"arguments": "{}", "name": "book"}}]\n'
    "tool: [10:00 AM]: %s\n"
)
OLD_ID = "313f6e95-b869-469c-9704-93bb7bd3217e"


def prompts(name: str) -> ModuleType:
    """A module of MemOS' prompts, read from its file: importing the package takes seconds and writes files."""
    if not installed("memos"):
        pytest.skip("MemoryOS is not installed")
    package = importlib.util.find_spec("memos")
    source = Path(package.origin).parent / name
    spec = importlib.util.spec_from_file_location(f"memos_{source.stem}", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    return prompts("templates/mem_reader_prompts.py")


@pytest.fixture(scope="module")
def feedback() -> ModuleType:
    return prompts("templates/mem_feedback_prompts.py")


def ask(prompt: str) -> Any:
    reply = answer(ChatRequest((ChatMessage("user", prompt),)), (*rules, *general_rules))
    return json.loads(reply) if isinstance(reply, str) else reply


def test_statements_become_memories_of_who_made_them(reader: ModuleType) -> None:
    found = ask(reader.SIMPLE_STRUCT_MEM_READER_PROMPT.replace("${conversation}", CHAT))["memory list"]
    assert [(memory["memory_type"], memory["value"]) for memory in found] == [
        ("UserMemory", "I like oolong tea."),
        ("LongTermMemory", "I suggest a gaiwan for it."),
    ]
    assert found[0]["key"] == "like oolong tea"


def test_small_talk_is_no_memory_and_chinese_is_understood(reader: ModuleType) -> None:
    small_talk = reader.SIMPLE_STRUCT_MEM_READER_PROMPT.replace(
        "${conversation}", "user: [now]: Hello there!\n"
    )
    assert ask(small_talk)["memory list"] == []
    chinese = reader.SIMPLE_STRUCT_MEM_READER_PROMPT_ZH.replace(
        "${conversation}", "user: [now]: 我住在柏林。\n"
    )
    assert [memory["value"] for memory in ask(chinese)["memory list"]] == ["我住在柏林。"]


def test_preferences_are_what_the_user_likes_or_not() -> None:
    module = prompts("templates/prefer_complete_prompt.py")
    said = CHAT + "user: [later]: I live in Berlin.\nassistant: [later]: I suggest what I always love.\n"
    found = ask(module.NAIVE_EXPLICIT_PREFERENCE_EXTRACT_PROMPT.replace("{qa_pair}", said))
    assert [item["explicit_preference"] for item in found] == ["I like oolong tea."]
    chinese = module.NAIVE_EXPLICIT_PREFERENCE_EXTRACT_PROMPT_ZH.replace(
        "{qa_pair}", "user: [now]: 我喜欢乌龙茶。\n"
    )
    assert [item["topic"] for item in ask(chinese)] == ["茶"]
    assert ask(module.NAIVE_IMPLICIT_PREFERENCE_EXTRACT_PROMPT.replace("{qa_pair}", said)) == []


@pytest.mark.parametrize(
    ("result", "correctness"), [("booked at 19:00", "success"), ("Error: no table is free", "failed")]
)
def test_tool_use_is_told_with_its_outcome(result: str, correctness: str) -> None:
    module = prompts("templates/tool_mem_prompts.py")
    (found,) = ask(module.TOOL_TRAJECTORY_PROMPT_EN.replace("{messages}", TOOLS % result))
    assert found["correctness"] == correctness
    assert found["trajectory"] == f"Book me a table -> book -> {result}"
    assert [status["used_tool"] for status in found["tool_used_status"]] == ["book"]


def test_a_long_tool_use_becomes_a_skill() -> None:
    module = prompts("templates/skill_mem_prompt.py")
    said = 'user: Book me a table\nassistant: [tool_calls]: [{"name": "book"}]\ntool: booked at 19:00'
    numbered = "\n".join(f"{number}: {line}" for number, line in enumerate(said.split("\n")))
    (task,) = ask(module.TASK_CHUNKING_PROMPT.replace("{{messages}}", numbered))
    assert task["message_indices"] == [[0, 2]]
    skill = ask(module.SKILL_MEMORY_EXTRACTION_PROMPT_MD.replace("{messages}", said))
    assert (skill["name"], skill["description"]) == ("book table", "How to Book me a table")
    named = module.TASK_QUERY_REWRITE_PROMPT.replace("{task_type}", "Tool use").replace("{messages}", said)
    assert answer(ChatRequest((ChatMessage("user", named),)), rules) == "Book me a table"


def test_feedback_that_replaces_words(feedback: ModuleType) -> None:
    asked = ask(feedback.KEYWORDS_REPLACE.format(user_feedback="Replace 'Oolong' with 'Sencha'."))
    assert (asked["if_keyword_replace"], asked["original"], asked["target"]) == ("true", "Oolong", "Sencha")
    assert (
        ask(feedback.KEYWORDS_REPLACE.format(user_feedback="I live in Paris."))["if_keyword_replace"]
        == "false"
    )


@pytest.mark.parametrize(
    ("said", "validity", "attitude", "info"),
    [
        ("No, I live in Paris.", "true", "dissatisfied", "No, I live in Paris."),
        ("Where do I live again?", "true", "satisfied", ""),
        ("My dog eats grass.", "false", "irrelevant", "My dog eats grass."),
    ],
)
def test_feedback_is_judged_by_what_was_said(
    feedback: ModuleType, said: str, validity: str, attitude: str, info: str
) -> None:
    history = "user: Where do I live?\nassistant: You live in Berlin."
    prompt = feedback.FEEDBACK_JUDGEMENT_PROMPT.format(
        chat_history=history, feedback_time="now", user_feedback=said
    )
    (judged,) = ask(prompt)
    assert (judged["validity"], judged["user_attitude"], judged["corrected_info"]) == (
        validity,
        attitude,
        info,
    )


@pytest.mark.parametrize(
    ("known", "operations"),
    [
        ("I live in Berlin.", ["UPDATE"]),
        ("I live in Paris.", ["NONE"]),
        ("My dog eats grass.", ["NONE", "ADD"]),
    ],
)
def test_a_new_fact_updates_what_is_about_the_same(
    feedback: ModuleType, known: str, operations: list[str]
) -> None:
    prompt = feedback.UPDATE_FORMER_MEMORIES.format(
        now_time="now", current_memories=f"{OLD_ID}: {known}", new_facts="I live in Paris.", chat_history="-"
    )
    found = ask(prompt)["operations"]
    assert [operation["operation"] for operation in found] == operations
    assert found[0]["id"] == OLD_ID


def test_a_search_that_thinks_gets_its_question_and_what_fits_it() -> None:
    parse = prompts("memories/textual/tree_text_memory/retrieve/utils.py").TASK_PARSE_PROMPT
    goal = ask(Template(parse).substitute(conversation="", task="Where do I live?", context="-"))
    assert goal["memories"] == ["Where do I live?"]
    enhance = prompts("templates/mem_scheduler_prompts.py").PROMPT_MAPPING["memory_recreate_enhancement"]
    prompt = enhance.format(query_history="Where do I live?", memories="- I live in Berlin.\n- I like tea.")
    kept = answer(ChatRequest((ChatMessage("user", prompt),)), rules)
    assert kept == "<answer>\n- I live in Berlin.\n</answer>"


def test_other_prompts_are_not_taken(reader: ModuleType) -> None:
    request = ChatRequest((ChatMessage("user", "What is in my memory list?"),))
    assert all(rule(request) is None for rule in rules)
