"""The ``stigmem`` block, the plugin's listing, and ids and words under any text."""

import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import ConfigError, MemoryEvent, MemoryScope, Message
from memory.backends.stigmem.client import ScopeIds, Scopes, scope_id
from memory.backends.stigmem.options import StigmemOptions
from memory.backends.stigmem.translate import message_facts, recall_query, search_terms, to_entry
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.stigmem.facts import FactValue

CONFIGS = Path(__file__).parents[3] / "configs"
KEY = "k" * 40
IDS = ScopeIds("s-" + "0" * 40, 0, marked=True)
scopes = st.builds(
    MemoryScope,
    run_id=st.sampled_from(["a", "A", "a:b", "a-b", "é", "e\u0301", "run" * 60]),
    persona_id=st.text(min_size=1, max_size=20).filter(lambda text: text.strip() and "*" not in text),
)


def options(**block):
    config = load_config({"memory": {"backend": "stigmem", "backends": {"stigmem": block}}})
    return config.parse_options(StigmemOptions)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"api_key": KEY, "url": "localhost:8765"}, "url: must be an http or https URL"),
        ({"api_key": KEY, "url": "http://u:p@host"}, "must not hold credentials"),
        ({"api_key": KEY, "url": "http://host?x=1"}, "must not hold a query"),
        ({"api_key": KEY, "url": "http://{scope}.host"}, "belongs to isolation: node"),
        ({"api_key": KEY, "allow_sharing": True}, "belongs to isolation: node"),
        ({"isolation": "node"}, "put {scope} into url"),
        ({"isolation": "none"}, "isolation:"),
        ({"api_key": KEY, "top_k": 501}, "top_k:"),
        ({"api_key": KEY, "semantic_weight": 1}, "semantic_weight:"),
        ({"api_key": KEY, "top_kk": 5}, "did you mean top_k"),
    ],
)
def test_a_wrong_block_names_field_and_fix(block, message):
    with pytest.raises(ConfigError) as raised:
        options(**block)
    assert "memory.backends.stigmem" in str(raised.value)
    assert message in str(raised.value)
    assert KEY not in str(raised.value)


def test_problems_between_fields_are_named_in_one_round():
    with pytest.raises(ConfigError) as raised:
        options(api_key=KEY, url="http://{scope}.host", allow_sharing=True)
    first, second = str(raised.value).splitlines()
    assert "{scope} belongs to isolation: node" in first
    assert "allow_sharing belongs to isolation: node" in second


def test_tenants_need_a_key():
    """Not a rule of the block: ``memslot setup`` writes one that is still to be filled in."""
    config = load_config({"memory": {"backend": "stigmem", "backends": {"stigmem": {}}}})
    with pytest.raises(
        ConfigError, match=r"^config: memory\.backends\.stigmem\.api_key: is missing.*isolation: node"
    ):
        MemoryAdapterRegistry().create(config)


def test_the_ready_configuration_loads():
    config = load_config(CONFIGS / "stigmem.yaml", env={"STIGMEM_API_KEY": KEY})
    assert config.parse_options(StigmemOptions).isolation == "tenant"
    assert KEY not in str(config.redacted(config.parse_options(StigmemOptions)))
    with pytest.raises(ConfigError, match="STIGMEM_API_KEY"):
        load_config(CONFIGS / "stigmem.yaml", env={})


def test_the_commented_ways_are_valid():
    text = (CONFIGS / "stigmem.yaml").read_text(encoding="utf-8")
    blocks = re.split(r"\n      # [A-Z][^\n]*:", text)[1:]
    assert len(blocks) == 2
    for block in blocks:
        pairs = dict(re.findall(r"#   (url|isolation|allow_sharing): (\S+)", block))
        assert options(**{**pairs, "allow_sharing": "allow_sharing" in pairs}).isolation == "node"


def test_a_url_with_the_scope_in_it():
    capitalised, lowercase = (MemoryScope(run_id="r", persona_id=name) for name in ("Ada", "ada"))
    found = Scopes(options(isolation="node", url="http://{scope}.mem.internal:8765/"), "x")
    urls = [found.url(scope) for scope in (capitalised, lowercase)]
    assert urls[0] != urls[1]
    assert all(re.fullmatch(r"http://s-[0-9a-f]{40}\.mem\.internal:8765", url) for url in urls)


@given(scopes, scopes)
def test_two_scopes_never_share_a_tenant_or_a_mark(first, second):
    both = [ScopeIds(scope_id(scope), 0, marked=True) for scope in (first, second)]
    assert (both[0].name == both[1].name) == (first == second) == (both[0].mark == both[1].mark)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", both[0].name), "what the node accepts as a tenant"
    assert both[0].mark != ScopeIds(scope_id(first), 1, marked=True).mark


texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("护照の가\u200b _-:()^*\"',.OR")),
    max_size=40,
)


@given(texts.filter(lambda text: text.strip()))
def test_what_was_said_comes_back_as_it_was(text):
    (fact,) = message_facts(_event(text), IDS)
    hit = {"fact": {"id": "1", **fact.body()}, "score": 0.5}
    entry = to_entry(hit, IDS)
    assert entry.text == text
    assert entry.scope_ids == {"scope": IDS.scope_id}
    other = ScopeIds(IDS.scope_id, 1, marked=True)
    assert to_entry(hit, other).scope_ids != {"scope": IDS.scope_id}, (
        "an earlier generation is another memory"
    )


@given(st.lists(texts, min_size=1, max_size=3), st.booleans())
def test_no_question_is_an_error_or_reaches_another_mark(asked, marked):
    """The node answers a malformed expression with a LIKE search, which knows neither rank nor mark."""
    terms = search_terms(asked)
    if not terms:
        return
    ids = ScopeIds(IDS.scope_id, 0, marked=marked)
    query = recall_query(terms, ids)
    assert re.sub(r'["()\^*\-:,]+', " ", query) == query, "nothing that the node would strip"
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE VIRTUAL TABLE f USING fts5(e, v, tokenize='unicode61 remove_diacritics 1')")
        spaced = " ".join(terms)
        database.executemany("INSERT INTO f VALUES (?, ?)", [(ids.mark, spaced), ("elsewhere", spaced)])
        found = [row[0] for row in database.execute("SELECT e FROM f WHERE f MATCH ?", (query,))]
    if marked:
        assert found in ([ids.mark], [])  # a word newer than the tokenizer's Unicode is found nowhere
    database.close()


def test_many_words_are_one_expression():
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE f USING fts5(v)")
    query = recall_query([f"w{number}" for number in range(128)], IDS)
    assert database.execute("SELECT count(*) FROM f WHERE f MATCH ?", (query,)).fetchone() == (0,)
    database.close()


def test_words_are_split_as_the_node_splits_them():
    assert search_terms(["Don't OR_not 护照? RENE\u0301E", "don"]) == [
        "don",
        "t",
        "or",
        "not",
        "护",
        "照",
        "renée",
    ]


def test_a_value_of_any_type_is_shown():
    hit = {
        "fact": {
            "id": "1", "entity": "stigmem://x/shop/1", "relation": "shop:open",
            "value": dict(FactValue(type="boolean", v=True)), "timestamp": "2024-01-01T00:00:00+00:00",
        },
        "score": "high",
    }  # fmt: skip
    entry = to_entry(hit, ScopeIds(IDS.scope_id, 0, marked=False))
    assert entry.text == "shop:open: True"
    assert entry.labels == (("about", "stigmem://x/shop/1"),)
    assert entry.score is None
    assert entry.scope_ids is None


def _event(text):
    return MemoryEvent(
        event_id="e", scope=MemoryScope(run_id="r", persona_id="p"), session_id="s", turn_id="t",
        timestamp="2024-01-01T00:00:00+00:00", messages=(Message(role="user", content=text),),
    )  # fmt: skip
