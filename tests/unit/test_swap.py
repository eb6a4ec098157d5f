"""The swap is one word: every provider by ``memory.backend`` alone, and every message leads on."""

import json
from pathlib import Path

import pytest
from bench_support import locomo_sample
from cli_support import invoke
from one_loop import anyio_backend as anyio_backend

from memory import ConfigError, MemoryScope, SupportsReadiness, open_memory
from memory.bench.engine.matrix import load_experiment
from memory.doctor.runner import Doctor
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry

ALICE = MemoryScope(run_id="swap", persona_id="alice")
REGISTRY = MemoryAdapterRegistry()
NAMES = REGISTRY.names()
WITH_FILES = ("mem0", "full_history", "simple_rag", "rolling_summary")
FIXED = ("no_memory", "static_profile", "oracle_ipas")
LACKING = {
    "graphiti": "add llm: {model: ..., base_url: ...",
    "static_profile": "give profile or profiles",
    "oracle_ipas": "oracle_ipas.matrix: is required, e.g.",
    "mirror": "mirror.primary: is required, e.g. full_history & shadows: is required, e.g. ['rolling_summary']",
}
BLOCKS = """
  conditions:
    static_profile: {profile: Alice likes oolong.}
    oracle_ipas: {matrix: {alice: {work: {tea: oolong}}}}
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Where the YAML file lies; the working directory is another."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "home"


def write(directory, line, more=BLOCKS):
    path = directory / "memory.yaml"
    path.write_text(
        f"memory:\n  {line}\n  scope: {{run_id: swap, persona_id: alice}}\n{more}", encoding="utf-8"
    )
    return path


async def one_turn(path, said):
    """An agent that knows nothing of backends."""
    async with open_memory(path) as memory:
        return await memory.after_turn(user=said, assistant="Noted.", session_id="s1")


async def asked(path):
    async with open_memory(path) as memory:
        waiting = memory.capability(SupportsReadiness)
        if waiting is not None:
            await waiting.wait_until_ready(ALICE, 10)
        return await memory.before_turn("Which tea do I like?", session_id="s2")


@pytest.mark.thorough
async def test_one_word_walks_through_every_memory_and_back(directory):
    for name in WITH_FILES:
        receipt = await one_turn(
            write(directory, f"backend: {name}"), f"I like {name} tea. I prefer it always."
        )
        assert receipt.status in ("committed", "pending"), name
        assert not [text for text in receipt.warnings if "volatile" in text]
    for name in WITH_FILES:
        path = write(directory, f"backend: {name}")
        assert f"{name} tea" in await asked(path), f"{name} forgot"
    assert not list((directory.parent / "elsewhere").iterdir()), "nothing lies in the working directory"
    assert (directory / ".memslot" / "memslot.db").is_file()


@pytest.mark.thorough
async def test_what_keeps_nothing_says_volatile(directory):
    for name in FIXED:
        receipt = await one_turn(write(directory, f"backend: {name}"), "I like tea.")
        assert receipt.status == "committed"
        assert receipt.warnings[0].startswith("volatile: ")
        report = await Doctor(write(directory, f"backend: {name}")).run()
        assert report.ok
        assert "volatile" in next(check.evidence for check in report.checks if check.name == "write")


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(LACKING)))
def test_an_absent_block_means_its_defaults(name, directory):
    config = load_config(write(directory, f"backend: {name}", ""))
    model = REGISTRY.selected(config).options
    assert config.parse_options(model) == model()


@pytest.mark.parametrize("name", LACKING)
def test_what_has_no_default_is_asked_for_with_an_example(name, directory):
    path = write(directory, f"backend: {name}", "")
    config = load_config(path)
    with pytest.raises(ConfigError) as caught:
        config.parse_options(REGISTRY.selected(config).options)
    message = str(caught.value)
    assert message.startswith(f"{path}:2: memory.backends.{name}")
    assert not [part for part in LACKING[name].split(" & ") if part not in message]
    named = [other for other in NAMES if other != name and other not in LACKING[name]]
    assert not [other for other in named if other in message]


def test_a_control_under_either_word_is_the_same(directory):
    def known(line, more):
        config = load_config(write(directory, line, more))
        info = REGISTRY.selected(config)
        return info.kind, config.config_hash(config.parse_options(info.options))

    blocks = ("  conditions:\n    full_history: {}\n", "  backends:\n    full_history: {}\n", "")
    seen = {known(f"{word}: full_history", more) for word in ("backend", "condition") for more in blocks}
    assert len(seen) == 1
    assert next(iter(seen))[0] == "control"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("condition: mem0", ":2: memory.condition: mem0 is a backend and no control; write backend: mem0"),
        (
            "backend: full_histroy",
            ":2: memory.backend: no plugin is named 'full_histroy'; did you mean full_history?",
        ),
        ("condition: zep", ":2: memory.condition: no plugin is named 'zep'; known: full_history, "),
        ("backend: [mem0]", ":2: memory.backend: must be the name of one"),
        ("budget: {}", ":1: memory: selects nothing; set backend to a name that 'memslot doctor' lists"),
        ("backend: mem0\n  backends: [mem0]", ":3: memory.backends: must be a mapping"),
        ("backend: mem0\n  backends: {mem0: 0}", ":3: memory.backends.mem0: must be a mapping of options"),
        ("backend: mem0\n  backends: {mem0: []}", ":3: memory.backends.mem0: must be a mapping of options"),
        (
            "backend: mem0\n  backends: {mem0: {}}\n  conditions: {mem0: {}}",
            ":4: memory.conditions.mem0: stands under memory.backends as well; keep one",
        ),
        ("condition: static_profile", ":2: memory.conditions.static_profile: has no text"),
        ("backend: static_profile", ":2: memory.backends.static_profile: has no text"),
        ("backend: mem0\n  token_counter: no:way", ":3: memory.token_counter: 'no:way' counts no tokens"),
        (
            "backend: graphiti\n  backends: {graphiti: {search_config: combined}}",
            ":3: memory.backends.graphiti.search_config: is called recipe",
        ),
        (
            "backend: memos\n  backends: {memos: {writable_cube_template: x}}",
            ":3: memory.backends.memos.writable_cube_template: is no option",
        ),
    ],
)
def test_every_message_names_the_place_and_the_fix(directory, line, complaint):
    path = write(directory, line, "")
    result = invoke("doctor", path)
    assert result.exit_code == 2
    failed = next(text for text in result.stdout.splitlines() if text.startswith("failed"))
    assert f"{path}{complaint}" in failed


async def test_paths_in_a_file_are_relative_to_it(directory):
    await one_turn(write(directory, "backend: full_history", "  data_dir: data\n"), "I like tea.")
    assert (directory / "data" / "memslot.db").is_file()
    blocks = "  backends: {mem0: {path: mine}}\n"
    await one_turn(write(directory, "backend: mem0", blocks), "I like tea.")
    assert len(list((directory / "mine").iterdir())) >= 1


async def test_a_journal_lies_where_the_file_says(directory):
    await one_turn(write(directory, "backend: full_history", "  journal: true\n"), "I like tea.")
    assert (directory / ".memslot" / "memslot.db").is_file()
    assert json.loads(invoke("journal", "list", directory / "memory.yaml", "--json").stdout)


def test_two_places_are_two_targets_though_their_hashes_are_alike(directory):
    def of(more):
        config = load_config(write(directory, "backend: mem0", more))
        options = config.parse_options(REGISTRY.selected(config).options)
        return config.config_hash(options), config.place(options)

    default = of("")
    places = [of(more) for more in ("  data_dir: other\n", "  backends: {mem0: {path: other}}\n")]
    assert {known for known, _ in (default, *places)} == {default[0]}
    assert len({place for _, place in (default, *places)}) == 3
    assert of(f"  data_dir: {directory}/.memslot\n") == default


async def test_paths_in_a_mapping_are_relative_to_the_working_directory(directory):
    async with open_memory({"memory": {"backend": "full_history"}}, scope=ALICE) as memory:
        await memory.after_turn(user="I like tea.", assistant="Noted.", session_id="s")
    assert (directory.parent / "elsewhere" / ".memslot" / "memslot.db").is_file()


def test_paths_of_a_run_are_relative_to_the_file_but_for_those_of_the_command_line(directory):
    (directory / "talks.json").write_text("[]", encoding="utf-8")
    run = "run: {timeline: locomo, data: talks.json, output: out}\n"
    path = write(directory, "backend: full_history", run)
    (directory / "talks.json").write_text(json.dumps([locomo_sample()]), encoding="utf-8")
    settings = load_experiment(path, block="run", selected=True).settings
    assert (settings.data, settings.directory) == (directory / "talks.json", directory / "out")
    (directory / "other.json").write_text(json.dumps([locomo_sample()]), encoding="utf-8")
    given = {"data": directory / "other.json", "output": Path("here")}
    settings = load_experiment(path, block="run", selected=True, **given).settings
    assert (settings.data, settings.directory) == (directory / "other.json", Path("here"))
