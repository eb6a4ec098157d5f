"""Each backend's block of the design's example configuration loads, or its error names an option there is."""

import pytest
from backends import of_backend
from cli_support import invoke

from memory import ConfigError, ScopeError
from memory.plugins.opening import build_slot


def options_of(backend):
    """The model of a backend's block."""
    found = of_backend(f"{backend}.options:{backend.capitalize()}Options")
    return found


# What the design leaves out and the backend cannot do without.
LLM = {"llm": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}}
SERVER = {"base_url": "http://127.0.0.1:1"}
DATABASE = {"graph_db": "neo4j-community"}


SECTION_4_3 = """
memory:
  backend: {backend}
  scope:
    run_id: user_a_c1
    persona_id: user_a
    agent_id: null
  read_only_test_sessions: true
  backends:
    mem0:
      top_k: 12
      threshold: 0.1
      rerank: true
    graphiti:
      group_id_template: "{{run_id}}:{{persona_id}}"
      search_config: combined_hybrid
    honcho:
      workspace_template: "{{run_id}}"
      context_tokens: 8000
    memos:
      writable_cube_template: "{{run_id}}:{{persona_id}}"
      mode: mixture
      async_mode: async
"""
SECTION_8 = """
memory:
  backend: graphiti
  scope:
    run_id: user_a_c1
  backends:
    graphiti:
      driver: neo4j
      group_id_template: "{run_id}:{persona_id}"
      search_mode: hybrid
"""
SECTION_8_CONTROL = """
memory:
  condition: rolling_summary
  scope:
    run_id: user_a_c1
    persona_id: user_a
  conditions:
    rolling_summary:
      max_tokens: 8000
      update_policy: after_accumulation_session
"""
FILES = {
    # The file, and the fields that are refused, in one round.
    "mem0": (SECTION_4_3.format(backend="mem0"), ()),
    "graphiti": (
        SECTION_4_3.format(backend="graphiti"),
        (
            "graphiti.group_id_template: is no option",
            "graphiti.search_config: is called recipe",
            "llm is required",
        ),
    ),
    "honcho": (
        SECTION_4_3.format(backend="honcho"),
        ("honcho.workspace_template: no template uses {persona_id}",),
    ),
    "memos": (
        SECTION_4_3.format(backend="memos"),
        ("memos.writable_cube_template: is no option", "memos.mode: mixture is a way to search"),
    ),
    "section 8": (
        SECTION_8,
        (
            "scope.persona_id: is required",
            "graphiti.group_id_template: is no option",
            "graphiti.search_mode: is called recipe",
            "llm is required",
        ),
    ),
    "a condition": (SECTION_8_CONTROL, ()),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_document_loads_or_says_all_that_must_change(name, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    text, refused = FILES[name]
    if name in ("mem0", "graphiti", "honcho", "memos"):
        of_backend(name)
    file = tmp_path / "memory.yaml"
    file.write_text(text, encoding="utf-8")
    if not refused:
        shown = invoke("tools", "config", "show", file)
        assert shown.exit_code == 0, shown.output
        return
    with pytest.raises((ConfigError, ScopeError)) as raised:
        build_slot(file, data_dir=tmp_path / "data")
    lines = str(raised.value).splitlines()
    assert len(lines) == len(refused)
    for why in refused:
        assert [line for line in lines if why in line], (why, lines)
