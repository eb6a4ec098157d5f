"""What a recipient weighs of an envelope, and the agent of the examples that does it."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.stigmem.client import StigmemNode
from memory.stigmem.intent_client import IntentClient
from memory.stigmem.intents import Estimate, IntentEnvelope, broken_constraints, ranked_options

BUYER = "stigmem://node/agent/buyer"
LEGAL = "stigmem://node/agent/legal"
BOSS = "stigmem://node/agent/boss"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "stigmem_agent.py"


def envelope(**fields):
    whole = {"from": BOSS, "to": [BUYER], "goal": "buy a lamp", "escalation": {"escalate_to": BOSS}}
    return IntentEnvelope(**{**whole, **fields})


def limit(kind, v, type="number", unit=None):
    return {"kind": kind, "limit": {"type": type, "v": v}, "unit": unit}


@pytest.mark.parametrize(
    ("constraint", "planned", "problem"),
    [
        (limit("max_calls", 3), 3, ""),
        (limit("max_calls", 3), 4, "max_calls: 4 is not within 3"),
        (limit("max_calls", 3), None, "max_calls: nothing is known of it"),
        (limit("max_calls", 3), "three", "max_calls: 'three' cannot be compared"),
        (
            limit("budget", 20, unit="EUR"),
            Estimate(12.5, "USD"),
            "budget: is limited in EUR, and planned in USD",
        ),
        (
            limit("deadline", "2026-05-01T12:00:00+02:00", "datetime"),
            datetime(2026, 5, 1, 11, tzinfo=UTC),
            "deadline: 2026-05-01 11:00:00+00:00 is not within",
        ),
        (limit("deadline", "2026-05-01T12:00:00+02:00", "text"), "2026-05-01T09:59:00Z", ""),
        (
            limit("deadline", "tomorrow", "text"),
            datetime(2026, 5, 1, tzinfo=UTC),
            "deadline: nothing is known",
        ),
        (limit("offline", True, "boolean"), True, ""),
        (limit("offline", True, "boolean"), False, "offline: False is not within True"),
    ],
)
def test_a_constraint_is_kept_or_said(constraint, planned, problem):
    found = broken_constraints(envelope(constraint=[constraint]), {constraint["kind"]: planned})
    assert bool(found) == bool(problem)
    assert not problem or found[0].startswith(problem)


def preference(kind, v, weight, type="string"):
    return {"kind": kind, "value": {"type": type, "v": v}, "weight": weight}


CHEAP, FAST = preference("cost", "minimize", 0.9), preference("days", "minimize", 0.3)


@pytest.mark.parametrize(
    ("preferences", "ranked"),
    [
        ([CHEAP, FAST], [("slow", 0.75), ("fast", 0.25), ("middle", 0.575)]),
        ([FAST], [("fast", 1.0), ("slow", 0.0), ("middle", 0.5)]),
        ([preference("cost", "maximize", 0.5)], [("fast", 1.0), ("middle", 0.4), ("slow", 0.0)]),
        ([preference("carrier", "bike", 1.0)], [("middle", 1.0), ("fast", 0.0), ("slow", 0.0)]),
        ([preference("colour", "red", 1.0)], [("fast", 0.0), ("middle", 0.0), ("slow", 0.0)]),
        ([preference("cost", "minimize", 0.0)], [("fast", 0.0), ("middle", 0.0), ("slow", 0.0)]),
        ([], [("fast", 0.0), ("middle", 0.0), ("slow", 0.0)]),
    ],
)
def test_options_are_ranked_by_weighted_preferences(preferences, ranked):
    options = {
        "fast": {"cost": 20.0, "days": 1},
        "middle": {"cost": 14.0, "days": 3, "carrier": "bike"},
        "slow": {"cost": 10.0, "days": 5},
    }
    found = ranked_options(envelope(preference=preferences), options)
    wanted = sorted(ranked, key=lambda item: -item[1])
    assert [name for name, _ in found] == [name for name, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted])


@pytest.mark.parametrize("value", [None, float("nan"), "cheap", True])
def test_what_cannot_be_judged_meets_no_preference(value):
    options = {"odd": {"cost": value}, "plain": {"cost": 5}, "silent": {}}
    scores = dict(ranked_options(envelope(preference=[CHEAP]), options))
    assert scores == {"plain": 1.0, "odd": 0.0, "silent": 0.0}


@pytest.fixture
async def intents(double):
    async with StigmemNode(double.url, retry_pause_s=0.01) as node:
        yield IntentClient(node)


def run_example(double, *offers):
    environ = {**os.environ, "STIGMEM_URL": double.url, "STIGMEM_SOURCE_ENTITY": "agent:buyer"}
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), *offers], env=environ, capture_output=True, text=True, check=True
    )
    return ran.stdout


@pytest.mark.thorough
async def test_the_agent_of_the_examples_acts_or_escalates(double, intents):
    authority = double.url.removeprefix("http://")
    budget = [limit("budget", 20, unit="EUR")]
    legal = {"condition": "cost > 10", "defer_to": LEGAL, "timeout_s": 0}
    to = [f"stigmem://{authority}/agent/buyer"]
    sent = envelope(to=to, constraint=budget, deference=[legal], preference=[FAST])
    await intents.submit(sent)
    asked = f"; {LEGAL} was not asked\n"
    assert run_example(double, "9.50") == f"done: buy a lamp: bought at 9.50 EUR{asked}"
    assert run_example(double, "8/5", "9/1", "25/0") == f"done: buy a lamp: bought at 9.00 EUR{asked}"
    assert run_example(double, "30") == "escalated: buy a lamp: budget: 30.0 is not within 20\n"
    values = {
        row["relation"]: row["value"]["v"] for row in double.node.facts if row["source"] == "agent:buyer"
    }
    assert values["intent:escalate_to"] == BOSS
    assert "intent:deference_timeout" in values
