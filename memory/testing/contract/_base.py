"""The base of all contract classes: what a provider declares, the fixtures, and the rule on overriding tests."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memory import MemoryScope, NativeMutationRequest, NativeQueryRequest
from memory.adapter import ContextEntry, MemoryAdapter, PluginInfo
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing._conformance import KEY, register
from memory.testing._faults import FaultKind
from memory.testing.contract._kit import Fingerprint, Kit

NativeFault = Callable[[FaultKind], AbstractContextManager[Any]]
EVENT_FIELDS = (
    "event_id",
    "session_id",
    "turn_id",
    "agent_id",
    "scenario",
    "context",
    "attribute",
    "metadata",
)


class ContractBase:
    """Declarations and fixtures. A provider's test class sets or overrides them; see :class:`MemoryContract`."""

    pytestmark = pytest.mark.anyio

    area: ClassVar[str] = "own"
    """What the tests of a class are about; the summary counts by it."""

    config: ClassVar[Mapping[str, Any] | None] = None
    """A configuration as YAML would give it; the simplest way to name the provider."""

    anyio_backends: ClassVar[tuple[str, ...]] = ("asyncio", "trio")
    """Event loops to run on; ``("asyncio",)`` where the SDK knows no other."""

    ready_timeout_s: ClassVar[float] = 10.0
    """How long a write may take to become retrievable, in seconds."""

    event_fields: ClassVar[tuple[str, ...]] = EVENT_FIELDS
    """Fields of an event that can be found again in the raw payload or by provenance (spec section 1)."""

    without_ids: ClassVar[Mapping[str, str]] = {}
    """``native_id`` or ``event_ids`` -> why entries of this backend cannot carry it; ``native_ids`` -> what those
    of receipts are, where they are not records that can be read."""

    blocks_loop_ms: ClassVar[float] = 50.0
    """How long the event loop may stand still; more only with the reason beside it."""

    lists_in_order: ClassVar[bool] = False
    """``native_query`` lists what was written in the order of its arrival."""

    limits_natively: ClassVar[bool] = True
    """``budget.max_items`` reaches the native call, so that no more records than that come back."""

    native_query: ClassVar[tuple[str, Mapping[str, Any]] | None] = None
    """Operation and arguments of a native query that shows a scope's content; None if there is none."""

    native_mutations: ClassVar[Mapping[str, Mapping[str, Any]]] = {"delete": {}}
    """Operation -> arguments of native mutations that work on the native id of a retrieved entry."""

    concurrent_scopes: ClassVar[int] = 64
    """How many scopes are used at once."""

    clean_up: ClassVar[bool] = False
    """Reset every scope after each test: for servers that outlive it."""

    @pytest.fixture
    def configured(self) -> Mapping[str, Any] | None:
        """The configuration; override it where a part is known only when the test runs, such as a port."""
        return self.config

    @pytest.fixture
    def described(self, configured: Mapping[str, Any] | None) -> PluginInfo | None:
        """What the plugin says of itself; override it where there is no configuration to find it by."""
        if configured is None:
            return None
        return installed_plugins().selected(load_config(configured))

    @pytest.fixture
    def adapter_factory(
        self, configured: Mapping[str, Any] | None, tmp_path: Path
    ) -> Callable[[], MemoryAdapter]:
        """Makes adapters on one native system, fresh for each test. Override it, or set ``config``."""
        if configured is None:
            pytest.fail(f"{type(self).__name__}: set config, or override the adapter_factory fixture")
        settings = load_config(configured)
        return lambda: installed_plugins().create(settings, data_dir=tmp_path)

    @pytest.fixture
    def fingerprint(self, adapter: MemoryAdapter) -> Fingerprint | None:
        """Override to return a function (sync or async) that gives the native state as a comparable value."""
        return None

    @pytest.fixture
    def native_fault(self, adapter: MemoryAdapter) -> NativeFault | None:
        """Override to return a function of ``"500"`` (native calls fail, with an error that repeats what was
        sent) or ``"late"`` (they take half a second longer), which gives a context manager for as long."""
        return None

    @pytest.fixture
    def native_peak(self, adapter: MemoryAdapter) -> Callable[[], int] | None:
        """Override to return a function that tells how many native calls there were at a time, at most."""
        return None

    # -- fixtures of the kit, not to be overridden --------------------------------------------------------

    @pytest.fixture
    def adapter(self, adapter_factory: Callable[[], MemoryAdapter]) -> MemoryAdapter:
        """The adapter under test."""
        return adapter_factory()

    @pytest.fixture
    async def kit(self, adapter: MemoryAdapter, fingerprint: Fingerprint | None) -> AsyncIterator[Kit]:
        """The slot under test, with one scope set up."""
        kit = Kit(adapter, fingerprint, self.ready_timeout_s)
        async with kit.slot:
            yield kit
            await kit.close(clean_up=self.clean_up)

    @pytest.fixture
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        """The event loop of this run of the test."""
        return installed_loop(request.param)

    def native_rows(self, raw: Any) -> Sequence[Any] | None:
        """The native records in a payload: the payload itself, or its only list. Override for other shapes."""
        if isinstance(raw, list):
            return raw
        lists = [value for value in raw.values() if isinstance(value, list)] if isinstance(raw, dict) else []
        return lists[0] if len(lists) == 1 else None

    def mutations(
        self, scope: MemoryScope, entries: Iterable[ContextEntry]
    ) -> Iterator[NativeMutationRequest]:
        """Every declared mutation of every record that was retrieved, addressed to ``scope``."""
        for entry in entries:
            for operation, arguments in self.native_mutations.items():
                yield NativeMutationRequest(
                    scope=scope, operation=operation, native_id=entry.native_id, arguments=dict(arguments)
                )

    def query(self, scope: MemoryScope) -> NativeQueryRequest | None:
        """The declared native query of a scope, if there is one."""
        if self.native_query is None:
            return None
        operation, arguments = self.native_query
        return NativeQueryRequest(scope=scope, operation=operation, arguments=dict(arguments))

    @pytest.fixture(autouse=True)
    def _reported(self, request: pytest.FixtureRequest) -> None:
        """Tells the summary which promise this test is about."""
        standard = _standard_tests(request.cls)
        name = request.function.__name__
        if name in standard:
            told = f"{request.cls.__name__}|{standard[name][0].area}|{name}|{len(standard)}"
            request.node.user_properties.append((KEY, told))

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        register(metafunc.config)
        if "anyio_backend" in metafunc.fixturenames:
            metafunc.parametrize("anyio_backend", self.anyio_backends, indirect=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, (_, standard) in _standard_tests(cls).items():
            if getattr(cls, name) is not standard and not _xfails_with_reason(getattr(cls, name)):
                raise TypeError(
                    f"{cls.__name__}.{name} replaces a standard test; a standard test may only be overridden "
                    'by one marked @pytest.mark.xfail(reason="...")'
                )


@cache
def installed_plugins() -> MemoryAdapterRegistry:
    """The registry, looked up once for all tests."""
    return MemoryAdapterRegistry()


def _standard_tests(cls: type) -> dict[str, tuple[type[ContractBase], Any]]:
    """The tests that the kit itself brings to a class, each with the class it comes from."""
    if cls not in _STANDARD:
        _STANDARD[cls] = {
            name: (owner, value)
            for owner in reversed(cls.__mro__)
            if owner.__module__.startswith(__package__ or "?")
            for name, value in vars(owner).items()
            if name.startswith("test_")
        }
    return _STANDARD[cls]


_STANDARD: dict[type, dict[str, tuple[Any, Any]]] = {}


def _xfails_with_reason(test: Any) -> bool:
    marks = getattr(test, "pytestmark", ())
    return inspect.isfunction(test) and any(
        mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks
    )


def installed_loop(name: str) -> str:
    """The event loop of a name; a test fails in words where it is not installed."""
    if find_spec(name) is None and name != "asyncio":
        pytest.fail(f'{name} is not installed: pip install {name}, or set anyio_backends = ("asyncio",)')
    return name
