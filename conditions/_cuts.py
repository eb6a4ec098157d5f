"""How much of what is pending to summarise at once, and where to cut."""

from __future__ import annotations

from itertools import islice

from conditions._notebook import Notebook

__all__ = ["cut_freeing", "cut_within"]


def cut_freeing(notebook: Notebook, tokens: int) -> int:
    """How many messages to work off so that ``tokens`` become free, up to a message of the user.

    The last such place where there are too few; 0 where there is none.
    """
    cut = freed = 0
    for index, cost in enumerate(notebook.costs if notebook.last_user > 0 else ()):
        if index and notebook.pending[index].role == "user":
            cut = index
            if freed >= tokens:
                break
        freed += cost
    return cut


def cut_within(notebook: Notebook, due: int, window: int) -> int:
    """How many of the first ``due`` messages fit ``window`` tokens together with the memory; at least one.

    Where not all do, the cut is before a message of the user, if there is one.
    """
    room = window - notebook.memory_tokens
    fits = 0
    for cost in islice(notebook.costs, due):
        room -= cost
        if room < 0:
            break
        fits += 1
    if fits == due:
        return due
    at_user = (cut for cut in range(fits, 0, -1) if notebook.pending[cut].role == "user")
    return next(at_user, max(fits, 1))
