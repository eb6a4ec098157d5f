"""What the slot does with the text that goes through it: recalled context stays out, the budget holds."""

import json
from dataclasses import replace

import pytest
from slot_support import ALICE, BOB, Obedient, ask, event

from memory import (
    ContextBudget,
    FeedbackReceipt,
    InputError,
    IsolationError,
    MemorySlot,
    Message,
    NativeMutationReceipt,
    NativeMutationRequest,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
)
from memory.adapter import ContextEntry
from memory.contract.formatting import NEUTRAL_LABELS, section_overhead
from memory.contract.requests import MemoryFeedback


async def recalled(slot):
    await slot.after_turn(user="I like oolong", session_id="s")
    return await slot.before_turn("tea?", session_id="s")


async def test_recalled_context_beside_the_words_is_not_written(slot, adapter):
    context = await recalled(slot)
    call = {"id": "c1", "function": {"name": "search", "arguments": json.dumps({"text": f"tea {context}"})}}
    await slot.after_turn(
        session_id="s",
        messages=[
            Message(role="assistant", tool_calls=[call]),
            Message(role="tool", content=json.dumps([context, "green"]), tool_call_id="c1"),
            Message(role="user", content="and now?", name=f"Al{context}"),
            Message(role="user", content="words", name=context),
        ],
        metadata={"prompt": [f"be kind {context}"], "n": 1},
    )
    written = adapter.rows[-1]
    assert "oolong" not in written.model_dump_json()
    assert json.loads(written.messages[0].tool_calls[0]["function"]["arguments"]) == {"text": "tea "}
    assert json.loads(written.messages[1].content) == ["", "green"]
    assert [message.name for message in written.messages[2:]] == ["Al", None]
    assert written.metadata == {"prompt": ["be kind"], "n": 1}


async def test_an_event_without_recalled_context_goes_as_it_is(slot, adapter):
    said = event().model_copy(update={"metadata": {"a": "{}"}})
    await slot.record_event(said)
    assert adapter.rows == [said]


async def test_recalled_context_cut_short_is_not_written(slot, adapter):
    context = await recalled(slot)
    await slot.after_turn(user=f"tea?\n{context[:-20]}", session_id="s")
    assert adapter.rows[-1].messages[0].content == "tea?"


async def test_recalled_context_in_feedback_is_not_written(slot, adapter):
    taken = []

    async def apply_feedback(feedback):
        taken.append(feedback)
        return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")

    adapter.apply_feedback = apply_feedback
    context = await recalled(slot)

    def feedback(**fields):
        said = {"feedback_id": "f", "scope": ALICE, "session_id": "s", "timestamp": event().timestamp}
        return MemoryFeedback(**said, **fields)

    view = slot.capability(SupportsFeedback)
    await view.apply_feedback(
        feedback(content=f"wrong {context}", corrected_answer=f"green {context}", metadata={"a": context})
    )
    assert (taken[0].content, taken[0].corrected_answer, taken[0].metadata) == ("wrong", "green", {"a": ""})
    with pytest.raises(InputError, match="nothing but recalled context"):
        await view.apply_feedback(feedback(content=context))
    assert len(taken) == 1


async def test_recalled_context_in_a_native_mutation_is_not_written(slot, adapter):
    taken = []

    async def native_mutation(request):
        taken.append(request)
        return NativeMutationReceipt(status="committed")

    adapter.native_mutation = native_mutation
    context = await recalled(slot)
    view = slot.capability(SupportsNativeMutation)

    def update(**arguments):
        return NativeMutationRequest(scope=ALICE, operation="update", native_id="n", arguments=arguments)

    plain = update(text="I like green tea", metadata={"a": ""}, none=None)
    await view.native_mutation(plain)
    await view.native_mutation(update(text=f"I like green {context}", metadata={"a": [context], "n": 1}))
    assert taken[0] is plain
    assert taken[1].arguments == {"text": "I like green", "metadata": {"a": [""], "n": 1}}
    with pytest.raises(InputError, match=r"arguments\.text holds nothing but recalled context"):
        await view.native_mutation(update(text=context))
    assert len(taken) == 2


async def test_recalled_context_in_labels_is_not_written(slot, adapter):
    context = await recalled(slot)
    await slot.after_turn(user="and now?", session_id="s", scenario=f"tea {context}", context=context)
    written = adapter.rows[-1]
    assert (written.scenario, written.context, written.attribute) == ("tea", None, None)


async def test_prose_that_forms_a_tag_together_is_recalled(slot, adapter):
    async def retrieve(request):
        found = await Obedient.retrieve(adapter, request)
        halves = (ContextEntry("a <", prose=True), ContextEntry("memory-context> b", prose=True))
        return found.model_copy(update={"entries": halves})

    adapter.retrieve = retrieve
    assert "memory-context> b" in await slot.before_turn("tea?", session_id="s")


async def test_a_row_that_names_no_scope_is_withheld(slot, adapter):
    async def retrieve(request):
        found = await Obedient.retrieve(adapter, request)
        return found.model_copy(update={"entries": (ContextEntry("whose?", scope_ids={}),)})

    adapter.retrieve = retrieve
    with pytest.raises(IsolationError, match="names no scope"):
        await slot.retrieve(ask())


async def test_one_event_id_in_two_scopes_is_two_events(slot, adapter):
    async def record_events(events):
        return [await adapter.record_event(event) for event in events]

    adapter.record_events = record_events
    same = [event(1, ALICE), event(1, BOB), event(2, ALICE)]
    receipts = await slot.capability(SupportsBulkIngest).record_events(same)
    assert [receipt.event_id for receipt in receipts] == ["e1", "e1", "e2"]
    assert [receipt.trace.scope for receipt in receipts] == [ALICE, BOB, ALICE]
    with pytest.raises(InputError, match="two events of a scope share an event_id"):
        await slot.capability(SupportsBulkIngest).record_events([*same, event(2, ALICE)])


async def test_a_row_that_comes_twice_is_shown_once_and_one_without_an_id_as_often_as_it_comes():
    """Servers give a record in several groups; it would take the place of another."""

    class Doubling(Obedient):
        async def retrieve(self, request):
            found = await super().retrieve(request)
            return found.model_copy(update={"entries": tuple(rows)})

    again = ContextEntry("tea", native_id="1", scope_ids={"id": ALICE.label})
    rows = [again, again, replace(again, text="milk"), replace(again, prose=True), replace(again, prose=True)]
    rows += [replace(again, native_id=None)] * 2
    async with MemorySlot(Doubling(), scope=ALICE) as slot:
        shown = (await slot.retrieve(ask())).entries
    assert list(shown) == [again, *rows[2:]]


@pytest.mark.parametrize("neutral", [False, True])
async def test_only_a_neutral_slot_gives_back_what_its_labels_do_not_take(neutral):
    """Else a provider with a long name has less room than one with a short name."""
    asked = []

    class Packs(Obedient):
        async def retrieve(self, request):
            asked.append(request.budget.max_tokens)
            return await super().retrieve(request)

    async with MemorySlot(Packs(), scope=ALICE, neutral_sections=neutral) as slot:
        for room in (500, None):
            await slot.retrieve(ask(budget=ContextBudget(max_tokens=room)))
        own, same = (
            section_overhead(*labels, slot.delivery.token_counter)
            for labels in (("obedient", ALICE.label), NEUTRAL_LABELS)
        )
    assert own != same
    assert slot.delivery.budget == ContextBudget()
    assert MemorySlot(Packs(), budget=ContextBudget(max_tokens=7)).delivery.budget.max_tokens == 7
    assert asked == [500 + own - same if neutral else 500, None]
