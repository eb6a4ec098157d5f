"""A loopback server in a process of its own: the kit counts this process's threads, sockets and files.

process = LoopbackProcess(NotesDouble, auth=True)
...
with process.failing("500"):
    ...
process.close()
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from memory.testing._faults import FaultKind
from memory.testing._loopback import LoopbackServer


class LoopbackProcess:
    """Starts ``server(**arguments)`` elsewhere; ends with :meth:`close`, or with this process.

    Args:
        server: a class at the top level of its module; modules beside it can be imported there too.
        arguments: for it; JSON-ready.

    Attributes:
        url: where it listens.
    """

    def __init__(self, server: type[LoopbackServer], **arguments: Any) -> None:
        order = {"file": inspect.getfile(server), "name": server.__qualname__, "arguments": arguments}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.close()
            raise RuntimeError(f"{server.__name__} did not start; its message is on stderr")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fault(self, kind: FaultKind, **how: Any) -> None:
        """Order a fault, as :meth:`memory.testing._faults.Faults.add` does."""
        self._call("fault", {"kind": kind, **how})

    def clear_faults(self) -> None:
        """No more faults."""
        self._call("clear", {})

    @contextmanager
    def failing(self, kind: FaultKind, **how: Any) -> Iterator[None]:
        """Meanwhile every request meets this fault."""
        self.fault(kind, **{"times": None, **how})
        try:
            yield
        finally:
            self.clear_faults()

    def state(self) -> Any:
        """What the server holds: its :meth:`~memory.testing._loopback.LoopbackServer.state`."""
        return self._call("state", {})

    def requests(self) -> list[dict[str, Any]]:
        """Every request so far: ``method``, ``path``, ``params``, ``json``."""
        seen: list[dict[str, Any]] = self._call("requests", {})
        return seen

    def set(self, **attributes: Any) -> None:
        """Set attributes of the server."""
        self._call("set", attributes)

    def close(self) -> None:
        """End the process by closing its input. Idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _call(self, what: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url}/_loopback/{what}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)


def _main(order: dict[str, Any]) -> None:
    file = Path(order["file"])
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    with getattr(module, order["name"])(**order["arguments"]) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
