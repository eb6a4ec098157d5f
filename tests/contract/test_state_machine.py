"""Any order of calls over look-alike scopes: memory holds what was written, and only where and when it was."""

from contextlib import ExitStack

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memory import (
    MemoryScope,
    NativeMutationRequest,
    ReadOnlyError,
    ScopeError,
    SupportsBulkIngest,
    SupportsNativeMutation,
)
from memory.adapter import BackendRejected
from memory.testing import FakeBackend, FakeNativeStore, Kit, unique_word
from memory.testing.contract._declared import Aids

SCOPES = (
    MemoryScope(run_id="a_b", persona_id="c"),
    MemoryScope(run_id="a", persona_id="b_c"),
    MemoryScope(run_id="a", persona_id="B_C"),
    MemoryScope(run_id="a", persona_id="b_c", agent_id="c"),
    MemoryScope(run_id="a", persona_id="b_c", backend_namespace="c"),
)
scopes = st.sampled_from(SCOPES)
NAMES = ("red", "green", "blue", "white")
names = st.sampled_from(NAMES)


class SlotOverNativeStore(RuleBasedStateMachine):
    """The model is a list of facts per scope; the store's own rows are compared with it after every step."""

    def __init__(self):
        super().__init__()
        self._stack = ExitStack()
        self.portal = self._stack.enter_context(start_blocking_portal())
        self.store = FakeNativeStore()
        self.kit = Kit(FakeBackend(self.store), aids=Aids(fingerprint=self.store.fingerprint))
        self.slot = self.kit.slot
        self.written: dict[MemoryScope, list[str]] = {}
        self.read_only = False

    def run(self, call, *arguments):
        return self.portal.call(call, *arguments)

    def event(self, name, scope):
        return self.kit.event(self.kit.fact(name), None, scope=scope)

    @initialize()
    def all_scopes_but_one(self):
        for scope in SCOPES[:-1]:
            self.setup_scope(scope)

    @rule(scope=scopes)
    def setup_scope(self, scope):
        if self.read_only and scope not in self.written:
            with pytest.raises(ReadOnlyError):
                self.run(self.slot.setup_scope, scope)
            return
        self.run(self.slot.setup_scope, scope)
        self.written.setdefault(scope, [])

    @rule(scope=scopes, name=names)
    def record(self, scope, name):
        if scope not in self.written:
            with pytest.raises(ScopeError):
                self.run(self.slot.record_event, self.event(name, scope))
            return
        receipt = self.run(self.slot.record_event, self.event(name, scope))
        assert receipt.status == ("skipped_read_only" if self.read_only else "committed")
        assert len(receipt.native_ids) == (0 if self.read_only else 1)
        if not self.read_only:
            self.written[scope].append(name)

    @rule(some=st.lists(st.tuples(scopes, names), max_size=4))
    def record_in_bulk(self, some):
        bulk = self.slot.capability(SupportsBulkIngest)
        events = [self.event(name, scope) for scope, name in some if scope in self.written]
        receipts = self.run(bulk.record_events, events)
        assert [receipt.event_id for receipt in receipts] == [event.event_id for event in events]
        if not self.read_only:
            for scope, name in some:
                if scope in self.written:
                    self.written[scope].append(name)

    @rule(scope=scopes)
    def ask(self, scope):
        before = self.store.fingerprint()
        for name in NAMES:
            request = self.kit.question(name, scope=scope)
            if scope not in self.written:
                with pytest.raises(ScopeError):
                    self.run(self.slot.retrieve, request)
                continue
            result = self.run(self.slot.retrieve, request)
            assert (unique_word(name) in result.formatted_context) == (name in self.written[scope])
            found = {name for name in NAMES if unique_word(name) in str(result.raw)}
            assert found == set(self.written[scope])
        assert self.store.fingerprint() == before

    @rule(value=st.booleans())
    def set_mode(self, value):
        self.run(self.kit.read_only, value)
        self.read_only = value

    @rule(scope=scopes)
    def reset(self, scope):
        if scope not in self.written:
            with pytest.raises(ScopeError):
                self.run(self.slot.reset_scope, scope)
        elif self.read_only:
            with pytest.raises(ReadOnlyError):
                self.run(self.slot.reset_scope, scope)
        else:
            receipt = self.run(self.slot.reset_scope, scope)
            assert (receipt.verified, receipt.removed) == (True, len(self.written[scope]))
            self.written[scope] = []

    @rule()
    def close_and_open_again(self):
        self.run(self.slot.aclose)
        self.kit = Kit(FakeBackend(self.store), aids=Aids(fingerprint=self.store.fingerprint))
        self.slot, self.read_only = self.kit.slot, False
        for scope in self.written:
            self.run(self.slot.setup_scope, scope)

    @precondition(lambda self: self.store.rows)
    @rule(data=st.data(), scope=scopes)
    def delete_one(self, data, scope):
        mutate = self.slot.capability(SupportsNativeMutation)
        row = data.draw(st.sampled_from(sorted(self.store.rows.values(), key=lambda row: row.id)))
        request = NativeMutationRequest(scope=scope, operation="delete", native_id=row.id)
        owner = next(writer for writer in self.written if self.space(writer) == row.space)
        if scope == owner and not self.read_only:
            name = next(name for name in self.written[owner] if unique_word(name) in row.text)
            assert self.run(mutate.native_mutation, request).status == "committed"
            self.written[owner].remove(name)
        elif scope in self.written and self.read_only:
            assert self.run(mutate.native_mutation, request).status == "skipped_read_only"
        else:
            with pytest.raises((ScopeError, BackendRejected)):
                self.run(mutate.native_mutation, request)

    @invariant()
    def the_store_holds_exactly_what_was_written(self):
        for scope, facts in self.written.items():
            stored = self.store.texts(self.space(scope))
            assert sorted(stored) == sorted(self.kit.fact(name) for name in facts)
        assert len(self.store.rows) == sum(map(len, self.written.values()))
        assert self.slot.read_only == self.read_only

    def space(self, scope):
        return self.slot.native_scope(scope)["space"]

    def teardown(self):
        self.run(self.slot.aclose)
        self._stack.close()
        assert self.store.clients == 0


SlotOverNativeStore.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestSlotOverNativeStore = SlotOverNativeStore.TestCase
