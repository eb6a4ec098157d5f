"""What the Honcho tests share: a slot on the double, events, and what was sent."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime

from said import said

from memory import MemoryScope, RetrieveRequest
from memory.backends.honcho.adapter import HonchoAdapter
from memory.plugins.opening import build_slot

ADA = MemoryScope(run_id="r", persona_id="ada")
BOB = MemoryScope(run_id="r", persona_id="bob")
FACT = "I keep my passport in the blue drawer."
NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def config(double, **block):
    """A configuration for the double, in a hurry."""
    pauses = {"quiet_period_s": 0.05, "poll_s": 0.005, "retry_pause_s": 0.01}
    blocks = {"honcho": {"base_url": double.url, **pauses, **block}}
    return {"memory": {"backend": "honcho", "backends": blocks}}


@asynccontextmanager
async def slot_on(double, *scopes, data_dir=None, **block):
    """An open slot with these scopes set up; by default Ada's."""
    async with build_slot(config(double, **block), scope=ADA, data_dir=data_dir) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
        yield slot


def adapter_of(slot):
    """The adapter behind a slot."""
    adapter = slot._adapter
    assert isinstance(adapter, HonchoAdapter)
    return adapter


def event(number=1, *messages, **fields):
    """A turn of the user, or of whoever the messages say."""
    given = {"scope": ADA, **fields}
    return said(given.pop("scope"), *(messages or (FACT,)), number=number, start=NOON, **given)


async def ask(slot, query="Where is my passport?", **fields):
    """A retrieval in Ada's scope, from another session."""
    values = {"query": query, "scope": ADA, "session_id": "s2"}
    return await slot.retrieve(RetrieveRequest(**{**values, **fields}))


def sent(double, since=0):
    """Method and path below the workspace of every request, e.g. ``POST sessions``."""
    shown = []
    for request in double.requests[since:]:
        path = request.path.removeprefix("/v3/workspaces")
        shown.append(f"{request.method} {path.partition('/')[2].partition('/')[2]}".strip())
    return shown


def stored(double, workspace_id="r_xada"):
    """Every message of a workspace."""
    sessions = double.model.looked_at(workspace_id).sessions.values()
    return [message for session in sessions for message in session.messages]
