"""For adapters whose backend calls models: option blocks, embedders and the reading of answers."""

from memory.adapter._lexical import LexicalHashEmbedder
from memory.adapter._local import LocalEmbedder, load_model
from memory.adapter._model_answers import json_of_answer
from memory.adapter._sdk import counted_openai
from memory.contract._model_reasons import NOT_JSON, model_answer_fault
from memory.plugins.endpoint import (
    LEXICAL_OR_BLOCK,
    EmbedderBlock,
    LocalModel,
    ModelEndpoint,
    Prefixes,
    Sampling,
)

__all__ = [
    "LEXICAL_OR_BLOCK",
    "NOT_JSON",
    "EmbedderBlock",
    "LexicalHashEmbedder",
    "LocalEmbedder",
    "LocalModel",
    "ModelEndpoint",
    "Prefixes",
    "Sampling",
    "counted_openai",
    "json_of_answer",
    "load_model",
    "model_answer_fault",
]
