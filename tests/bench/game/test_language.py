"""The words of the game: each wording means one setting, and nothing else that is said means any."""

import hashlib
import itertools
import re

import pytest
import yaml
from game_support import play, scores, verify

from memory import ConfigError
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.data.timeline import CONTEXTS
from memory.bench.data.worlds import worlds


@pytest.fixture
def language():
    return load_language()


def form_groups(language):
    forms = language.forms
    values = [getattr(forms, name) for name in forms.__dataclass_fields__]
    groups = []
    for value in values:
        if isinstance(value, str):
            groups.append((value,))
        elif isinstance(value, dict):
            groups.extend(value.values() if value is not forms.context_words else ())
        else:
            groups.append(value)
    return groups


def sentences(language):
    return [
        *(form for group in form_groups(language) for form in group),
        *(attribute.topic for attribute in language.attributes),
        *(said for attribute in language.attributes for said in (*attribute.requests, *attribute.talk)),
        *(name for world in worlds() for name in world.names),
    ]


def test_the_game_has_fourteen_attributes_and_forty_worlds(language):
    assert len(language.attributes) == 14
    assert all(
        len(attribute.settings) == 4 and len(attribute.requests) == 4 for attribute in language.attributes
    )
    assert len({world.persona_id for world in worlds()}) == 40


def test_every_setting_has_eight_wordings_of_five_kinds(language):
    for attribute in language.attributes:
        for setting in attribute.settings:
            assert len(setting.explicit) == 3
            assert len(setting.wordings) == 8
            assert language.wordings(setting.marker) == setting.wordings
    assert language.wordings("never heard of") == ("never heard of",)


def test_a_name_belongs_to_one_world_alone(language):
    names = [name for world in worlds() for name in world.names]
    for name in names:
        assert [other for other in names if name in other] == [name]


def test_no_wording_and_no_sign_of_a_setting_is_part_of_anything_else(language):
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


def test_every_wording_is_found_alone_and_broken_over_lines(language):
    for wording, meant in language.settings.items():
        text = f"a {wording} z".replace(" ", "\n  ")
        (found,) = language.any_wording.finditer(text)
        assert language.settings[" ".join(found[0].split())] == meant
    assert not language.any_wording.search("")


def test_a_seed_plays_half_of_the_wordings_and_another_one_other_halves(language):
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


def test_every_request_calls_for_its_attribute_alone_however_it_is_wrapped(language):
    forms = language.forms
    for world in worlds(3):
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


def test_idle_talk_shares_words_with_wordings(language):
    def grams(text):
        return set(re.findall(r"\w{4,}", text.casefold()))

    for attribute in language.attributes:
        own = set().union(*(grams(word) for setting in attribute.settings for word in setting.wordings))
        assert all(len(grams(talk) & own) >= 2 for talk in attribute.talk), attribute.name


def test_leads_name_their_context_and_nothing_else_names_one(language):
    for context, leads in language.forms.leads.items():
        assert {language.says_context(lead) for lead in leads} == {context}
    leads = [lead for group in language.forms.leads.values() for lead in group]
    for sentence in sentences(language):
        if sentence not in leads:
            assert language.says_context(sentence) is None, sentence


def test_a_reply_shows_the_setting_it_follows(language):
    for attribute in language.attributes:
        for marker in attribute.markers:
            reply = f"{language.forms.lead_in} {language.acted(attribute.name, marker)}"
            assert language.shown(attribute.name, reply) == marker
        assert language.shown(attribute.name, language.forms.neutral_reply) is None
    assert not re.search("[{}]", language.forms.neutral_reply)


def test_the_grammar_has_ten_thousand_surface_forms(language):
    markers = [marker for attribute in language.attributes for marker in attribute.markers]
    assert len({form for marker in markers for form in language.forms_of(marker)}) >= 10_000


@pytest.mark.thorough
def test_a_surface_form_means_its_setting_and_says_nothing_else(language):
    for seed in range(3):
        game = make_game(GameSize(users=4), seed=seed)
        spoken = language.speaking(game.wordings)
        for marker, forms in game.wordings.items():
            for form in forms:
                text = " ".join(form.casefold().split())
                means = [spoken.settings[found[0]][1] for found in spoken.any_wording.finditer(text)]
                assert means == [marker], form
                assert language.says_context(form) is None, form
                assert language.matters_to(form) is None, form
                assert not [sign for sign in language.forms.disowned if sign in text], form


@pytest.mark.thorough
def test_few_things_are_said_in_words_that_stand_in_the_package(language):
    game = make_game(GameSize(users=4))
    own = {marker: set(language.wordings(marker)) for marker in game.wordings}
    said = sum(map(len, game.wordings.values()))
    assert sum(len(own[marker] & set(forms)) for marker, forms in game.wordings.items()) < 0.45 * said


def own_file(path, **changes):
    """A file of wordings that no package holds."""
    wordings = {
        name: [
            {"explicit": [f"qua {name} {number}, if I may"], "implied": [f"Zeta {name} {number}."]}
            for number in range(4)
        ]
        for name in load_language().by_name
    }
    path.write_text(
        yaml.safe_dump({"wordings": wordings, "synonyms": [["if I may", "if you let me"]], **changes})
    )
    return path


@pytest.mark.thorough
def test_a_file_of_wordings_is_played_and_its_hash_is_kept(tmp_path):
    file = own_file(tmp_path / "words.yaml")
    game = make_game(GameSize(users=1), wordings=file)
    forms = [form for own in game.wordings.values() for form in own]
    assert all(form.startswith(("qua ", "Zeta ")) for form in forms)
    assert any("if you let me" in form for form in forms)
    assert game.wordings_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    settings = {"game": {"users": 1, "sessions": 10, "tests": 3, "attributes": 4}, "wordings": str(file)}
    done = play(tmp_path / "out", "no_memory", "oracle_ipas", **settings)
    assert scores(done)["oracle_ipas"]["style fit"] == 1.0
    kept = done.manifest.model_dump_json()
    assert game.wordings_sha256 in kept
    assert str(file) not in kept
    assert any("file of wordings" in why for why in verify(done.directory).unchecked)
    checked = verify(done.directory, file)
    assert (checked.deviations, "verdicts: from the sections shown" in checked.checked) == ((), True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"words": 1}, "words: is not a known field"),
        ({"wordings": {}}, r"wordings\.verbosity: is required"),
        ({"synonyms": [["a"], "b"]}, r":\d+: synonyms\.1: Input should be"),
    ],
)
def test_a_file_of_wordings_that_is_wrong_says_where(tmp_path, changes, why):
    with pytest.raises(ConfigError, match=why):
        load_language(own_file(tmp_path / "words.yaml", **changes))


def test_wordings_of_two_settings_are_told_apart(tmp_path):
    content = yaml.safe_load(own_file(tmp_path / "words.yaml").read_text())
    content["wordings"]["tone"][1]["explicit"] = ["Zeta tone"]
    (tmp_path / "words.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(
        ConfigError, match=r"words\.yaml:\d+: wordings\.tone: has a wording that is part of another"
    ):
        load_language(tmp_path / "words.yaml")
