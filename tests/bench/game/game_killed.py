"""Begins an experiment, or goes on with it, in a process that ends by SIGKILL at a file it is about to touch.

``python game_killed.py OUT N...``: for each N one experiment below ``OUT/N``, ended at its N-th file, then gone on
with and ended again at the N-th; prints how it ended each time. Without N: how many files there are.
With ``NO_TEXTS`` in the environment no texts are kept.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from game_support import SIZE, begin, matrix, resume

GAME = {**SIZE, "sessions": 10, "tests": 2, "attributes": 4}
PROVIDERS = ("full_history", "no_memory")
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate")


def _print_line(*what):
    sys.stdout.write(" ".join(map(str, what)) + "\n")
    sys.stdout.flush()


def kill_at(out, number):
    """End the process over the number-th file below ``out`` that it opens, renames or removes; counts them."""
    seen = [0]

    def hook(event, arguments):
        if event in _EVENTS and str(arguments[0]).startswith(str(out)):
            seen[0] += 1
            if seen[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return seen


def experiment_of(out, *, texts=True):
    """What is played."""
    return matrix(out, *PROVIDERS, game=GAME, keep_texts=texts)


def work(out, number):
    """Begin what is not begun, else go on with it."""
    experiment = experiment_of(out, texts="NO_TEXTS" not in os.environ)
    begun = sorted(out.iterdir()) if out.exists() else []
    seen = kill_at(out, number)
    if not begun or not (begun[0] / "manifest.json").exists():
        begin(experiment)
    else:
        resume(experiment, begun[0])
    if not number:
        _print_line(seen[0])


def ended(out, number):
    """The status of a process of its own."""
    child = os.fork()
    if not child:
        try:
            work(out, number)
        except BaseException as error:
            _print_line(f"{type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    if len(sys.argv) == 2:
        work(Path(sys.argv[1]), 0)
    for number in map(int, sys.argv[2:]):
        _print_line(number, *(ended(Path(sys.argv[1]) / str(number), number) for _ in range(2)))
