"""memslot's conformance kit on two providers that need no key."""

from importlib.util import find_spec

import pytest

from memory.testing import MemoryContract


def block(provider):
    return {"memory": {"backend": "hermes", "backends": {"hermes": {"provider": provider}}}}


class TestHolographic(MemoryContract):
    config = block("holographic")


@pytest.mark.skipif(find_spec("mnemosyne_hermes") is None, reason="needs mnemosyne-hermes")
class TestMnemosyne(MemoryContract):
    config = block("mnemosyne")
