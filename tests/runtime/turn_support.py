"""Whom the tests of the runtime remember things of."""

from said import said

from memory import MemoryScope

ADA, BOB = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="bob")


def event(number, scope=ADA, session="s"):
    return said(scope, f"fact {number}", number=number, session_id=session)
