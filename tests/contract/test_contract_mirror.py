"""The kit on a mirror: what its primary promises is kept, with shadows beside it that work, lag and fail."""

from collections.abc import Mapping
from typing import Any

import pytest
from fake_contract import FakeContract
from kit_selection import OF_THE_SLOT

from memory import Deadlines
from memory.adapter import PluginInfo
from memory.adapter.stores import OUTBOX, Outbox, SqliteStore
from memory.backends.mirror import memslot_describe
from memory.backends.mirror.adapter import MirrorAdapter
from memory.backends.mirror.shadow import KIND, Shadow
from memory.testing import FakeBackend, FakeNativeStore, MemoryContract


def mirror(primary, *shadows, log=None):
    """A mirror of a primary and shadows."""
    kept = []
    outbox = Outbox(SqliteStore(log and log.with_name("memslot.db"), [OUTBOX]), KIND)
    for number, adapter in enumerate(shadows, start=1):
        name = f"{adapter.backend_name}-{number}"
        kept.append(Shadow(name, adapter, outbox, log))
    return MirrorAdapter("mirror", primary, kept, 1.0, Deadlines(), outbox)


class MirrorContract(FakeContract):
    shadow_type = FakeBackend

    @pytest.fixture
    def shadow_store(self):
        return FakeNativeStore(latency_s=0.001)

    @pytest.fixture
    def described(self):
        return memslot_describe()

    @pytest.fixture
    def adapter_factory(self, store, shadow_store, tmp_path):
        log = tmp_path / "shadows.jsonl"
        return lambda: mirror(FakeBackend(store), self.shadow_type(shadow_store), log=log)


class TestMirror(MirrorContract):
    """With a shadow that does what it should."""

    thorough = OF_THE_SLOT


class Failing(FakeBackend):
    """Takes a reset, and nothing else."""

    async def _fail(self, *_):
        raise RuntimeError("this shadow is broken")

    setup_scope = record_event = retrieve = health = apply_feedback = _fail


@pytest.mark.thorough
class TestMirrorOfABrokenShadow(MirrorContract):
    """The kit asks for resets that succeed, and one that does not is never called verified."""

    anyio_backends = ("asyncio",)
    shadow_type = Failing


@pytest.mark.thorough
class TestMirrorFromConfig(MemoryContract):
    """As a configuration builds it, over providers that need no key."""

    anyio_backends = ("asyncio",)
    config: Mapping[str, Any] = {
        "memory": {
            "backend": "mirror",
            "backends": {
                "mirror": {"primary": "full_history", "shadows": ["rolling_summary", "full_history"]}
            },
        }
    }

    @pytest.fixture
    def described(self):
        """A mirror of a control is one."""
        info = memslot_describe()
        return PluginInfo(
            name=info.name, kind="control", summary=info.summary, capabilities=info.capabilities
        )
