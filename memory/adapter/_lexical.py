"""A lexical embedder that hashes words and character n-grams. It needs no model, no key and no network.

It finds texts that share words with the question, in any language, and knows no synonyms. Reports of its
results must call it lexical. Its constants are round priors about written text, the same for every data set.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

from memory.contract._model import normalise

_ENGLISH = """
    a about after again against all also am an and any are aren as at be because been before being below
    between both but by can cannot could couldn did didn do does doesn doing don down during each else ever few
    for from further get gets getting got had hadn has hasn have haven having he her here hers herself him himself
    his how however i if in into is isn it its itself just let ll me might more most must my myself no nor not now
    of off oh ok on once one only onto or other our ours ourselves out over own per quite rather re really s same
    shall she should shouldn so some such t than that the their theirs them themselves then there these they this
    those though through thus to too under until up upon us ve very was wasn way we were weren what when where
    whether which while who whom whose why will with within without won would wouldn yes yet you your yours
    yourself yourselves
"""
_STOP_WORDS = frozenset(_ENGLISH.split())
_STOP_CHARACTERS = frozenset(
    "的一是不了在人有我他这个们中来上大为和地到以说时要就出会可也你对生能而子那得于着下自之她它吗呢吧啊们与及或被把"
)
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")
_STOP_WEIGHT = 0.3  # function words mean little, but a question of only such words must still find texts
_GRAM_WEIGHT = 0.5  # of all n-grams of a word together; the word itself has 1.0
_GRAM_SIZES = (3, 4)
_LONGEST_TOKEN = 64  # of longer tokens (keys, base64), only the start gives n-grams
_LENGTH_PIVOT = 4.0  # the norm of a text of about a dozen content words: one chat message
_PAD = 32  # dimensions for a document's length, without words


class LexicalHashEmbedder:
    """Maps text to a unit vector. The same text gives the same vector in every process and on every machine.

    Args:
        dimensions: length of the vectors, at least 64; fewer than 1,024 cost recall by collisions.

    A document's vector also contains its length (pivoted length normalisation, Singhal et al. 1996), because
    plain cosine favours the shortest message that shares one word. If a backend does not distinguish
    documents from questions, use :meth:`embed` for both.
    """

    name = "lexical-hash-1"
    prefixes = ("", "")

    def __init__(self, dimensions: int = 1024) -> None:
        if dimensions < 2 * _PAD:
            raise ValueError(f"dimensions is {dimensions}; use at least {2 * _PAD}")
        self.dimensions = dimensions
        self._features = lru_cache(maxsize=8192)(self._token_features)

    def embed(self, text: str) -> list[float]:
        """The vector of a question, or of any text. Never all zeros, even for the empty text."""
        return self._unit(self._words(_tokens(text)))

    embed_query = embed

    def embed_document(self, text: str) -> list[float]:
        """The vector of a text to be found by :meth:`embed_query`."""
        tokens = _tokens(text)
        found = self._words(tokens)
        # The direction depends on the text, so that two short documents are not similar by their length.
        bits = _hash("pad\0" + "\0".join(sorted(tokens)))
        step = _LENGTH_PIVOT / math.sqrt(_PAD)
        for offset in range(_PAD):
            found[self.dimensions - 1 - offset] = step if bits >> offset & 1 else -step
        return self._unit(found)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of documents, in order."""
        return [self.embed_document(text) for text in texts]

    def _words(self, tokens: Counter[str]) -> dict[int, float]:
        found: dict[int, float] = {}
        for token, count in tokens.items():
            weight = math.sqrt(count)
            features = self._features if len(token) <= _LONGEST_TOKEN else self._token_features
            for index, value in features(token):
                found[index] = found.get(index, 0.0) + weight * value
        return found

    def _unit(self, found: dict[int, float]) -> list[float]:
        norm = math.sqrt(math.fsum(value * value for value in found.values()))
        if norm == 0.0:  # features that cancel each other out exactly
            found, norm = {0: 1.0}, 1.0
        vector = [0.0] * self.dimensions
        for index, value in found.items():
            vector[index] = value / norm
        return vector

    def _token_features(self, token: str) -> tuple[tuple[int, float], ...]:
        found: dict[int, float] = {}
        for feature, weight in _weighted_features(token):
            bits = _hash(feature)
            index = (bits >> 1) % (self.dimensions - _PAD)
            found[index] = found.get(index, 0.0) + (weight if bits & 1 else -weight)
        return tuple(found.items())


def _tokens(text: str) -> Counter[str]:
    """Counted tokens with a letter for their kind: ``w`` word, ``c`` characters of CJK text, ``s`` sign."""
    text = normalise("NFKC", text).casefold()
    counts: Counter[str] = Counter()
    for run, word in _TOKEN.findall(text):
        if word:
            counts["w" + word] += 1
            continue
        # CJK text has no spaces between words, so single characters and all pairs are counted.
        counts.update("c" + char for char in run)
        counts.update("c" + first + second for first, second in pairwise(run))
    # Texts of only emoji or punctuation must differ from each other, too. The empty text is a separate token.
    return counts or Counter("s" + char for char in text if not char.isspace()) or Counter(["s"])


def _weighted_features(token: str) -> Iterator[tuple[str, float]]:
    kind, text = token[0], token[1:]
    if kind == "c":
        grammar = all(char in _STOP_CHARACTERS for char in text)
        yield token, (1.0 if len(text) == 2 else _STOP_WEIGHT) * (_STOP_WEIGHT if grammar else 1.0)
        return
    if kind == "s" or text in _STOP_WORDS:
        yield token, _STOP_WEIGHT
        return
    yield "w" + _stem(text), 1.0
    padded = f"^{text[:_LONGEST_TOKEN]}$"
    grams = [padded[at : at + size] for size in _GRAM_SIZES for at in range(len(padded) - size + 1)]
    for gram in grams:
        yield "g" + gram, _GRAM_WEIGHT / math.sqrt(len(grams))


_ENDINGS = {"ies": "y", "sses": "ss", "ing": "", "edly": "", "ed": "", "ly": "", "es": "e", "s": ""}


def _stem(word: str) -> str:
    """A light English stem, so that ``painted``, ``paints`` and ``painting`` match. Other words stay."""
    if not word.isascii():
        return word
    for ending, instead in _ENDINGS.items():
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            if ending == "s" and word[-2] in "su":
                break
            word = word[: -len(ending)] + instead
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word.rstrip("e") if len(word) > 3 else word


def _hash(feature: str) -> int:
    return int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
