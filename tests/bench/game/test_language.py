"""The words of the game: what tells settings apart must do so in both languages."""

from __future__ import annotations

import re

import pytest

from memory import ConfigError
from memory.bench.data.language import Language
from memory.bench.data.languages import load_language
from memory.bench.data.timeline import CONTEXTS


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> Language:
    return load_language(request.param)


def sentences(language: Language) -> list[str]:
    forms = language.forms
    found = [form for group in vars_of(forms) for form in group]
    return [
        *found,
        *(one.topic for one in language.attributes),
        *(one.task for one in language.attributes),
        *(name for world in language.worlds for name in world.names),
    ]


def vars_of(forms: object) -> list[tuple[str, ...]]:
    values = [getattr(forms, name) for name in forms.__dataclass_fields__]  # type: ignore[attr-defined]
    groups: list[tuple[str, ...]] = []
    for value in values:
        if isinstance(value, str):
            groups.append((value,))
        elif isinstance(value, dict):
            groups.extend(value.values())
        else:
            groups.append(value)
    return groups


def test_both_languages_have_the_same_attributes_and_enough_worlds(language: Language) -> None:
    assert [one.name for one in language.attributes] == [one.name for one in load_language("en").attributes]
    assert len(language.attributes) == 14
    assert len(language.worlds) >= 4


def test_no_marker_and_no_sign_of_a_setting_is_part_of_anything_else(language: Language) -> None:
    told = [
        phrase.casefold()
        for one in language.attributes
        for group in (one.markers, one.acted)
        for phrase in group
    ]
    said = [sentence.casefold() for sentence in sentences(language)]
    assert len(set(told)) == len(told) == 14 * 8
    for phrase in told:
        assert [other for other in told if phrase in other] == [phrase]
        assert not [sentence for sentence in said if phrase in sentence]


def test_every_request_calls_for_its_attribute_alone_however_it_is_wrapped(language: Language) -> None:
    forms = language.forms
    for world in language.worlds:
        for context in CONTEXTS:
            props = {"matter": world.matters[context][0], "person": world.people[context][0]}
            for one in language.attributes:
                request = one.task.format(**props)
                assert language.matters_to(request) == one.name
                for form in (*forms.named, *forms.for_others):
                    assert (
                        language.matters_to(form.format(request=request, topic=one.topic, **props))
                        == one.name
                    )
            for form in forms.filler:
                assert language.matters_to(form.format(**props)) is None


def test_leads_name_their_context_and_nothing_else_names_one(language: Language) -> None:
    for context, leads in language.forms.leads.items():
        assert {language.says_context(lead) for lead in leads} == {context}
    leads = [lead for group in language.forms.leads.values() for lead in group]
    for sentence in sentences(language):
        if sentence not in leads:
            assert language.says_context(sentence) is None, sentence


def test_a_reply_shows_the_setting_it_follows(language: Language) -> None:
    for one in language.attributes:
        for marker in one.markers:
            reply = f"{language.forms.lead_in} {language.acted(one.name, marker)}"
            assert language.shown(one.name, reply) == marker
        assert language.shown(one.name, language.forms.neutral_reply) is None
    assert not re.search("[{}]", language.forms.neutral_reply)


def test_a_language_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="speaks en and zh"):
        load_language("tlh")
