"""The bounded queue behind every write in the background (issue: one of them, not three)."""

import threading
import time

import anyio
import pytest
from waits import until

from memory.adapter.stores import BoundedQueue, RecentKeys

pytestmark = pytest.mark.anyio


def test_a_lane_is_worked_on_in_order_one_item_at_a_time():
    queue = BoundedQueue(10)
    assert queue.offer("a", 1)
    assert queue.offer("a", 2)
    assert queue.offer("b", 3)
    first = queue.lease("a")
    assert (first.item, queue.lease("a"), queue.lease("b").item) == (1, None, 3)
    first.end()
    first.end()
    assert queue.lease("a").item == 2
    assert len(queue) == 2


def test_what_is_leased_still_takes_room():
    queue = BoundedQueue(2)
    assert queue.offer("a", 1, weight=2)
    assert not queue.offer("b", 2)
    lease = queue.lease("a")
    assert not queue.offer("b", 2)
    lease.end()
    assert queue.offer("b", 2)
    assert queue.weight == 1


def test_an_item_given_back_is_the_first_again():
    queue = BoundedQueue(5)
    queue.offer("a", 1)
    queue.offer("a", 2)
    queue.lease("a").put_back()
    assert queue.lease("a").item == 1


def test_an_item_that_may_not_be_worked_on_yet_holds_its_lane_up():
    queue = BoundedQueue(5)
    queue.offer("a", 1)
    queue.offer("a", 2)
    assert queue.lease("a", lambda item: item != 1) is None
    queue.insert_first("a", 0)
    assert queue.weight == len(queue) == 3
    first = queue.lease("a", lambda item: item != 1)
    assert first.item == 0
    first.end()
    assert queue.weight == len(queue) == 2


def test_the_first_item_of_a_lane_calls_for_somebody_to_work_on_it():
    called = []
    queue = BoundedQueue(5, called.append)
    queue.offer("a", 1)
    queue.offer("a", 2)
    queue.lease("a").end()
    assert called == ["a"]
    queue.lease("a").end()
    queue.offer("a", 3)
    assert called == ["a", "a"]
    queue.insert_first("a", 4)
    assert called == ["a", "a"]
    queue.insert_first("b", 1)
    assert called == ["a", "a", "b"]


def test_nothing_leased_is_withdrawn():
    queue = BoundedQueue(5)
    for number in range(4):
        queue.offer("a", number)
    lease = queue.lease("a")
    assert queue.withdraw(lambda key, item: item in (0, 2)) == [2]
    assert queue.withdraw() == [1, 3]
    lease.end()
    assert (len(queue), queue.weight) == (0, 0)


async def test_who_waits_for_room_keeps_the_place_in_the_order():
    queue, placed = BoundedQueue(1), []
    queue.offer("a", 1)

    async def put(item):
        placed.append((item, await queue.put("a", item, 5)))

    async with anyio.create_task_group() as group:
        for item in (2, 3):
            group.start_soon(put, item)
            await anyio.wait_all_tasks_blocked()
        assert not queue.offer("b", 9)  # nobody overtakes who waits
        for expected in (1, 2, 3):
            lease = queue.lease("a")
            assert lease.item == expected
            lease.end()
    assert sorted(placed) == [(2, True), (3, True)]


async def test_an_item_without_room_in_time_is_taken_back():
    queue = BoundedQueue(1)
    queue.offer("a", 1)
    assert not await queue.put("a", 2, within_s=0)
    assert len(queue) == 1
    with anyio.move_on_after(0.01):
        await queue.put("a", 3, within_s=5)
    assert len(queue) == 1
    queue.lease("a").end()
    assert queue.offer("a", 4)


async def test_who_waits_for_room_waits_no_longer_once_the_item_is_worked_on():
    queue = BoundedQueue(1)
    queue.offer("a", 1)
    taken = []
    async with anyio.create_task_group() as group:

        async def put():
            taken.append(await queue.put("b", 2, within_s=3600))

        group.start_soon(put)
        await anyio.wait_all_tasks_blocked()
        lease = queue.lease("b")
        await until(lambda: taken)
    assert taken == [True]
    assert lease.item == 2
    lease.end()
    assert queue.weight == 1


async def test_emptied_waits_for_what_is_leased():
    queue = BoundedQueue(2)
    queue.offer("a", 1)
    lease = queue.lease("a")
    assert not await queue.emptied(0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(queue.emptied, 5)
        await anyio.wait_all_tasks_blocked()
        lease.end()
    assert await queue.emptied(0)


async def test_a_closed_queue_takes_nothing_and_keeps_what_it_has():
    queue = BoundedQueue(2)
    queue.offer("a", 1)
    queue.close()
    assert queue.closed
    assert not queue.offer("a", 2)
    assert not await queue.put("a", 2, 0)
    assert queue.lease("a").item == 1


def test_a_thread_waits_for_an_item_and_for_the_end():
    queue, got = BoundedQueue(2), []

    def work():
        while lease := queue.wait_lease("a"):
            got.append(lease.item)
            lease.end()

    thread = threading.Thread(target=work)
    thread.start()
    assert queue.offer("a", 1)
    queue.offer("a", 2)
    while len(queue):
        time.sleep(0.001)
    time.sleep(0.05)  # time to wait for a third one
    queue.close()
    thread.join(10)
    assert not thread.is_alive()
    assert got == [1, 2]


@pytest.mark.parametrize("how", ["end", "put_back"])
def test_a_thread_waits_while_another_works_on_its_lane(how):
    queue, got = BoundedQueue(10), []
    queue.offer("a", 1)
    lease = queue.lease("a")
    assert queue.wait_lease("a", 0.01) is None
    thread = threading.Thread(target=lambda: got.append(queue.wait_lease("a")), daemon=True)
    thread.start()
    queue.offer("a", 2)
    thread.join(0.05)  # time to see the lane that is worked on
    queue.close()
    thread.join(0.05)
    assert got == [], "what is worked on may be put back"
    getattr(lease, how)()
    thread.join(10)
    assert [taken.item for taken in got] == [2 if how == "end" else 1]
    got.pop().end()
    assert len(queue) == (0 if how == "end" else 1)


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


async def test_room_is_given_to_who_waits_for_it_as_soon_as_there_is_some():
    queue, placed = BoundedQueue(2), []
    queue.offer("a", 1)
    queue.offer("b", 2)

    async def put(item):
        placed.append((item, await queue.put("c", item, 60)))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(put, 3)
            await anyio.wait_all_tasks_blocked()
            queue.lease("a").end()
            await anyio.wait_all_tasks_blocked()
            assert placed == [(3, True)]
            assert queue.weight == 2
