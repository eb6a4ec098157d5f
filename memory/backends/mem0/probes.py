"""One short call of each model that mem0 was given: what is wrong with it shows before the first turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from memory import ConfigError
from memory.adapter import BackendProtocolError
from memory.backends.mem0.client import NativeMem0
from memory.backends.mem0.options import Mem0Options

__all__ = ["model_probes"]


def model_probes(native: NativeMem0, options: Mem0Options, where: str) -> Mapping[str, Callable[[], None]]:
    """Role -> a call of that model, for each that the options name."""
    probes: dict[str, Callable[[], None]] = {}
    if options.infers:
        probes["llm"] = partial(_ask, native)
    if options.embedder != "lexical":
        probes["embedder"] = partial(_embed, native, options, where)
    if options.rerank and options.reranker is not None:
        probes["reranker"] = partial(_rank, native)
    return probes


def _ask(native: NativeMem0) -> None:
    llm = native.models.llm.native  # past the watch, which wants memories
    if not llm.generate_response(messages=[{"role": "user", "content": "Answer with the one word yes."}]):
        raise BackendProtocolError("mem0: the llm answered with nothing", sent=False)


def _embed(native: NativeMem0, options: Mem0Options, where: str) -> None:
    length = len(native.models.embedder.embed("I drink tea.", "search"))
    if length != options.vector_dimensions:
        raise ConfigError(
            f"{where}.dimensions: is {options.vector_dimensions}, and the embedder answers with {length}"
        )


def _rank(native: NativeMem0) -> None:
    native.models.reranker.rerank("Which tea do I drink?", [{"memory": "I drink tea."}], 1)
