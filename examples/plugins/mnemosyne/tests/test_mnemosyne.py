"""memslot's conformance kit on this backend."""

from memory.testing import MemoryContract


class TestMnemosyne(MemoryContract):
    config = {"memory": {"backend": "mnemosyne", "backends": {"mnemosyne": {}}}}  # noqa: RUF012
