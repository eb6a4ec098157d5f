"""A run that was left alone verifies; one in which anything was touched does not, and is told where."""

import json
import shutil
from pathlib import Path

import pytest
from bench_support import config_of, locomo_sample, registry_with, write_locomo
from cli_support import invoke

from memory import ConfigError
from memory.bench import comparison_configs, run_benchmark, run_many, run_settings
from memory.bench.engine.run_verify import verify


def played(directory, provider="fake", **block):
    import anyio

    size = {} if "timeline" in block else {"users": 2, "sessions": 8}
    config = config_of(provider, run={**size, "output": str(directory), **block})
    return anyio.run(lambda: run_benchmark(config, registry=registry_with())).directory


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    """A run of the generated game whose texts were kept."""
    return played(tmp_path_factory.mktemp("game"), keep_texts=True)


@pytest.fixture
def copy(game, tmp_path):
    return shutil.copytree(game, tmp_path / game.name)


def rows(directory, name):
    return [json.loads(line) for line in (directory / name).read_text(encoding="utf-8").splitlines()]


def rewritten(directory, name, change):
    """Changes the rows of a JSON-lines file."""
    found = rows(directory, name)
    change(found)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    (directory / name).write_text(text, encoding="utf-8")


def test_a_run_that_was_left_alone_agrees_with_itself(game):
    found = verify(game)
    assert found.deviations == ()
    assert found.unchecked == ()
    assert len(found.checked) == 6


def flip(row):
    row["preference"]["current"] = not row["preference"]["current"]


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        (
            "results.jsonl",
            lambda found: flip(found[30]),
            ("results.jsonl", "current", "metrics.json: preferences"),
        ),
        ("results.jsonl", lambda found: found.pop(), ("no result", "metrics.json: probes", "manifest.json")),
        ("results.jsonl", lambda found: found[0].update(tokens=1), ("tokens", "metrics.json: cost.tokens")),
        ("traces.jsonl", lambda found: found.pop(), ("traces.jsonl",)),
        ("texts.jsonl", lambda found: found[30].update(context=""), ("texts.jsonl", "results.jsonl")),
    ],
    ids=["a score", "a result less", "tokens", "a trace less", "a text"],
)
def test_what_was_touched_is_named(copy, name, change, told):
    rewritten(copy, name, change)
    text = "\n".join(f"{one.where} {one.recorded} {one.computed}" for one in verify(copy).deviations)
    for part in told:
        assert part in text, text


@pytest.mark.parametrize(
    ("name", "before", "after", "told"),
    [
        ("metrics.json", '"not_ready": 0', '"not_ready": 7', "metrics.json: not_ready"),
        ("report.html", "<h2>Cost</h2>", "<h2>Price</h2>", "report.html, line"),
        ("manifest.json", '"seed": 7', '"seed": 8', "the data's hash"),
    ],
)
def test_a_changed_figure_page_or_manifest_is_named(copy, name, before, after, told):
    text = (copy / name).read_text(encoding="utf-8")
    assert before in text
    (copy / name).write_text(text.replace(before, after), encoding="utf-8")
    assert any(told in one.where for one in verify(copy).deviations)


def test_what_cannot_be_checked_is_said(tmp_path):
    data = write_locomo(tmp_path / "talks.json", locomo_sample("one"))
    run = played(tmp_path / "out", timeline="locomo", data=str(data), keep_texts=True)
    without = verify(run)
    assert (without.deviations, len(without.unchecked)) == ((), 1)
    assert "talks.json with --data" in without.unchecked[0]
    assert verify(run, data).unchecked == ()
    other = write_locomo(tmp_path / "others.json", locomo_sample("two"))
    assert [one.where.split(": ")[-1] for one in verify(run, other).deviations] == ["the data's hash"]


def test_a_comparison_is_verified_with_its_runs(tmp_path):
    import anyio

    content = config_of("no_memory", run={"users": 2, "sessions": 8, "output": str(tmp_path)})
    content["memory"]["conditions"] = {"no_memory": {}, "full_history": {}}
    configs = comparison_configs(content, ["no_memory", "full_history"])
    compared = anyio.run(
        lambda: run_many(configs, settings=run_settings(configs[0]), registry=registry_with())
    )
    found = verify(compared.directory)
    assert found.deviations == ()
    assert len(found.unchecked) == 1, "no texts were kept"
    rewritten(compared.outcomes[1].directory, "results.jsonl", lambda found: flip(found[20]))
    told = {one.where.split(":")[0] for one in verify(compared.directory).deviations}
    assert told == {compared.outcomes[1].manifest.run_id, "comparison"}


def test_the_command_exits_with_1_where_anything_differs(copy, tmp_path):
    good = invoke("verify", copy)
    assert (good.exit_code, good.stdout.splitlines()[-1]) == (0, "no deviation")
    rewritten(copy, "results.jsonl", lambda found: flip(found[30]))
    bad = invoke("verify", copy, "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["ok"] is False
    with pytest.raises(ConfigError, match="does not exist; give the directory of a run"):
        verify(tmp_path)


def test_several_runs_are_verified_at_once(game, copy):
    rewritten(copy, "results.jsonl", lambda found: flip(found[30]))
    result = invoke("verify", game, copy)
    assert result.exit_code == 1
    assert f"{game}: no deviation\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"{copy}: ")
    told = json.loads(invoke("verify", game, copy, "--json").stdout)
    assert [(one["directory"], one["ok"]) for one in told] == [(str(game), True), (str(copy), False)]


def test_the_example_run_is_one_that_this_version_reads_and_verifies():
    example = Path(__file__).parents[2] / "manifests" / "example"
    found = verify(example)
    # The page is this version's, whose words may have changed since the example was written.
    assert [one for one in found.deviations if "report.html" not in one.where] == []
    assert found.unchecked == ("scores: the texts were not kept (run.keep_texts)",)


@pytest.mark.parametrize("name", ["results.jsonl", "traces.jsonl"])
def test_lines_of_another_version_are_refused_by_name(copy, name):
    rewritten(copy, name, lambda found: found.__setitem__(slice(None), [{"of": "another version"}]))
    with pytest.raises(ConfigError, match=rf"{name} is damaged, or of another version"):
        verify(copy)
