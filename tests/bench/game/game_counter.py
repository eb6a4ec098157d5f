"""A token counter that kills the first worker process in which it has counted enough; see test_executors.py."""

import multiprocessing
import os
import signal

_counted = 0


def count(text):
    """A token is four letters, until GAME_KILL_AT of these counts in a process while GAME_KILL_FILE is absent."""
    global _counted
    _counted += 1
    flag = os.environ.get("GAME_KILL_FILE")
    if flag and multiprocessing.parent_process() and _counted >= int(os.environ["GAME_KILL_AT"]):
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return (len(text) + 3) // 4
