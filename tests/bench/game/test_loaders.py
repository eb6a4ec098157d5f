"""Data sets that are read: played by the same command, and refused by file and place where they are malformed."""

import csv
import json
import re
from pathlib import Path

import pytest
import yaml
from cli_support import invoke
from game_support import lines, matrix, play, scores, verify

from memory import ConfigError, InputError
from memory.bench.data.longmemeval import load_longmemeval
from memory.bench.data.mempabench import load_mempabench
from memory.bench.data.personamem import load_personamem
from memory.bench.data.timeline import ChoiceTruth, EvidenceTruth
from memory.bench.engine.manifest import read_manifest

MESSAGES = [
    {"role": "system", "content": "Name: Ada"},
    {"role": "user", "content": "I adore pottery and clay."},
    {"role": "assistant", "content": "Lovely."},
    {"role": "system", "content": "Later."},
    {"role": "user", "content": "Pottery bores me; I paint watercolours."},
    {"role": "assistant", "content": "I see."},
]
QUESTION = {
    "persona_id": "1",
    "question_id": "q1",
    "question_type": "preference",
    "topic": "art",
    "user_question_or_message": "What should I do on Sunday?",
    "correct_answer": "(b)",
    "all_options": str(["(a) Try welding metal.", "(b) Shape some clay, as pottery."]),
    "shared_context_id": "c1",
    "end_index_in_shared_context": "3",
}
LATER = {
    **QUESTION,
    "question_id": "q2",
    "end_index_in_shared_context": "6",
    "correct_answer": "(a)",
    "all_options": str(["(a) Take your watercolours.", "(b) Go welding."]),
}


def personamem(root, rows, contexts=None):
    root.mkdir(exist_ok=True)
    file = root / "questions_32k.csv"
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    said = contexts if contexts is not None else [json.dumps({"c1": MESSAGES}), json.dumps({"c2": []})]
    (root / "shared_contexts_32k.jsonl").write_text("\n".join(said) + "\n", encoding="utf-8")
    return file


def test_personamem_asks_once_what_may_be_known_is_ingested(tmp_path):
    data = load_personamem(personamem(tmp_path, [LATER, QUESTION]))
    (timeline,) = data.timelines
    assert [probe.probe_id for probe in timeline.probes] == ["q1", "q2"]
    before = [sum(len(turn.messages) for session in timeline.sessions[: probe.after] for turn in session.turns)
              for probe in timeline.probes]  # fmt: skip
    assert before == [3, 6]
    truth = timeline.probes[0].truth
    assert truth == ChoiceTruth(("Try welding metal.", "Shape some clay, as pottery."), 1)
    assert (
        load_personamem(tmp_path / "questions_32k.csv", limit_questions=1).timelines[0].probes[0].probe_id
        == "q2"
    )


def test_personamem_is_played_and_answered(tmp_path):
    root = personamem(tmp_path / "data", [QUESTION, LATER])
    done = play(tmp_path / "out", "no_memory", "full_history", timeline="personamem", data=str(root))
    assert done.manifest.status == "completed"
    shares = scores(done)
    assert shares["full_history"]["right answers"] == 1.0
    assert shares["no_memory"]["right answers"] == 0.5  # the first answer, whatever it is
    assert shares["full_history"]["evidence recall"] is None  # nothing says which turns hold the answer
    cell = done.directory / "cells" / "02-s1-r1-p1"
    assert [row["fit_first"] for row in lines(cell / "results.jsonl")] == [True, True]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"correct_answer": "(e)"},
            r"questions_32k\.csv: line 2: correct_answer is none of the 2 answers",
        ),
        ({"all_options": "none"}, r"line 2\.all_options: is not a list of texts"),
        ({"all_options": "[" * 5000}, r"line 2\.all_options: is not a list of texts"),
        ({"end_index_in_shared_context": "7"}, r"q1: end_index_in_shared_context is 7; c1 has 6 messages"),
        ({"shared_context_id": "c9"}, r"names 'c9', not in shared_contexts_32k\.jsonl"),
        ({"user_question_or_message": " "}, r"line 2\.user_question_or_message: String should have"),
    ],
)
def test_a_question_of_personamem_that_is_wrong_is_named(tmp_path, row, message):
    with pytest.raises(ConfigError, match=message):
        load_personamem(personamem(tmp_path, [{**QUESTION, **row}]))


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        (["{}", "{broken"], r"shared_contexts_32k\.jsonl is not JSON: .* at line 2"),
        (["[]"], r"line 1: must be an object"),
        ([json.dumps({"c1": [{"role": "user"}]})], r"line 1\.c1\.messages\.0\.content: is required"),
    ],
)
def test_a_context_of_personamem_that_is_wrong_is_named(tmp_path, contexts, message):
    with pytest.raises(ConfigError, match=message):
        load_personamem(personamem(tmp_path, [QUESTION], contexts))


def test_personamem_needs_its_columns_and_each_question_once(tmp_path):
    with pytest.raises(ConfigError, match=r"line 2\.question_id: is required"):
        load_personamem(personamem(tmp_path, [{"a": "b"}]))
    with pytest.raises(InputError, match="the probe id q1 occurs twice"):
        load_personamem(personamem(tmp_path, [QUESTION, QUESTION]))


ASKED = {
    "question_id": "lme1",
    "question_type": "knowledge-update",
    "question": "Which tea do I drink?",
    "answer": "oolong",
    "question_date": "2023/06/01 (Thu) 10:00",
    "haystack_session_ids": ["late", "early"],
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/01 (Mon) 09:00"],
    "haystack_sessions": [
        [
            {"role": "user", "content": "Now it is oolong.", "has_answer": True},
            {"role": "assistant", "content": "Ok."},
        ],
        [{"role": "user", "content": "I drink sencha."}],
    ],
    "answer_session_ids": ["late"],
    "extra": 1,
}


def longmemeval(file, **fields):
    file.write_text(json.dumps([{**ASKED, **fields}]), encoding="utf-8")
    return file


def test_longmemeval_is_a_timeline_for_each_question(tmp_path):
    data = load_longmemeval(longmemeval(tmp_path / "lme.json"))
    (timeline,) = data.timelines
    assert [session.turns[0].text for session in timeline.sessions] == [
        "I drink sencha.",
        "Now it is oolong.",
    ]
    (probe,) = timeline.probes
    assert probe.truth == EvidenceTruth(("lme1:002.0",), answer="oolong")


def test_longmemeval_is_played_and_its_evidence_found(tmp_path):
    file = longmemeval(tmp_path / "lme.json")
    done = play(tmp_path / "out", "no_memory", "full_history", timeline="longmemeval", data=str(file))
    shares = scores(done)
    assert shares["full_history"]["evidence recall"] == 1.0
    assert shares["full_history"]["style fit"] is None  # rules answer no question
    assert shares["no_memory"]["evidence recall"] == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"haystack_dates": ["2023/05/20"]}, r"\[0\]: has different numbers of sessions, ids and dates"),
        ({"haystack_dates": ["yesterday", "2023/05/01"]}, r"haystack_dates\.0: is not a time"),
        ({"haystack_dates": ["2023/13/01", "2023/05/01"]}, r"haystack_dates\.0: is not a time"),
        ({"question": ""}, r"\[0\]\.question: String should have"),
        (
            {"haystack_sessions": [[{"role": "cat", "content": "x"}], []]},
            r"sessions\.0\.0\.role: Input should",
        ),
        ({"answer": ["tea", True]}, r"\[0\]\.answer\.1: must be text"),
        ({"question": "\ud800?"}, r"\[0\]\.question: Input should be a valid string"),
    ],
)
def test_longmemeval_that_is_wrong_is_named(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message):
        load_longmemeval(longmemeval(tmp_path / "lme.json", **fields))


def beat(goal, attribute=None):
    own = {"attribute": attribute} if attribute else {}
    return {"goal": goal, "constraint": "as told", "branch": "No.", "hint": "I said how.", **own}


def script(context, *beats):
    return {"life_context": "At home.", "scenario": "daily", "context": context, "beats": list(beats)}


def layout(root, change=lambda files: None):
    files = {
        "acc_001.yaml": script(
            "work", beat("In reports, be terse at all times."), beat("Sum it up.", "verbosity")
        ),
        "acc_002.yaml": script("personal", beat("At home I like it when you tell me everything.")),
        "evolv_01.yaml": {
            "after": "acc_002",
            "context": "work",
            "transcript": [
                {"role": "user", "content": "At work: tell me everything, from now on."},
                {"role": "assistant", "content": "Understood."},
            ],
        },
        "probe_schedule.yaml": {
            "sessions": [
                {"id": "t1", "after": 1, **script("work", beat("Report on the audit.", "verbosity"))},
                {
                    "after": "acc_002",
                    **script("work", beat("Report on the fair.", "verbosity")),
                    "difficulty": 3,
                },
            ]
        },
        "resolved_gt.yaml": {
            "work": {
                "verbosity": [{"value": "be terse"}, {"value": "tell me everything", "from": "evolv_01"}]
            },
            "personal": {"verbosity": "tell me everything"},
        },
    }
    change(files)
    user = root / "user_a"
    user.mkdir(parents=True)
    for name, content in files.items():
        (user / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return root


def test_mempabenchs_layout_is_a_timeline_for_each_user(tmp_path):
    data = load_mempabench(layout(tmp_path))
    (timeline,) = data.timelines
    assert [session.session_id for session in timeline.sessions] == ["acc_001", "acc_002", "evolv_01"]
    assert [session.change for session in timeline.sessions] == [False, False, True]
    first, second = timeline.tests
    assert (first.session_id, first.after) == ("t1", 1)
    assert (second.session_id, second.after) == ("test_02", 3)
    truths = [test.script.beats[0].truth for test in timeline.tests]
    assert truths[1] is not None
    assert (truths[0].current, truths[0].stale, truths[0].other) == ("be terse", (), ("tell me everything",))
    assert (truths[1].current, truths[1].stale) == ("tell me everything", ("be terse",))
    assert truths[1].change == "user_a:work:verbosity:3"


@pytest.mark.thorough
def test_mempabenchs_layout_is_played(tmp_path):
    root = layout(tmp_path / "data")
    done = play(
        tmp_path / "out", "no_memory", "full_history", "oracle_ipas", timeline="mempabench", data=str(root)
    )
    assert done.manifest.status == "completed", [cell.error for cell in done.manifest.cells]
    shares = scores(done)
    assert shares["oracle_ipas"]["style fit"] == 1.0
    assert shares["no_memory"]["style fit"] == 0.0
    assert shares["full_history"]["style fit"] == 1.0
    assert not list(done.directory.glob("cells/*/texts.jsonl"))


def broken(name, *path, value=None):
    def change(files):
        if not path:
            del files[name]
            return
        at = files[name]
        for key in path[:-1]:
            at = at[key]
        if value is None:
            del at[path[-1]]
        else:
            at[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken("acc_001.yaml"), r"holds no user's directory with acc_001\.yaml"),
        (broken("resolved_gt.yaml"), r"user_a: resolved_gt\.yaml is missing"),
        (broken("acc_002.yaml", "life_context"), r"user_a/acc_002\.yaml: life_context: is required"),
        (
            broken("acc_002.yaml", "context", value="sea"),
            r"acc_002\.yaml:3: context: Input should be",
        ),
        (broken("acc_001.yaml", "beats", value=[]), r"acc_001\.yaml:4: beats: List should have"),
        (
            broken("acc_001.yaml", "beats", 1, "goal"),
            r"acc_001\.yaml:\d+: beats\.1\.goal: is required",
        ),
        (broken("evolv_01.yaml", "after", value="acc_009"), r"user_a/evolv_01: after is 9; there are 2"),
        (
            broken("probe_schedule.yaml", "sessions", 0, "beats", 0, "attribute", value="tone"),
            r"user_a/t1: attribute has no truth in resolved_gt for work\.tone by then",
        ),
        (
            broken("resolved_gt.yaml", "work", "verbosity", 1, "from", value="evolv_07"),
            r"user_a/resolved_gt: work\.verbosity: from names 'evolv_07'",
        ),
        (broken("resolved_gt.yaml", "work", "verbosity", 1, "from"), "put its values in order of time"),
        (broken("probe_schedule.yaml", "sessions", 1, "id", value="t1"), "the session id t1 occurs twice"),
    ],
)
def test_mempabenchs_layout_that_is_wrong_is_named(tmp_path, change, message):
    with pytest.raises((ConfigError, InputError), match=message):
        load_mempabench(layout(tmp_path, change))


@pytest.mark.thorough
def test_locomo_goes_through_the_same_command(tmp_path):
    talk = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I moved to Oslo."},
            {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice."},
        ],
    }
    asked = {"question": "Where does Ann live?", "category": 4, "evidence": ["D1:1"], "answer": "Oslo"}
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([{"sample_id": "s1", "conversation": talk, "qa": [asked]}]))
    matrix = Path(__file__).parents[3] / "configs" / "locomo.yaml"
    command = ["run", str(matrix), "--data", str(file), "--out", str(tmp_path / "out"), "--no-doctor"]
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert re.search(r"full_history, control +100\.0% of 1", result.output)
    assert re.search(r"no_memory, reference +0\.0% of 1", result.output)
    assert "style fit" not in result.output  # nobody answered
    (done,) = (tmp_path / "out").iterdir()
    assert read_manifest(done).data["7"].name == "locomo.json"
    assert verify(done, file).deviations == ()
    assert not verify(done).deviations
    assert "verdicts: give locomo.json with --data" in " ".join(verify(done).unchecked)


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        ({"timeline": "locomo"}, "the timeline locomo needs data"),
        ({"data": "x.json"}, "the timeline game is generated, and reads no data"),
        ({"timeline": "locomo", "data": "x.json", "seeds": [1, 2]}, "use replicates"),
        ({"timeline": "locomo", "data": "x.json"}, "x.json does not exist"),
        ({"timeline": "mempabench", "data": "x"}, "holds no user's directory"),
    ],
)
def test_data_that_does_not_fit_is_refused_before_anything_is_written(tmp_path, bench, message):
    from memory.bench.engine.experiment import begin

    with pytest.raises(ConfigError, match=message):
        begin(matrix(tmp_path, "no_memory", **bench))
    assert not list(tmp_path.iterdir())
