"""The mem0 block: what is wrong with it is said before anything is opened, with the field and the fix."""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from installed import installed
from mem0_support import ALICE, NEEDS_MEM0, config, event
from variants import plain

from memory import BackendError, ConfigError, PluginLoadError, open_memory
from memory.backends.mem0.options import Mem0Options
from memory.plugins.blocks import parse_block
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import LoopbackAnswer
from memory.testing._http_server import HttpServer

pytestmark = NEEDS_MEM0


def options(**block):
    return parse_block(Mem0Options, block, "memory.backends.mem0")


def create(tmp_path, **block):
    return MemoryAdapterRegistry().create(load_config(config(tmp_path, **block)))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"top_kk": 3}, r"\.top_kk: is not a known field; did you mean top_k\?"),
        ({"infer": True}, r"infer: true needs an llm.*add llm"),
        ({"embedder": "lexicl"}, r"embedder: is unknown; write lexical"),
        ({"embedder": {"provider": "fastembed"}}, r"embedder\.provider: write provider: local"),
        (
            {"llm": {"provider": "ollama", "extra_body": {}}},
            r"extra_body: mem0 cannot pass this on to ollama",
        ),
        ({"llm": {"provider": "anthropic", "temperature": None}}, r"temperature: mem0 cannot pass this on"),
        ({"threshold": 1.5}, r"threshold: .*less than or equal to 1"),
        ({"top_k": 0}, r"top_k: .*greater than 0"),
        (
            {"vector_store": {"provider": "faiss"}},
            r"vector_store\.provider: faiss is not supported.*pgvector",
        ),
        ({"vector_store": {"provider": "redis"}}, r"vector_store\.provider: redis is not supported"),
        ({"vector_store": {"provider": "qdrant", "config": {"host": "db"}}}, r"needs host and port together"),
        (
            {"keywords": False, "vector_store": {"provider": "chroma"}},
            r"keywords: only qdrant can leave them",
        ),
        ({"vector_store": {"config": {}}}, r"vector_store\.provider: is required"),
    ],
)
def test_a_wrong_block_names_the_field_and_the_fix(block, message):
    with pytest.raises(ConfigError, match=f"(?s)memory.backends.mem0.*{message}"):
        options(**block)


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        ({"llm": {"provider": "nosuch"}}, ConfigError, r"mem0: llm\.config: Unsupported LLM provider"),
        (
            {"vector_store": {"provider": "qdrant", "config": {"pth": "x"}}},
            ConfigError,
            r"vector_store: Extra fields not allowed: pth",
        ),
        (
            {"vector_store": {"provider": "pgvector"}},
            ConfigError,
            r"vector_store: Both 'user' and 'password'",
        ),
    ],
)
def test_what_mem0_refuses_is_said_by_the_factory(tmp_path, block, error, message):
    with pytest.raises(error, match=message):
        create(tmp_path, **block)


def test_a_missing_client_library_names_itself(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    monkeypatch.delitem(sys.modules, "mem0.configs.vector_stores.chroma", raising=False)
    with pytest.raises(
        PluginLoadError, match=r"memory\.backends\.mem0: .*The 'chromadb' library is required.*pip install"
    ):
        create(tmp_path, vector_store={"provider": "chroma", "config": {"path": "x"}})


PAGE = (Path(__file__).parents[3] / "docs" / "local_models.md").read_text("utf-8")
HOSTED = dict(re.findall(r"^\| (\w+) \| `(\{[^`]+\})`.* \|$", PAGE, re.M))
SERVED = dict(re.findall(r"^\| ([\w. ]+) \| `(http://\S+)` \|", PAGE, re.M))


def test_the_page_has_a_block_for_each_provider_that_users_ask_for():
    assert HOSTED.keys() == {"OpenAI", "Azure", "Anthropic", "Gemini", "OpenRouter", "DeepSeek"}
    assert SERVED.keys() == {"Ollama", "llama.cpp", "vLLM", "LM Studio"}


class Recorder(HttpServer):
    """Refuses every request, and keeps it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def respond(self, request):
        self.seen.append(request)
        return LoopbackAnswer(400, {"error": {"message": "no"}})


@pytest.mark.parametrize("name", plain("OpenAI", "Ollama", of=[*HOSTED, *SERVED]))
@pytest.mark.parametrize("backend", ["mem0", "graphiti"])
async def test_the_block_of_a_provider_reaches_its_wire(tmp_path, name, backend):
    """The page's block, with the address of a server here in place of the provider's."""
    needed = "graphiti_core" if backend == "graphiti" else "anthropic" if name == "Anthropic" else "mem0"
    if not installed(needed):
        pytest.skip(f"{needed} is not installed")
    if (backend, name) == ("graphiti", "Anthropic"):
        pytest.skip("the page says that Graphiti does not take it")
    written = HOSTED.get(name) or f"{{model: m, base_url: '{SERVED[name]}'}}"
    with Recorder() as server:
        block = yaml.safe_load(re.sub(r'"\$\{\w+\}"', "sk-wire", written).replace("...", "m"))
        place = urlsplit(block.get("base_url", "https://api.openai.com/v1")).path.rstrip("/")
        if name == "Anthropic":
            block["config"]["anthropic_base_url"] = server.url
            place, call = "", "/v1/messages"
        else:
            block["base_url"] = f"{server.url}{place}"
            call = "/chat/completions"
        of_backend = {"backend": backend, "backends": {backend: {"llm": block}}, "journal": False}
        with pytest.raises(BackendError, match="400"):
            async with open_memory(
                {"memory": {**of_backend, "data_dir": str(tmp_path)}}, scope=ALICE
            ) as slot:
                await slot.record_event(event("My dog is called Biscuit."))
    request = server.seen[0]
    assert request.path.strip("/") == f"{place}{call}".strip("/")
    assert request.json["model"] == block["model"]
    shown = request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
    assert shown == block.get("api_key", "unused")


@pytest.mark.parametrize(
    ("provider", "module", "package"),
    [("anthropic", "anthropic", "anthropic"), ("azure_openai", "azure", "azure-identity")],
)
async def test_a_missing_package_is_named_as_pip_knows_it(tmp_path, monkeypatch, provider, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"mem0.llms.{provider}", raising=False)
    with pytest.raises(PluginLoadError, match=f"pip install {package}"):
        async with open_memory(config(tmp_path, llm={"provider": provider, "model": "m"}), scope=ALICE):
            pass


def test_a_missing_key_is_said_with_the_variable_to_set(tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r'mem0\.llm\.api_key is missing; write "\$\{OPENAI_API_KEY\}"'):
        create(tmp_path, llm={"model": "m"})
    create(tmp_path, llm={"model": "m", "base_url": "http://127.0.0.1:9/v1"})


def test_secrets_never_show(tmp_path):
    block = options(
        llm={"api_key": "sk-secret", "config": {"extra": "sk-secret"}},
        vector_store={"provider": "pgvector", "config": {"connection_string": "postgres://u:sk-secret@h/d"}},
    )
    assert "sk-secret" not in repr(block)
    with pytest.raises(ConfigError) as raised:
        create(tmp_path, vector_store={"provider": "pgvector", "config": {"pasword": "sk-secret"}})
    assert "sk-secret" not in str(raised.value)


def test_extraction_is_on_exactly_where_a_model_is_configured():
    assert not options().infers
    assert options(llm={"model": "m"}).infers
    assert not options(llm={"model": "m"}, infer=False).infers


def test_defaults_follow_the_embedder():
    assert (options().given_dimensions, options().least_score) == (None, 0.0)
    openai = options(embedder={"model": "m"})
    assert (openai.given_dimensions, openai.least_score) == (None, 0.1)
    assert options(embedder={"config": {"embedding_dims": 512}}).given_dimensions == 512
    assert options(threshold=0.3).least_score == 0.3


def test_only_qdrant_without_a_server_is_embedded():
    assert options().embedded
    assert not options(vector_store={"provider": "qdrant", "config": {"host": "db", "port": 6333}}).embedded
    assert not options(vector_store={"provider": "qdrant", "config": {"url": "http://db"}}).embedded
    assert not options(vector_store={"provider": "chroma"}).embedded


async def test_keywords_can_be_left_out(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "fastembed", raising=False)
    fake = "class SparseTextEmbedding:\n    def __init__(self, *_, **__):\n        raise AssertionError('loaded')\n"
    (tmp_path / "fastembed.py").write_text(fake, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    async with open_memory(config(tmp_path, keywords=False)) as slot:
        health = await slot.health()
    assert (health.status, health.details["keyword_search"]) == ("ok", False)
    assert not any("keyword" in warning for warning in health.warnings)


def test_an_embedded_store_gets_more_threads_only_to_wait_for_models():
    assert options().threads == 1
    assert options(llm={"model": "m"}).threads == 4
    assert options(vector_store={"provider": "pgvector"}, workers=7).threads == 7


def test_stores_that_differ_are_told_apart_and_no_credential_tells_them(tmp_path):
    """A journal holds an event of the same id for delivered, where it takes another store for the same."""

    def server(provider, **native):
        return {"vector_store": {"provider": provider, "config": native}}

    blocks = [
        {},
        {"collection": "other"},
        server("qdrant", collection_name="third"),
        server("qdrant", url="http://db:6333"),
        server("qdrant", url="http://db:6334"),
        server("pgvector", connection_string="postgresql://ada:hunter2@db/one"),
        server("pgvector", connection_string="postgresql://ada:hunter2@db/two"),
        server("pgvector", connection_string="host=db dbname=one user=ada password='hunter2 x'"),
        server("pgvector", connection_string="host=db dbname=two user=ada password='hunter2 x'"),
    ]
    stores = [create(tmp_path, **block).traits.store for block in blocks]
    assert len(set(stores)) == len(blocks)
    assert not any("hunter2" in store or "ada" in store for store in stores)
    renewed = server("pgvector", connection_string="postgresql://ada:secret3@db/one")
    assert create(tmp_path, **renewed).traits.store in stores, "a new password is no new store"
