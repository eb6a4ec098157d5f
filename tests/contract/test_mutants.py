"""The kit can fail: every broken adapter is caught by the spec named for it, and the healthy one passes it."""

import re

import pytest
from mutant_runs import FakeProfile, play
from mutants import MUTANTS
from variants import plain

LOOPS = plain("asyncio", of=["asyncio", "trio"])
_BLOCKING = {f"blocks_the_loop_by_{call}" for call in ("retrieve", "setup_scope", "reset_scope", "aclose")}
_MUCH_WORK = {"quadratic", "leaks_thread", "leaky_filter"}
LONG = {"stuck_after_cancel", "leaks_while_pending", "resets_what_it_finds"} | _BLOCKING | _MUCH_WORK
"""Caught once a deadline of the kit has passed, or by much work."""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("name", "spec"),
    plain(*(MUTANTS.keys() - LONG), of=[(n, s) for n, m in MUTANTS.items() for s in m.caught_by]),
)
def test_a_mutant_is_caught_by_the_spec_named_for_it(name, spec, loop):
    mutant = MUTANTS[name]
    profile = mutant.profile or FakeProfile
    healthy, derivation_s = mutant.control
    sound = play(spec, loop, healthy, derivation_s=derivation_s)
    assert sound.outcome == "passed", sound.failure or sound.why
    found = play(spec, loop, mutant.adapter, derivation_s=mutant.derivation_s, profile=profile)
    assert found.outcome == "failed", f"{name} survives"
    failure = found.failure
    assert failure.problem
    assert not re.search("Attribute|Type|Name", failure.problem), "a mutant that cannot run shows nothing"
    assert failure.promise
    assert failure.remedies
    assert failure.anchor.endswith(spec)


def test_there_are_enough_mutants_and_each_is_another():
    assert len(MUTANTS) >= 100
    assert len({(mutant.adapter, mutant.profile) for mutant in MUTANTS.values()}) == len(MUTANTS)
