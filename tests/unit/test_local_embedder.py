"""The embedder inside this process: its options, its errors, and its vectors where a model's files are given.

Set MEMSLOT_TEST_MODEL to the directory of an ONNX model to run the last group.
"""

import os
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from memory import ConfigError
from memory.adapter.models import EmbedderBlock, LocalEmbedder, LocalModel, ModelEndpoint
from memory.plugins.endpoint import known_prefixes

GIVEN = os.environ.get("MEMSLOT_TEST_MODEL")


class Block(BaseModel):
    embedder: EmbedderBlock[ModelEndpoint] = "lexical"


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("e5_large", "query: ", "passage: "),
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("text-embedding-3-small", "", ""),
        ("phase5-mini", "", ""),
        ("", "", ""),
    ],
)
def test_known_prefixes(model, query, document):
    assert known_prefixes(model) == (query, document)


def test_a_given_prefix_wins_even_if_it_is_empty():
    options = LocalModel(provider="local", model="e5", query_prefix="", document_prefix="doc: ")
    assert options.prefixes("e5") == ("", "doc: ")


def test_the_provider_tells_the_blocks_apart():
    assert Block(embedder="lexical").embedder == "lexical"
    assert type(Block(embedder={"provider": "local"}).embedder) is LocalModel
    assert type(Block(embedder={"base_url": "http://x/v1"}).embedder) is ModelEndpoint
    assert type(Block(embedder=LocalModel(provider="local")).embedder) is LocalModel


@pytest.mark.parametrize(
    ("value", "field", "what"),
    [
        ("lexcial", "embedder", "write lexical, {provider: local}"),
        ({"provider": "local", "base_url": "x"}, "embedder.local.base_url", "not permitted"),
        ({"base_url": 5}, "embedder.endpoint.base_url", "valid string"),
    ],
)
def test_an_error_is_of_the_block_that_was_meant(value, field, what):
    with pytest.raises(ValidationError) as caught:
        Block(embedder=value)
    (problem,) = caught.value.errors()
    assert ".".join(map(str, problem["loc"])) == field
    assert what in problem["msg"]


def local(**options):
    pytest.importorskip("fastembed")
    return LocalEmbedder(LocalModel(provider="local", **options), "memory.backends.mem0.embedder")


def incomplete(directory, *names):
    for name in names:
        (directory / name).write_text("{}")
    return directory


def test_a_directory_that_lacks_a_file_is_named_with_it(tmp_path):
    with pytest.raises(ConfigError, match=r"embedder\.path: there is no directory .*gone"):
        local(path=tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"lacks tokenizer\.json"):
        local(path=incomplete(tmp_path))
    with pytest.raises(ConfigError, match=r"lacks tokenizer_config\.json"):
        local(path=incomplete(tmp_path, "tokenizer.json"))
    with pytest.raises(ConfigError, match=r"holds no \.onnx file"):
        local(path=incomplete(tmp_path, "tokenizer.json", "tokenizer_config.json"))
    with pytest.raises(ConfigError, match=r"fastembed cannot load the model"):
        local(path=incomplete(tmp_path, "model.onnx"))


def test_an_unknown_model_and_a_hub_that_is_not_there(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match=r"embedder\.model: fastembed knows no model nope"):
        local(model="nope")
    hub = pytest.importorskip("huggingface_hub")
    asked = []
    leaving = threading.Event()
    monkeypatch.setattr(hub, "model_info", lambda name, **_: (asked.append(name), leaving.wait(60)))
    monkeypatch.setattr("memory.adapter._local._HUB_SECONDS", 0.2)
    monkeypatch.setattr("memory.adapter._local._silent_until", 0.0)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    for _ in range(2):  # the silent hub is asked once
        with pytest.raises(ConfigError, match=r"no model hub can be reached; .*mem0\.embedder\.path"):
            local()
    leaving.set()
    assert len(asked) == 1


@pytest.mark.skipif(GIVEN is None, reason="MEMSLOT_TEST_MODEL names no model")
def test_a_model_from_files_finds_a_paraphrase_and_batches_as_it_does_single_texts():
    embedder = local(model="given", path=Path(GIVEN))
    texts = ["My dog is called Biscuit.", "I bought a car.", "The weather is fine."] * 20
    vectors = embedder.embed_documents(texts)
    question = embedder.embed_query("What is the name of my puppy?")
    scores = [sum(a * b for a, b in zip(vector, question, strict=True)) for vector in vectors]
    assert max(range(60), key=scores.__getitem__) % 3 == 0
    assert embedder.dimensions == len(question)
    (single,) = embedder.embed_documents(texts[:1])
    assert max(abs(a - b) for a, b in zip(single, vectors[3], strict=True)) < 0.05
