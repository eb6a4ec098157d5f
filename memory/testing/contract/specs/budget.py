"""The budget reaches the native call and bounds the section. Nothing pads it (spec 9.5; DESIGN 4 and 8)."""

from __future__ import annotations

from memory import ContextBudget, MemorySlot
from memory.contract.formatting import CallableTokenCounter
from memory.testing.contract._kit import Kit, as_json, unique_word
from memory.testing.contract._spec import NotRun, promise

_WORDS = CallableTokenCounter("words", lambda text: len(text.split()))


async def _fill(kit: Kit) -> None:
    for number in range(8):
        await kit.write(f"item{number}")
    await kit.until_ready()


@promise()
async def the_section_carries_the_backends_label(kit: Kit) -> None:
    """Spec 9.5: one fence names backend and scope. An adapter formats it without I/O."""
    await kit.remember("blue")
    result = await kit.ask("blue")
    section, begins = result.formatted_context, f'<memory-context backend="{kit.slot.backend_name}"'
    if section:
        assert section.startswith(begins), "the section does not begin with its fence and the backend's name"
        assert section.endswith("</memory-context>"), "the section does not end with its fence"
    for formats in (kit.slot, kit.adapter):
        assert formats.format_context(result) == section, "the slot's section is not what the adapter formats"
    assert bool(section) == bool(result.included), "a section without entries, or entries without a section"
    assert section or not kit.recalls_writes, "what was told is in no section"


@promise()
async def max_tokens_bounds_the_section_by_the_slots_counter(kit: Kit) -> None:
    """DESIGN 8: the whole section fits, whichever counter the host configures."""
    await _fill(kit)
    for counter in (kit.slot.delivery.token_counter, _WORDS):
        slot: MemorySlot = kit.make_slot(scope=kit.scope, token_counter=counter)
        await slot.setup_scope(kit.scope)
        for limit in (1, 25, 60, 150, 10_000):
            result = await slot.retrieve(kit.question("item1", budget=ContextBudget(max_tokens=limit)))
            trace, section = result.trace, result.formatted_context
            count = counter.count(section) if section else 0
            assert count <= limit, f"the section is longer than {limit} {counter.name}"
            assert trace.token_count == count, "the trace counts other tokens than the section has"
            assert trace.token_counter == counter.name, "the trace names another token counter"
            assert trace.included_count == len(result.context_entries), "the trace counts other entries"
        found = unique_word("item1") in section
        assert found or not kit.recalls_writes, "an ample budget must not lose the best entry"


@promise(
    "pass request.budget.max_items as the native limit",
    "where there is no such parameter: limits_natively = False",
)
async def max_items_reaches_the_native_call(kit: Kit) -> None:
    """Spec 9.5: a backend with such a parameter gets it. The adapter does not fetch more and trim."""
    await _fill(kit)
    for limit, session in ((1, "session-2"), (3, "session-2"), (1, "session-1")):
        result = await kit.ask("item1", budget=ContextBudget(max_items=limit), session_id=session)
        assert len(result.included) <= limit, "more entries than max_items"
        count = result.trace.retrieved_count
        if kit.declared.limits_natively:
            assert count is not None, "the trace does not count what was retrieved"
            assert count <= limit, f"{count} were fetched for max_items {limit}, asked in {session}"
        assert result.included or not kit.recalls_writes, "nothing is left of what was asked for"


@promise("make one ContextEntry of each row, uncut: the slot fits them to the budget")
async def entries_are_given_whole_and_in_the_backends_order(kit: Kit) -> None:
    """DESIGN 8: the formatter omits entries. It never cuts or reorders them."""
    await _fill(kit)
    if kit.recalls_writes and not kit.declared.rewrites:
        said = f"{kit.fact('long')} {'It sails well and far. ' * 40}{unique_word('end')}"
        await kit.slot.record_event(kit.event(said, None))
        await kit.until_ready()
        found = await kit.ask("long")
        shown = any(unique_word("end") in entry.text for entry in found.entries)
        lost = not shown and unique_word("end") in as_json(found.raw)
        assert not lost, "the payload holds the end of a text, and no entry does"
    result = await kit.ask("item1", budget=ContextBudget(max_tokens=80))
    assert list(result.included) == sorted(set(result.included)), "repeated, or not in the backend's order"
    whole = await kit.ask("item1")
    everything = whole.trace.included_count == len(whole.entries)
    assert everything or whole.trace.warnings, "entries are left out without a warning"
    if not result.included:
        kit.needs_recall()
        raise NotRun("not tested", "no entry fits into 80 tokens")
    for entry in result.context_entries:
        start = entry.text.strip().split("\n")[0].strip()[:20]
        assert start in result.formatted_context, "an entry that counts as included is not in the section"
    as_json(result.raw)
