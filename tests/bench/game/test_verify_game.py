"""An experiment that was left alone verifies; in one of which any one value was changed, the change is named."""

import json
import shutil

import pytest
from game_support import SIZE, begin, lines, matrix, play, resume, verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from variants import examples

from memory import ConfigError
from memory.bench.engine.experiment import measure
from memory.bench.engine.files import file_hashes, write_record
from memory.bench.engine.manifest import read_manifest
from memory.bench.report.report import write_page
from memory.contract.errors import BackendRejected
from memory.plugins.registry import MemoryAdapterRegistry

CELL = "cells/02-s1-r1-p1"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    size = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}
    return play(tmp_path_factory.mktemp("kept"), "no_memory", "full_history", game=size).directory


@pytest.fixture
def copy(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / kept.name)


def deviations_text(found):
    return "\n".join(
        f"{deviation.where}: {deviation.recorded} / {deviation.computed}" for deviation in found.deviations
    )


def rewritten(file, change):
    rows = lines(file)
    change(rows)
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def covered_up(directory):
    """What whoever changed a cell's files would do so that nobody sees it: each hash, figure and page anew."""
    manifest = read_manifest(directory)
    cells = []
    for cell in manifest.cells:
        place = directory / "cells" / cell.cell_id
        cells.append(cell.model_copy(update={"files": file_hashes(place)}))
    manifest = manifest.model_copy(update={"cells": tuple(cells)})
    manifest = manifest.model_copy(update={"hashes": manifest.parts()})
    manifest = manifest.model_copy(update={"record_sha256": manifest.own_hash()})
    write_record(manifest, directory / "manifest.json")
    metrics = measure(directory, manifest)
    write_record(metrics, directory / "metrics.json")
    write_page(directory, manifest, metrics)


def claimed_complete(directory):
    """A copy in which a cell that failed is said to have been played to its end, and covered up."""
    copy = shutil.copytree(directory, directory.with_name("claimed"))
    whole, well = read_manifest(copy), {"status": "completed", "fault": None, "error": None}

    def lost(rows):
        for row in rows:
            if row["status"] == "failed":
                row.update(status="missing", error=None)

    for cell in whole.cells:
        rewritten(copy / "cells" / cell.cell_id / "results.jsonl", lost)
    cells = tuple(cell.model_copy(update=well) for cell in whole.cells)
    write_record(whole.model_copy(update={"cells": cells, "status": "completed"}), copy / "manifest.json")
    covered_up(copy)
    return copy


@pytest.mark.thorough
def test_an_experiment_that_was_left_alone_agrees_with_itself(kept):
    found = verify(kept)
    assert found.deviations == ()
    assert found.unchecked == ("stores: a provider's own files are not covered",)
    assert len(found.checked) == 5


LONGER = {**SIZE, "sessions": 10, "tests": 2, "attributes": 4}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"keep_texts": False}, id="no texts"),
        pytest.param({"memory": {"token_counter": "game_counter:count"}}, id="a counter of its own"),
        pytest.param({"cs": []}, id="other settings", marks=pytest.mark.thorough),
        pytest.param({"game": LONGER, "replicates": 2}, id="twice", marks=pytest.mark.thorough),
    ],
)
def test_other_experiments_agree_too(tmp_path, more):
    size = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}
    done = play(tmp_path, "simple_rag", "rolling_summary", **{"game": size, **more})
    found = verify(done.directory)
    assert found.deviations == ()
    assert ("keep_texts" in more) == ("texts were not kept" in " ".join(found.unchecked))


@pytest.mark.thorough
def test_cells_that_ended_badly_agree_with_what_they_left(tmp_path):
    experiment = matrix(tmp_path, "no_memory", "full_history", "oracle_ipas")

    class Refusing(MemoryAdapterRegistry):
        def create(self, config, **more):
            adapter, written = super().create(config, **more), [0]
            real = adapter.record_event

            async def record_event(event):
                written[0] += 1
                if written[0] > 12:
                    raise BackendRejected("the disk says no", sent=False)
                return await real(event)

            if config.provider == "full_history":
                adapter.record_event = record_event
            return adapter

    failed = begin(experiment, registry=Refusing())
    assert failed.manifest.status == "failed"
    assert verify(failed.directory).deviations == ()
    assert "cells/02-s1-r1-p1: steps: 3 / " in deviations_text(verify(claimed_complete(failed.directory)))
    again = resume(experiment, failed.directory)
    assert [cell.resumed for cell in again.manifest.cells] == [0, 1, 0]
    assert verify(failed.directory).deviations == ()


def _beats(rows):
    return (beat for row in rows for beat in row.get("records", ()))


def verdict(place):
    """Of every request that did not suit, that it did."""
    for name, each in (("results.jsonl", list), ("journal.jsonl", _beats)):
        rewritten(place / name, lambda rows, each=each: [_well(row) for row in each(rows)] and None)


def _well(row):
    if row["fit_first"] is False:
        row.update(first="current", last="current", fit_first=True, fit_last=True, turns=1)


def answer(place):
    """Of one request, what the assistant replied."""
    reply = "Certainly. I act without checking back."

    def change(rows):
        next(row for row in rows if "user" in row)["reply"] = reply

    rewritten(place / "texts.jsonl", change)
    rewritten(
        place / "journal.jsonl", lambda rows: change([text for row in rows for text in row.get("texts", ())])
    )


def section(place):
    """Of one request, what the memory showed."""

    def change(rows):
        row = next(row for row in rows if row.get("context"))
        row["context"] = row["context"][:40]

    rewritten(place / "texts.jsonl", change)
    rewritten(
        place / "journal.jsonl", lambda rows: change([text for row in rows for text in row.get("texts", ())])
    )


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (verdict, ("results.jsonl", "journal.jsonl, test_", "fit_first", "turns")),
        (answer, ("journal.jsonl, test_", "reply")),
        (section, ("texts.jsonl", "tokens")),
    ],
    ids=lambda argument: getattr(argument, "__name__", ""),
)
def test_what_was_changed_and_covered_up_is_named(copy, change, names):
    change(copy / CELL)
    assert f"{CELL}/" in deviations_text(verify(copy))
    covered_up(copy)
    named = deviations_text(verify(copy))
    assert any(name in named for name in names), named or "nothing was found"
    assert CELL in named


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("metrics.json", '"requests": 1', '"requests": 2'),
        ("report.html", "full_history", "full_hist0ry"),
        ("manifest.json", '"provider": null', '"provider": "openai"'),
    ],
)
def test_a_figure_a_page_and_a_manifest_that_were_changed_are_named(copy, name, old, new):
    text = (copy / name).read_text("utf-8")
    assert old in text
    (copy / name).write_text(text.replace(old, new, 1), "utf-8")
    assert name in deviations_text(verify(copy))


def test_a_cell_that_is_missing_or_double_is_named(copy):
    """However well it is covered up: a persona less is a figure more."""
    whole = read_manifest(copy)
    for cells in (whole.cells[:1], (*whole.cells, whole.cells[1])):
        write_record(whole.model_copy(update={"cells": cells}), copy / "manifest.json")
        covered_up(copy)
        assert "manifest.json: cells: 02-s1-r1-p1 (full_history): " in deviations_text(verify(copy))


def test_settings_that_nobody_can_play_by_are_named(copy):
    whole = read_manifest(copy)
    settings = {**whole.settings, "game": {"users": 0}}
    write_record(whole.model_copy(update={"settings": settings}), copy / "manifest.json")
    covered_up(copy)
    assert "manifest.json: settings: cannot be used / game.users" in deviations_text(verify(copy))


def test_texts_that_were_taken_away_are_named(copy):
    (copy / CELL / "texts.jsonl").unlink()
    covered_up(copy)
    assert f"{CELL}/texts.jsonl, line 1: " in deviations_text(verify(copy))


@pytest.mark.thorough
def test_a_file_that_is_missing_is_named(copy):
    for file in sorted(path for path in (copy / CELL).iterdir() if path.is_file() and path.name != ".lock"):
        content = file.read_bytes()
        file.unlink()
        assert file.name in deviations_text(verify(copy)), file.name
        file.write_bytes(content)
    (copy / "report.html").unlink()
    assert "report.html" in deviations_text(verify(copy))
    (copy / "metrics.json").unlink()
    with pytest.raises(ConfigError, match=r"metrics\.json does not exist"):
        verify(copy)


def test_a_file_that_cannot_be_read_is_named(copy):
    for name in ("results.jsonl", "journal.jsonl", "traces.jsonl"):
        content = (copy / CELL / name).read_bytes()
        (copy / CELL / name).unlink()
        (copy / CELL / name).mkdir()
        assert f"{CELL}: damaged" in deviations_text(verify(copy))
        (copy / CELL / name).rmdir()
        (copy / CELL / name).write_bytes(content)


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path


def flipped(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return "x" if value is None else f"{value}x"


@pytest.mark.thorough
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whichever_value_is_changed_it_is_named(kept, copy, data):
    files = sorted(
        path.relative_to(kept)
        for path in kept.rglob("*")
        if path.suffix in (".json", ".jsonl") and "store" not in path.parts
    )
    name = data.draw(st.sampled_from(files))
    text = (kept / name).read_text("utf-8")
    rows = [json.loads(row) for row in text.splitlines()] if name.suffix == ".jsonl" else [json.loads(text)]
    number = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.sampled_from(list(leaves(rows[number]))))
    at = rows[number]
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = flipped(at[place[-1]])
    (copy / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    try:
        try:
            named = deviations_text(verify(copy))
        except ConfigError as error:
            named = str(error)
    finally:
        shutil.copyfile(kept / name, copy / name)
    assert str(name) in named, f"{name}, row {number + 1}, {place}: {named or 'nothing was found'}"
