"""What of a cube is in question: an event may have been sent more than once, and one sending of it settled."""

from __future__ import annotations

from memory.backends.memos.ledger import Sendings, Written


def sent(event_id: str, place: str = "cube") -> Written:
    return Written(event_id, "session", place)


def test_an_event_is_among_them_until_each_of_its_sendings_is_settled() -> None:
    first, again = sent("e1"), sent("e1")
    sendings = Sendings({first.mark: first})
    sendings.add(again)
    sendings.add(again)  # noted once
    assert sendings.remove(first.mark)
    assert not sendings.remove(first.mark)
    assert sendings.has("cube", "e1")
    assert sendings.remove(again.mark)
    assert not sendings.has("cube", "e1")
    assert sendings.to("cube") == []


def test_places_are_kept_apart() -> None:
    mine, shared = sent("e1"), sent("e1", "shared")
    sendings = Sendings({mine.mark: mine, shared.mark: shared})
    assert sendings.remove(mine.mark)
    assert (sendings.has("cube", "e1"), sendings.has("shared", "e1")) == (False, True)
    assert sendings.to("shared") == [shared]


def test_no_other_sending_is_looked_at_to_find_an_event() -> None:
    class Unread(Written):
        @property
        def event_id(self) -> str:  # type: ignore[override]
            raise AssertionError("looked at")

    known = sent("e1")
    sendings = Sendings({known.mark: known})
    sendings._by_mark["other"] = object.__new__(Unread)
    assert sendings.has("cube", "e1")
    assert not sendings.has("cube", "e2")
