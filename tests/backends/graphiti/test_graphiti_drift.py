"""Every native call we make, against the installed graphiti-core and kuzu: a release that moves one fails here."""

import asyncio
import importlib
import importlib.util
import inspect
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from graphiti_support import NEEDS_GRAPHITI

from memory.backends.graphiti.options import GraphitiOptions
from memory.plugins.blocks import parse_block

pytestmark = NEEDS_GRAPHITI
NEEDS_FALKORDB = pytest.mark.skipif(find_spec("falkordb") is None, reason="falkordb is not installed")


@pytest.fixture(scope="module", autouse=True)
def _sdk():
    """Graphiti, imported as our factory does."""
    from memory.backends.graphiti.stores import import_sdk

    import_sdk()


def native(path):
    module, _, names = path.partition(":")
    thing = importlib.import_module(module)
    for name in names.split("."):
        thing = getattr(thing, name)
    return thing


G = "graphiti_core.graphiti:Graphiti"
CALLS = [
    (f"{G}.__init__", "", "graph_driver llm_client embedder cross_encoder"),
    (
        f"{G}.add_episode",
        "",
        "name episode_body source_description reference_time source group_id custom_extraction_instructions "
        "entity_types edge_types",
    ),
    (
        f"{G}.add_episode_bulk",
        "bulk_episodes",
        "group_id custom_extraction_instructions entity_types edge_types",
    ),
    (f"{G}.add_triplet", "source_node edge target_node episode", ""),
    (f"{G}.search_", "query", "config group_ids search_filter"),
    (f"{G}.remove_episode", "episode_uuid", ""),
    ("graphiti_core.utils.maintenance.graph_data_operations:clear_data", "driver group_ids", ""),
    ("graphiti_core.edges:EntityEdge.get_by_uuids", "driver uuids", ""),
    ("graphiti_core.edges:EntityEdge.get_by_group_ids", "driver group_ids", "limit"),
    ("graphiti_core.edges:EntityEdge.delete", "driver", ""),
    ("graphiti_core.edges:Edge.delete_by_uuids", "driver uuids", ""),
    ("graphiti_core.nodes:EntityNode.get_by_group_ids", "driver group_ids", "limit"),
    ("graphiti_core.nodes:EpisodicNode.get_by_group_ids", "driver group_ids", "limit"),
    ("graphiti_core.nodes:Node.delete_by_uuids", "driver uuids", ""),
    ("graphiti_core.nodes:EpisodicNode.get_by_uuids", "driver uuids", ""),
    ("graphiti_core.nodes:EpisodicNode.save", "driver", ""),
    ("graphiti_core.embedder.client:EmbedderClient.create", "", "input_data"),
    ("graphiti_core.embedder.client:EmbedderClient.create_batch", "input_data_list", ""),
    ("graphiti_core.embedder.openai:OpenAIEmbedder.__init__", "config", "client"),
    ("graphiti_core.cross_encoder.client:CrossEncoderClient.rank", "query passages", ""),
    ("graphiti_core.cross_encoder.openai_reranker_client:OpenAIRerankerClient.__init__", "config", "client"),
    (
        "graphiti_core.llm_client.config:LLMConfig.__init__",
        "",
        "api_key model base_url temperature small_model",
    ),
    (
        "graphiti_core.llm_client.openai_generic_client:OpenAIGenericClient.__init__",
        "config",
        "client max_tokens structured_output_mode",
    ),
    (
        "graphiti_core.llm_client.openai_generic_client:OpenAIGenericClient._generate_response",
        "messages response_model",
        "max_tokens model_size model",
    ),
    ("graphiti_core.driver.kuzu_driver:KuzuDriver.execute_query", "cypher_query_", ""),
    ("graphiti_core.driver.kuzu_driver:KuzuDriverSession.execute_write", "func", ""),
    ("graphiti_core.driver.kuzu_driver:KuzuDriverSession.__init__", "driver", ""),
    ("graphiti_core.graph_queries:get_fulltext_indices", "provider", ""),
    ("graphiti_core.graph_queries:get_range_indices", "provider", ""),
    ("graphiti_core.driver.neo4j_driver:Neo4jDriver.execute_query", "cypher_query_", ""),
    ("graphiti_core.driver.neo4j_driver:Neo4jDriver.session", "database", ""),
    ("graphiti_core.driver.neo4j_driver:Neo4jDriver._execute_index_query", "query", ""),
    ("graphiti_core.driver.neo4j_driver:Neo4jDriver.build_indices_and_constraints", "delete_existing", ""),
    ("neo4j:AsyncGraphDatabase.driver", "uri", "auth"),
    ("neo4j:AsyncDriver.verify_connectivity", "", ""),
    ("kuzu:Database.__init__", "database_path", "buffer_pool_size max_num_threads max_db_size"),
    ("kuzu:Connection.execute", "query parameters", ""),
]


@pytest.mark.parametrize(("path", "positional", "keywords"), CALLS, ids=[call[0] for call in CALLS])
def test_signature(path, positional, keywords):
    function = native(path)
    parameters = list(inspect.signature(function).parameters.values())
    if parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    wanted = positional.split()
    assert [parameter.name for parameter in parameters[: len(wanted)]] == wanted
    named = {parameter.name for parameter in parameters}
    assert set(keywords.split()) <= named
    allowed = {*wanted, *keywords.split()}
    required = {
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    assert required <= allowed


FALKOR_CALLS = [
    ("graphiti_core.driver.falkordb_driver:FalkorDriver.execute_query", "cypher_query_", ""),
    ("graphiti_core.driver.falkordb_driver:FalkorDriver.session", "database", ""),
    ("graphiti_core.driver.falkordb_driver:FalkorDriver.clone", "database", ""),
    (
        "graphiti_core.driver.falkordb_driver:FalkorDriver.build_indices_and_constraints",
        "delete_existing",
        "",
    ),
    ("falkordb.asyncio:FalkorDB.select_graph", "graph_id", ""),
    ("falkordb.asyncio:FalkorDB.aclose", "", ""),
    (
        "redis.asyncio:Redis.__init__",
        "",
        "host port unix_socket_path username password decode_responses socket_timeout socket_connect_timeout retry",
    ),
]


@NEEDS_FALKORDB
@pytest.mark.parametrize(
    ("path", "positional", "keywords"), FALKOR_CALLS, ids=[call[0] for call in FALKOR_CALLS]
)
def test_signature_of_falkordb(path, positional, keywords):
    test_signature(path, positional, keywords)


def kuzu_pair():
    from memory.backends.graphiti.database import Database
    from memory.backends.graphiti.kuzu import ScopeDriver

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        stock = native("graphiti_core.driver.kuzu_driver:KuzuDriver")()
    stock.client.close()
    stock.db.close()
    return stock, ScopeDriver(Database(Path("nowhere"), 64), "g")


def falkordb_pair():
    from memory.backends.graphiti.falkordb import FalkorGraph

    stock = native("graphiti_core.driver.falkordb_driver:FalkorDriver")(falkor_db=object())
    return stock, FalkorGraph(None, "g")


def neo4j_pair():
    from memory.backends.graphiti.neo4j import Neo4jGraph, Neo4jStore

    options = parse_block(GraphitiOptions, {"llm": {"model": "m", "base_url": "http://x"}}, "x")
    stock = native("graphiti_core.driver.neo4j_driver:Neo4jDriver")("bolt://127.0.0.1:9", "u", "p")
    asyncio.run(stock.client.close())
    return stock, Neo4jGraph(Neo4jStore(options, Path(), {}))


@pytest.mark.parametrize(
    ("pair", "ours_elsewhere"),
    [
        (kuzu_pair, {"client", "db"}),
        pytest.param(falkordb_pair, set(), marks=NEEDS_FALKORDB),
        (neo4j_pair, {"client"}),
    ],
)
def test_our_driver_has_all_that_the_parents_constructor_makes(pair, ours_elsewhere):
    stock, ours = pair()
    assert vars(stock).keys() - vars(ours).keys() == ours_elsewhere
    parts = [name for name in vars(stock) if name.endswith("_ops")]
    assert len(parts) == 11
    for name in parts:
        assert type(vars(ours)[name]) is type(vars(stock)[name])


@NEEDS_FALKORDB
def test_why_falkordb_gets_a_client_and_indexes_of_ours():
    """Once its constructor asks nothing, and no property has two indexes, ours can go."""
    from graphiti_core.driver.driver import GraphProvider

    ranges = " ".join(native("graphiti_core.graph_queries:get_range_indices")(GraphProvider.FALKORDB))
    assert "Is_Cluster(conn)" in inspect.getsource(native("falkordb.asyncio:FalkorDB").__init__)
    assert "n.name" in ranges
    labels = set(re.findall(r"FOR (\S+) ON", ranges.replace("e:", "n:").replace("[e]", "[n]")))
    assert set(native("memory.backends.graphiti.falkordb:_RANGE")) == labels


def test_what_the_stock_driver_lacks_is_still_lacking():
    """Once it is not, some of ours can go."""
    from graphiti_core.driver.kuzu_driver import KuzuDriver

    assert "_database" not in vars(KuzuDriver)
    assert "CREATE_FTS_INDEX" not in inspect.getsource(KuzuDriver)


@pytest.mark.parametrize(
    ("owner", "fields"),
    [
        (
            "graphiti_core.edges:EntityEdge",
            "uuid group_id source_node_uuid target_node_uuid created_at name fact fact_embedding episodes "
            "expired_at valid_at invalid_at reference_time attributes",
        ),
        (
            "graphiti_core.nodes:EpisodicNode",
            "uuid name group_id source source_description content valid_at created_at entity_edges",
        ),
        (
            "graphiti_core.nodes:EntityNode",
            "uuid name group_id labels created_at name_embedding summary attributes",
        ),
        ("graphiti_core.nodes:SagaNode", "uuid name group_id summary"),
        ("graphiti_core.nodes:CommunityNode", "uuid name group_id summary name_embedding"),
        (
            "graphiti_core.search.search_config:SearchResults",
            "edges edge_reranker_scores nodes node_reranker_scores episodes episode_reranker_scores communities "
            "community_reranker_scores",
        ),
        (
            "graphiti_core.search.search_config:SearchConfig",
            "edge_config node_config episode_config community_config limit reranker_min_score",
        ),
        ("graphiti_core.search.search_config:EdgeSearchConfig", "sim_min_score"),
        ("graphiti_core.search.search_filters:SearchFilters", "invalid_at"),
        ("graphiti_core.graphiti:AddEpisodeResults", "episode edges"),
        ("graphiti_core.graphiti:AddBulkEpisodeResults", "episodes edges"),
        ("graphiti_core.graphiti:AddTripletResults", "edges"),
        (
            "graphiti_core.utils.bulk_utils:RawEpisode",
            "name content source_description source reference_time",
        ),
        ("graphiti_core.embedder.openai:OpenAIEmbedderConfig", "api_key embedding_model embedding_dim"),
        ("graphiti_core.prompts.extract_nodes:ExtractedEntities", "extracted_entities"),
        ("graphiti_core.prompts.extract_edges:ExtractedEdges", "edges"),
        ("graphiti_core.prompts.extract_edges:EdgeTimestamps", "valid_at invalid_at"),
        ("graphiti_core.prompts.extract_edges:BatchEdgeTimestamps", "timestamps"),
        ("graphiti_core.prompts.dedupe_edges:EdgeDuplicate", "duplicate_facts contradicted_facts"),
        ("graphiti_core.prompts.dedupe_nodes:NodeResolutions", "entity_resolutions"),
    ],
)
def test_fields(owner, fields):
    assert set(fields.split()) <= native(owner).model_fields.keys()


def test_ingest_modes_are_episode_types():
    from graphiti_core.nodes import EpisodeType

    assert {"message", "text", "json", "fact_triple"} <= set(EpisodeType.__members__)
