"""Why a cell cannot go on, and whose fault it is."""

from __future__ import annotations

from memory.contract.errors import MemslotError


class Stopped(MemslotError):
    """The cell cannot go on, for the provider's sake: what it did not get to is failed."""


class HarnessFailed(MemslotError):
    """The cell cannot go on, and the provider has no part in it: what it did not get to is missing."""

    @classmethod
    def full(cls, file: str, error: OSError) -> HarnessFailed:
        """A file cannot be written."""
        return cls(f"{file} cannot be written ({error.strerror}); make room and resume")


class CeilingReached(HarnessFailed):
    """The models' calls or tokens have reached their limit; the run stops, and can be resumed with a higher one."""
