"""Every field of every format that is read: it decides something, is noted as not used, or is refused."""

import copy
import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_support import locomo_sample

from memory import ConfigError
from memory.bench.data.locomo import load_locomo
from memory.bench.data.longmemeval import load_longmemeval
from memory.bench.data.mempabench import load_mempabench
from memory.bench.data.personamem import load_personamem
from memory.bench.data.timeline import AbstainTruth, EvidenceTruth, TimelineSet

pytestmark = pytest.mark.thorough

Document = Any
Load = Callable[[Path, Document], TimelineSet]


def locomo_document():
    """All fields of the published file, unused ones too."""
    sample = locomo_sample(
        event_summary={"events_session_1": {"Ann": ["orders a kiln"]}},
        observation={"session_1_observation": {"Ann": [["ordered a kiln", "D1:1"]]}},
        session_summary={"session_1_summary": "Ann ordered a kiln."},
    )
    photo = {"img_url": ["https://example.org/kiln"], "query": "blue kiln", "re-download": True}
    sample["conversation"]["session_1"][0].update(photo, blip_caption="a kiln")
    sample["qa"].append(
        {
            "question": "Did Bo order it?",
            "answer": "No",
            "adversarial_answer": "Yes",
            "evidence": ["D1:1"],
            "category": 5,
        }
    )
    return [sample]


def load_locomo_document(root, document):
    file = root / "talks.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return load_locomo(file)


def longmemeval_document():
    question = {
        "question_id": "q1",
        "question_type": "knowledge-update",
        "question": "Which tea do I drink?",
        "question_date": "2023/06/01 (Thu) 10:00",
        "answer": "oolong",
        "answer_session_ids": ["late"],
        "haystack_session_ids": ["late", "early"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/01 (Mon) 09:00"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "Now it is oolong.", "has_answer": True},
                {"role": "assistant", "content": "Noted.", "has_answer": False},
            ],
            [{"role": "user", "content": "I drink sencha.", "has_answer": False}],
        ],
    }
    unmarked = copy.deepcopy(question) | {"question_id": "q2"}
    del unmarked["haystack_sessions"][0][0]["has_answer"]
    return [question, unmarked, question | {"question_id": "q1_abs", "answer": "You never said."}]


def load_longmemeval_document(root, document):
    file = root / "questions.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return load_longmemeval(file)


def personamem_document():
    row = {
        "persona_id": "1",
        "question_id": "q1",
        "question_type": "preference",
        "topic": "art",
        "context_length_in_tokens": "30",
        "context_length_in_letters": "120",
        "distance_to_ref_in_blocks": "1",
        "distance_to_ref_in_tokens": "20",
        "num_irrelevant_tokens": "0",
        "distance_to_ref_proportion_in_context": "50%",
        "user_question_or_message": "What should I do on Sunday?",
        "correct_answer": "(b)",
        "all_options": "['(a) Weld.', '(b) Shape clay.']",
        "shared_context_id": "c1",
        "end_index_in_shared_context": "2",
    }
    said = [{"role": "system", "content": "Ada"}, {"role": "user", "content": "I adore clay."}]
    return {"questions": [row], "contexts": {"c1": said}}


def load_personamem_document(root, document):
    with open(root / "questions_32k.csv", "w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(document["questions"][0]))
        writer.writeheader()
        writer.writerows(document["questions"])
    (root / "shared_contexts_32k.jsonl").write_text(json.dumps(document["contexts"]), encoding="utf-8")
    return load_personamem(root)


def mempabench_document():
    beat = {"goal": "Sum it up.", "constraint": "as said", "branch": "No.", "hint": "Shorter.",
            "attribute": "verbosity"}  # fmt: skip
    script = {"life_context": "At home.", "scenario": "daily", "context": "work", "beats": [beat]}
    change = {
        "after": "acc_001",
        "context": "work",
        "scenario": "daily",
        "attribute": "verbosity",
        "transcript": [{"role": "user", "content": "Tell me everything from now on."}],
    }
    return {
        "acc_001.yaml": script,
        "acc_002.yaml": copy.deepcopy(script),
        "evolv_01.yaml": change,
        "probe_schedule.yaml": {"sessions": [{"id": "t1", "after": "acc_002", **copy.deepcopy(script)}]},
        "resolved_gt.yaml": {
            "work": {"verbosity": [{"value": "be terse"}, {"value": "tell all", "from": "evolv_01"}]},
            "personal": {"verbosity": "tell all"},
        },
    }


def load_mempabench_document(root, document):
    user = root / "data" / "user_a"
    user.mkdir(parents=True)
    for name, content in document.items():
        (user / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_mempabench(user.parent)


FORMATS = {
    "locomo": (locomo_document(), load_locomo_document),
    "longmemeval": (longmemeval_document(), load_longmemeval_document),
    "personamem": (personamem_document(), load_personamem_document),
    "mempabench": (mempabench_document(), load_mempabench_document),
}


def paths_of(value, path=()):
    """Every field there is, by the keys that lead to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(value, dict):
            yield (*path, key)
        yield from paths_of(inner, (*path, key))


def changed(document, path, change):
    made = copy.deepcopy(document)
    at = made
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return made


def other(holder, key):
    value = holder[key]
    if isinstance(value, bool) or value is None:
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = value + 1
    elif isinstance(value, str):
        holder[key] = f"{value} or not"
    else:
        holder[key] = type(value)()


def remove(holder, key):
    del holder[key]


def fate(root, load, document, path):
    """What becomes of a field: used, refused, noted; none of them is a field that is lost without a word."""
    whole = load(make(root, "whole"), document)
    found = set()
    for number, change in enumerate((remove, other)):
        try:
            given = load(make(root, str(number)), changed(document, path, change))
        except ConfigError:
            found.add("refused")
            continue
        if given.timelines != whole.timelines:
            found.add("used")
    name = "".join("N" if sign.isdigit() else sign for sign in str(path[-1]))
    unused = next((note for note in whole.notes if note.startswith("not used: ")), "")
    if any(
        part.split(" of ")[0] in (name, path[-1]) for part in unused.removeprefix("not used: ").split(", ")
    ):
        found.add("noted")
    return found


def make(root, name):
    root.joinpath(name).mkdir()
    return root / name


def all_fields():
    return [
        pytest.param(name, path, id=f"{name}-{'.'.join(map(str, path))}")
        for name, (document, _) in FORMATS.items()
        for path in paths_of(document)
        if path not in (("questions",), ("contexts",))  # how the two files stand in the document here
    ]


@pytest.mark.parametrize(("name", "path"), all_fields())
def test_every_field_is_used_noted_or_refused(tmp_path, name, path):
    document, load = FORMATS[name]
    inner = any(key in ("event_summary", "observation", "session_summary") for key in path[:-1])
    assert fate(tmp_path, load, document, path) or inner, "lost without a word"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("locomo", (0,)),
        ("locomo", (0, "conversation")),
        ("locomo", (0, "conversation", "session_1", 0)),
        ("locomo", (0, "qa", 0)),
        ("longmemeval", (0,)),
        ("longmemeval", (0, "haystack_sessions", 0, 0)),
        ("personamem", ("questions", 0)),
        ("personamem", ("contexts", "c1", 0)),
        ("mempabench", ("acc_001.yaml",)),
        ("mempabench", ("acc_001.yaml", "beats", 0)),
        ("mempabench", ("evolv_01.yaml", "transcript", 0)),
        ("mempabench", ("probe_schedule.yaml", "sessions", 0)),
        ("mempabench", ("resolved_gt.yaml",)),
    ],
)
def test_a_field_nobody_knows_is_noted(tmp_path, name, path):
    document, load = FORMATS[name]
    given = changed(document, (*path, "surprise"), lambda holder, key: holder.update({key: "x"}))
    assert "surprise" in " ".join(load(tmp_path, given).notes)


def test_the_trap_of_locomo_s_fifth_category_is_no_answer(tmp_path):
    truths = [probe.truth for probe in load_locomo_document(tmp_path, locomo_document()).timelines[0].probes]
    assert truths[4] == AbstainTruth(trap="Bo")
    assert truths[5] == EvidenceTruth(("talk-1:D1:1",), answer="No"), "one that says the answer has one"


@pytest.mark.parametrize("value", ["", " ", None, True, []])
@pytest.mark.parametrize(("place", "field"), [(0, "answer"), (4, "adversarial_answer"), (5, "answer")])
def test_an_empty_answer_is_malformed(tmp_path, place, field, value):
    document = locomo_document()
    document[0]["qa"][place][field] = value
    with pytest.raises(ConfigError, match=rf"qa\[{place}\]\.{field} must be text that is not blank"):
        load_locomo_document(tmp_path, document)


def test_a_question_is_asked_when_its_data_says_or_after_what_was_said(tmp_path):
    asked = [line.probes[0] for line in load_longmemeval_document(tmp_path, longmemeval_document()).timelines]
    assert {probe.asked_at.isoformat() for probe in asked if probe.asked_at} == {"2023-06-01T10:00:00+00:00"}
    assert asked[0].truth == EvidenceTruth(("q1:002.0",), answer="oolong")
    assert replace(asked[1], probe_id="q1").truth == EvidenceTruth(("q2:002.0", "q2:002.1"), answer="oolong")
    assert asked[2].truth == AbstainTruth(reason="You never said.")
    for load, document in (
        (load_locomo_document, locomo_document()),
        (load_personamem_document, personamem_document()),
    ):
        (line,) = load(tmp_path, document).timelines
        for probe in line.probes:
            heard = [turn.timestamp for session in line.sessions[: probe.after] for turn in session.turns]
            assert probe.asked_at is not None
            assert max(heard) <= probe.asked_at
