"""Every native call we make, against the installed mem0ai: a release that moves one fails here first."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import installed
from mem0_support import NEEDS_MEM0, config

from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

pytestmark = NEEDS_MEM0


@pytest.fixture(scope="module", autouse=True)
def _mem0(tmp_path_factory):
    """mem0, imported by our factory and thus without telemetry."""
    MemoryAdapterRegistry().create(load_config(config(tmp_path_factory.mktemp("drift"))))


def native(path):
    module, _, names = path.partition(":")
    if module == "mem0.vector_stores.pgvector" and not (installed("psycopg") or installed("psycopg2")):
        pytest.skip("psycopg is not installed")
    thing = importlib.import_module(module)
    for name in names.split("."):
        thing = getattr(thing, name)
    return thing


KEYWORDS = [
    ("mem0:Memory.add", "messages", "user_id agent_id run_id metadata infer prompt"),
    ("mem0:Memory.search", "query", "filters top_k threshold rerank"),
    ("mem0:Memory.get_all", "", "filters top_k show_expired"),
    ("mem0:Memory.get", "memory_id", ""),
    ("mem0:Memory.update", "memory_id", "text metadata expiration_date"),
    ("mem0:Memory.delete", "memory_id", ""),
    ("mem0:Memory.history", "memory_id", ""),
    ("mem0:Memory.close", "", ""),
    ("mem0.memory.storage:SQLiteManager.__init__", "db_path", ""),
    ("mem0.vector_stores.qdrant:Qdrant.__init__", "collection_name embedding_model_dims", "client on_disk"),
    ("mem0.vector_stores.qdrant:Qdrant.search", "query vectors top_k filters", ""),
    ("mem0.vector_stores.qdrant:Qdrant.search_batch", "queries vectors_list top_k filters", ""),
    ("mem0.vector_stores.qdrant:Qdrant.keyword_search", "query top_k filters", ""),
    ("mem0.vector_stores.qdrant:Qdrant.update", "vector_id vector payload", ""),
    ("mem0.embeddings.base:EmbeddingBase.embed", "text memory_action", ""),
    ("mem0.embeddings.base:EmbeddingBase.embed_batch", "texts memory_action", ""),
    ("mem0.embeddings.openai:OpenAIEmbedding.embed_batch", "texts memory_action", ""),
    ("mem0.llms.base:LLMBase.generate_response", "messages", "tools tool_choice"),
    ("mem0.llms.openai:OpenAILLM.generate_response", "messages", "response_format"),
    ("mem0.reranker.base:BaseReranker.rerank", "query documents top_k", ""),
    ("mem0.memory.storage:SQLiteManager.get_last_messages", "session_scope limit", ""),
    ("mem0.memory.main:_build_session_scope", "filters", ""),
    ("mem0.memory.utils:remove_code_blocks", "content", ""),
    ("mem0.memory.utils:extract_json", "text", ""),
    *[
        (f"mem0.vector_stores.{store}.{method}", positional, keywords)
        for store in ("qdrant:Qdrant", "pgvector:PGVector")
        for method, positional, keywords in (
            ("insert", "", "vectors payloads ids"),
            ("list", "", "filters top_k"),
            ("delete", "", "vector_id"),
        )
    ],
    ("qdrant_client:QdrantClient.delete", "", "collection_name points_selector"),
    ("qdrant_client:QdrantClient.get_collection", "collection_name", ""),
    ("qdrant_client:QdrantClient.close", "", ""),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "positional", "keywords"), KEYWORDS, ids=[path for path, _, _ in KEYWORDS])
def test_a_call_fits_its_signature(path, positional, keywords):
    function = native(path)
    bound = (None,) if "." in path.partition(":")[2] else ()
    signature = inspect.signature(function)
    signature.bind(*bound, *positional.split(), **dict.fromkeys(keywords.split()))
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        # mem0 swallows unknown keywords (facts, section 1), so each must be a parameter of its own.
        assert set(keywords.split()) <= signature.parameters.keys() or "qdrant" in path or "llms" in path


def test_positional_names_are_what_we_call_them():
    assert list(inspect.signature(native("mem0:Memory.add")).parameters)[1] == "messages"
    assert list(inspect.signature(native("mem0:Memory.search")).parameters)[1] == "query"


def test_scores_and_limits_default_to_what_we_override():
    search = inspect.signature(native("mem0:Memory.search")).parameters
    assert (search["threshold"].default, search["top_k"].default) == (0.1, 20)
    assert inspect.signature(native("mem0:Memory.add")).parameters["infer"].default is True


def test_the_configuration_has_the_fields_we_set():
    fields = native("mem0.configs.base:MemoryConfig").model_fields
    assert fields.keys() >= {"vector_store", "llm", "embedder", "reranker", "history_db_path"}
    qdrant = native("mem0.configs.vector_stores.qdrant:QdrantConfig").model_fields
    assert qdrant.keys() >= {"collection_name", "embedding_model_dims", "path", "host", "port", "url"}
    pgvector = native("mem0.configs.vector_stores.pgvector:PGVectorConfig").model_fields
    assert pgvector.keys() >= {"collection_name", "embedding_model_dims", "connection_string", "hnsw"}


@pytest.mark.parametrize(
    ("path", "fragments"),
    [
        (
            "mem0:Memory.__init__",
            ["self.embedding_model =", "self.llm =", "self.reranker", "self.db = SQLiteManager("],
        ),
        ("mem0:Memory.entity_store.fget", ["self._entity_store", "_entity_collection_name("]),
        ("mem0.utils.factory:EmbedderFactory.create", ["(cls, provider_name, config, vector_config"]),
        ("mem0.utils.factory:LlmFactory.create", ["(cls, provider_name: str, config"]),
        ("mem0.utils.factory:VectorStoreFactory.create", ["(cls, provider_name, config"]),
        ("mem0.utils.factory:RerankerFactory.create", ["(cls, provider_name: str, config"]),
        ("mem0.memory.main:_entity_collection_name", ['f"{collection_name}{separator}entities"']),
        ("qdrant_client.local.distances:cosine_similarity", ["vectors /="]),
        (
            "qdrant_client.local.persistence:CollectionPersistence.load",
            ["SELECT rowid, id, point FROM points"],
        ),
        (
            "qdrant_client.local.persistence:CollectionPersistence.__init__",
            ["self.storage = sqlite3.connect("],
        ),
        ("mem0:Memory.add", ["self.config.llm.config", "_add_to_vector_store("]),
        (
            "mem0:Memory._add_to_vector_store",
            [
                "self.vector_store.insert(\n                vectors=",
                'role"] == "system"',
                'response_format={"type": "json_object"}',
                "prompt or self.custom_instructions",
                "existing_hashes",
                'if "created_at" not in mem_metadata',
            ],
        ),
        ("mem0:Memory._create_memory", ['if "created_at" not in new_metadata']),
        (
            "mem0:Memory._remove_memory_from_entity_store",
            ["if self._entity_store is None:\n            return"],
        ),
        ("mem0.memory.storage:SQLiteManager.__init__", ["self.connection = sqlite3.connect", "self._lock ="]),
        ("mem0.memory.storage:SQLiteManager._create_history_table", ["memory_id    TEXT"]),
        ("mem0.memory.storage:SQLiteManager._create_messages_table", ["session_scope TEXT"]),
        ("mem0.memory.utils:parse_messages", ['role == "system"', 'role == "user"', 'role == "assistant"']),
        ("mem0.llms.openai:OpenAILLM.__init__", ['os.environ.get("OPENROUTER_API_KEY")', "self.client ="]),
        ("mem0.vector_stores.qdrant:Qdrant.__init__", ["if host and port:", "_has_bm25_slot"]),
        ("mem0.vector_stores.qdrant:Qdrant._build_field_condition", ["non_range_ops", "DatetimeRange"]),
        ("mem0.vector_stores.pgvector:PGVector.__init__", ["self.connection_pool"]),
        ("mem0.vector_stores.pgvector:PGVector._ensure_collection", ["self.create_col()"]),
        ("mem0.vector_stores.pgvector:PGVector._get_cursor", ["(self, commit: bool = False)", "yield cur"]),
        (
            "mem0.vector_stores.pgvector:PGVector.search",
            ["with self._get_cursor() as cur:", "vector <=> %s::vector"],
        ),
        ("mem0.vector_stores.pgvector:PGVector.insert", ["with self._get_cursor(commit=True) as cur:"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_we_rely_on_inside_is_still_there(path, fragments):
    """Behaviour without a signature: attributes we replace, rules our warnings speak of."""
    source = inspect.getsource(native(path))
    for fragment in fragments:
        assert fragment in source, f"{path} no longer has {fragment!r}"


IMPORTED_BY_US = """
import json, sys
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
MemoryAdapterRegistry().create(load_config(json.loads(sys.argv[1])))
from mem0.memory import setup, telemetry
print(telemetry.MEM0_TELEMETRY, setup.mem0_dir)
"""


def test_telemetry_is_off_and_home_is_ours(tmp_path):
    """In a process of its own, because another test may have imported mem0 itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEM0_")}
    program = [sys.executable, "-c", IMPORTED_BY_US, json.dumps(config(tmp_path))]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    telemetry, directory = done.stdout.split(maxsplit=1)
    assert telemetry == "False"
    assert tmp_path in Path(directory.strip()).parents


def test_local_qdrant_can_be_told_to_accept_several_threads():
    persistence = native("qdrant_client.local.persistence:CollectionPersistence")
    assert hasattr(persistence, "CHECK_SAME_THREAD")
    assert "check_same_thread=self.CHECK_SAME_THREAD" in inspect.getsource(persistence.__init__)
