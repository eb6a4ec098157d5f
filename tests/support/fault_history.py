"""Writers of unique words through faults, and what their history must be like, whatever went wrong on the way."""

import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field

import anyio

from memory import BackendError, Deadlines, MemoryScope, MemorySlot, SupportsReadiness
from memory.testing import Kit, unique_word

SCOPES = tuple(
    {"run_id": run_id, "persona_id": persona_id}
    for run_id, persona_id in (("a_b", "c"), ("a", "b_c"), ("a", "B_C"))
)
STORED = ("committed", "queued", "pending")


@dataclass
class History:
    """What was attempted and how it was answered, and what was found in the end.

    Attributes:
        operations: events that were sent, repeats included.
        outcomes: receipt status, or ``refused``, -> how often.
        lost: acknowledged, and not there.
        invented: there, and never attempted.
        foreign: in another scope than it was written to.
        doubled: there more than once, although every answer was certain.
    """

    operations: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)


async def play(make, fault, kinds, *, operations, seed=0, writers=4):
    """Write in batches, each under a fault or none; close and open again between; then look at everything."""
    dice, history = random.Random(seed), History()
    written = {}
    answers = {}
    kit, number = Kit(make()), 0
    scopes = [MemoryScope(**{**fields, "run_id": f"{fields['run_id']}{seed}"}) for fields in SCOPES]
    while history.operations < operations:
        async with MemorySlot(kit.adapter, deadlines=Deadlines(write_s=5.0)) as slot:
            for scope in scopes:
                await slot.setup_scope(scope)
            for _ in range(6):
                kind = dice.choice((*kinds, "", ""))
                events = []
                for _ in range(writers):
                    number += 1
                    scope, name = dice.choice(scopes), f"history {seed} {number}"
                    events.append(kit.event(f"My word is {unique_word(name)}.", None, scope=scope))
                    written[unique_word(name)] = scope, events[-1].event_id
                with fault(kit.adapter, kind) if kind else nullcontext():
                    await _write(slot, events, history, answers)
                unsure = [event for event in events if "unknown" in answers[event.event_id]]
                await _write(slot, unsure, history, answers)  # as a host does
        kit = Kit(make())
    async with MemorySlot(kit.adapter) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
            readiness = slot.capability(SupportsReadiness)
            if readiness is not None:
                await readiness.wait_until_ready(scope, 30.0)
        await _look(slot, kit, scopes, written, answers, history)
    return history


async def _write(slot, events, history, answers):
    async def write(event):
        history.operations += 1
        try:
            status = str((await slot.record_event(event)).status)
        except BackendError:
            status = "refused"
        history.outcomes[status] += 1
        answers.setdefault(event.event_id, []).append(status)

    async with anyio.create_task_group() as tasks:
        for event in events:
            tasks.start_soon(write, event)


async def _look(slot, kit, scopes, written, answers, history):
    for word, (scope, event_id) in written.items():
        for other in scopes:
            entries = (await slot.retrieve(kit.request(word, scope=other))).entries
            found = sum(word in entry.text for entry in entries)
            history.invented += [entry.text for entry in entries if not any(w in entry.text for w in written)]
            acknowledged = any(answer in STORED for answer in answers[event_id])
            if other != scope:
                history.foreign += [word] * found
            elif acknowledged and not found:
                history.lost.append(word)
            elif found > 1 and "unknown" not in answers[event_id]:
                history.doubled.append(word)
