"""The ``honcho`` block, the plugin's listing, and ids and texts of any kind."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory import ConfigError, MemoryScope, ScopeError
from memory.backends.honcho.client import Connections
from memory.backends.honcho.options import CLOUD, HonchoOptions
from memory.backends.honcho.translate import MAX_CONTENT, HonchoIds, about_entries, prose_entries, split_text
from memory.contract.formatting import render_section
from memory.plugins.config import load_config

CONFIGS = Path(__file__).parents[3] / "configs"
URL = "http://127.0.0.1:1"
_ID = st.text(min_size=1, max_size=30).filter(lambda text: text.strip() and "*" not in text)
_HOSTILE = st.sampled_from(
    ["a", "A", "a_b", "a-b", "a:b", "assistant", "system", "_61ssistant", "é", "e\u0301", "x" * 512]
)
scopes = st.builds(
    MemoryScope,
    run_id=_ID | _HOSTILE,
    persona_id=_ID | _HOSTILE,
    backend_namespace=st.none() | _ID,
    agent_id=st.none() | _ID,
)


def options(**block):
    config = load_config({"memory": {"backend": "honcho", "backends": {"honcho": block}}})
    return config.parse_options(HonchoOptions)


def encoder(**block):
    return HonchoIds(options(base_url=URL, **block), "memory.backends.honcho")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url: must be an http or https URL"),
        ({"base_url": "http://u:p@host"}, "must not hold credentials"),
        ({"base_url": URL, "api_key": " "}, "api_key: is blank"),
        ({"base_url": URL, "assistant_peer": "a:b"}, "assistant_peer: takes letters"),
        ({"base_url": URL, "assistant_peer": "system"}, "choose another"),
        ({"base_url": URL, "retrieval": "chat"}, "retrieval:"),
        ({"base_url": URL, "supplement": "all"}, "supplement:"),
        ({"base_url": URL, "context_tokens": 100_001}, "context_tokens:"),
        ({"base_url": URL, "top_k": 101}, "top_k:"),
        ({"base_url": URL, "top_kk": 5}, "did you mean top_k"),
    ],
)
def test_a_wrong_block_names_field_and_fix(block, message):
    with pytest.raises(ConfigError) as raised:
        options(**block)
    assert message in str(raised.value)


def test_without_an_address_the_variable_counts_and_then_the_sdks_default(monkeypatch):
    from honcho.client import ENVIRONMENTS

    monkeypatch.delenv("HONCHO_URL", raising=False)
    assert options().address == CLOUD == ENVIRONMENTS["production"]
    monkeypatch.setenv("HONCHO_URL", "http://127.0.0.1:2/")
    assert options().address == "http://127.0.0.1:2"
    assert options(base_url=URL).address == URL
    assert Connections(options(), "honcho").client("r_xp", reads=True).base_url == "http://127.0.0.1:2"
    monkeypatch.setenv("HONCHO_URL", "nowhere")
    with pytest.raises(ConfigError, match="base_url: the environment variable HONCHO_URL must be an http"):
        options()


def test_the_environment_names_no_workspace(monkeypatch):
    monkeypatch.setenv("HONCHO_WORKSPACE_ID", "shared")
    reader = Connections(options(base_url=URL), "honcho").client("r_xp", reads=True)
    assert (reader.base_url, reader.workspace_id) == (URL, "r_xp")


def test_the_key_never_shows(monkeypatch):
    monkeypatch.setenv("HONCHO_API_KEY", "from-the-environment")
    chosen = options(base_url=URL, api_key="sk-secret")
    connections = Connections(chosen, "honcho")
    assert "sk-secret" not in repr(chosen)
    assert connections.reads.headers == {"Authorization": "Bearer sk-secret"}
    assert Connections(options(base_url=URL), "honcho").writes.headers == {}


def test_the_example_configuration_is_valid(monkeypatch):
    monkeypatch.delenv("HONCHO_API_KEY", raising=False)
    chosen = load_config(CONFIGS / "honcho.yaml").parse_options(HonchoOptions)
    assert chosen.retrieval == "context"


@pytest.mark.thorough
@given(scopes, scopes)
@settings(max_examples=300)
def test_two_scopes_never_share_a_workspace_and_ids_are_honchos(first, second):
    made = encoder()
    ids = [made.native_scope(scope) for scope in (first, second)]
    assert (ids[0]["workspace_id"] == ids[1]["workspace_id"]) == (first == second)
    assert (ids[0]["peer_id"] == ids[1]["peer_id"]) == (first.persona_id == second.persona_id)
    for native in ids:
        assert native["peer_id"] not in ("assistant", "system")
        for value in native.values():
            assert re.fullmatch("[a-zA-Z0-9_-]{1,512}", value)


def test_a_template_that_would_share_is_refused():
    with pytest.raises(ScopeError, match="persona_id"):
        encoder(workspace_template="{run_id}")
    made = encoder(workspace_template="lab_x{run_id}_x{persona_id}")
    scope = MemoryScope(run_id="r 1", persona_id="ada")
    assert made.native_scope(scope)["workspace_id"] == "lab_xr_201_xada"
    with pytest.raises(ScopeError, match="agent_id"):
        made.native_scope(scope.model_copy(update={"agent_id": "bot"}))


_TEXTS = st.lists(
    st.sampled_from(
        ["<|endoftext|>", "<|fim_middle|>", "<|", "|>", "x" * 9_000, " " * 9_000, "é", "🐍 ", "\x00"]
    )
    | st.text(max_size=8)
).map("".join)


@pytest.mark.thorough
@given(_TEXTS)
@example("x" + " " * 30_000)
@example(" " * 60_000)
@example("\x00")
@example("x" * 25_000 + " " * 30_000)
@example("x" * 25_000 + " " * 20_000)
@example(" " * 24_999 + "é" + " " * 24_999)
@settings(max_examples=300)
def test_parts_are_the_text_again_and_each_is_one_that_honcho_takes(text):
    try:
        pieces = split_text(text)
    except ValueError:
        assert re.search(rf"\s{{{MAX_CONTENT // 2}}}", text.replace("\x00", ""))
        return
    text = text.replace("\x00", "")
    assert "".join(pieces) == (text if text.strip() else "")
    for piece in pieces:
        assert len(piece) <= MAX_CONTENT
        assert piece.strip() or len(pieces) == 1
        assert "<|endoftext|>" not in piece
        assert "<|fim_middle|>" not in piece


PROSE = """## Explicit Observations

[2024-05-01 09:00:00] ada stated: My dog is called Rover.
[2024-05-01 09:00:01] ada stated: two
lines

## Deductive Observations

[2024-05-02 09:00:00] ada has a dog
   Premises:
   - ada stated: My dog is called Rover.

## Inductive Observations

 **Pattern** [high]: ada likes animals
   **Type**: preference
"""


def test_prose_keeps_its_words_its_order_and_its_headings():
    entries = list(prose_entries(PROSE, "ada"))
    assert [entry.group for entry in entries] == [
        "Explicit Observations", "Explicit Observations", "Deductive Observations", "Inductive Observations",
    ]  # fmt: skip
    assert entries[1].text == "[2024-05-01 09:00:01] ada stated: two\n  lines"
    assert entries[2].text.split("\n")[1:] == ["     Premises:", "     - ada stated: My dog is called Rover."]
    section = render_section("honcho", "s", entries)
    words = [line.strip() for line in PROSE.replace("## ", "").splitlines() if line.strip()]
    shown = [
        line.strip().strip("[]") if line in _headings(entries) else line.strip()
        for line in section.split("\n")
    ]
    assert shown[1:-1] == words
    assert list(prose_entries(None, "ada")) == list(prose_entries("", "ada")) == []


def _headings(entries):
    return {f"[{entry.group}]" for entry in entries}


@given(st.text())
def test_no_prose_loses_a_word_or_looks_like_an_entry(text):
    text = text.replace("#", "")
    entries = about_entries(text, [text], "ada")
    assert all(entry.prose and not entry.text.startswith("- ") for entry in entries)
    assert all(line.startswith("  ") for entry in entries for line in entry.text.split("\n")[1:])
