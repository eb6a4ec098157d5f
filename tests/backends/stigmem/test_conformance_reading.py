"""How conformance vectors are read: each expectation can hold and can fail, and tags go where they should."""

from __future__ import annotations

import pytest

from memory.stigmem.conformance.wire import Answer, Problem, check_expectations, check_findings, retagged


@pytest.mark.parametrize(
    ("expectation", "good", "bad"),
    [
        ({"expected_body_has_keys": ["a"]}, {"a": None}, {"b": 1}),
        ({"expected_body_contains": {"a": {"b": 1}}}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 2}}),
        ({"expected_body_contains": {"a": []}}, {"a": []}, {"a": [1]}),
        ({"expected_body_contains": {"a": [{"b": 1}]}}, {"a": [{"b": 2}, {"b": 1}]}, {"a": [{"b": 2}]}),
        ({"expected_body_contains": {"a": None}}, {"a": None}, {}),
        ({"expected_nested": {"a.b": True}}, {"a": {"b": True}}, {"a": {"b": 1}}),
        ({"expected_body_list_contains": {"a": "x"}}, {"a": ["x"]}, {"a": ["y"]}),
        ({"expected_body_value_in": {"a": ["x", "y"]}}, {"a": "y"}, {"a": "z"}),
        ({"expected_response_is_list": True}, [], {}),
        ({"expected_members_contain_role": "admin"}, {"members": [{"role": "admin"}]}, {"members": []}),
        ({"expected_field_length": {"a": 2}}, {"a": "ab"}, {"a": "abc"}),
        ({"expected_field_starts_with": {"a": "sha256:"}}, {"a": "sha256:1"}, {"a": "md5:1"}),
        (
            {"expected_first_fact_has_keys": ["k"]},
            {"facts": [{"k": 1, "score_breakdown": {}}]},
            {"facts": []},
        ),
        (
            {"expected_first_fact_score_breakdown_keys": ["k"]},
            {"facts": [{"score_breakdown": {"k": 1}}]},
            {"facts": [{"score_breakdown": {}}]},
        ),
    ],
)
def test_every_kind_of_expectation_can_hold_and_can_fail(expectation, good, bad):
    check_expectations(Answer(200, good), expectation, (200,))
    with pytest.raises(Problem):
        check_expectations(Answer(200, bad), expectation, (200,))
    with pytest.raises(Problem, match="HTTP 500 instead of 200"):
        check_expectations(Answer(500, good), expectation, (200,))


def test_an_expectation_nobody_understands_is_no_pass():
    with pytest.raises(Problem, match="expected_moon_phase"):
        check_expectations(Answer(200, {}), {"expected_moon_phase": "full"}, (200,))


def test_findings_are_held_to_check_count_and_severity():
    wanted = {"findings_min": 1, "findings_check": "stale", "findings_severity": "warning"}
    check_findings({"findings": [{"check": "stale", "severity": "warning"}]}, wanted)
    for found in ([], [{"check": "orphan", "severity": "warning"}], [{"check": "stale", "severity": "info"}]):
        with pytest.raises(Problem):
            check_findings({"findings": found}, wanted)
    with pytest.raises(Problem, match="1 findings of stale instead of 2"):
        check_findings(
            {"findings": [{"check": "stale", "severity": "warning"}]}, {**wanted, "findings_min": 2}
        )
    check_findings({"findings": []}, {"findings_empty": True})
    with pytest.raises(Problem):
        check_findings({"findings": [{}]}, {"findings_empty": True})


def test_tags_reach_entities_and_gardens_and_leave_words_alone():
    vector = {
        "id": "conf-1",
        "description": "user:alice",
        "path": "/v1/gardens/conf-alpha/members/stigmem%3A%2F%2Ftestnode%2Fuser%2Falice",
        "body": {
            "entity": "user:alice",
            "garden_id": "stigmem://testnode/garden/conf-alpha",
            "source": "stigmem://testnode/agent/test",
            "value": {"type": "ref", "v": "stigmem://testnode/agent/bob"},
        },
    }
    tagged = retagged(vector, "t1", "node:8765")
    assert (tagged["id"], tagged["description"]) == ("conf-1", "user:alice")
    assert tagged["path"] == "/v1/gardens/conf-t1-alpha/members/stigmem%3A%2F%2Ftestnode%2Fuser%2Ft1-alice"
    assert tagged["body"] == {
        "entity": "user:t1-alice",
        "garden_id": "stigmem://node:8765/garden/conf-t1-alpha",
        "source": "stigmem://testnode/agent/test",
        "value": {"type": "ref", "v": "stigmem://testnode/agent/t1-bob"},
    }
    query = {"path": "/v1/facts?garden_id=stigmem%3A%2F%2Ftestnode%2Fgarden%2Fconf-garden"}
    garden = "stigmem%3A%2F%2Fnode%3A8765%2Fgarden%2Fconf-t1-garden"
    assert retagged(query, "t1", "node:8765")["path"] == f"/v1/facts?garden_id={garden}"
    plain = retagged(vector, "", "node:8765")
    assert plain["body"]["entity"] == "user:alice"
    assert plain["body"]["garden_id"] == "stigmem://node:8765/garden/conf-alpha"
