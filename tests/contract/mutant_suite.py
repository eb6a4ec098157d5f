"""One contract class per mutant, and one for the healthy adapter; run by test_mutants.py, not by itself."""

from __future__ import annotations

from fake_contract import FakeContract
from mutants import MUTANTS


class TestHealthy(FakeContract):
    anyio_backends = ("asyncio",)


for _name, _mutant in MUTANTS.items():
    globals()[f"Test_{_name}"] = type(
        f"Test_{_name}",
        (FakeContract,),
        {
            "anyio_backends": ("asyncio",),
            "adapter_type": _mutant.adapter,
            "derivation_s": _mutant.derivation_s,
            "ready_timeout_s": 1.0,
            "__module__": __name__,
        },
    )
