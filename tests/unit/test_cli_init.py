"""The files that ``memslot setup`` writes: they load, and say the truth about defaults."""

import re
from pathlib import Path

import pytest
import yaml
from cli_support import error_line, fake_plugin, invoke
from variants import plain

from memory.cli._template import render
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.settings import MemorySettings

ROWS = {row.name: row for row in MemoryAdapterRegistry().rows() if row.info is not None}
EACH_ROW = pytest.mark.parametrize("name", plain("mem0", "memos", of=ROWS))


@EACH_ROW
def test_what_it_writes_loads(name, tmp_path):
    row = ROWS[name]
    path = tmp_path / "new.yaml"
    result = invoke("setup", path, "--backend", row.name, "--full")
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.stdout
    assert "to be filled in" not in result.stdout
    config = load_config(path)
    assert MemoryAdapterRegistry().selected(config) == row.info
    config.parse_options(row.info.options)
    for name in row.info.options.model_fields:
        assert re.search(rf"^ +(# )?{name}:", path.read_text(encoding="utf-8"), re.M), f"{name} is not shown"


@EACH_ROW
def test_the_defaults_it_shows_are_the_defaults(name, tmp_path):
    row = ROWS[name]
    path = tmp_path / "new.yaml"
    path.write_text(render(row.info, full=True), encoding="utf-8")
    before = load_config(path).parse_options(row.info.options)
    # Uncomment every option that fits one line; prose and blocks stay comments.
    names = "|".join(map(re.escape, row.info.options.model_fields))
    text, count = re.subn(
        rf"^      # ((?:{names}): .+)$", r"      \1", path.read_text(encoding="utf-8"), flags=re.M
    )
    path.write_text(text, encoding="utf-8")
    assert load_config(path).parse_options(row.info.options) == before
    assert count or all(field.is_required() for field in row.info.options.model_fields.values())


def test_the_common_part_shows_the_defaults_too(tmp_path):
    path = tmp_path / "new.yaml"
    text = render(ROWS["mem0"].info, full=True)
    path.write_text(text, encoding="utf-8")
    settings = load_config(path).memory
    defaults = MemorySettings()
    assert settings.budget == defaults.budget
    comments = re.findall(r"^  (?:# )?((?:data_dir|token_counter): .+|deadlines:|  \w+_s: .+)$", text, re.M)
    shown = yaml.safe_load("\n".join(comments))
    assert shown == {
        "data_dir": str(defaults.data_dir),
        "token_counter": defaults.token_counter,
        "deadlines": defaults.deadlines.model_dump(),
    }


@pytest.mark.thorough
def test_mem0_is_the_default_and_an_existing_file_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("setup").exit_code == 0
    written = Path("memslot.yaml").read_text(encoding="utf-8")
    assert load_config("memslot.yaml").provider == "mem0"
    assert "--force" in error_line(invoke("setup", "--backend", "full_history"), 2)
    assert Path("memslot.yaml").read_text(encoding="utf-8") == written
    assert invoke("setup", "--backend", "full_history", "--force").exit_code == 0
    assert load_config("memslot.yaml").provider == "full_history"


def test_a_third_party_with_every_kind_of_field(add_plugin, tmp_path):
    options = '''
from pathlib import Path
from pydantic import Field, SecretStr
from memory.adapter import PluginOptions

class Part(PluginOptions):
    url: str
    retries: int = 3

class Options(PluginOptions):
    endpoint: str = Field(examples=["http://localhost:9000"])
    """Where it listens: a "quoted" # hash, {braces} and a very long line """ + "that goes on and on " * 6
    collection: str
    size: int
    ratio: float = 0.5
    part: Part | None = None
    parts: list[Part] = Field(default_factory=list)
    named: dict[str, int] = Field(default_factory=dict)
    key: SecretStr | None = None
    path: Path | None = None
    on: bool = True
    text: str = "yes: no # maybe"
'''  # fmt: skip
    add_plugin("rich", fake_plugin("rich", before=options, info='summary="", options=Options'))
    path = tmp_path / "new.yaml"
    result = invoke("setup", path, "--backend", "rich")
    assert result.exit_code == 0, result.output
    loaded = load_config(path)
    assert loaded.options == {"endpoint": "http://localhost:9000", "collection": "change me", "size": 1}
    model = MemoryAdapterRegistry().info("rich").options
    assert loaded.parse_options(model).text == "yes: no # maybe"


def test_what_must_be_filled_in_is_said(add_plugin, tmp_path):
    options = (
        "from pydantic import Field\nfrom memory.adapter import PluginOptions\n"
        "class Options(PluginOptions):\n    port: int = Field(gt=1024)\n"
    )
    add_plugin("picky", fake_plugin("picky", before=options, info='summary="", options=Options'))
    result = invoke("setup", tmp_path / "new.yaml", "--backend", "picky")
    assert result.exit_code == 0
    assert "to be filled in" in result.stdout
    assert "memory.backends.picky.port" in result.stdout


def test_bad_input_writes_nothing(tmp_path):
    path = tmp_path / "new.yaml"
    assert "did you mean mem0" in error_line(invoke("setup", path, "--backend", "mem00"), 2)
    assert not path.exists()


def test_a_module_that_hides_the_package_is_named(tmp_path):
    (tmp_path / "memory.py").touch()
    said = invoke("setup", tmp_path / "two.yaml").stdout
    assert "hidden: memory.py beside it hides this package from scripts there" in said


def test_an_unwritable_place_is_one_line(tmp_path):
    assert "cannot be written" in error_line(invoke("setup", tmp_path / "nowhere" / "new.yaml"), 2)
