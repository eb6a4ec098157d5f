"""The keys of the last things seen."""

from memory.adapter.stores import RecentKeys


def test_recent_keys_are_forgotten_in_order():
    keys = RecentKeys(2)
    assert keys.add("a")
    assert keys.add("b")
    assert not keys.add("a")
    assert keys.add("c")
    assert keys.add("a")
    keys.discard("c")
    assert keys.add("c")
    keys.discard_where(lambda key: key == "a")
    assert keys.add("a")
    assert not keys.add("c")
