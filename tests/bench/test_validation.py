"""How often the rules act as somebody does who reads: over 200 sections that were labelled by reading them."""

import re
from pathlib import Path

import pytest
import yaml

from memory.bench.data.language import load_language
from memory.bench.engine.roles import Reader

FILE = Path(__file__).with_name("validation_sections.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "experiment.md"


@pytest.fixture(scope="module")
def rows():
    """What the label says, and what the rules make of it."""
    reader = Reader(load_language())
    return [
        (row["reads"], reader.choose(reader.read(row["section"]), row["attribute"], row["context"]))
        for row in yaml.safe_load(FILE.read_text(encoding="utf-8"))
    ]


def test_the_rules_agree_with_a_reader_as_often_as_is_said(rows):
    assert len(rows) == 200
    agreed = sum(label == rules for label, rules in rows)
    said = re.search(
        r"labelled 200 sections by hand .* The rules agree on (\d+)\.", PAGE.read_text(encoding="utf-8")
    )
    assert agreed == int(said[1])
    assert agreed >= 190


def test_where_they_differ_it_is_not_in_what_means_what(rows):
    """Of a section that holds something to act by, rules never see nothing, and the other way round."""
    assert all((label is None) == (rules is None) for label, rules in rows)
    assert 50 < sum(label is None for label, _ in rows) < 110
