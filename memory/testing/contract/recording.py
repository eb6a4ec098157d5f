"""Writing and reading: what goes in comes back, with its provenance (spec 9.1, 9.2, 9.8, 9.9)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import current_token

from memory import (
    CapabilityNotSupported,
    InputError,
    MemoryEvent,
    Message,
    ProvenanceRequest,
    SupportsProvenance,
    WriteReceipt,
)
from memory.testing.conformance import not_declared
from memory.testing.contract._base import ContractBase
from memory.testing.contract._kit import STORED, Kit, as_json, marker

__all__ = ["CsContract", "RecordingContract"]


class RecordingContract(ContractBase):
    """Events in, context out."""

    area = "recording"

    async def test_runs_on_the_event_loop_it_says(self, kit: Kit, anyio_backend_name: str) -> None:
        """Not on another one silently."""
        loop = type(current_token().native_token).__module__
        assert loop.startswith("trio") == (anyio_backend_name == "trio"), loop

    async def test_a_turn_of_two_messages_is_recorded_with_a_receipt(self, kit: Kit) -> None:
        """Spec 9.1."""
        event = kit.event(kit.fact("blue"), "I will remember that.")
        receipt = await kit.slot.record_event(event)
        assert receipt.event_id == event.event_id
        assert receipt.status in STORED
        assert len(set(receipt.native_ids)) == len(receipt.native_ids)
        assert receipt.trace is not None
        assert receipt.trace.native_ids == receipt.native_ids

    async def test_what_was_written_is_recalled_once_ready(self, kit: Kit) -> None:
        """Spec 9.2. A control that does not recall says so, and its context does not move."""
        before = (await kit.ask("blue")).formatted_context
        await kit.tell("blue")
        after = (await kit.ask("blue")).formatted_context
        if kit.recalls_writes:
            assert marker("blue") in after
        else:
            assert after == before

    async def test_a_committed_write_is_retrievable_at_once(self, kit: Kit) -> None:
        """DESIGN 4: ``committed`` is a promise; what is not yet retrievable is ``pending`` or ``queued``."""
        kit.needs_recall()
        receipt = await kit.slot.record_event(kit.event(kit.fact("blue")))
        if receipt.status != "committed":
            not_declared(f"committed; writes are {receipt.status}, and readiness has tests of its own")
        assert await kit.recalls("blue")

    async def test_a_new_scope_is_empty_and_that_is_no_error(self, kit: Kit) -> None:
        """DESIGN 4: empty and failed never look alike."""
        kit.needs_recall()
        result = await kit.ask("blue")
        assert result.entries == ()
        assert result.formatted_context == ""
        assert result.trace.error is None
        assert result.trace.retrieved_count == 0

    async def test_raw_keeps_the_native_provenance(self, kit: Kit) -> None:
        """Spec 9.8: ids, scores, timestamps and labels that entries show are in ``raw``, which is JSON."""
        await kit.tell("blue")
        result = await kit.ask("blue")
        raw = as_json(result.raw)
        for entry in result.entries:
            assert entry.native_id is None or entry.native_id in raw
            for _, label in entry.labels:
                assert label in raw
        if kit.recalls_writes:
            assert marker("blue") in raw
        scores = [entry.score for entry in result.entries if entry.score is not None]
        times = [entry.timestamp for entry in result.entries if entry.timestamp is not None]
        assert result.trace.top_score == max(scores, default=None)
        assert result.trace.newest_retrieved_at == max(times, default=None)
        assert result.trace.oldest_retrieved_at == min(times, default=None)

    async def test_time_is_the_events_and_not_the_clocks(self, kit: Kit) -> None:
        """Spec 3: the turn's timestamp reaches the backend; where entries are dated, they carry it."""
        kit.needs_recall()
        event = kit.event(kit.fact("blue"))
        await kit.slot.record_event(event)
        await kit.until_ready()
        entries = [entry for entry in (await kit.ask("blue")).entries if marker("blue") in entry.text]
        assert entries
        assert {entry.timestamp for entry in entries} <= {None, event.timestamp}

    async def test_event_fields_stay_traceable(self, kit: Kit) -> None:
        """Spec 1: an adapter keeps the event's fields as metadata that can be found again."""
        kit.needs_recall()
        values: dict[str, Any] = {name: f"{name}-{marker(name)}" for name in self.event_fields}
        fields = {**values, "metadata": {"source": values["metadata"]}} if "metadata" in values else values
        await kit.tell("blue", **fields)
        result = await kit.ask("blue")
        found = as_json(result.raw)
        provenance = kit.slot.capability(SupportsProvenance)
        for entry in result.entries:
            if provenance is not None and entry.native_id is not None:
                answer = await provenance.provenance(
                    ProvenanceRequest(scope=kit.scope, native_id=entry.native_id)
                )
                found += as_json(answer.raw)
        lost = [name for name, value in values.items() if value not in found]
        assert not lost, f"neither raw nor provenance holds {lost}; correct event_fields if that cannot be"

    async def test_messages_of_every_role_are_accepted(self, kit: Kit) -> None:
        """DESIGN 4: the adapter decides what the backend can take, and says so in warnings."""
        call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        messages = (
            Message(role="system", content="Be brief."),
            Message(role="developer", content="Use metric units."),
            Message(role="user", content=kit.fact("blue"), name="Ada"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content="found nothing", tool_call_id="c1"),
            Message(role="assistant", content="I found nothing."),
        )
        receipt = await kit.slot.record_event(kit.event("unused", messages=messages))
        assert receipt.status in STORED
        await kit.until_ready()
        assert await kit.recalls("blue") == kit.recalls_writes

    async def test_any_script_and_length_survives(self, kit: Kit) -> None:
        """Text is UTF-8 everywhere: Chinese, emoji, right-to-left, and a long message."""
        said = {
            "我把护照放在蓝色抽屉里。": "护照放在哪个抽屉里?",
            "I feed my 🐍 named שלום every Friday.": "Which 🐍 do I feed, is it שלום?",
            "I own a boat. " + "It sails well and far. " * 400: "Do I own a boat that sails?",
        }
        for text in said:
            assert (await kit.slot.record_event(kit.event(text))).status in STORED
        await kit.until_ready()
        for text, query in said.items():
            result = await kit.slot.retrieve(kit.request(query))
            as_json(result.raw)
            # A backend may cut a long text into pieces, so its start must do.
            assert (text[:12] in result.formatted_context) == kit.recalls_writes

    async def test_writes_of_a_scope_keep_their_order(
        self, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """DESIGN 5.5: one at a time and in the order they arrived, however many tasks write."""
        arrived: list[str] = []
        log: list[tuple[str, str]] = []
        native = kit.adapter.record_event

        async def watched(event: MemoryEvent) -> WriteReceipt:
            log.append(("start", event.event_id))
            receipt = await native(event)
            log.append(("end", event.event_id))
            return receipt

        monkeypatch.setattr(kit.adapter, "record_event", watched)

        async def write(event: MemoryEvent) -> None:
            arrived.append(event.event_id)
            await kit.slot.record_event(event)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(write, kit.event(kit.fact(f"number {number}")))
        assert log == [(step, event_id) for event_id in arrived for step in ("start", "end")]


class CsContract(ContractBase):
    """Scenario, context and attribute (spec 9.9), and further filters."""

    area = "cs and filters"

    async def test_cs_fields_act_as_declared(self, kit: Kit) -> None:
        """Spec 9.9: ``hard`` filters, ``soft`` and ``none`` leave both facts retrievable; traces say which."""
        for field in ("scenario", "context", "attribute"):
            await kit.tell(f"{field} work", **{field: "work"})
            await kit.tell(f"{field} personal", **{field: "personal"})
            result = await kit.ask(f"{field} work", **{field: "work"})
            assert result.trace.cs_filtering == kit.slot.traits.cs_filtering
            if not kit.recalls_writes:
                continue
            assert marker(f"{field} work") in result.formatted_context
            if kit.slot.traits.cs_filtering == "hard":
                everything = as_json(result.raw) + result.formatted_context
                assert marker(f"{field} personal") not in everything, f"{field} did not filter"
            assert await kit.recalls(f"{field} personal"), "a request without CS fields must find everything"

    async def test_a_cross_context_probe_is_not_filtered(self, kit: Kit) -> None:
        """Spec 5.2: a probe may search across contexts on purpose."""
        await kit.tell("work", context="work")
        result = await kit.ask("work", context="personal", filters={"cross_context": True})
        assert (marker("work") in result.formatted_context) == kit.recalls_writes

    async def test_filters_narrow_or_are_refused(self, kit: Kit) -> None:
        """DESIGN 5.2: a declared operator works; an undeclared one is an error, never silently ignored."""
        operators = kit.slot.traits.filter_operators
        samples: dict[str, Any] = {
            "eq": "north", "ne": "south", "in": ["north", "east"], "nin": ["south"], "contains": "north",
            "icontains": "NORTH", "gt": "m0", "gte": "north", "lt": "p", "lte": "north",
        }  # fmt: skip
        await kit.tell("north", metadata={"region": "north"})
        await kit.tell("south", metadata={"region": "south"})
        for operator, value in samples.items():
            filters = {"region": {operator: value}}
            if operator not in operators:
                with pytest.raises(CapabilityNotSupported):
                    await kit.ask("north", filters=filters)
                continue
            if operator in ("gt", "gte", "lt", "lte"):
                continue  # what can be ordered is the backend's matter; equality is everybody's
            result = await kit.ask("north", filters=filters)
            assert marker("north") in result.formatted_context, operator
            assert marker("south") not in as_json(result.raw), operator

    async def test_malformed_filters_are_input_errors(self, kit: Kit) -> None:
        """Bad input: one clear error before anything is sent."""
        malformed: tuple[dict[str, Any], ...] = (
            {"cross_context": "yes"},
            {"region": {}},
            {"region": {"like": "n"}},
            {"region": None},
        )
        for filters in malformed:
            with pytest.raises((InputError, CapabilityNotSupported)):
                await kit.ask("north", filters=filters)
