"""Normal forms of hostile text come in linear time; any other text comes out as Python has it."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.adapter.fields import normalise

FORMS = st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])


@given(form=FORMS, text=st.text(max_size=60))
@example(form="NFKC", text="e\u0301" * 40)
@example(form="NFC", text="!" * 100 + "\u0301")
@example(form="NFD", text="\u0e01\u0e34\u0e49" * 40)
def test_ordinary_text_is_normalised_as_ever(form, text):
    assert normalise(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("marks", ["\u0300\u0316", "\uff9e\u0316", "\u0f73", "\u0316\u0300\u0fb7"])
def test_a_run_of_marks_is_cut_to_what_a_script_may_need(marks):
    found = normalise("NFKC", f"a{marks * 1000} b{marks}")
    assert len(found) < 100
    assert found.endswith(unicodedata.normalize("NFKC", f" b{marks}"))
