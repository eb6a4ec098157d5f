"""Every option of every ``llm:`` and ``embedder:`` block is found in a recorded request.

The options come from the blocks' own models. A new option without a value here, or without effect on the request,
fails a test.
"""

from dataclasses import dataclass

import pytest
from installed import installed
from pydantic import BaseModel
from said import said, wanted

from conditions._llm_summariser import LlmOptions
from memory import MemoryScope, SupportsReadiness, open_memory
from memory.backends.graphiti.options import GraphitiEmbedder, GraphitiLlm
from memory.backends.mem0.options import Mem0Embedder, Mem0Llm
from memory.testing import ScriptedLLM

ALICE = MemoryScope(run_id="run", persona_id="alice")
# Of the client alone, or of the library that is asked.
CLIENT_ONLY = {"provider", "config", "max_retries", "timeout_s"}
VALUES = {
    "base_url": None,  # that of the recording endpoint
    "api_key": "sk-wire",
    "model": "a-model",
    "temperature": 0.7,
    "top_p": 0.9,
    "max_tokens": 321,
    "max_completion_tokens": 654,
    "reasoning_effort": "low",
    "extra_body": {"seed": 7},
    "structured_output": "json_object",
    "query_prefix": "Q: ",
    "document_prefix": "D: ",
}


class Recorder(ScriptedLLM):
    """The scripted endpoint, which also keeps the keys it was shown."""

    def __init__(self):
        super().__init__()
        self.keys: list[str] = []

    def respond(self, request):
        self.keys.append(request.headers.get("authorization", ""))
        return super().respond(request)

    def texts(self):
        """Everything that was to be embedded."""
        sent = []
        for body in self.bodies("embeddings"):
            sent += [body["input"]] if isinstance(body["input"], str) else body["input"]
        return sent

    def shows(self, name, path):
        """Whether every request of an endpoint carries the option's value; of the prefixes, one text."""
        bodies, value = self.bodies(path), VALUES[name]
        special = {
            "base_url": lambda: True,  # it arrived here
            "api_key": lambda: all(key == f"Bearer {value}" for key in self.keys),
            "extra_body": lambda: all(value.items() <= body.items() for body in bodies),
            "structured_output": lambda: all(body["response_format"]["type"] == value for body in bodies),
            "query_prefix": lambda: any(text.startswith(value) for text in self.texts()),
            "document_prefix": lambda: any(text.startswith(value) for text in self.texts()),
        }
        check = special.get(name, lambda: all(body.get(name) == value for body in bodies))
        return bool(bodies) and check()


@dataclass(frozen=True)
class Block:
    """A block of a configuration that names a model."""

    provider: str
    name: str
    options: type[BaseModel]
    needs: str | None = None

    @property
    def path(self):
        return "embeddings" if self.name == "embedder" else "chat/completions"

    def config(self, tmp_path, server, given):
        plain = {"model": "plain", "base_url": server.base_url, "api_key": VALUES["api_key"]}
        blocks = {"llm": plain, self.name: {**plain, **given}}
        kind = "backend"
        if self.provider == "rolling_summary":
            blocks["summariser"], kind = "llm", "condition"
        memory = {kind: self.provider, f"{kind}s": {self.provider: blocks}}
        return {"memory": {**memory, "journal": False, "data_dir": str(tmp_path)}}


BLOCKS = {
    "mem0, llm": Block("mem0", "llm", Mem0Llm, "mem0"),
    "mem0, embedder": Block("mem0", "embedder", Mem0Embedder, "mem0"),
    "graphiti, llm": Block("graphiti", "llm", GraphitiLlm, "graphiti_core"),
    "graphiti, embedder": Block("graphiti", "embedder", GraphitiEmbedder, "graphiti_core"),
    "rolling_summary, llm": Block("rolling_summary", "llm", LlmOptions),
}


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("block", BLOCKS)
async def test_every_option_is_found_in_the_request(tmp_path, block, limit):
    """The longest answer has two names, of which one is sent."""
    of = BLOCKS[block]
    if of.needs is not None and not installed(of.needs):
        pytest.skip(f"{of.needs} is not installed")
    other = {"max_tokens", "max_completion_tokens"} - {limit}
    names = set(of.options.model_fields) - CLIENT_ONLY - other
    assert names <= VALUES.keys(), "an option without a value for this test"
    if of.name == "embedder" and limit != "max_tokens":
        pytest.skip("an embedder has no longest answer")
    with Recorder() as server:
        given = {name: VALUES[name] for name in names if VALUES[name] is not None}
        async with open_memory(of.config(tmp_path, server, given), scope=ALICE) as slot:
            await slot.record_event(said(ALICE, "I live in Porto.", session_id="one"))
            readiness = slot.capability(SupportsReadiness)
            await readiness.wait_until_ready(ALICE, 30)
            await slot.retrieve(wanted("Where do I live?", ALICE, None))
        unseen = {name for name in names if not server.shows(name, of.path)}
        assert not unseen
        assert not any(key in body for key in other for body in server.bodies(of.path))
