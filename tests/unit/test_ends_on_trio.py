"""A task that trio ends: a nursery raises its cancellation together with whatever failed in it."""

import pytest
import trio
import trio.testing

from memory.contract._surviving import ends_the_task


async def fail_when_cancelled():
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("a connection attempt that failed meanwhile")


@pytest.mark.parametrize(
    ("failing", "ends"),
    [
        (lambda: BaseExceptionGroup("", [ValueError(), KeyboardInterrupt()]), True),
        (lambda: BaseExceptionGroup("", [ValueError(), GeneratorExit()]), False),
        (lambda: ExceptionGroup("", [ValueError()]), False),
    ],
)
def test_a_group_ends_the_task_where_one_of_its_errors_does(failing, ends):
    async def ask():
        return ends_the_task(failing())

    assert trio.run(ask) is ends


def test_a_cancelled_nursery_whose_task_fails_ends_the_task():
    seen = []

    async def cancelled():
        with trio.CancelScope() as scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.start_soon(fail_when_cancelled)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            except BaseException as error:
                seen.append((error, ends_the_task(error)))
                raise

    with pytest.raises(BaseExceptionGroup):
        trio.run(cancelled)
    [(error, ends)] = seen
    assert isinstance(error, BaseExceptionGroup)
    assert ends
