"""Reading conversations, and saying exactly where a file is wrong."""

import json
from datetime import UTC, datetime

import pytest
from bench_support import SENTINEL, locomo_sample, write_locomo
from hypothesis import given
from hypothesis import strategies as st

from memory import ConfigError, InputError
from memory.bench.data.locomo import load_locomo, split_evidence
from memory.bench.data.timeline import AbstainTruth, EvidenceTruth


@pytest.fixture
def talk(tmp_path):
    return load_locomo(write_locomo(tmp_path / "talk.json")).timelines[0]


def test_sessions_are_ingested_in_time_order_whatever_the_file_order(talk):
    assert [session.session_id for session in talk.sessions] == ["session_1", "session_2"]
    assert [turn.event_id for turn in talk.turns] == [
        f"talk-1:D{n}" for n in ("1:1", "1:2", "1:3", "2:1", "2:2")
    ]


def test_times_are_utc_and_a_second_apart(talk):
    assert talk.turns[0].timestamp == datetime(2023, 5, 8, 13, 56, 0, tzinfo=UTC)
    assert talk.turns[2].timestamp == datetime(2023, 5, 8, 13, 56, 2, tzinfo=UTC)
    assert talk.turns[3].timestamp == datetime(2024, 3, 1, 0, 5, 0, tzinfo=UTC)  # 12:05 am is after midnight


def test_every_backend_sees_who_speaks_and_what_a_photo_shows(talk):
    first, photo = talk.turns[0].messages[0], talk.turns[4].messages[0]
    assert (first.role, first.name, first.content) == (
        "user",
        "Ann",
        f"Ann: I ordered a kiln from {SENTINEL}.",
    )
    assert (photo.role, photo.content) == ("user", "Ann: [shares a photo: a blue kiln]")
    assert talk.turns[1].messages[0].role == "assistant"


def test_all_questions_are_asked_after_the_last_session_with_their_evidence(talk):
    assert {probe.after for probe in talk.probes} == {2}
    assert [probe.category for probe in talk.probes] == [
        "single-hop",
        "multi-hop",
        "temporal",
        "open-domain",
        "adversarial",
    ]
    *answered, trap = [probe.truth for probe in talk.probes]
    assert trap == AbstainTruth(trap="Bo")
    assert [truth.turns for truth in answered] == [
        ("talk-1:D1:1",),
        ("talk-1:D1:3", "talk-1:D2:2"),
        ("talk-1:D2:1",),
        (),
    ]
    assert [truth.unresolved for truth in answered] == [0, 0, 0, 2]
    assert [truth.answer for truth in answered] == ["a kiln", "7", "Monday", "yes"]


KNOWN = {"D1:1", "D8:6", "D9:17", "D30:5"}


@pytest.mark.parametrize(
    ("evidence", "found", "unresolved"),
    [
        (["D8:6; D9:17"], ("D8:6", "D9:17"), 0),
        (["D8:6,D9:17"], ("D8:6", "D9:17"), 0),
        (["D9:17 D8:6", "D8:6"], ("D9:17", "D8:6"), 0),
        (["[D8:6], (D9:17)"], ("D8:6", "D9:17"), 0),
        (["D30:05"], ("D30:5",), 0),
        (["D:11:26"], (), 1),
        (["D", "D4:36", "D4:36"], (), 2),
        (["D1:1;", " "], ("D1:1",), 0),
        ([], (), 0),
    ],
)
def test_joined_ids_are_split_and_slips_counted(evidence, found, unresolved):
    assert split_evidence(evidence, KNOWN) == (found, unresolved)


@given(st.lists(st.sampled_from(sorted(KNOWN)), unique=True), st.sampled_from([";", ", ", " ", "; ", "]["]))
def test_however_ids_are_joined_none_is_lost(ids, glue):
    assert split_evidence([glue.join(ids)], KNOWN) == (tuple(ids), 0)


def test_the_hash_ignores_formatting_and_key_order_but_not_content(tmp_path):
    plain = write_locomo(tmp_path / "a.json")
    sample = locomo_sample()
    reordered = tmp_path / "b.json"
    reordered.write_text(
        json.dumps([dict(reversed(sample.items()))], indent=3, ensure_ascii=False), encoding="utf-8"
    )
    sample["qa"][0]["answer"] = "a kite"
    changed = write_locomo(tmp_path / "c.json", sample)
    assert load_locomo(plain).data_hash == load_locomo(reordered).data_hash != load_locomo(changed).data_hash
    assert load_locomo(plain).data_name == "a.json"


def test_only_the_first_questions_are_asked_when_limited(tmp_path):
    limited = load_locomo(write_locomo(tmp_path / "talk.json"), limit_questions=2)
    assert [probe.probe_id for probe in limited.timelines[0].probes] == ["talk-1:q1", "talk-1:q2"]


def broken(change):
    sample = locomo_sample()
    change(sample)
    return [sample]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"data": []}, r"talk\.json: holds no list of rows; is this a LoCoMo JSON file"),
        (["x"], r"talk\.json: \[0\]: must be an object"),
        (broken(lambda s: s.pop("qa")), r"\[0\]\.qa: is required"),
        (
            broken(lambda s: [s["conversation"].pop(f"session_{n}") for n in (1, 2)]),
            r"talk-1: conversation has no session_1",
        ),
        (
            broken(lambda s: s["conversation"].update(session_1_date_time="the 8th of May")),
            r"talk-1: session_1_date_time is not a time like '01:56 PM on 08 May, 2023'",
        ),
        (
            broken(lambda s: s["conversation"].update(session_1_date_time="1:56 pm on 31 June, 2023")),
            "is not a time like",
        ),
        (
            broken(lambda s: s["conversation"]["session_1"][1].update(dia_id="D1:1")),
            "the event id talk-1:D1:1 occurs twice",
        ),
        (broken(lambda s: s["qa"][2].update(category=6)), r"\[0\]\.qa\.2\.category: Input should be less"),
        (broken(lambda s: s["qa"][2].update(evidence="D1:1")), r"\[0\]\.qa\.2\.evidence: Input should be"),
        ([locomo_sample(), locomo_sample()], "two timelines have the persona id talk-1"),
    ],
)
def test_a_wrong_shape_is_one_error_with_the_path(tmp_path, content, complaint):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises((ConfigError, InputError), match=complaint) as raised:
        load_locomo(path)
    assert SENTINEL not in str(raised.value)


def test_unreadable_files_say_so(tmp_path):
    with pytest.raises(ConfigError, match="does not exist; give the path of a LoCoMo JSON file"):
        load_locomo(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_locomo(tmp_path)
    (tmp_path / "cut.json").write_text('[{"sample_id":\n "x",]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cut\.json is not JSON: .* at line 2, column 6"):
        load_locomo(tmp_path / "cut.json")
    (tmp_path / "latin.json").write_bytes(b'["\xe9"]')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_locomo(tmp_path / "latin.json")
    (tmp_path / "deep.json").write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"nested too deeply|is not JSON"):
        load_locomo(tmp_path / "deep.json")


def test_a_question_of_the_fifth_category_with_an_answer_has_one(tmp_path):
    sample = locomo_sample()
    sample["qa"][4]["answer"] = "No"
    (timeline,) = load_locomo(write_locomo(tmp_path / "talk.json", sample)).timelines
    assert timeline.probes[4].truth == EvidenceTruth(("talk-1:D1:1",), answer="No")


@pytest.mark.parametrize("value", ["", " ", True, []])
def test_an_empty_answer_is_malformed(tmp_path, value):
    sample = locomo_sample()
    sample["qa"][0]["answer"] = value
    with pytest.raises(ConfigError, match=r"\[0\]\.qa\.0\.answer: "):
        load_locomo(write_locomo(tmp_path / "talk.json", sample))
