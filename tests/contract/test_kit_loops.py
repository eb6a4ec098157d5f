"""What the kit says where an event loop that it plays on is not installed."""

import pytest

from memory.testing.contract import _classes as _base


def test_a_loop_that_is_not_installed_is_named_with_both_ways_out(monkeypatch):
    assert _base.installed_loop("asyncio") == "asyncio"
    monkeypatch.setattr(_base, "find_spec", lambda name: None)
    assert _base.installed_loop("asyncio") == "asyncio"
    with pytest.raises(
        pytest.fail.Exception, match=r"pip install trio, or set anyio_backends = \(\"asyncio\",\)"
    ):
        _base.installed_loop("trio")
