"""Scores on words and ranks: token F1, exact match, IDF-weighted share, nDCG."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

# Each Chinese character counts as a word, as in scores of Chinese reading comprehension.
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_]+")
_ARTICLES = frozenset(("a", "an", "the"))
FIRST = 10
"""The number of entries that count in nDCG, the k of nDCG@k."""


def words(text: str) -> list[str]:
    """The words of a text after SQuAD's normalisation (Rajpurkar et al. 2016): lower case, no articles."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _ARTICLES]


def token_f1(reply: str, answer: str) -> float:
    """Token F1 (Rajpurkar et al. 2016): the harmonic mean of word precision and recall, from 0 to 1."""
    said, wanted = Counter(words(reply)), Counter(words(answer))
    common = (said & wanted).total()
    return 2 * common / (said.total() + wanted.total()) if common else 0.0


def exact_match(reply: str, answer: str) -> bool:
    """Exact match (Rajpurkar et al. 2016): equality apart from case, punctuation and articles."""
    return words(reply) == words(answer)


class Vocabulary:
    """The words of one conversation, weighted by inverse document frequency (IDF, Spärck Jones 1972).

    A word weighs ``log((turns + 1) / (turns that hold it + 0.5))``. Words that most turns hold hardly count.
    """

    def __init__(self, turns: Iterable[str]) -> None:
        self._turns = tuple(turns)

    @cached_property
    def _held_by(self) -> Counter[str]:
        return Counter(word for turn in self._turns for word in set(words(turn)))

    @cached_property
    def _by_frequency(self) -> dict[str, int]:
        ordered = sorted(self._held_by, key=lambda word: (-self._held_by[word], word))
        return {word: place for place, word in enumerate(ordered)}

    def weight(self, word: str) -> float:
        """The inverse document frequency of a word."""
        return math.log((len(self._turns) + 1) / (self._held_by[word] + 0.5))

    def shown(self, answer: str, section: str) -> float | None:
        """The IDF-weighted share of the answer's words in a section; None for an answer without words."""
        held = set(words(section))
        return self._share(answer, [word in held for word in dict.fromkeys(words(answer))])

    def by_nonsense(self, answer: str, section: str) -> float | None:
        """The same share for a baseline section of equally many words: the most frequent ones, each once."""
        size = len(words(section))
        return self._share(
            answer,
            [self._by_frequency.get(word, size) < size for word in dict.fromkeys(words(answer))],
        )

    def _share(self, answer: str, held: Sequence[bool]) -> float | None:
        weights = [self.weight(word) for word in dict.fromkeys(words(answer))]
        total = math.fsum(weights)
        shown = math.fsum(weight for weight, there in zip(weights, held, strict=True) if there)
        return shown / total if total else None


def ndcg(ranks: Sequence[int], gold: int) -> float:
    """nDCG@k (Järvelin and Kekäläinen 2002) with k = :data:`FIRST`. Each of ``gold`` turns has gain 1.

    Args:
        ranks: ranks of the found turns, from 1.
    """
    gain = math.fsum(1 / math.log2(rank + 1) for rank in ranks if rank <= FIRST)
    best = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(gold, FIRST) + 1))
    # An entry that holds several gold turns may exceed the ideal order of single ones.
    return min(1.0, gain / best)
