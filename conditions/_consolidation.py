"""Working pending messages into a scope's memory: when, how many at once, and what where the summariser fails."""

from __future__ import annotations

from itertools import islice
from typing import Literal

from conditions._notebook import Notebook, Summariser
from memory import MemslotError

UpdatePolicy = Literal["after_accumulation_session", "token_threshold"]
_ROUNDS = 5
_ATTEMPTS = 3


class Consolidation:
    """Summarises notebooks; the caller holds the notebook's lock.

    Args:
        summariser: writes the new memory.
        policy: when messages are due.
        window: tokens that memory and messages may take together.

    Attributes:
        read_only: nothing is summarised, nor is what a summariser still comes back with taken.
    """

    def __init__(self, summariser: Summariser, policy: UpdatePolicy, window: int) -> None:
        self.read_only = False
        self._summariser = summariser
        self._policy = policy
        self._window = window

    async def due(self, notebook: Notebook) -> None:
        """Work off what is due: earlier sessions, or what overflows the window."""
        if self._policy == "after_accumulation_session":
            while due := notebook.earlier:
                if not await self.some(notebook, due):
                    return
        elif notebook.tokens >= self._window:
            for _ in range(_ROUNDS):
                excess = notebook.tokens - self._window // 2
                cut = _cut_freeing(notebook, excess) if excess > 0 else 0
                if not cut or not await self.some(notebook, cut):
                    return

    async def some(self, notebook: Notebook, due: int) -> bool:
        """Work off some of the first ``due`` messages; False if nothing was worked off.

        After three failures in a row the messages go into the history as they are, as Nanobot did it.
        """
        count = _cut_within(notebook, due, self._window)
        lines = notebook.pending[:count]
        try:
            draft = await self._summariser.summarise(notebook.memory, notebook.progress.sources, lines)
            if self.read_only:  # the mode changed while the model was thinking
                return False
            await notebook.commit(count, draft)
        except MemslotError as error:
            if notebook.note_failure(error) < _ATTEMPTS or self.read_only:
                return False
            try:
                await notebook.archive_raw(count)
            except MemslotError as unwritten:  # a full disk, say; the event is kept all the same
                notebook.note_failure(unwritten)
                return False
        return True


def _cut_freeing(notebook: Notebook, tokens: int) -> int:
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


def _cut_within(notebook: Notebook, due: int, window: int) -> int:
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
