"""The words of the game: what tells settings apart must do so in both languages."""

from __future__ import annotations

import itertools
import re

import pytest

from memory import ConfigError
from memory.bench.data.language import Language, load_language
from memory.bench.data.timeline import CONTEXTS


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> Language:
    return load_language(request.param)


def form_groups(language: Language) -> list[tuple[str, ...]]:
    forms = language.forms
    values = [getattr(forms, name) for name in forms.__dataclass_fields__]
    groups: list[tuple[str, ...]] = []
    for value in values:
        if isinstance(value, str):
            groups.append((value,))
        elif isinstance(value, dict):
            groups.extend(value.values())
        else:
            groups.append(value)
    return groups


def sentences(language: Language) -> list[str]:
    return [
        *(form for group in form_groups(language) for form in group),
        *(attribute.topic for attribute in language.attributes),
        *(said for attribute in language.attributes for said in (*attribute.requests, *attribute.talk)),
        *(name for world in language.worlds for name in world.names),
    ]


def test_both_languages_have_the_same_attributes_and_forty_worlds(language: Language) -> None:
    assert [attribute.name for attribute in language.attributes] == [
        attribute.name for attribute in load_language("en").attributes
    ]
    assert len(language.attributes) == 14
    assert all(
        len(attribute.settings) == 4 and len(attribute.requests) == 4 for attribute in language.attributes
    )
    assert len({world.persona_id for world in language.worlds}) == 40


def test_every_setting_has_eight_wordings_of_five_kinds(language: Language) -> None:
    for attribute in language.attributes:
        for setting in attribute.settings:
            assert len(setting.explicit) == 3
            assert len(setting.wordings) == 8
            assert language.wordings(setting.marker) == setting.wordings
    assert language.wordings("never heard of") == ("never heard of",)


def test_a_name_belongs_to_one_world_alone(language: Language) -> None:
    names = [name for world in language.worlds for name in world.names]
    for name in names:
        assert [other for other in names if name in other] == [name]


def test_no_wording_and_no_sign_of_a_setting_is_part_of_anything_else(language: Language) -> None:
    phrases = [
        phrase.casefold()
        for attribute in language.attributes
        for setting in attribute.settings
        for phrase in (*setting.wordings, setting.acted)
    ]
    said = [sentence.casefold() for sentence in sentences(language)]
    assert len(set(phrases)) == len(phrases) == 14 * 4 * 9
    for phrase in phrases:
        assert [other for other in phrases if phrase in other] == [phrase]
        assert not [sentence for sentence in said if phrase in sentence]
        assert language.says_context(phrase) is None
        assert language.matters_to(phrase) is None
        assert not [sign for sign in language.forms.disowned if sign in phrase]


def test_every_wording_is_found_alone_and_broken_over_lines(language: Language) -> None:
    for wording, meant in language.settings.items():
        text = f"a {wording} z".replace(" ", "\n  ")
        (found,) = language.any_wording.finditer(text)
        assert language.settings[" ".join(found[0].split())] == meant
    assert not language.any_wording.search("")


def test_a_seed_plays_half_of_the_wordings_and_another_one_other_halves(language: Language) -> None:
    markers = [marker for attribute in language.attributes for marker in attribute.markers]
    games = [
        {marker: set(language.in_play(marker, seed).wordings) for marker in markers} for seed in range(6)
    ]
    for game in games:
        assert {len(wordings) for wordings in game.values()} == {4}
        assert all(game[marker] <= set(language.wordings(marker)) for marker in markers)
    for game, other in itertools.pairwise(games):
        shared = sum(len(game[marker] & other[marker]) for marker in markers)
        assert shared < 0.65 * sum(map(len, game.values())), (
            "a list made of one seed's game lacks much of the next"
        )
    ever = {wording for game in games for wordings in game.values() for wording in wordings}
    assert len(ever) > 0.9 * len(language.settings), "and none is held out for good"


def test_every_request_calls_for_its_attribute_alone_however_it_is_wrapped(language: Language) -> None:
    forms = language.forms
    for world in language.worlds[:3]:
        for context in CONTEXTS:
            props = {"matter": world.matters[context][0], "person": world.people[context][0]}
            for attribute in language.attributes:
                assert not set(attribute.practised(tested=True)) & set(attribute.practised(tested=False))
                for request in (form.format(**props) for form in attribute.requests):
                    assert language.matters_to(request) == attribute.name
                    for form in forms.named:
                        wrapped = form.format(request=request, topic=attribute.topic, **props)
                        assert language.matters_to(wrapped) == attribute.name
                for talk in attribute.talk:
                    assert language.matters_to(talk.format(**props)) is None
            for form in forms.filler:
                assert language.matters_to(form.format(**props)) is None


@pytest.mark.parametrize("name", ["en", "zh"])
def test_idle_talk_shares_words_with_wordings(name: str) -> None:
    language = load_language(name)
    size = 4 if name == "en" else 2

    def grams(text: str) -> set[str]:
        words = re.findall(r"\w{4,}", text.casefold())
        return set(words) if name == "en" else {text[at : at + size] for at in range(len(text))}

    for attribute in language.attributes:
        own = set().union(*(grams(word) for setting in attribute.settings for word in setting.wordings))
        assert all(len(grams(talk) & own) >= 2 for talk in attribute.talk), attribute.name


def test_leads_name_their_context_and_nothing_else_names_one(language: Language) -> None:
    for context, leads in language.forms.leads.items():
        assert {language.says_context(lead) for lead in leads} == {context}
    leads = [lead for group in language.forms.leads.values() for lead in group]
    for sentence in sentences(language):
        if sentence not in leads:
            assert language.says_context(sentence) is None, sentence


def test_a_reply_shows_the_setting_it_follows(language: Language) -> None:
    for attribute in language.attributes:
        for marker in attribute.markers:
            reply = f"{language.forms.lead_in} {language.acted(attribute.name, marker)}"
            assert language.shown(attribute.name, reply) == marker
        assert language.shown(attribute.name, language.forms.neutral_reply) is None
    assert not re.search("[{}]", language.forms.neutral_reply)


def test_a_language_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="speaks en and zh"):
        load_language("tlh")
