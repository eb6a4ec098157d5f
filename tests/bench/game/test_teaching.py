"""Tests do not teach: what a memory keeps of the questions of tests gains it nothing, and is seen."""

from dataclasses import replace
from typing import ClassVar

import pytest
from game_support import begin, lines, matrix, play, scores, verify
from test_liars import Honest, figures
from test_liars import played as of_liar

from memory import ConfigError
from memory.adapter import ContextEntry
from memory.bench.data.language import load_language
from memory.plugins.registry import MemoryAdapterRegistry

SIZE = {"users": 1, "sessions": 20, "tests": 9, "attributes": 5}


class QueriesOnly(Honest):
    """Ignores everything it is told, and shows what tests have asked, from some question on."""

    begins_after = 0

    def __init__(self):
        super().__init__()
        self.kept: list[str] = []

    async def record_event(self, event):
        return self.receipt(event, "keep", [event.event_id])

    async def retrieve(self, request):
        if (request.session_id or "").startswith("test"):
            self.kept.append(request.query)
        entries = tuple(map(ContextEntry, self.kept[self.begins_after :]))
        return self.found(request, "show", entries, {})


class OnServer(QueriesOnly):
    """The same, on a server that no copy can be made of."""

    asked_of_server: ClassVar[list[str]] = []

    def __init__(self):
        super().__init__()
        self.kept = self.asked_of_server
        self.traits = replace(self.traits, store="https://memory.example")


class LateOnServer(OnServer):
    begins_after = 6


class ReadsLabels(Honest):
    """Reads no word, and shows the newest thing that was said of what is labelled alike."""

    def shown(self, entries, request):
        events = self.events[request.scope]
        newest = {}
        for entry in sorted(entries, key=lambda entry: str(entry.timestamp)):
            event = events[entry.event_ids[0]]
            if event.attribute is not None:
                newest[event.context, event.attribute] = entry
        return list(newest.values())


def played(out, memory, **more):
    OnServer.asked_of_server.clear()
    return of_liar(out, memory, **{"game": SIZE, "executor": {"kind": "local"}, **more})


@pytest.mark.thorough
@pytest.mark.parametrize("memory", [QueriesOnly, OnServer, LateOnServer])
def test_who_keeps_only_the_questions_of_tests_gains_nothing(tmp_path, memory):
    outcome = played(tmp_path, memory)
    found = figures(outcome)
    assert found["style fit"] == 0.0
    assert not found["shown"]
    counts = [cell.counts for cell in outcome.manifest.cells]
    assert all(count["answered_otherwise"] for count in counts)
    checked = verify(outcome.directory)
    assert not checked.deviations
    assert len(checked.learning) == 1
    assert "learns from what it is asked" in checked.learning[0]
    page = outcome.report.read_text(encoding="utf-8")
    assert "Control of contamination" in page
    asked = sum(count["asked_again"] for count in counts)
    assert f">{asked}</td>" in page
    assert all(measure.again is not None for measure in outcome.metrics.providers[0].measures
               if measure.estimate.value is not None)  # fmt: skip


@pytest.mark.thorough
def test_an_honest_memory_answers_the_same_again(tmp_path):
    outcome = played(tmp_path, Honest)
    for cell in outcome.manifest.cells:
        assert cell.counts["asked_again"] > 0
        assert cell.counts["answered_otherwise"] == 0
    assert verify(outcome.directory).learning == ()
    ways = {
        row["way"]
        for cell in outcome.manifest.cells
        for row in lines(outcome.directory / "cells" / cell.cell_id / "journal.jsonl")
        if row["kind"] == "test"
    }
    assert ways == {"told again"}


@pytest.mark.thorough
def test_labels_reach_a_memory_only_where_the_file_says_so_and_the_page_tells(tmp_path):
    without, told = (played(tmp_path / str(labels), ReadsLabels, labels=labels) for labels in (False, True))
    assert figures(without)["style fit"] == 0.0
    assert (figures(told)["style fit"] or 0.0) > 0.5
    said = "Memories were told the labels of the script"
    assert said in told.report.read_text(encoding="utf-8")
    assert said not in without.report.read_text(encoding="utf-8")


class Watches(Honest):
    """Keeps everything that a memory can see of where it is."""

    seen: ClassVar[set[str]] = set()

    async def record_event(self, event):
        self.seen.update((event.scope.run_id, event.session_id, event.event_id, event.turn_id))
        return await super().record_event(event)


@pytest.mark.thorough
def test_neither_seed_nor_change_can_be_read_in_a_name(tmp_path):
    outcome = played(tmp_path, Watches, seeds=[987654321, 4])
    assert not [name for name in Watches.seen if "987654321" in name or "evolv" in name]
    assert len({cell.scope.run_id for cell in outcome.manifest.cells}) == 2
    assert not [
        cell.scope.run_id
        for cell in outcome.manifest.cells
        if outcome.manifest.experiment_id in cell.scope.run_id
    ]
    places = [str(path) for path in outcome.directory.rglob("*")]
    assert not [place for place in places if "987654321" in place]


@pytest.mark.thorough
def test_a_list_of_the_package_s_phrases_finds_little(tmp_path):
    """The eight wordings of each setting: 99 % of style fit before they had surface forms."""
    words = load_language()
    phrases = [w.casefold() for item in words.attributes for m in item.markers for w in words.wordings(m)]

    class KnowsThePackage(Honest):
        def shown(self, entries, request):
            return [entry for entry in entries if any(phrase in entry.text.casefold() for phrase in phrases)]

    knows = played(tmp_path / "knows", KnowsThePackage, game={**SIZE, "users": 3})
    assert (figures(knows)["style fit"] or 0.0) < 0.65


@pytest.mark.thorough
def test_a_phrase_list_is_a_control_of_the_matrix(tmp_path):
    providers = ["full_history", {"provider": "full_history", "name": "phrase list", "phrase_list": True}]
    done = play(tmp_path, *providers, game=SIZE, budgets=[200])
    found = scores(done)
    assert (found["phrase list"]["style fit"] or 0.0) > (found["full_history"]["style fit"] or 0.0)
    assert not verify(done.directory).deviations


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"cs": ["context", "attribute"]}, "labels: true"),
        ({"providers": [{"provider": "no_memory", "phrase_list": True}]}, "made of full_history"),
        ({"timeline": "locomo", "data": "x.json", "wordings": "w.yaml"}, "wordings are those of a game"),
    ],
)
def test_what_would_hand_out_answers_is_refused(tmp_path, given, why):
    with pytest.raises(ConfigError, match=why):
        matrix(tmp_path, *given.pop("providers", ["no_memory"]), **given)


@pytest.mark.thorough
@pytest.mark.parametrize("provider", ["full_history", "simple_rag"])
def test_what_a_memory_writes_into_its_files_in_a_test_is_gone_after_it(tmp_path, provider):
    registry, real = MemoryAdapterRegistry(), MemoryAdapterRegistry.create
    found = []

    def create(config, **more):
        adapter = real(registry, config, **more)
        kept, retrieve = more["data_dir"] / "queries", adapter.retrieve

        async def keeping(request):
            if (request.session_id or "").startswith("test"):
                asked = kept.read_text("utf-8") if kept.exists() else ""
                found.append(bool(asked) and request.session_id not in asked)
                kept.write_text(f"{asked}{request.session_id}\n", "utf-8")
            answer = await retrieve(request)
            return answer

        adapter.retrieve = keeping
        return adapter

    registry.create = create
    done = begin(matrix(tmp_path, provider, game={**SIZE, "tests": 5}), registry=registry)
    (cell,) = done.manifest.cells
    assert cell.status == "completed"
    assert found
    assert not any(found), "no test meets what another one left"
    place = done.directory / "cells" / cell.cell_id
    assert not [*place.rglob("queries")]
    assert not (place / "store-test").exists()
    rows = lines(place / "journal.jsonl")
    assert {row["way"] for row in rows if row["kind"] == "test"} == {"copy"}


@pytest.mark.thorough
def test_a_memory_with_rows_in_the_store_of_memslot_is_copied_for_each_test(tmp_path):
    outcome = play(tmp_path, "full_history", "rolling_summary", game={**SIZE, "sessions": 10, "tests": 3})
    rows = [row for file in outcome.directory.glob("cells/*/journal.jsonl") for row in lines(file)]
    assert {row["way"] for row in rows if row["kind"] == "test"} == {"copy"}
