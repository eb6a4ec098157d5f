"""Data of one's own in one step, published data in its usual variants, and data sets of plugins."""

import copy
import json
import types
from importlib.metadata import EntryPoint

import pytest
from bench_support import locomo_sample, write_locomo
from cli_support import invoke

from memory import ConfigError
from memory.bench.data import sets
from memory.bench.data.own import load_own
from memory.bench.data.sets import data_sets, kind_of_file
from memory.bench.data.timeline import AbstainTruth, ChoiceTruth, EvidenceTruth

MESSAGES = [
    {"session": "b", "role": "user", "content": "I moved to Porto.", "time": "2026-02-01T09:00:00Z"},
    {"session": "b", "role": "assistant", "content": "Noted.", "time": "2026-02-01T09:00:05Z"},
    {
        "session": "a",
        "role": "user",
        "content": "I like oolong.",
        "time": "2026-01-01T09:00:00Z",
        "id": "tea",
    },
]
QUESTIONS = [
    {"question": "Which tea?", "answer": "oolong", "evidence": ["tea"]},
    {"question": "Which town?", "answer": "Porto", "evidence": "b:1", "category": "town"},
    {"question": "What was said on it?", "evidence": ["b"]},
]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_lines_become_a_timeline_in_order_of_time(tmp_path):
    data = load_own(lines(tmp_path / "chats.jsonl", [*QUESTIONS, *MESSAGES]))
    (timeline,) = data.timelines
    assert [session.session_id for session in timeline.sessions] == ["a", "b"]
    assert [turn.text for turn in timeline.turns] == ["I like oolong.", "I moved to Porto.", "Noted."]
    assert [probe.truth for probe in timeline.probes] == [
        EvidenceTruth(("user:a:1",), answer="oolong"),
        EvidenceTruth(("user:b:1",), answer="Porto"),
        EvidenceTruth(("user:b:1", "user:b:2")),
    ]
    assert [probe.category for probe in timeline.probes] == ["question", "town", "question"]
    assert str(timeline.probes[0].asked_at) == "2026-02-01 09:00:05+00:00"


def test_each_user_has_a_timeline_and_the_own_questions(tmp_path):
    rows = [{**row, "user": user} for user in ("ada", "bo") for row in (*MESSAGES, *QUESTIONS[:1])]
    rows = [{**row, "id": f"{row['user']}-tea"} if row.get("id") else row for row in rows]
    rows = [{**row, "evidence": [f"{row['user']}-tea"]} if "question" in row else row for row in rows]
    data = load_own(lines(tmp_path / "chats.jsonl", rows))
    assert [(line.persona_id, len(line.turns), len(line.probes)) for line in data.timelines] == [
        ("ada", 3, 1),
        ("bo", 3, 1),
    ]


def test_all_errors_of_a_file_stand_in_one_list(tmp_path):
    rows = [
        *MESSAGES,
        {"role": "user", "content": "x"},
        {"session": "a", "role": "robot", "content": "x"},
        {"question": "Which?", "evidence": ["nowhere"]},
        {"question": "Who?", "user": "cy"},
    ]
    file = lines(tmp_path / "chats.jsonl", rows)
    with pytest.raises(ConfigError) as failed:
        load_own(file)
    text = str(failed.value)
    assert "4 problems" in text
    for line, word in (
        (4, "session"),
        (5, "role"),
        (6, "evidence names no message"),
        (7, "user names nobody"),
    ):
        assert any(f"line {line}: " in row and word in row for row in text.splitlines()), (line, text)
    done = invoke("tools", "data", "check", str(file))
    assert done.exit_code == 1
    assert done.stdout.count("chats.jsonl, line") == 4
    assert "4 problems" in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        [{"id": "t", "conversations": [{"from": "human", "value": "I like oolong."}]}],
        [{"messages": [{"role": "user", "content": "I like oolong."}]}],
        [{"mapping": {"a": {"parent": None, "message": {"author": {"role": "user"},
          "content": {"content_type": "text", "parts": ["I like oolong."]}, "create_time": 1700000000}}}}],
    ],
)  # fmt: skip
def test_exports_are_sessions(tmp_path, content):
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    assert kind_of_file(file) == "own"
    (timeline,) = load_own(file).timelines
    assert [turn.text for turn in timeline.turns] == ["I like oolong."]


def test_run_takes_conversations_in_one_step(tmp_path):
    file = lines(tmp_path / "chats.jsonl", [*MESSAGES, *QUESTIONS])
    (tmp_path / "my.yaml").write_text("memory:\n  backend: full_history\n", encoding="utf-8")
    out = tmp_path / "out"
    done = invoke(
        "run", str(tmp_path / "my.yaml"), "--data", str(file), "--out", str(out), "--no-doctor", "--json"
    )
    assert done.exit_code == 0, done.output
    (provider,) = json.loads(done.stdout)["metrics"]["providers"]
    measures = {measure["name"]: measure["estimate"]["value"] for measure in provider["measures"]}
    assert (provider["requests"], measures["evidence recall"]) == (3, 1.0)
    assert "oolong" not in next(out.rglob("report.html")).read_text(encoding="utf-8"), "texts are not kept"


def test_check_says_what_a_file_is(tmp_path):
    done = invoke("tools", "data", "check", str(lines(tmp_path / "chats.jsonl", [*MESSAGES, *QUESTIONS])))
    assert done.exit_code == 0
    assert "read as own: 1 person, 2 sessions, 3 turns, 3 questions" in done.stdout
    assert "no problems" in done.stdout
    done = invoke("tools", "data", "check", str(write_locomo(tmp_path / "talks.json")), "--json")
    assert json.loads(done.stdout)["kind"] == "locomo"


HAYSTACK = {
    "question_id": "q1",
    "question_type": "single-session-user",
    "question": "Which tea?",
    "question_date": "2023/05/20 (Sat) 02:21",
    "answer": "oolong",
    "answer_session_ids": ["a1"],
    "haystack_session_ids": ["s1", "a1"],
    "haystack_dates": ["2023/05/20 (Sat) 23:10", "2023/05/19 (Fri) 10:00"],
    "haystack_sessions": [
        [{"role": "user", "content": "hello"}],
        [{"role": "user", "content": "oolong", "has_answer": True}, {"role": "assistant", "content": "ok"}],
    ],
}


def asked(path):
    (timeline,) = data_sets()[kind_of_file(path)](path).timelines
    return timeline.probes[0].truth


@pytest.mark.parametrize("mark", [True, 1, 1.0, "true", "True", "yes", "1"])
def test_a_mark_of_longmemeval_is_read_however_it_is_written(tmp_path, mark):
    row = copy.deepcopy(HAYSTACK)
    row["haystack_sessions"][1][0]["has_answer"] = mark
    (tmp_path / "x.json").write_text(json.dumps([row]), encoding="utf-8")
    assert asked(tmp_path / "x.json").turns == ("q1:001.0",)
    row["haystack_sessions"][1][0]["has_answer"] = "perhaps"
    (tmp_path / "x.json").write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(ConfigError, match="has_answer: Input should be a valid boolean"):
        asked(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"answer": ["oolong", "green"]}, "oolong; or green"),
        ({"answer": None}, None),
        ({"haystack_session_ids": None, "answer_session_ids": None}, "oolong"),
        ({"question_date": "2023-05-20T02:21:00Z", "haystack_dates": ["2023-05-20", "2023-05-19"]}, "oolong"),
    ],
)
def test_variants_of_longmemeval_are_loaded(tmp_path, changes, answer):
    rows = [{**HAYSTACK, **changes}]
    for text in (json.dumps(rows), json.dumps({"data": rows}), json.dumps(rows[0])):
        (tmp_path / "x.json").write_text(text, encoding="utf-8")
        assert asked(tmp_path / "x.json") == EvidenceTruth(("q1:001.0",), answer=answer)
    (tmp_path / "x.json").write_text(json.dumps([{**HAYSTACK, "answer": float("nan")}]), encoding="utf-8")
    with pytest.raises(ConfigError, match="NaN"):
        data_sets()["longmemeval"](tmp_path / "x.json")


def test_variants_of_locomo_are_loaded(tmp_path):
    plain = locomo_sample()
    sample = copy.deepcopy(plain)
    sample["conversation"]["session_1_date_time"] = "2023-05-08 13:56:00"
    sample["conversation"]["session_2"].append({"dia_id": "D2:3", "speaker": "Ann", "blip_caption": "a cat"})
    sample["qa"][0]["category"] = "4"
    del sample["qa"][0]["evidence"]
    sample["qa"].append({"question": "Who?", "category": 5})
    (tmp_path / "x.json").write_text(json.dumps(sample), encoding="utf-8")
    assert kind_of_file(tmp_path / "x.json") == "locomo"
    (timeline,) = data_sets()["locomo"](tmp_path / "x.json").timelines
    assert timeline.probes[0].category == "single-hop"
    assert timeline.probes[-1].truth == AbstainTruth()
    assert [turn.text for turn in timeline.turns][-1] == "Ann: [shares a photo: a cat]"


MEMBENCH = {
    "simple": {
        "roles": [
            {
                "message_list": [
                    [
                        {"user_message": "My aunt is Ines.", "assistant_message": "Noted.",
                         "time": "'2024-10-01 08:00' Tuesday"},
                        {"user_message": "She bakes.", "assistant_message": "Nice."},
                    ]
                ],
                "QA": {"question": "Who bakes?", "choices": {"A": "Bo", "B": "Ines"}, "ground_truth": "B"},
            },
            {
                "message_list": [{"mid": 0, "message": "It rains.", "time": "2024-10-01 08:00"}, "Hush."],
                "question_list": [
                    {"question": "Weather?", "choices": {"A": "rain", "B": "sun"}, "ground_truth": "A"}
                ],
            },
        ]
    }
}  # fmt: skip


def test_membench_is_loaded(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(MEMBENCH), encoding="utf-8")
    assert kind_of_file(tmp_path / "x.json") == "membench"
    first, second = data_sets()["membench"](tmp_path / "x.json").timelines
    assert first.probes[0].truth == ChoiceTruth(("Bo", "Ines"), 1)
    assert [message.role for turn in first.turns for message in turn.messages] == ["user", "assistant"] * 2
    assert str(first.turns[1].timestamp) == "2024-10-01 08:01:00+00:00"
    assert [turn.text for turn in second.turns] == ["It rains.", "Hush."]
    assert second.probes[0].truth == ChoiceTruth(("rain", "sun"), 0)


def test_prefeval_is_loaded(tmp_path):
    rows = [
        {"preference": "I avoid nuts.", "question": "What shall I bake?", "explanation": "x",
         "classification_task_options": ["a plain cake", "a nut cake", "brittle"]},
        {"preference": "I hate trains.", "question": "How do I get there?",
         "conversation": {"1": {"user": "No trains for me.", "assistant": "Fine."}}},
    ]  # fmt: skip
    (tmp_path / "food.json").write_text(json.dumps(rows), encoding="utf-8")
    assert kind_of_file(tmp_path / "food.json") == "prefeval"
    (timeline,) = data_sets()["prefeval"](tmp_path / "food.json").timelines
    choice, open_question = (probe.truth for probe in timeline.probes)
    assert choice.options[choice.right] == "a plain cake"
    assert open_question.turns == ("food:s2.1", "food:s2.2")
    assert {probe.after for probe in timeline.probes} == {2}


def test_a_data_set_of_a_plugin_is_one_like_any_other(tmp_path, monkeypatch):
    module = types.ModuleType("data_plugin")
    module.mine = lambda path, *, limit_questions=None: load_own(path)
    module.broken = "no data set"
    monkeypatch.setitem(__import__("sys").modules, "data_plugin", module)
    points = [
        EntryPoint(name, f"data_plugin:{name}", sets.GROUP) for name in ("mine", "broken", "locomo", "absent")
    ]
    monkeypatch.setattr(sets, "entry_points", lambda group: points)
    file = lines(tmp_path / "chats.jsonl", [*MESSAGES, *QUESTIONS])
    known = data_sets()
    assert known["mine"](file).timelines == load_own(file).timelines
    assert known["locomo"].args[0].value.startswith("memory.bench.data")
    for name in ("broken", "absent"):
        with pytest.raises(Exception, match=f"the data set {name}"):
            known[name](file)
    config = tmp_path / "my.yaml"
    block = f"run:\n  timeline: mine\n  data: {file}\n  doctor: false\n  output: {tmp_path / 'out'}\n"
    config.write_text(f"memory:\n  condition: full_history\n{block}", encoding="utf-8")
    assert invoke("run", str(config)).exit_code == 0
    config.write_text(config.read_text(encoding="utf-8").replace("mine", "yours"), encoding="utf-8")
    refused = invoke("run", str(config))
    assert refused.exit_code == 2
    assert "known data set" in refused.output
