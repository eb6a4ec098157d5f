"""What the kit needs to know of memories that memslot ships and of strangers', for ``memslot conform --profile``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.testing import FAKE_KEY, ConformanceProfile


class Mcp(ConformanceProfile):
    """An MCP server: what lies in its directories, and tools that fail or take their time."""

    concurrent_scopes = 6  # a process each
    limits_natively = False

    def fingerprint(self, adapter: Any) -> Any:
        files = sorted(
            path for path in adapter.directory.rglob("*") if path.is_file() and path.stat().st_size
        )
        return [(str(path), path.read_bytes()) for path in files if "health" not in path.parts]

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        native = adapter.servers.call

        def call(scope: str, tool: Any, **values: Any) -> Any:
            if kind == "500":
                raise ConnectionError(f"{FAKE_KEY} {values}")
            time.sleep(0.5)
            return native(scope, tool, **values)

        adapter.servers.call = call
        try:
            yield
        finally:
            del adapter.servers.call


class NothingCanFail(ConformanceProfile):
    """Controls that show a text of their configuration."""

    cannot_fail = "a text of the configuration is all there is"


class InFiles(ConformanceProfile):
    """Controls that keep their files in the data directory."""

    def fingerprint(self, adapter: Any) -> Any:
        return {
            str(path): path.read_bytes() for path in sorted(Path(self.data_dir).rglob("*")) if path.is_file()
        }
