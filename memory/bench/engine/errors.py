"""Why a cell cannot go on, and whose fault it is."""

from __future__ import annotations

from memory.contract.errors import BackendRateLimited, BackendTimeout, BackendUnavailable, MemslotError

NO_ANSWER = (BackendUnavailable, BackendTimeout, BackendRateLimited)
"""Of a role's model: another attempt, now or when the run is taken up again, may have one."""


class Stopped(MemslotError):
    """The cell cannot go on, for the provider's sake: what it did not get to is failed."""


class HarnessFailed(MemslotError):
    """The cell cannot go on, and the provider has no part in it: what it did not get to is missing."""

    @classmethod
    def full(cls, file: str, error: OSError) -> HarnessFailed:
        """A file cannot be written."""
        return cls(f"{file} cannot be written ({error.strerror}); make room and resume")


class Interrupted(HarnessFailed):
    """The cell stops, and nothing is wrong with it: it can be taken up again."""


class CeilingReached(Interrupted):
    """The models' calls or tokens have reached their limit; the run stops, and can be resumed with a higher one."""
