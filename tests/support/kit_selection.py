"""Which of the kit's specs ``make test`` plays on a backend whose doubles are slow; ``make test-all`` plays all."""

from memory.testing.contract._spec import specs

ITS_OWN = ("recording", "isolation", "failures")
"""A backend's own areas. The others are mostly the slot's doing; mem0 and the fake backend show them."""

DEAR = ("lookalike_scopes_never_meet", "concurrent_scopes_never_cross", "a_reset_spares_what_is_named_alike")
"""They open dozens of scopes. The encoder's own tests show them, and the kit on mem0 and the fake backend."""

OF_THE_SLOT = tuple(
    f"test_{name}" for name, spec in specs().items() if spec.area not in ITS_OWN or name in DEAR
)

OF_THE_CLIENT = (
    "test_a_read_that_met_a_fault_never_looks_empty",
    "test_a_write_that_met_a_fault_is_an_error_or_unknown",
    "test_a_bulk_write_that_met_a_fault_says_what_it_stored",
    "test_a_reset_that_met_a_fault_is_not_verified",
    "test_readiness_that_met_a_fault_is_not_ready",
)
"""Every fault of HTTP. Three backends share one client; ``make test`` shows its faults on MemOS."""
