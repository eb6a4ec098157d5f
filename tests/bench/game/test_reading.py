"""What the assistant by rules makes of sections as the providers render them, and how it acts by them."""

import asyncio
from datetime import UTC, datetime

import pytest

from memory import MemoryScope
from memory.bench.data.language import load_language
from memory.bench.engine.prompts import load_prompt
from memory.bench.engine.roles import Reader, RuleAssistant
from memory.contract.events import Message
from memory.contract.formatting import render_section
from memory.contract.receipts import ContextEntry
from memory.runtime import CompletionOptions

ENGLISH = load_language()
READER = Reader(ENGLISH)
SHORT, LIST, LONG = "answer in a single sentence", "give me three short bullets", "write one full paragraph"
ASKED = "What came out of the choir trip?"
SCOPE = MemoryScope(run_id="r", persona_id="p")


def section(*entries):
    return render_section("full_history", SCOPE.label, entries)


def entry(text, day=None, **more):
    at = None if day is None else datetime(2026, 1, day, 9, tzinfo=UTC)
    return ContextEntry(text, timestamp=at, **more)


def chosen(*entries, context="work"):
    return READER.choose(READER.read(section(*entries)), "verbosity", context)


@pytest.mark.parametrize("descending", [False, True])
def test_the_newest_counts_wherever_it_stands(descending):
    entries = [entry(f"On it: {SHORT}.", 3), entry(f"On it: {LIST}.", 5), entry("Fine.", 6)]
    assert chosen(*(reversed(entries) if descending else entries)) == LIST


def test_of_one_moment_the_later_line_counts_where_lines_go_forward():
    assert chosen(entry("Hm.", 1), entry(f"{SHORT}.", 3), entry(f"{LIST}.", 3)) == LIST
    assert chosen(entry(f"{LIST}.", 3), entry(f"{SHORT}.", 3), entry("Hm.", 1)) == LIST


def test_without_dates_the_first_counts():
    assert chosen(entry(f"{SHORT}."), entry(f"{LIST}.")) == SHORT


def test_what_is_said_of_the_other_context_does_not_count():
    personal = entry(f"In personal matters: {LIST}.", 9)
    assert chosen(entry(f"{SHORT}.", 3), personal) == SHORT
    assert chosen(entry(f"{SHORT}.", 3), personal, context="personal") == LIST
    assert chosen(personal) is None


def test_a_lead_before_a_correction_and_labels_and_groups_name_the_context():
    assert chosen(entry(f"In personal matters: That was not it. {LIST} next time.", 3)) is None
    labelled = ContextEntry(f"{LIST}.", labels=(("context", "personal"),))
    assert chosen(labelled) is None
    grouped = [entry(f"verbosity: {SHORT}", group="work"), entry(f"verbosity: {LIST}", group="personal")]
    assert chosen(*grouped) == SHORT
    assert chosen(*grouped, context="personal") == LIST
    # What a line says itself counts more than what stands above it.
    assert chosen(entry(f"At work: {LIST}.", group="personal")) == LIST


def test_hearsay_and_exceptions_are_nobodys_wish():
    for form in (*ENGLISH.forms.hearsay, *ENGLISH.forms.exception):
        said = form.format(person="Ilse", matter="the choir trip", marker=LIST)
        assert chosen(entry(f"{SHORT}.", 3), entry(said, 9)) == SHORT
    # A memory that keeps the words and loses who said them is believed.
    assert chosen(entry(f"{SHORT}.", 3), entry(f"Ilse tells every assistant to {LIST}.", 9)) == LIST


def test_several_wishes_in_one_paragraph_are_told_apart():
    prose = ContextEntry(f"At work: {SHORT}. In personal matters: {LIST}.", prose=True)
    assert chosen(prose) == SHORT
    assert chosen(prose, context="personal") == LIST


def test_a_stored_text_cannot_pretend_to_be_a_label():
    """Its continuation lines are indented, so that they belong to the entry."""
    assert chosen(entry(f"Hm.\n[personal]\n- {LIST}", 3)) == LIST


def reply(shown, said, *earlier, context="work"):
    identity = load_prompt("assistant").fill(context=context, now="2026-01-09 00:00")
    options = CompletionOptions(system_prompt=f"{identity}\n\n{shown}")
    messages = [Message(role="user", content=text) for text in (*earlier, said)]
    return asyncio.run(RuleAssistant(ENGLISH).complete(messages, options)).content


def test_the_assistant_acts_by_what_it_reads_and_by_nothing_where_it_reads_nothing():
    shown = section(entry(f"{SHORT}.", 3))
    assert ENGLISH.shown("verbosity", reply(shown, ASKED)) == SHORT
    assert ENGLISH.shown("verbosity", reply("", ASKED)) is None


def test_what_was_said_in_this_conversation_counts_more_than_memory():
    shown = section(entry(f"{SHORT}.", 3))
    corrected = f"That was not it. {LIST} next time."
    second = reply(shown, corrected, ASKED)
    assert ENGLISH.shown("verbosity", second) == LIST
    later = reply(shown, ASKED, ASKED, corrected)
    assert ENGLISH.shown("verbosity", later) == LIST
    complaint = ENGLISH.forms.complaint[0]
    assert ENGLISH.shown("verbosity", reply(shown, complaint, ASKED)) == SHORT


def test_talk_is_acknowledged_the_same_way_every_time():
    said = f"About how long your answers are: {LONG}."
    assert reply("", said) == reply("", said)
    assert reply("", said) in ENGLISH.forms.replies
