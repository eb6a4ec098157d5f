"""Configuration: one clear line with file, field and fix; secrets never shown (DESIGN section 4)."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from memory import ConfigError, MemoryScope
from memory.plugins.blocks import parse_block
from memory.plugins.config import load_config

GOOD = """\
memory:
  backend: mem0
  scope:
    run_id: run1
    persona_id: alice
  budget:
    max_tokens: 500
  backends:
    mem0:
      top_k: 12
      llm:
        api_key: ${MY_API_KEY}
        base_url: http://me:hunter2@127.0.0.1:1/v1
        note: ${MY_SECRET}
    graphiti:
      password: ${NOT_SET_AND_NOT_NEEDED}
run:
  seed: 7
  output: somewhere
"""
ENV = {"MY_API_KEY": "sk-1234", "MY_SECRET": "hush", "NAME": "carol"}


def write(tmp_path, text):
    path = tmp_path / "memory.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_file_is_resolved_for_its_provider(tmp_path):
    config = load_config(write(tmp_path, GOOD), env=ENV)
    assert (config.provider, config.spelling, config.where) == ("mem0", "backend", "memory.backends.mem0")
    assert config.options["llm"]["api_key"] == "sk-1234"
    assert config.memory.scope.persona_id == "alice"
    assert config.memory.budget.max_tokens == 500
    assert config.run == {"seed": 7, "output": "somewhere"}


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.thorough
def test_the_hash_is_of_what_determines_results(tmp_path):
    def digest(text=GOOD, **env):
        config = load_config(write(tmp_path, text), env={**ENV, **env})
        return config.config_hash(config.parse_options(Anything))

    original = digest()
    assert digest(MY_API_KEY="sk-other") == original
    assert digest(GOOD.replace("graphiti:", "zep:")) == original
    assert digest(GOOD.replace("  budget", "  data_dir: over/there\n  budget")) == original
    assert digest(GOOD.replace("top_k: 12", "top_k: 13")) != original
    assert digest(GOOD.replace("alice", "bob")) != original
    assert digest(GOOD.replace("max_tokens: 500", "max_tokens: 501")) != original
    assert digest(GOOD.replace("backend: mem0", "backend: zep").replace("    mem0:", "    zep:")) != original
    assert len(original) == 64


def test_variables_have_defaults_and_an_escape():
    content = {
        "memory": {
            "condition": "x",
            "scope": {"run_id": "${NAME}-${OTHER:-none}", "persona_id": "$${NAME}"},
            "conditions": {"x": None},
        }
    }
    scope = load_config(content, env=ENV).memory.scope
    assert (scope.run_id, scope.persona_id) == ("carol-none", "${NAME}")


def broken(old, new):
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "memory: is missing"),
        ("backend: mem0", ":1: backend: is not a known section; it belongs below 'memory:'"),
        ("memory: {}\nbench: {}", ":2: bench: is not a known section; 'memslot run' plays this file"),
        (
            "memory:\n  backend: mem0\n  mem0: {top_k: 5}\n",
            ":3: memory.mem0: belongs below 'memory.backends:'",
        ),
        (
            "memory:\n  backend: full_history\n  conditions:\n    Full-History: {}\n",
            ":4: memory.conditions.Full-History: is read as another provider's; write full_history",
        ),
        (
            "memory: {backend: mem0, scope: {run_id: 2024, persona_id: ada}}",
            ":1: memory.scope: run_id must be text; put it in quotes",
        ),
        (broken("  backend: mem0", "  backend: [mem0]"), ":2: memory.backend: must be the name"),
        (
            broken("max_tokens", "max_token"),
            r":7: memory.budget.max_token: is not a known field; did you mean max_tokens",
        ),
        (broken("${MY_API_KEY}", "${NOBODY}"), r":12: .*llm.api_key: needs the environment variable NOBODY"),
        (broken("run:\n  seed: 7\n  output: somewhere", "run: 7"), r"run: must be a mapping"),
    ],
)
def test_bad_files_are_one_line_naming_field_and_fix(tmp_path, text, complaint):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_config(path, env=ENV)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert "hunter2" not in message


def test_unset_variables_are_named_together(tmp_path):
    path = write(
        tmp_path, GOOD.replace("${MY_API_KEY}", "${FIRST}").replace("run1", "${SECOND}") + "  x: ${THIRD}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    named = [line.split("environment variable ")[1].split(";")[0] for line in str(caught.value).splitlines()]
    assert {"FIRST", "SECOND", "THIRD"} <= set(named)


def test_a_date_stays_text(tmp_path):
    config = load_config(write(tmp_path, GOOD + "  as_of: 2024-05-01\n"), env=ENV)
    assert config.run["as_of"] == "2024-05-01"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    top_k: int = 5


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    search: Inner | None = None
    stores: list[Inner] = []
    embedder: Literal["lexical"] | Inner = "lexical"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"serach": {}}, "m.serach: is not a known field; did you mean search?"),
        ({"search": {"topk": 1}}, "m.search.topk: is not a known field; did you mean top_k?"),
        ({"embedder": {"topk": 1}}, "m.embedder.topk: is not a known field; did you mean top_k?"),
        ({"stores": [{"top_k": "sk-1234"}]}, "m.stores.0.top_k: Input should be a valid integer"),
    ],
)
def test_typos_in_a_providers_block_get_the_nearest_name(data, complaint):
    with pytest.raises(ConfigError) as caught:
        parse_block(Options, data, "m")
    assert complaint in str(caught.value)
    assert "sk-1234" not in str(caught.value)


@pytest.mark.parametrize(
    ("block", "durability"), [("true", "process"), ("{}", "process"), ("{durability: machine}", "machine")]
)
def test_the_journal_is_one_line(tmp_path, block, durability):
    config = tmp_path / "c.yaml"
    config.write_text(f"memory: {{condition: no_memory, conditions: {{no_memory: {{}}}}, journal: {block}}}")
    journal = load_config(config).memory.journal
    assert journal.durability == durability


def test_without_a_journal_there_is_none_and_a_wrong_one_is_named(tmp_path):
    config = tmp_path / "c.yaml"
    for block, said in (
        ("false", None),
        ("{durability: disk}", "durability"),
        ("{size: 1}", "size"),
        ("[a]", "journal"),
    ):
        config.write_text(
            f"memory: {{condition: no_memory, conditions: {{no_memory: {{}}}}, journal: {block}}}"
        )
        if said is None:
            assert load_config(config).memory.journal is None
        else:
            with pytest.raises(ConfigError, match=f"memory.journal.*{said}|memory.{said}"):
                load_config(config)


def test_a_scope_may_say_user_id(tmp_path):
    path = write(tmp_path, "memory: {backend: mem0, scope: {run_id: r, user_id: bob}}")
    assert load_config(path).memory.scope == MemoryScope(run_id="r", persona_id="bob")
