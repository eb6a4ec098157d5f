"""``memslot tools config show``: complete, and without a secret wherever one may hide."""

import json

import pytest
import yaml
from backends import of_backend
from cli_support import error_line, invoke

from memory.plugins.config import load_config

SECRETS = (
    "sk-literal", "sk-from-env", "hunter2", "topsecret", "from-dsn", "in-query", "header-key", "in-list",
    "my allergy",
)  # fmt: skip

TEXT = """
memory:
  backend: mem0
  scope: {run_id: r, persona_id: p}
  backends:
    mem0:
      llm: {model: m, api_key: sk-literal, base_url: "http://user:hunter2@localhost/v1?api_key=in-query"}
      embedder: {model: e, api_key: "${SOME_API_KEY}"}
      vector_store:
        provider: pgvector
        config:
          {password: topsecret, connection_string: "postgres://u:from-dsn@h/db", http_auth: [in-list, in-list]}
      reranker: {provider: r, config: {pwd: topsecret, passphrase: topsecret, headers: {X-Api-Key: header-key}}}
      custom_instructions: Leave my allergy out.
      path: /home/topsecret/store
      dimensions: 8
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-from-env")
    path = tmp_path / "config.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_no_secret_is_shown(config, flags):
    result = invoke("tools", "config", "show", config, *flags)
    assert result.exit_code == 0, result.output
    assert not [secret for secret in SECRETS if secret in result.output]
    assert "http://localhost/v1" in result.stdout
    assert "pgvector" in result.stdout


def test_defaults_are_filled_in(config):
    shown = yaml.safe_load(invoke("tools", "config", "show", config).stdout)
    options = shown["memory"]["backends"]["mem0"]
    assert options["collection"] == "memslot"
    assert options["vector_store"]["provider"] == "pgvector"
    assert shown["memory"]["deadlines"]["retrieve_s"] == 15.0
    about = json.loads(invoke("tools", "config", "show", config, "--json").stdout)
    assert about["config"] == shown
    loaded = load_config(config)
    options = loaded.parse_options(of_backend("mem0.options:Mem0Options"))
    assert about["config_hash"] == loaded.config_hash(options)
    assert (about["provider"], about["kind"]) == ("mem0", "architecture")


def test_what_it_shows_can_be_loaded_again(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("memory: {condition: full_history, conditions: {full_history: {}}}", encoding="utf-8")
    shown = invoke("tools", "config", "show", path).stdout
    path.write_text(shown, encoding="utf-8")
    assert yaml.safe_load(invoke("tools", "config", "show", path).stdout) == yaml.safe_load(shown)


def test_a_wrong_option_is_named_and_its_value_is_not(config):
    config.write_text(TEXT.replace("model: m,", "model: m, api_kee: sk-literal,"), encoding="utf-8")
    line = error_line(invoke("tools", "config", "show", config), 2)
    assert "memory.backends.mem0.llm.api_kee: is not a known field; did you mean api_key?" in line
    assert not [secret for secret in SECRETS if secret in line]


def test_a_block_that_no_plugin_reads_is_told(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("memory:\n  backend: full_history\n  backends:\n    grafiti: {x: 1}\n", encoding="utf-8")
    result = invoke("tools", "config", "show", path)
    assert result.exit_code == 0
    assert result.stderr == (
        f"warning: {path}:4: memory.backends.grafiti: no plugin has this name; did you mean graphiti?\n"
    )
    assert "memory.backends.grafiti: no plugin has this name" in invoke("doctor", path).stdout
