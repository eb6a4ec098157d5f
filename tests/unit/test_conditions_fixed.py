"""no_memory, static_profile and oracle_ipas: what they give, and that they learn nothing."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from conditions.rolling_summary import RollingSummaryOptions
from memory import ConfigError, ContextBudget, MemoryScope, RetrieveRequest, open_memory
from memory.doctor.runner import Doctor
from memory.plugins.config import load_config

ALICE = MemoryScope(run_id="run", persona_id="alice")
BOB = MemoryScope(run_id="run", persona_id="bob")


def config(name, options, **memory):
    return {"memory": {"condition": name, "conditions": {name: dict(options)}, **memory}}


async def ask(slot, scope=ALICE, **fields):
    await slot.setup_scope(scope)
    return await slot.retrieve(
        RetrieveRequest(query="How shall I answer?", scope=scope, session_id="s", **fields)
    )


async def say_oolong(slot, when, scope=ALICE):
    await slot.setup_scope(scope)
    await slot.after_turn(
        session_id="s1", user="I like oolong.", scope=scope, timestamp=datetime.fromisoformat(when)
    )


FIXED = {
    "no_memory": {},
    "static_profile": {"profile": "Nobody in particular."},
    "oracle_ipas": {"matrix": {"alice": {"work": {"tone": "dry"}}}},
}


@pytest.mark.parametrize("name", FIXED)
async def test_nothing_that_is_written_is_kept(name):
    async with open_memory(config(name, FIXED[name]), scope=ALICE) as slot:
        before = await ask(slot)
        receipt = await slot.after_turn(session_id="s1", user="I like oolong.")
        after = await ask(slot)
        reset = await slot.reset_scope(ALICE)
        health = await slot.health()
    assert receipt.status == "committed"
    assert receipt.trace.native_operation == "none"
    assert receipt.trace.condition_kind == "control"
    assert after.formatted_context == before.formatted_context
    assert "oolong" not in json.dumps(after.raw)
    assert reset.verified
    assert reset.removed == 0
    assert health.status == "ok"
    assert not slot.traits.recalls_writes


async def test_no_memory_is_empty_and_says_so():
    async with open_memory(config("no_memory", {}), scope=ALICE) as slot:
        result = await ask(slot)
    assert result.formatted_context == ""
    assert result.entries == ()
    assert result.raw == {"anonymised": True}


async def test_no_memory_named_gives_the_name_and_nothing_else():
    options = {"variant": "named", "names": {"alice": "Alice Brandt"}}
    async with open_memory(config("no_memory", options), scope=ALICE) as slot:
        known, unknown = await ask(slot), await ask(slot, BOB)
    assert known.formatted_context.splitlines()[1:-1] == ["You are talking to Alice Brandt."]
    assert unknown.formatted_context.splitlines()[1:-1] == ["You are talking to bob."]
    assert known.raw == {"anonymised": False}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_memory", {"variant": "secret"}, "no_memory.variant"),
        ("no_memory", {"names": {"alice": " "}}, "no_memory.names.alice"),
        ("static_profile", {}, "static_profile: has no text; give profile or profiles"),
        ("static_profile", {"profiles": {"alice": ""}}, "static_profile.profiles.alice"),
        ("oracle_ipas", {}, "oracle_ipas.matrix"),
        ("oracle_ipas", {"matrix": {"alice": {"work": {"tone": []}}}}, "oracle_ipas.matrix.alice.work.tone"),
        (
            "oracle_ipas",
            {"matrix": {"alice": {"work": {"tone": [{"value": 1, "from": "2026-01-01T10:00:00"}]}}}},
            "timezone",
        ),
        (
            "oracle_ipas",
            {"matrix": {"a": {"w": {"t": [{"value": 1, "from": "2026-01-02", "until": "2026-01-02"}]}}}},
            "until is not after from",
        ),
        ("oracle_ipas", {"matrix": {}, "matrx": {}}, "did you mean matrix?"),
    ],
)
async def test_wrong_options_name_the_field(name, options, message):
    with pytest.raises(ConfigError) as caught:
        async with open_memory(config(name, options), scope=ALICE):
            pass
    assert message in str(caught.value)


async def test_profile_of_the_persona_or_the_default_or_a_warning():
    profiles = {"alice": "Alice sails."}
    with_default = config("static_profile", {"profile": "A person.", "profiles": profiles})
    async with open_memory(with_default, scope=ALICE) as slot:
        assert (await ask(slot)).entries[0].text == "Alice sails."
        assert (await ask(slot, BOB)).entries[0].text == "A person."
    async with open_memory(config("static_profile", {"profiles": profiles}), scope=ALICE) as slot:
        nobody = await ask(slot, BOB)
    assert nobody.formatted_context == ""
    assert nobody.raw["profile"] is None
    assert any("no profile" in warning for warning in nobody.trace.warnings)


async def test_a_small_budget_cuts_the_profile_at_a_line():
    text = "First things first.\n\n" + "\n".join(f"Line {number} of the rest." for number in range(50))
    async with open_memory(config("static_profile", {"profile": text}), scope=ALICE) as slot:
        whole = await ask(slot)
        small = await ask(slot, budget=ContextBudget(max_tokens=60))
        tiny = await ask(slot, budget=ContextBudget(max_tokens=2))
        single = await ask(slot, budget=ContextBudget(max_items=1))
    assert len(whole.entries) == 2
    assert whole.raw["lines_left_out"] == 0
    shown = small.formatted_context.splitlines()[1:-1]
    assert shown == [line for line in text.splitlines() if line][: len(shown)]
    assert len(shown) > 2
    assert 60 - 8 < small.trace.token_count <= 60
    assert small.raw["lines_left_out"] == 51 - len(shown)
    assert small.trace.warnings == (f"the budget leaves out {51 - len(shown)} lines of the profile",)
    assert tiny.formatted_context == ""
    assert [entry.text for entry in single.entries] == ["First things first."]


MATRIX = {
    "alice": {
        "work": {
            "verbosity": "brief",
            "confirmation": [
                {"value": "confirm every step"},
                {"value": "just act", "from": "2026-03-01T09:00:00+01:00"},
                {"value": "ask about money", "from": "2026-05-01", "until": "2026-06-01"},
            ],
        },
        "personal": {"verbosity": "detailed", "emoji": True},
    }
}


def cells(result):
    return [(entry.group, entry.text) for entry in result.context_entries]


async def test_all_cells_grouped_by_context():
    async with open_memory(config("oracle_ipas", {"matrix": MATRIX}), scope=ALICE) as slot:
        result = await ask(slot)
        few = await ask(slot, budget=ContextBudget(max_items=3))
        unknown = await ask(slot, BOB)
    assert cells(few) == cells(result)[:3]
    assert few.raw["cells_left_out"] == 1
    assert few.trace.warnings == ("max_items leaves out 1 cells",)
    assert cells(result) == [
        ("work", "verbosity: brief"),
        ("work", "confirmation: confirm every step"),
        ("personal", "verbosity: detailed"),
        ("personal", "emoji: true"),
    ]
    assert "[work]\n- verbosity: brief" in result.formatted_context
    assert unknown.entries == ()
    assert unknown.trace.warnings == ("the matrix does not know this persona; add it",)


async def test_context_and_attribute_filter():
    async with open_memory(config("oracle_ipas", {"matrix": MATRIX}), scope=ALICE) as slot:
        work = await ask(slot, context="work")
        cell = await ask(slot, context="personal", attribute="verbosity")
        across = await ask(slot, context="work", attribute="verbosity", filters={"cross_context": True})
        nothing = await ask(slot, context="holiday")
    assert {group for group, _ in cells(work)} == {"work"}
    assert cells(cell) == [("personal", "verbosity: detailed")]
    assert len(across.entries) == 4
    assert nothing.entries == ()
    assert work.trace.cs_filtering == "hard"


@pytest.mark.parametrize(
    ("now", "value"),
    [
        ("2026-01-01T00:00:00+00:00", "confirm every step"),
        ("2026-03-01T07:59:59+00:00", "confirm every step"),
        ("2026-03-01T08:00:00+00:00", "just act"),
        ("2026-04-30T23:59:59+00:00", "just act"),
        ("2026-05-01T00:00:00+00:00", "ask about money"),
        ("2026-06-01T00:00:00+00:00", "just act"),
    ],
)
async def test_the_truth_of_the_moment(now, value):
    async with open_memory(config("oracle_ipas", {"matrix": MATRIX}), scope=ALICE) as slot:
        await say_oolong(slot, now)
        result = await ask(slot, attribute="confirmation")
    assert cells(result) == [("work", f"confirmation: {value}")]
    assert datetime.fromisoformat(result.raw["as_of"]) == datetime.fromisoformat(now)


async def test_the_clock_is_the_newest_event_of_the_scope():
    late, early = "2026-05-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00"
    other_run = MemoryScope(run_id="other", persona_id="alice")
    async with open_memory(config("oracle_ipas", {"matrix": MATRIX}), scope=ALICE) as slot:
        await say_oolong(slot, late)
        await say_oolong(slot, early)
        await say_oolong(slot, early, other_run)
        assert (await ask(slot)).raw["as_of"] == datetime(2026, 5, 2, tzinfo=UTC).isoformat()
        assert (await ask(slot, other_run)).raw["as_of"] == datetime(2026, 1, 1, tzinfo=UTC).isoformat()
        await slot.reset_scope(ALICE)
        assert (await ask(slot)).raw["as_of"] is None
        assert (await ask(slot, other_run)).raw["as_of"] is not None


CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = ("no_memory", "full_history", "rolling_summary", "static_profile", "oracle_ipas")


@pytest.mark.parametrize("name", NAMES)
async def test_every_check_passes(name, tmp_path):
    report = await Doctor(CONFIGS / f"{name}.yaml", data_dir=tmp_path).run()
    assert {check.name for check in report.checks if check.status != "passed"} == {"models"}
    assert (report.provider, report.kind) == (name, "control")


def test_the_commented_llm_block_is_valid():
    text = (CONFIGS / "rolling_summary.yaml").read_text(encoding="utf-8")
    text = text.replace("      summariser: extractive", "      # summariser: extractive")
    text = re.sub(r"# (summariser: llm|llm:|  \w+:)", r"\1", text)
    config = load_config(yaml.safe_load(text), env={"OPENAI_API_KEY": "not-a-key"})
    options = config.parse_options(RollingSummaryOptions)
    assert options.summariser == "llm"
    assert options.llm.timeout_s == 60
    assert "not-a-key" not in str(config.redacted(options))
