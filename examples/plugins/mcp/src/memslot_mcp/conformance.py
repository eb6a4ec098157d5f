"""What memslot's conformance kit needs of this plugin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memory.testing import ConformanceProfile


class Profile(ConformanceProfile):
    concurrent_scopes = 6  # each has a process

    def fingerprint(self, adapter: Any) -> dict[str, bytes]:
        """Every file that a server has written."""
        files = [path for path in adapter.directory.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in sorted(files)}

    @contextmanager
    def native_fault(self, adapter: Any, kind: str) -> Iterator[None]:
        """The calls of tools fail, or answer late."""
        sessions = adapter.sessions
        native = {name: getattr(sessions, name) for name in ("call", "tools")}

        def faulty(name: str) -> Any:
            def ask(*arguments: Any) -> Any:
                if kind != "late":
                    raise ConnectionError(f"no answer to {arguments}")
                time.sleep(0.5)
                return native[name](*arguments)

            return ask

        vars(sessions).update({name: faulty(name) for name in native})
        try:
            yield
        finally:
            for name in native:
                delattr(sessions, name)
