"""Deterministic lexical embeddings and reranking: shared words and letters mean likeness."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Iterator, Sequence

from memory.testing.scripted_text import content_words, lexical_overlap

__all__ = ["encode_base64", "lexical_vector", "rank"]


def lexical_vector(text: str, dimensions: int) -> list[float]:
    """A unit vector by signed feature hashing of words and letter trigrams; equal on every machine."""
    vector = [0.0] * dimensions
    for feature, weight in _features(text):
        digest = hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[(number >> 1) % dimensions] += weight if number & 1 else -weight
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:
        return [1.0, *vector[1:]]
    return [value / length for value in vector]


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in content_words(text):
        yield f"w:{word}", 1.0
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield f"g:{padded[start : start + 3]}", 0.3


def encode_base64(vector: Sequence[float]) -> str:
    """Little-endian float32, as ``encoding_format="base64"`` answers."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def rank(query: str, documents: Sequence[str]) -> list[tuple[int, float]]:
    """(index, relevance from 0.0 to 1.0) of each document, best first."""
    scores = [(index, lexical_overlap(query, document)) for index, document in enumerate(documents)]
    return sorted(scores, key=lambda item: -item[1])
