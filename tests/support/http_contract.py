"""The promises of an adapter whose server fails: every HTTP fault on every kind of call."""

import time
from collections.abc import Mapping
from typing import ClassVar

import pytest

from memory import (
    BackendTimeout,
    BackendUnavailable,
    Deadlines,
    MemoryScope,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.adapter import BackendAuthError, BackendProtocolError, BackendRateLimited, BackendRejected
from memory.plugins.config import load_config
from memory.testing import Kit, LoopbackProcess, LoopbackServer, MemoryContract
from memory.testing.contract._classes import installed_plugins
from memory.testing.contract._kit import STORED, attempt
from memory.testing.contract._spec import NotRun

RAISED = {
    **dict.fromkeys(("401", "403"), (BackendAuthError,)),
    **dict.fromkeys(("404", "409", "422"), (BackendRejected,)),
    "429": (BackendRateLimited,),
    **dict.fromkeys(("500", "503", "reset", "lost"), (BackendUnavailable,)),
    "truncated": (BackendUnavailable, BackendProtocolError),
    "unreadable": (BackendProtocolError,),
    "redirect": (BackendProtocolError, BackendRejected),
}
_AMBIGUOUS = frozenset({"500", "503", "reset", "lost", "truncated", "unreadable"})
_DEADLINE_S, _SLOW_S, _PATIENT_S = 0.3, 1.5, 25.0


class LoopbackContract(MemoryContract):
    """For an adapter whose backend has a model, a :class:`~memory.testing.LoopbackServer`.

    The model provides the kit's fixtures, and every HTTP fault meets every kind of call.

    Class attributes:
        server: the model. It runs in its own process, once for the class.
        server_arguments: its arguments, as JSON values.
        no_error: (fault, call) -> the reason why this fault is an answer, such as a 404 for "nothing stored yet".
            Calls are ``retrieve``, ``reset`` and ``readiness``.
    """

    server: ClassVar[type[LoopbackServer]]
    server_arguments: ClassVar[Mapping[str, object]] = {}
    no_error: ClassVar[Mapping[tuple[str, str], str]] = {}

    @classmethod
    def configuration(cls, url):
        """The configuration for a server at ``url``, as YAML would give it. Override it, or :meth:`make`."""
        return None

    @classmethod
    def make(cls, url, data_dir):
        """An adapter of the server at ``url``. By default the configured plugin makes it."""
        configured = cls.configuration(url)
        if configured is None:
            pytest.fail(f"{cls.__name__}: override configuration(url), or make(url, data_dir)")
        return installed_plugins().create(load_config(configured), data_dir=data_dir)

    @pytest.fixture(scope="class")
    @classmethod
    def process(cls):
        """The server, in its own process because the kit counts sockets and threads of this one."""
        with LoopbackProcess(cls.server, **cls.server_arguments) as process:
            yield process

    @pytest.fixture
    def configured(self, process):
        return self.configuration(process.url)

    @pytest.fixture
    def adapter_factory(self, process, tmp_path):
        return lambda: self.make(process.url, tmp_path)

    @pytest.fixture
    def fingerprint(self, process):
        return process.state

    @pytest.fixture
    def native_fault(self, process):
        return lambda kind: process.failing(kind, delay_s=0.5)

    @pytest.mark.parametrize("fault", RAISED)
    async def test_a_read_that_met_a_fault_never_looks_empty(self, kit, process, fault):
        """The error has its class, status and cause, and none of the sent text. The slot works again afterwards."""
        await kit.remember("secret")
        with process.failing(fault):
            _, error = await attempt(kit.ask("secret"))
        self._assert_raised(kit, fault, "retrieve", error)
        if error is not None and fault.isdecimal():
            assert error.diagnostics["status"] == int(fault), "the diagnostics hold another status"
        if isinstance(error, BackendRateLimited):
            assert error.retry_after_s == pytest.approx(0.01), "the server's retry-after is not in the error"
        await kit.assert_recalled("secret", "the slot does not work again afterwards")

    @pytest.mark.parametrize("fault", RAISED)
    async def test_a_write_that_met_a_fault_is_an_error_or_unknown(self, kit, process, fault):
        """A refusal raises. A write that may have happened is ``unknown``. Neither gets a plain receipt."""
        with process.failing(fault):
            receipt, error = await attempt(kit.write("secret"))
        if fault in _AMBIGUOUS:
            assert error is None, "raising says that it is not stored, and nobody knows that"
        else:
            assert isinstance(error, RAISED[fault]), f"a refused write must raise, and {fault} was {error!r}"
        kit.assert_explained_or_unknown(receipt, error)
        await kit.remember("blue")
        await kit.assert_recalled("blue", "the slot does not work again afterwards")

    async def test_a_lost_answer_is_not_stored_twice(self, kit, process):
        """DESIGN 5.4: no blind retry. The write happens once, whether or not a look-up can confirm it."""
        process.fault("lost", times=1)
        receipt, error = await attempt(kit.slot.record_event(kit.event(kit.fact("green"), assistant=None)))
        process.clear_faults()
        assert error is None, "raising says that it is not stored, and nobody knows that"
        explained = receipt.status in STORED or receipt.warnings
        assert explained, f"a write without an answer was {receipt.status}, and does not say why"
        await kit.until_ready()
        assert len(await kit.entries("green")) <= 1, "the event was sent again, and stored twice"

    @pytest.mark.parametrize("before", [0, 1])
    @pytest.mark.parametrize("fault", ["422", "lost"])
    async def test_a_bulk_write_that_met_a_fault_says_what_it_stored(self, kit, process, fault, before):
        """The receipts in the error are true. Writing the other events completes the bulk, each event once."""
        bulk = _needs(kit, SupportsBulkIngest)
        await kit.remember("blue")
        names = [f"bulk{number}" for number in range(3)]
        events = [kit.event(kit.fact(name), assistant=None) for name in names]
        if before:
            process.fault("late", times=before, delay_s=0)
        process.fault(fault, times=1)
        receipts, error = await attempt(bulk.record_events(events))
        process.clear_faults()
        if error is not None:
            self._assert_raised(kit, fault, "record_events", error)
            receipts = error.receipts
        stored = [receipt.event_id for receipt in receipts]
        first = [event.event_id for event in events[: len(stored)]]
        assert stored == first, "the receipts are not of the first events, in order"
        await kit.until_ready()
        for name in names[: len(stored)]:
            await kit.assert_recalled(name, f"{name} has a receipt and is not recalled as declared")
        if len(stored) < len(events):
            await bulk.record_events(events[len(stored) :])
            await kit.until_ready()
        for name in names:
            shown = len(await kit.entries(name))
            assert shown >= 1 or not kit.recalls_writes, f"{name} is not stored, though all was written again"
            assert shown <= 1 or fault == "lost", "an event refused, or with a receipt, was stored twice"

    @pytest.mark.parametrize("fault", RAISED)
    async def test_a_reset_that_met_a_fault_is_not_verified(self, kit, process, fault):
        """The reset raises or is not verified. It succeeds once the server is back."""
        await kit.remember("blue")
        with process.failing(fault):
            receipt, error = await attempt(kit.slot.reset_scope(kit.scope))
        if error is None and not receipt.verified:
            kit.assert_no_leak(receipt.model_dump_json())
        else:
            self._assert_raised(kit, fault, "reset", error)
        await kit.reset()
        assert not await kit.recalls("blue"), "what was reset is still recalled"

    @pytest.mark.parametrize("fault", RAISED)
    async def test_readiness_that_met_a_fault_is_not_ready(self, kit, process, fault):
        """Readiness raises or is not ``ready``, unless the adapter knows without the server."""
        readiness = _needs(kit, SupportsReadiness)
        before = len(process.requests())
        with process.failing(fault):
            answer, error = await attempt(readiness.readiness(kit.scope))
        if error is not None:
            kit.assert_explained(error)
            return
        kit.assert_no_leak(answer.model_dump_json())
        if len(process.requests()) > before and (fault, "readiness") not in self.no_error:
            assert answer.state != "ready", f"{fault}, and still ready"

    @pytest.mark.parametrize("fault", RAISED)
    async def test_health_tells_of_every_fault(self, kit, process, fault):
        """Health is never ``ok``, always has a warning, and never raises."""
        with process.failing(fault):
            health = await kit.slot.health()
        assert health.status != "ok", f"{fault}, and still ok"
        assert health.warnings, "health does not say what is wrong"
        kit.assert_no_leak(health.model_dump_json())

    @pytest.mark.parametrize("call", ["retrieve", "record_event", "health", "reset_scope"])
    async def test_no_call_hangs_past_its_deadline(self, kit, process, call):
        """DESIGN 5.3: the deadline ends every call to a slow server."""
        await kit.remember("blue")
        limits = dict.fromkeys(Deadlines.model_fields, _DEADLINE_S) | {"setup_s": _PATIENT_S}
        slot = kit.make_slot(deadlines=Deadlines(**limits), trace_sink=kit.traces)
        await slot.setup_scope(kit.scope)
        calls = {
            "retrieve": lambda: slot.retrieve(kit.question("blue")),
            "record_event": lambda: slot.record_event(kit.event(kit.fact("green"))),
            "health": slot.health,
            "reset_scope": lambda: slot.reset_scope(kit.scope),
        }
        with process.failing("late", delay_s=_SLOW_S):
            for _ in range(5):  # a busy machine does not slow them all
                began = time.monotonic()
                answer, error = await attempt(calls[call]())
                if (took := time.monotonic() - began) < _SLOW_S:
                    break
        assert took < _SLOW_S, "the call waited for the server"
        if error is not None:
            assert isinstance(error, BackendTimeout), f"past its deadline it raised {type(error).__name__}"
        else:
            assert call in ("record_event", "health"), f"{call} must raise"
            assert answer.status in ("unknown", "unavailable"), f"past its deadline it was {answer.status}"

    async def test_nobody_listens(self, process, tmp_path):
        """A server that is down gives an error at once, and health says so."""
        with LoopbackProcess(self.server, **self.server_arguments) as gone:
            url = gone.url
        kit, scope = Kit(self.make(url, tmp_path)), MemoryScope(run_id="nobody", persona_id="listens")
        try:
            began = time.monotonic()
            health = await kit.slot.health()
            assert health.status == "unavailable", f"where nobody listens, health is {health.status}"
            assert health.warnings, "health does not say what is wrong"
            _, error = await attempt(kit.slot.setup_scope(scope))
            if error is None:  # the first write makes the scopes
                _, error = await attempt(kit.slot.retrieve(kit.request("Who is there?", scope=scope)))
            assert isinstance(error, BackendUnavailable), f"{error!r}, where nobody listens"
            assert not error.sent, "where nobody listens nothing was sent"
            assert time.monotonic() - began < _PATIENT_S, "where nobody listens it takes too long to say so"
        finally:
            await kit.slot.aclose()

    def _assert_raised(self, kit, fault, call, error):
        if error is None:
            assert (fault, call) in self.no_error, f"{call} answered as if nothing had happened"
            return
        assert isinstance(error, RAISED[fault]), f"{fault} raised {type(error).__name__}"
        kit.assert_explained(error)


def _needs(kit, capability):
    try:
        return kit.needs(capability)
    except NotRun as left:
        pytest.skip(str(left))
