"""The specs as a pytest class to subclass, with fixtures for aids that only a memory's author has."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memory import MemoryAdapter
from memory.adapter import PluginInfo
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing.contract._declared import (
    Aids,
    ConformanceProfile,
    Declarations,
    FaultInjector,
    Fingerprint,
)
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import NotRun, PromiseBroken, Spec, failure_of, specs

_Profile = ConformanceProfile | None


class MemoryContract(Declarations):
    """All promises. Subclass it, and set ``config`` or the fixture ``adapter_factory``.

    Class attributes: ``config``, ``profile``, ``anyio_backends``, and the declarations of
    :class:`~memory.testing.ConformanceProfile`.

    Fixtures to override: ``adapter_factory``, ``fingerprint``, ``native_fault``, ``described``.
    Without ``fingerprint`` the kit compares retrieved rows alone. Without ``native_fault`` it reaches no level.
    """

    pytestmark = pytest.mark.anyio

    config: ClassVar[Mapping[str, object] | None] = None
    """A configuration as YAML would give it. This is the simplest way to name the provider."""

    profile: ClassVar[type[ConformanceProfile] | None] = None
    """A class with the declarations and aids, instead of attributes and fixtures here. The default is the class
    that the configured plugin's hook ``memslot_conformance`` names."""

    anyio_backends: ClassVar[tuple[str, ...]] = ("asyncio", "trio")
    """The event loops to run on. Use ``("asyncio",)`` if the SDK knows no other."""

    @pytest.fixture
    def configured(self) -> Mapping[str, object] | None:
        """The configuration. Override it if a part is known only at run time, such as a port."""
        return self.config

    @pytest.fixture
    def described(self, configured: Mapping[str, object] | None) -> PluginInfo | None:
        """The plugin's description. Override it if no configuration names the plugin."""
        return None if configured is None else installed_plugins().selected(load_config(configured))

    @pytest.fixture
    def adapter_factory(
        self, configured: Mapping[str, object] | None, tmp_path: Path
    ) -> Callable[[], MemoryAdapter]:
        """Makes adapters of one native system, new for each test. Override it, or set ``config``."""
        if configured is None:
            pytest.fail(f"{type(self).__name__}: set config, or override the adapter_factory fixture")
        settings = load_config(configured)
        return lambda: installed_plugins().create(settings, data_dir=tmp_path)

    @pytest.fixture
    def profiled(self, configured: Mapping[str, object] | None, tmp_path: Path) -> _Profile:
        found = self.profile
        if found is None and configured is not None:
            settings = load_config(configured)
            found = installed_plugins().conformance(installed_plugins().selected(settings).name)
        return None if found is None else found(tmp_path)

    @pytest.fixture
    def fingerprint(self, adapter: MemoryAdapter, profiled: _Profile) -> Fingerprint | None:
        """Override to return a function, sync or async, that gives the native state as a comparable value."""
        return profiled.aids(adapter).fingerprint if profiled else None

    @pytest.fixture
    def native_fault(self, adapter: MemoryAdapter, profiled: _Profile) -> FaultInjector | None:
        """Override to return a function of ``"500"`` or ``"late"`` that returns a context manager.

        While it is open, native calls fail with an error that repeats the request (``"500"``), or take half a
        second longer (``"late"``).
        """
        return profiled.aids(adapter).native_fault if profiled else None

    @pytest.fixture
    def adapter(self, adapter_factory: Callable[[], MemoryAdapter]) -> MemoryAdapter:
        return adapter_factory()

    @pytest.fixture
    def fault(self, native_fault: FaultInjector | None) -> FaultInjector:
        """The provider's faults, for its own tests. The test is skipped if the provider has none."""
        if native_fault is None:
            pytest.skip("not tested: native_fault: without it nothing can be made to fail")
        return native_fault

    @pytest.fixture
    async def kit(
        self,
        adapter: MemoryAdapter,
        adapter_factory: Callable[[], MemoryAdapter],
        fingerprint: Fingerprint | None,
        native_fault: FaultInjector | None,
        described: PluginInfo | None,
        profiled: _Profile,
        anyio_backend_name: str,
    ) -> AsyncIterator[Kit]:
        """The kit, with the slot under test and one scope set up."""
        aids = Aids(adapter_factory, fingerprint, native_fault, described)
        kit = Kit(adapter, declared=profiled or self, aids=aids, loop=anyio_backend_name)
        async with kit.slot:
            yield kit
            await kit.close(clean_up=kit.declared.clean_up)

    @pytest.fixture
    def anyio_backend(self, request: pytest.FixtureRequest) -> str:
        return installed_loop(request.param)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test on each event loop of ``anyio_backends``."""
        if "anyio_backend" in metafunc.fixturenames:
            metafunc.parametrize("anyio_backend", self.anyio_backends, indirect=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, standard in _standard_tests(cls).items():
            test = getattr(cls, name)
            marks = getattr(test, "pytestmark", ()) if inspect.isfunction(test) else ()
            excused = any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)
            if test is not standard and not excused:
                raise TypeError(
                    f"{cls.__name__}.{name} replaces a standard test; a standard test may only be overridden "
                    'by one marked @pytest.mark.xfail(reason="...")'
                )


installed_plugins = cache(MemoryAdapterRegistry)


def _standard_tests(cls: type) -> dict[str, Any]:
    return {
        name: value
        for owner in cls.__mro__
        if owner.__module__ == __name__
        for name, value in vars(owner).items()
        if name.startswith("test_")
    }


def installed_loop(name: str) -> str:
    if find_spec(name) is None and name != "asyncio":
        pytest.fail(f'{name} is not installed: pip install {name}, or set anyio_backends = ("asyncio",)')
    return name


def test_of(spec: Spec) -> Any:
    async def test(self: MemoryContract, kit: Kit) -> None:
        try:
            await spec.check(kit)
        except NotRun as left:
            pytest.skip(str(left))
        except (AssertionError, BaseExceptionGroup) as error:
            broken = failure_of(spec, error, kit.traces.all)
        else:
            return
        raise PromiseBroken(str(broken))

    test.__name__ = test.__qualname__ = f"test_{spec.name}"
    test.__doc__ = spec.check.__doc__
    return test


for _spec in specs().values():
    setattr(MemoryContract, f"test_{_spec.name}", test_of(_spec))
