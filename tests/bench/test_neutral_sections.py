"""In a run no section tells which provider made it, and none has less room because of its provider's name."""

import json

import pytest
from bench_support import config_of, registry_with

from memory import ContextBudget, MemoryEvent, MemoryScope, Message, RetrieveRequest
from memory.adapter import section_overhead
from memory.bench import run_benchmark
from memory.slot.slot import MemorySlot
from memory.testing._fake_backend import FakeBackend

HEADER = '<memory-context backend="memory" scope="current">'


def header(section):
    return section.splitlines()[0]


@pytest.mark.parametrize("provider", ["fake", "full_history", "oracle_ipas"])
async def test_every_provider_s_section_begins_alike_in_a_run(tmp_path, provider):
    config = config_of(provider, run={"users": 1, "sessions": 8, "keep_texts": True, "output": str(tmp_path)})
    outcome = await run_benchmark(config, registry=registry_with())
    shown = [row["context"] for row in rows(outcome, "texts.jsonl") if row["context"]]
    assert shown
    assert {header(section) for section in shown} == {HEADER}
    tokens = [row["tokens"] for row in rows(outcome, "results.jsonl")]
    assert max(tokens) == max(map(counted, shown)), "tokens are those of what is shown"


def rows(outcome, name):
    return [json.loads(line) for line in (outcome.directory / name).read_text(encoding="utf-8").splitlines()]


def counted(section):
    return MemorySlot(FakeBackend()).token_counter.count(section)


class Packing(FakeBackend):
    """Packs a budget itself, as conditions do; notes what room it had."""

    room = None

    async def retrieve(self, request):
        counter = MemorySlot(FakeBackend()).token_counter
        self.room = request.budget.max_tokens - section_overhead(
            self.backend_name, request.scope.label, counter
        )
        return await super().retrieve(request)


async def test_names_cost_nobody_room():
    rooms, sections = [], []
    for name, persona in (("x", "p"), ("a_provider_with_a_long_name", "a persona with a long name")):
        adapter = Packing(name=name)
        scope = MemoryScope(run_id=f"run-{name}", persona_id=persona)
        async with MemorySlot(adapter, scope=scope, neutral_sections=True) as slot:
            await slot.record_event(event(scope))
            budget = ContextBudget(max_tokens=100)
            request = RetrieveRequest(query="tea", scope=scope, session_id="s", budget=budget)
            result = await slot.retrieve(request)
            assert slot.format_context(result.model_copy(update={"formatted_context": ""})) == (
                result.formatted_context
            )
        assert result.request == request
        assert result.trace.token_count <= 100
        rooms.append(adapter.room)
        sections.append(header(result.formatted_context))
    assert sections == [HEADER, HEADER]
    assert rooms[0] == rooms[1]


async def test_outside_of_runs_a_section_says_whose_memory_it_is():
    scope = MemoryScope(run_id="r", persona_id="p")
    async with MemorySlot(FakeBackend(), scope=scope) as slot:
        await slot.record_event(event(scope))
        result = await slot.retrieve(RetrieveRequest(query="tea", scope=scope, session_id="s"))
    assert header(result.formatted_context) == '<memory-context backend="fake" scope="r:p">'


def event(scope):
    return MemoryEvent(
        event_id="e1",
        scope=scope,
        session_id="s",
        turn_id="t1",
        timestamp="2026-01-01T00:00:00Z",
        messages=(Message(role="user", content="I like oolong tea."),),
    )
