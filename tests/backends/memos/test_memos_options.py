"""The block ``memory.backends.memos``: errors that name the field and the fix; the plugin's description."""

import pytest
from memos_support import config, options

from memory import ConfigError
from memory.contract.adapter import capabilities_of
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

_REGISTRY = MemoryAdapterRegistry()
_URL = "http://127.0.0.1:1"


def refusal(**block):
    with pytest.raises(ConfigError) as raised:
        _REGISTRY.create(load_config(config(**{"url": _URL, **block})))
    return str(raised.value)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"graph_db": "nebula"}, ("graph_db", "postgres", "neo4j-community", "polardb")),
        ({"url": "https://memos.memtensor.cn/api/openmem/v1"}, ("url", "cloud is not supported")),
        ({"url": "https://api.memt.ai/platform"}, ("url", "cloud is not supported")),
        ({"url": "https://proxy.example/api/openmem/v1"}, ("url", "cloud is not supported")),
        ({"url": "127.0.0.1:8001"}, ("url", "http://127.0.0.1:8001")),
        ({"url": "http://127.0.0.1:0"}, ("url", "http")),
        ({"url": "http://user:secretpw@host"}, ("url", "api_key")),
        ({"url": "http://host?x=1"}, ("url", "query")),
        ({"url": "http://host#x"}, ("url", "fragment")),
        ({"graph_db": "neo4j"}, ("neo4j_shared_db", "MOS_NEO4J_SHARED_DB=true", "neo4j-community")),
        ({"dedup": "mmr"}, ("dedup", "postgres", "empty")),
        ({"dedup": "sim"}, ("dedup", "postgres")),
        ({"api_key": "line\nbreak"}, ("api_key", "header")),
        ({"top_k": 0}, ("top_k", "greater")),
        ({"relativity": -1}, ("relativity", "greater")),
        ({"cube": "mine"}, ("cube", "not a known field")),
    ],
)
def test_what_cannot_work_is_refused_by_name(block, words):
    message = refusal(**block)
    assert all(word in message for word in words), message
    assert "secretpw" not in message


def test_the_graph_database_is_the_servers_default_unless_named():
    from memory.backends.memos.options import MemosOptions

    known = load_config({"memory": {"backend": "memos", "backends": {"memos": {}}}})
    assert known.parse_options(MemosOptions).graph_db == "neo4j-community"


@pytest.mark.parametrize(
    ("block", "cs_filtering", "filters"),
    [
        ({"graph_db": "postgres"}, "soft", False),
        ({"graph_db": "neo4j-community"}, "hard", True),
        ({"graph_db": "polardb", "dedup": "mmr"}, "hard", True),
        ({"graph_db": "neo4j", "neo4j_shared_db": True}, "hard", True),
    ],
)
def test_filtering_is_declared_by_the_graph_database(block, cs_filtering, filters):
    adapter = _REGISTRY.create(load_config(config(**{"url": _URL, **block})))
    assert adapter.traits.cs_filtering == cs_filtering
    assert bool(adapter.traits.filter_operators) == filters
    assert adapter.traits.max_concurrency == 4
    assert adapter.traits.write_retries == 0


@pytest.mark.parametrize(("mode", "consistency"), [("async", "async_derived"), ("sync", "immediate")])
def test_consistency_is_declared_by_the_way_of_writing(mode, consistency):
    adapter = _REGISTRY.create(load_config(config(_URL, async_mode=mode)))
    assert adapter.traits.consistency == consistency


def test_the_description_names_what_the_adapter_can_do():
    info = _REGISTRY.info("memos")
    assert info.capabilities == capabilities_of(_REGISTRY.create(load_config(config(_URL))))
    assert info.install == "pip install 'memslot[memos]'"


@pytest.mark.parametrize("url", ["http://host:8001", "http://host:8001/", "http://host:8001/product"])
def test_the_address_may_be_given_with_or_without_its_last_part(url):
    assert options(url=url).url == "http://host:8001"
