"""What ``embedder: {provider: local}`` adds to bare fastembed, for one text and for a batch of 32.

Takes seconds. MEMSLOT_TEST_MODEL names the directory of an ONNX model with its tokenizer; needs memslot[local].
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from memory.adapter.models import LocalEmbedder, LocalModel

ROUNDS = 15
TEXT = "My daughter plays the violin every Thursday, number {}."


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, float]:
    """Medians of CPU seconds; the two take turns, so that both meet the same machine."""
    rounds = [(seconds(ours), seconds(bare)) for _ in range(ROUNDS)]
    own, other = zip(*rounds, strict=True)
    return statistics.median(own), statistics.median(other)


def main(directory: Path) -> None:
    embedder = LocalEmbedder(LocalModel(provider="local", model="measured", path=directory), "embedder")
    bare = embedder._model
    one, many = TEXT.format(0), [TEXT.format(number) for number in range(32)]
    own, other = compared(lambda: embedder.embed_query(one), lambda: list(bare.query_embed([one])))
    print(f"one text: {1000 * (own - other):+.2f} ms beyond {1000 * other:.1f} ms bare (at most +1)")
    own, other = compared(
        lambda: embedder.embed_documents(many), lambda: list(bare.passage_embed(many, batch_size=32))
    )
    print(f"a batch of 32: {own / other:.3f} times bare (at most 1.05)")


if __name__ == "__main__":
    if given := os.environ.get("MEMSLOT_TEST_MODEL"):
        main(Path(given))
    else:
        print("local embedder: skipped, as MEMSLOT_TEST_MODEL names no model")
