"""Feedback is memory: stored, of one scope, and gone with it (spec 5.4, 9.6)."""

from __future__ import annotations

from memory import MemoryScope, SupportsFeedback, SupportsNativeQuery
from memory.testing.contract._kit import STORED, Kit, as_json, unique_word
from memory.testing.contract._spec import not_tested, promise

AREA = "capabilities"
_LESS = "do not declare feedback: leave apply_feedback out"


async def _give(kit: Kit, name: str) -> None:
    feedback = kit.needs(SupportsFeedback)
    await kit.remember("blue")
    entries = (await kit.ask("blue")).entries
    receipt = await feedback.apply_feedback(
        kit.feedback(
            kit.fact(name),
            corrected_answer=kit.fact(name),
            native_ids=tuple(entry.native_id for entry in entries if entry.native_id),
        )
    )
    assert receipt.status in STORED, f"plain feedback was {receipt.status}"
    await kit.until_ready()


async def _everything(kit: Kit, name: str, scope: MemoryScope) -> str:
    """All that can be read of a scope by someone who asks for a fact."""
    text = await kit.shown(name, scope=scope)
    query, request = kit.slot.capability(SupportsNativeQuery), kit.query(scope)
    if query is not None and request is not None:
        text += as_json((await query.native_query(request)).raw)
    return text


@promise(AREA, "store it where the backend can use it", _LESS, core=False)
async def feedback_is_stored(kit: Kit) -> None:
    """A receipt that says ``committed`` of what went nowhere is worse than no feedback."""
    feedback = kit.needs(SupportsFeedback)
    await kit.remember("blue")
    before = await kit.observe()
    receipt = await feedback.apply_feedback(
        kit.feedback(kit.fact("green"), corrected_answer=kit.fact("green"))
    )
    await kit.until_ready()
    if unique_word("green") in await _everything(kit, "green", kit.scope):
        return
    if not kit.sees_native_state:
        not_tested("fingerprint: the feedback is in no answer, and without it nobody can look further")
    assert await kit.observe() != before, f"feedback was {receipt.status}, and the native state is the same"


@promise(AREA, "keep it under the scope's own native id", _LESS, core=False)
async def feedback_stays_in_its_scope(kit: Kit) -> None:
    """What one person corrects is no other person's memory."""
    other = kit.scope_of("bob")
    await kit.setup(other)
    await _give(kit, "green")
    shown = await _everything(kit, "green", other)
    assert unique_word("green") not in shown, "feedback of one scope is shown in another"


@promise(AREA, "remove feedback with the rest of the scope", _LESS, core=False)
async def feedback_goes_with_its_scope(kit: Kit) -> None:
    """Spec 9.6: a reset removes all that was kept for a scope, feedback included."""
    name = f"green {kit.run_id}"  # a server may hold what earlier runs said
    await _give(kit, name)
    seen = str(await kit.observe()) if kit.sees_native_state else ""
    receipt = await kit.slot.reset_scope(kit.scope)
    assert receipt.verified, "a reset must look again whether the scope is empty"
    shown = await _everything(kit, name, kit.scope)
    assert unique_word(name) not in shown, "feedback is still shown after the reset of its scope"
    if unique_word(name) in seen:
        left = str(await kit.observe())
        assert unique_word(name) not in left, "feedback is still stored after the reset of its scope"
