"""A copy of one of the contract's types, or of a plugin's made from them, has all of it."""

from typing import Any

from pydantic import ConfigDict, PrivateAttr

from memory.adapter.fields import Frozen


class Loose(Frozen):
    model_config = ConfigDict(extra="allow")

    name: str
    _seen: list[str] = PrivateAttr(default_factory=list)


def test_a_copy_keeps_fields_that_are_not_declared_and_private_ones():
    made: Any = Loose(name="a", more="b")
    made._seen.append("c")
    copied: Any = made.model_copy(update={"name": "d"})
    assert (copied.name, copied.more, copied._seen) == ("d", "b", ["c"])
    assert (made.name, copied.model_fields_set) == ("a", {"name", "more"})


def test_a_copy_is_changed_alone():
    made: Any = Loose(name="a", more="b")
    copied: Any = made.model_copy(update={"more": "c"})
    assert (made.more, copied.more) == ("b", "c")
