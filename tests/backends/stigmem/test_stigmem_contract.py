"""memslot's conformance kit on a node with tenants and on a shared core node, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from stigmem_double import ADMIN_KEY, DoubleProcess

from memory import MemoryAdapter, MemoryAdapterRegistry, load_config
from memory.testing.contract import Fingerprint, MemoryContract, NativeFault

_REGISTRY = MemoryAdapterRegistry()


class _OnDouble(MemoryContract):
    """The node is a process of its own, because the kit counts this one's sockets and threads."""

    flags: ClassVar[Mapping[str, bool]] = {}
    native_query = ("facts", {})

    @pytest.fixture(scope="class")
    @classmethod
    def process(cls) -> Iterator[DoubleProcess]:
        process = DoubleProcess(**cls.flags)
        yield process
        process.close()

    @pytest.fixture
    def adapter_factory(self, process: DoubleProcess, tmp_path: Path) -> Callable[[], MemoryAdapter]:
        assert self.config is not None
        block = {**self.config["memory"]["backends"]["stigmem"], "url": process.url}
        settings = load_config({"memory": {**self.config["memory"], "backends": {"stigmem": block}}})
        return lambda: _REGISTRY.create(settings, data_dir=tmp_path)

    @pytest.fixture
    def fingerprint(self, process: DoubleProcess) -> Fingerprint:
        """Every fact and key on the node, read past the adapter."""
        return process.state

    @pytest.fixture
    def native_fault(self, process: DoubleProcess) -> NativeFault:
        @contextmanager
        def broken(kind: str) -> Iterator[None]:
            process.fault(kind)
            try:
                yield
            finally:
                process.fault(None)

        return broken


def _config(**block: Any) -> dict[str, Any]:
    scope = {"run_id": "test", "persona_id": "ada"}
    block = {"retry_pause_s": 0.01, **block}
    return {"memory": {"backend": "stigmem", "scope": scope, "backends": {"stigmem": block}}}


class TestTenants(_OnDouble):
    flags: ClassVar[Mapping[str, bool]] = {"auth": True, "multi_tenant": True}
    config: ClassVar[Mapping[str, Any]] = _config(api_key=ADMIN_KEY)


class TestSharedNode(_OnDouble):
    config: ClassVar[Mapping[str, Any]] = _config(isolation="node", allow_sharing=True)
