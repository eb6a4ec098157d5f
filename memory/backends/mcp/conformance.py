"""Declarations of MCP servers for the conformance kit, and the faults of their tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memory.testing import FAKE_KEY, ConformanceProfile


class McpConformance(ConformanceProfile):
    """An MCP server. Fingerprints cover its directories, and its tools fail or take longer."""

    concurrent_scopes = 6  # each has a process
    limits_natively = False

    def fingerprint(self, adapter: Any) -> Any:
        files = sorted(
            path for path in adapter.directory.rglob("*") if path.is_file() and path.stat().st_size
        )
        return [(str(path), path.read_bytes()) for path in files if "health" not in path.parts]

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        native = {name: getattr(adapter.servers, name) for name in ("call", "check")}

        def before(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **values: Any) -> Any:
                if kind == "500":
                    raise ConnectionError(f"{FAKE_KEY} {values}")
                time.sleep(0.5)
                return native[name](*arguments, **values)

            return call

        for name in native:
            setattr(adapter.servers, name, before(name))
        try:
            yield
        finally:
            for name in native:
                delattr(adapter.servers, name)
