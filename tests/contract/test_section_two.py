"""A class to the letter of section 2 works in the slot, before the doctor and in the kit."""

from functools import partial

import pytest
from doctor_support import examine
from section_two import SectionTwo

from memory import InputError, MemoryAdapter, MemoryScope, MemorySlot
from memory.adapter import AdapterTraits
from memory.testing import validate

SCOPE = MemoryScope(run_id="r", persona_id="ada")
METHODS = ("setup_scope", "set_mode", "record_event", "retrieve", "format_context", "reset_scope", "health")
MEMBERS = ("backend_name", *METHODS)


def test_the_contract_has_the_members_of_section_2_and_no_others():
    named = {*MemoryAdapter.__annotations__, *(name for name in vars(MemoryAdapter) if name[0] != "_")}
    assert named == set(MEMBERS)
    assert isinstance(SectionTwo(), MemoryAdapter)


async def test_the_slot_takes_it():
    async with MemorySlot(SectionTwo(), scope=SCOPE) as slot:
        await slot.after_turn(user="I like oolong.", assistant="Noted.", session_id="s1")
        section = await slot.before_turn("oolong", session_id="s2")
        assert "I like oolong." in section
        assert section.startswith('<memory-context backend="section_two"')
        assert slot.traits == AdapterTraits(consistency="eventual")
        assert slot.native_scope(SCOPE) == {"run_id": "r", "persona_id": "ada"}
        assert slot.capabilities() == frozenset()
        health = await slot.health()
        assert (health.status, health.consistency_model) == ("ok", "immediate")
        await slot.reset_scope(SCOPE)
        assert await slot.before_turn("oolong", session_id="s2") == ""


async def test_the_doctor_finds_nothing_wrong_with_it():
    report = await examine(SectionTwo, described={"capabilities": frozenset()})
    assert report.ok, [check for check in report.checks if check.status not in ("passed", "skipped")]


@pytest.mark.thorough
async def test_nothing_of_the_kit_fails_for_it():
    report = await validate(partial(SectionTwo, {}))
    assert not report.failed, report.to_text()


@pytest.mark.parametrize("missing", [("health",), ("retrieve", "format_context"), MEMBERS])
def test_every_missing_method_is_named_at_once(missing):
    members = {name: getattr(SectionTwo, name) for name in MEMBERS if name not in missing}
    with pytest.raises(
        InputError, match=f"Partial is no MemoryAdapter: it lacks {', '.join(missing)}; add them"
    ):
        MemorySlot(type("Partial", (), members)())


def test_a_name_that_is_no_method_is_missing():
    with pytest.raises(InputError, match="lacks health"):
        MemorySlot(type("Partial", (SectionTwo,), {"health": "fine"})())
