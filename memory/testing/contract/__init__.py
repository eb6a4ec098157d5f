"""The conformance kit: what every memory provider promises, as tests to subclass.

    from memory.testing import MemoryContract

    class TestMine(MemoryContract):
        config = {"memory": {"backend": "mine", "backends": {"mine": {"path": ":memory:"}}}}

That is a whole test module. Declarations that differ from the usual are class attributes, and what only the
provider can do (show its native state, make its backend fail) are fixtures to override; both are documented on
:class:`MemoryContract`. Tests run on asyncio and trio through anyio's pytest plugin; with pytest-asyncio
installed, keep its mode ``strict``.

A standard test may be overridden only by one that is marked ``xfail`` with a reason; anything else is an error
when the class is made. At the end of a run each class gets a level and a count for every area: ``FULL`` means that
every promise was kept which the declarations do not exclude; ``PARTIAL`` that nothing failed, and something was not
tested, which the summary names. Under pytest-xdist it needs ``memory.testing.pytest_plugin`` in your conftest.
"""

from __future__ import annotations

import pkgutil

import pytest

# ruff: noqa: E402
# Before the first of them is imported, so that failing asserts show their values, with no plugin's help.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from memory.testing.contract.budget import BudgetContract
from memory.testing.contract.capabilities import CapabilityContract
from memory.testing.contract.concurrency import ConcurrencyContract
from memory.testing.contract.cs import CsContract
from memory.testing.contract.failures import FailureContract
from memory.testing.contract.isolation import IsolationContract
from memory.testing.contract.lifecycle import LifecycleContract
from memory.testing.contract.readonly import ReadOnlyContract
from memory.testing.contract.recording import RecordingContract
from memory.testing.contract.safety import SafetyContract
from memory.testing.contract.tracing import TraceContract


class MemoryContract(
    RecordingContract,
    CsContract,
    IsolationContract,
    ReadOnlyContract,
    BudgetContract,
    SafetyContract,
    FailureContract,
    ConcurrencyContract,
    LifecycleContract,
    CapabilityContract,
    TraceContract,
):
    """All promises. Subclass it, and give either ``config`` or the fixture ``adapter_factory``.

    Class attributes:
        config: a configuration, as YAML would give it.
        anyio_backends: ``("asyncio", "trio")``; leave trio out where the SDK cannot do it.
        ready_timeout_s: seconds until a write must be retrievable.
        event_fields: fields of an event that stay traceable in the raw payload or by provenance.
        without_ids: ids that entries or receipts cannot carry, each with the reason.
        blocks_loop_ms: how long the event loop may stand still.
        lists_in_order: ``native_query`` lists in the order of arrival.
        limits_natively: False where the backend has no parameter for the number of results.
        native_query: operation and arguments that show a scope's content, where declared.
        native_mutations: operations and arguments to try, where declared.
        concurrent_scopes: how many scopes are used at once.
        clean_up: True for servers that outlive the test.

    Fixtures:
        adapter_factory: a function that makes an adapter; all adapters of a test use the same native system.
        fingerprint: a function, sync or async, returning the native state as a comparable value. Without it
            only what can be retrieved is compared.
        native_fault: a function of ``"500"`` or ``"late"`` returning a context manager. Without it the
            failure tests are skipped, and the level cannot be ``FULL``.
        native_peak: a function that tells how many native calls there were at a time, at most.
        described: the plugin's description, where no ``config`` leads to it.
    """
