"""Does a call take time in proportion to its text? Measured as growth, in CPU time of this thread."""

import gc
import time
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

# What backtracking stumbles over: runs of one thing, and of things that almost begin another.
PIECES = (
    " ", "\t", "\n", "\r", "\u200b", "<", "< ", "</", "&", "&lt;", ">", "a", "A", "1", ".", ". ", "-", "- ", "/",
    "://", ":", "'", '"', "(", ")", "[", "{", "}", "$", "${A:-", "_(", "`", "~", "|", "#", "*", "\\", "猫", "。",
    "<memory-context", "<memory-context ", "<memory-context>", "</memory-context>", "<memory-", "memory-context",
    '<memory-context backend="a" scope="b">', "\u0300\u0316", "\uff9e\u0316", "\u0f73", "I prefer ", "2024-01-01 ",
    "- 2024-01-01 a", "change '",
)  # fmt: skip
SMALLEST, LARGEST = 1_000, 128_000
_QUICK_S = 0.004
_MAX_RATIO = 3.0  # doubling a text at most triples the time


@dataclass(frozen=True)
class Run:
    """A text of any length: ``before``, as many of ``pieces`` as it takes, ``after``."""

    before: str
    pieces: tuple[str, ...]
    after: str

    def of_length(self, length):
        unit = "".join(self.pieces)
        return self.before + unit * (length // len(unit) + 1) + self.after


_few = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map(tuple)
RUNS = st.builds(
    Run, st.sampled_from(("", *PIECES)), _few, st.sampled_from(("", "x", "x ", "\nmemory-context>", *PIECES))
)


def assert_linear(work, run):
    """Doubling the text at most triples the time, as far as it can be measured, up to ``LARGEST`` characters."""
    assert_growth(lambda size: partial(work, run.of_length(size)))


def assert_growth(prepare, *, smallest=SMALLEST, largest=LARGEST, max_ratio=_MAX_RATIO):
    """``prepare(size)`` gives the work of that size; twice the size takes at most ``max_ratio`` times as long.

    Too quick to be measured is quick enough. A ratio that is too large counts only if it stays so: what else the
    machine does can slow one call down, not every one.
    """
    size = smallest
    while 2 * size <= largest:
        if _cpu_s(prepare(2 * size)) > _QUICK_S:
            ratios = []
            while (ratio := _ratio(prepare, size)) > max_ratio:
                ratios.append(ratio)
                assert len(ratios) < 5, f"from {size} to {2 * size}: {min(ratios):.1f} times as long"
        size *= 2


def _ratio(prepare, size):
    once, twice = (min(_cpu_s(prepare(many)) for _ in range(3)) for many in (size, 2 * size))
    return twice / max(once, _QUICK_S / _MAX_RATIO)


def _cpu_s(work):
    gc.collect(0)
    started = time.thread_time()
    work()
    return time.thread_time() - started
