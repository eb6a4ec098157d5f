"""Events and questions for tests that care for a part of them alone."""

import itertools
from datetime import UTC, datetime, timedelta

from memory import ContextBudget, MemoryEvent, Message, RetrieveRequest

_START = datetime(2024, 1, 1, 12, tzinfo=UTC)
_COUNT = itertools.count(1)


def said(scope, *messages, number=None, start=_START, **fields):
    """An event of user messages, or of whoever says them; ids and time go by its number.

    Args:
        number: of the event; by default one more than the last.
        start: of the time that is a minute later for each number.
        fields: any of the event's, in place of what is made up here.
    """
    number = next(_COUNT) if number is None else number
    made_up = {
        "event_id": f"e{number}",
        "session_id": "s1",
        "turn_id": f"t{number}",
        "timestamp": start + timedelta(minutes=number),
        "messages": tuple(
            Message(role="user", content=message) if isinstance(message, str) else message
            for message in messages
        ),
    }
    return MemoryEvent(scope=scope, **{**made_up, **fields})


def wanted(query, scope, max_items=None, *, session_id="s2", **fields):
    """A question without a token limit, asked in another session."""
    budget = {"budget": ContextBudget(max_items=max_items)}
    return RetrieveRequest(query=query, scope=scope, session_id=session_id, **{**budget, **fields})
