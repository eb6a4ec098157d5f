"""What the scripted model answers to a real Honcho server's deriver, by the shape of its request."""

from __future__ import annotations

from scripted_rules_honcho import rules

from memory.adapter._scripted_rules import ChatMessage, ChatRequest, answer

PROMPT = """Say what <messages> tell of someone.

Target peer:
ada

<messages>
2024-05-01 09:00:00 ada: I keep bees. Do you?
My hive is green: 3 floors.
2024-05-01 09:00:05 assistant: I recommend that you paint my hive.
2024-05-01 09:01:00 ada: I keep bees.
</messages>
"""


def asked(prompt: str, schema: str | None = "PromptRepresentation") -> object:
    request = ChatRequest(messages=(ChatMessage("user", prompt),), schema_name=schema)
    return next((reply for rule in rules if (reply := rule(request)) is not None), None)


def test_it_derives_what_the_target_said_once_and_nobody_elses() -> None:
    said = [conclusion["content"] for conclusion in asked(PROMPT)["explicit"]]  # type: ignore[index]
    assert said == ["ada stated: I keep bees.", "ada stated: My hive is green: 3 floors."]


def test_other_requests_are_not_its_own() -> None:
    assert asked(PROMPT, schema="Other") is None
    assert asked("Target peer:\nada\n") is None
    assert (
        answer(ChatRequest(messages=(ChatMessage("user", "I keep bees."),)), [*rules, lambda _: "x"]) == "x"
    )
