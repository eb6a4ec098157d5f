"""Surface forms of a wording, in which each synonym is exchanged or kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from memory.bench.data.dice import Dice


class Grammar:
    """Groups of synonyms. The first word of a group is the word that wordings contain."""

    def __init__(self, groups: Iterable[Sequence[str]] = ()) -> None:
        self._options = {group[0].casefold(): tuple(group) for group in groups}
        longest = sorted(self._options, key=len, reverse=True)
        self._words = re.compile("|".join(map(_whole, longest)) or r"(?!)", re.IGNORECASE)

    def count(self, wording: str) -> int:
        """The number of surface forms of a wording, including itself."""
        return prod(len(self._options[found[0].casefold()]) for found in self._words.finditer(wording))

    def forms(self, wording: str) -> Iterator[str]:
        """Every surface form of a wording, beginning with the wording itself."""
        parts, at = list[Sequence[str]](), 0
        for found in self._words.finditer(wording):
            parts += [(wording[at : found.start()],), self._exchanged(found[0])]
            at = found.end()
        for chosen in product(*parts, (wording[at:],)):
            yield "".join(chosen)

    def drawn(self, wording: str, dice: Dice) -> str:
        """A random surface form of a wording."""
        return self._words.sub(lambda found: dice.pick(self._exchanged(found[0])), wording)

    def _exchanged(self, found: str) -> Sequence[str]:
        options = self._options[found.casefold()]
        if not found[0].isupper():
            return options
        return [option[:1].upper() + option[1:] for option in options]


def _whole(word: str) -> str:
    """A pattern for a whole word. Punctuation and scripts without spaces have no word boundaries."""
    begin = r"\b" if word[0].isascii() and word[0].isalnum() else ""
    end = r"\b" if word[-1].isascii() and word[-1].isalnum() else ""
    return f"{begin}{re.escape(word)}{end}"
