"""Hosts are tested with their real packages, most in environments of their own: see the Makefile."""

import gc
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from memory.hosts.table import HOSTS

_NEEDS = {
    "with_sdks/test_langgraph_store.py": "langgraph",
    "test_hooks.py": "mcp",
    "test_claude_code.py": "mcp",
    "test_codex.py": "mcp",
    "test_mcp.py": "mcp",
    "test_mcp_served.py": "mcp",
    "test_mcp_suite.py": "mcp",
    "test_setup.py": "mcp",
}


def _missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # nor what it is in
        return True


_ABSENT = [host.module for host in HOSTS.values() if host.distribution and not host.installed]
collect_ignore_glob = [tests for tests, module in _NEEDS.items() if _missing(module)]
collect_ignore_glob += [f"with_{name}/*" for name in _ABSENT] + [
    f"with_sdks/test_{name}.py" for name in _ABSENT
]


@pytest.fixture(scope="module", autouse=True)
def _left_unclosed_is_seen_where_it_was_opened() -> Iterator[None]:
    """And not at the interpreter's end, where it fails whatever ran last."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some SDKs fetch files in the middle of a turn. Without a network they wait for a time-out."""
    look_up = socket.getaddrinfo

    def of_this_machine(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in (None, "", "localhost") and not name.startswith(("127.", "::")):
            raise socket.gaierror(socket.EAI_NONAME, "tests look up no names")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", of_this_machine)
