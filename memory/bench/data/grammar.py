"""Surface forms of a wording: words of it that stand for others, each exchanged or kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from memory.bench.data.dice import Dice


class Grammar:
    """Groups of words that stand for each other. The first word of a group is the one that wordings hold."""

    def __init__(self, groups: Iterable[Sequence[str]] = ()) -> None:
        self._options = {group[0].casefold(): tuple(group) for group in groups}
        longest = sorted(self._options, key=len, reverse=True)
        self._words = re.compile("|".join(map(_whole, longest)) or r"(?!)", re.IGNORECASE)

    def count(self, wording: str) -> int:
        """How many surface forms a wording has, itself included."""
        return prod(len(self._options[found[0].casefold()]) for found in self._words.finditer(wording))

    def forms(self, wording: str) -> Iterator[str]:
        """Every surface form of a wording; the wording itself comes first."""
        parts, at = list[Sequence[str]](), 0
        for found in self._words.finditer(wording):
            parts += [(wording[at : found.start()],), self._exchanged(found[0])]
            at = found.end()
        for chosen in product(*parts, (wording[at:],)):
            yield "".join(chosen)

    def drawn(self, wording: str, dice: Dice) -> str:
        """One surface form of a wording."""
        return self._words.sub(lambda found: dice.pick(self._exchanged(found[0])), wording)

    def _exchanged(self, found: str) -> Sequence[str]:
        options = self._options[found.casefold()]
        if not found[0].isupper():
            return options
        return [option[:1].upper() + option[1:] for option in options]


def _whole(word: str) -> str:
    """Finds a word as a whole; one of a script without spaces, or a mark, has no edges to look for."""
    begin = r"\b" if word[0].isascii() and word[0].isalnum() else ""
    end = r"\b" if word[-1].isascii() and word[-1].isalnum() else ""
    return f"{begin}{re.escape(word)}{end}"
