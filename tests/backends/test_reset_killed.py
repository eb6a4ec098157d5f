"""A reset through the journal, killed at every step, on stores that are really on the disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from said import said, wanted

from memory import MemoryScope, open_memory

ADA = MemoryScope(run_id="r", persona_id="ada")
STEPS = [
    (step, moment) for step in ("begin_reset", "reset_scope", "end_reset") for moment in ("before", "after")
]


def config(backend, directory):
    options = {"path": str(directory / "store")} if backend != "mem0" else {}
    group = "backend" if backend == "mem0" else "condition"
    return {
        "memory": {
            group: backend,
            f"{group}s": {backend: options},
            "data_dir": str(directory),
            "journal": True,
            "scope": {"run_id": "r", "persona_id": "ada"},
        }
    }


async def reset_and_die(backend, directory, step, moment):
    """Write, reset, and be gone before or after a step."""
    async with open_memory(config(backend, Path(directory))) as slot:
        await slot.record_event(said(ADA, "an erased word: oolong", number=1))
        owner = slot._adapter if step == "reset_scope" else slot._delivery.journal
        carry_out = getattr(owner, step)

        async def dies(*given):
            if moment == "after":
                await carry_out(*given)
            os._exit(9)

        setattr(owner, step, dies)
        await slot.reset_scope(ADA)


CHILD = (
    "import sys, asyncio; from test_reset_killed import reset_and_die as run; asyncio.run(run(*sys.argv[1:]))"
)


# rolling_summary shows what it has summarised alone; its own tests kill its resets.
@pytest.mark.parametrize("backend", ["full_history", "mem0"])
@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=[] if each == ("reset_scope", "after") else pytest.mark.thorough)
        for each in STEPS
    ],
)
def test_no_erased_word_is_found_and_no_receipt_lies(tmp_path, backend, step, moment):
    import asyncio

    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    died = subprocess.run(
        [sys.executable, "-c", CHILD, backend, str(tmp_path), step, moment],
        env={**os.environ, "PYTHONPATH": places},
        check=False,
    )
    assert died.returncode == 9
    begun = (step, moment) != ("begin_reset", "before")

    async def look():
        async with open_memory(config(backend, tmp_path)) as slot:
            found = (await slot.retrieve(wanted("oolong", ADA))).formatted_context
            assert ("erased word" in found) is not begun
            assert len(list(slot._delivery.journal.entries())) == (0 if begun else 1)
            receipt = await slot.record_event(said(ADA, "an erased word: oolong", number=1))
            assert receipt.status in ("committed", "queued")
            assert "oolong" in (await slot.retrieve(wanted("oolong", ADA))).formatted_context

    asyncio.run(look())
