"""A token counter that kills the first worker processes in which it has counted enough; see test_executors.py."""

import multiprocessing
import os
import signal

_counted = 0


def count(text):
    """A token is four letters. Ends GAME_KILL_TIMES processes, each at its GAME_KILL_AT-th count."""
    global _counted
    _counted += 1
    flag = os.environ.get("GAME_KILL_FILE")
    if flag and multiprocessing.parent_process() and _counted >= int(os.environ["GAME_KILL_AT"]):
        for time in range(int(os.environ.get("GAME_KILL_TIMES", "1"))):
            try:
                os.close(os.open(f"{flag}{time or ''}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
    return (len(text) + 3) // 4
