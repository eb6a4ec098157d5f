"""The kit on the reference adapter, immediate and derived, and with no more help than a config would give."""

import pytest
from fake_contract import FakeContract


class TestFakeBackend(FakeContract):
    async def test_faults_and_races_really_happened(self, kit, store):
        """A run without them would prove nothing."""
        store.faults.add("500")
        with pytest.raises(Exception, match="HTTP 500"):
            await kit.ask("blue")
        assert store.faults.fired
        assert store.latency_s > 0


@pytest.mark.thorough
class TestFakeDerived(FakeContract):
    """What is written can be found only after a while."""

    derivation_s = 0.02


@pytest.mark.thorough
class TestFakeUnassisted(FakeContract):
    """Without a fingerprint and faults: the kit then sees only what can be retrieved."""

    anyio_backends = ("asyncio",)

    @pytest.fixture
    def fingerprint(self):
        return None

    @pytest.fixture
    def native_fault(self):
        return None
