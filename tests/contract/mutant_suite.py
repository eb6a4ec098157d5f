"""One contract class per mutant, and one for the healthy adapter; run by test_mutants.py, not by itself."""

from __future__ import annotations

from fake_contract import FakeContract
from mutants import MUTANTS

from memory.testing import FakeBackend


def _suite(name: str, adapter: type[FakeBackend], derivation_s: float) -> None:
    fields = {
        "anyio_backends": ("asyncio",),
        "adapter_type": adapter,
        "derivation_s": derivation_s,
        "ready_timeout_s": 10.0,
        "__module__": __name__,
    }
    globals()[name] = type(name, (FakeContract,), fields)


for _name, _mutant in MUTANTS.items():
    _suite(f"Test_{_name}", _mutant.adapter, _mutant.derivation_s)
    _suite(_mutant.control_class, *_mutant.control)
