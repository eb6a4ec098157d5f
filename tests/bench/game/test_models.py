"""Roles played by language models: what they are shown, what is made of their answers, what they may cost."""

import asyncio
import hashlib
import json
from functools import partial

import pytest
from bench_support import stored_events
from game_support import SIZE, begin, lines, matrix, resume, scores, verify
from model_server import chat

from memory import BackendUnavailable, ConfigError, MemslotError
from memory.bench.data.language import load_language
from memory.bench.data.timeline import Beat, PreferenceTruth, Script
from memory.bench.engine.models import RoleModel, model_judge, model_simulator
from memory.bench.engine.prompts import load_prompt
from memory.bench.engine.roles import Exchange, RuleAssistant
from memory.runtime import AgentSession, CompletionResult, Usage
from memory.runtime.providers.scripted import ScriptedProvider
from memory.testing import LoopbackAnswer
from memory.testing._http_server import HttpServer

SMALL = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}
ROLES = {role: {"provider": "scripted"} for role in ("assistant", "simulator", "judge")}
ENGLISH = load_language()
BEAT = Beat(
    "b1",
    "task",
    "What came out of it?",
    constraint="short",
    branch="No.",
    hint="Short, please.",
    attribute="verbosity",
    truth=PreferenceTruth(current="answer in a single sentence"),
)
SCRIPT = Script("At the desk.", None, "work", __import__("datetime").datetime(2026, 1, 1), (BEAT,))


def assistant():
    """A model that does with its prompt what the assistant by rules does."""
    rules = RuleAssistant(ENGLISH)

    def answer(messages, options):
        asked = rules.complete(messages, options)
        try:
            asked.send(None)
        except StopIteration as done:
            said = done.value.content
        return CompletionResult(content=said, usage=Usage(input_tokens=7, output_tokens=3))

    return ScriptedProvider(script=answer)


def judge():
    """Reads the wish and the last reply off its prompt."""

    def answer(messages, options):
        system = options.system_prompt or ""
        wish = next(line for line in system.splitlines() if line.startswith("The wish in force: "))[19:]
        reply = system.rsplit("assistant: ", 1)[1]
        known = ENGLISH.settings.get(wish.casefold())
        fit = ENGLISH.shown(known[0], reply) == wish if known else "Here is what there is." in reply
        return f"I think so.\n{json.dumps({'fit': fit})}"

    return ScriptedProvider(script=answer)


def simulator():
    """Says the beat's hint in its own words."""

    def answer(messages, options):
        system = options.system_prompt or ""
        hint = next(line for line in system.splitlines() if line.startswith("If it still does"))
        return hint.split("like: ", 1)[1]

    return ScriptedProvider(script=answer)


def models():
    return {"assistant": assistant(), "simulator": simulator(), "judge": judge()}


@pytest.mark.thorough
def test_a_game_played_by_models_scores_by_what_they_say(tmp_path):
    given = models()
    experiment = matrix(tmp_path, "no_memory", "oracle_ipas", game=SMALL, roles=ROLES)
    done = begin(experiment, models=given)
    assert done.manifest.status == "completed"
    shares = scores(done)
    assert shares["oracle_ipas"]["style fit"] == 1.0
    assert shares["no_memory"]["style fit"] == 0.0
    # The section is in the prompt as any agent would have it, and nothing there says that this is a test.
    systems = [options.system_prompt or "" for _, options in given["assistant"].requests]
    assert any("<memory-context" in system for system in systems)
    assert not [system for system in systems if "test" in system.lower() or "oracle" in system.lower()]
    spent = [cell.models for cell in done.manifest.cells]
    asked = sum(of["assistant"]["calls"] for of in spent)
    assert asked == len(given["assistant"].requests)
    assert sum(of["assistant"]["tokens"] for of in spent) == asked * 10
    assert all(of["judge"]["unread"] == 0 for of in spent)
    roles = {role.role: role for role in done.manifest.roles}
    assert roles["judge"].prompt_sha256 == load_prompt("judge").sha256
    assert len({role.prompt_sha256 for role in roles.values()} - {None}) == 3


def test_a_model_as_judge_names_no_setting_so_stale_reversion_is_unknown_everywhere(tmp_path):
    game = {**SMALL, "tests": 8}
    done = begin(matrix(tmp_path, "static_profile", game=game, roles=ROLES), models=models())
    rows = [row for cell in done.directory.glob("cells/*/results.jsonl") for row in lines(cell)]
    assert {row["first"] for row in rows} == {None}
    assert [row for row in rows if row["change"]], "there is nothing to revert to"
    (found,) = scores(done).values()
    assert found["stale reversion"] is None
    assert found["forgetting"] is not None
    assert "stale reversion" not in done.report.read_text("utf-8")


def test_the_assistant_is_asked_by_the_session_loop_whether_it_is_tested_or_not(tmp_path, monkeypatch):
    sessions = {}
    turn = AgentSession.turn

    async def counted(self, *given):
        sessions[self.session_key] = self
        return await turn(self, *given)

    monkeypatch.setattr(AgentSession, "turn", counted)
    given = models()
    done = begin(matrix(tmp_path, "full_history", game=SMALL, roles=ROLES), models=given)
    (cell,) = done.manifest.cells
    replies = sum(row["turns"] for row in lines(done.directory / "cells" / cell.cell_id / "results.jsonl"))
    assert len(given["assistant"].requests) == cell.counts["turns"] + replies > 0
    tested = {name for name in sessions if name.startswith("test")}
    assert len(tested) == cell.tests == 3
    assert len(sessions) > len(tested)
    # Nothing but the channel and the time differs in what stands before the section.
    preambles = {
        (options.system_prompt or "").partition("<memory-context")[0].split(";", 1)[1][20:].strip()
        for _, options in given["assistant"].requests
    }
    assert len(preambles) == 1


def test_an_assistant_that_says_nothing_is_judged_by_that_and_remembered_without_words(tmp_path):
    given = models()
    given["assistant"] = ScriptedProvider(script=lambda messages, options: "  ")
    done = begin(matrix(tmp_path, "full_history", game=SMALL, roles=ROLES), models=given)
    (cell,) = done.manifest.cells
    assert scores(done)["full_history"]["style fit"] == 0.0
    assert cell.models["assistant"]["unread"] == cell.models["assistant"]["calls"] > 0
    place = done.directory / "cells" / cell.cell_id
    assert {text["reply"] for text in lines(place / "texts.jsonl")} == {"(nothing)"}
    stored = json.dumps(stored_events(done.directory))
    assert stored != "[]"
    assert "(nothing)" not in stored


def test_a_judge_that_answers_nonsense_is_counted_and_not_guessed_at(tmp_path):
    given = models()
    given["judge"] = ScriptedProvider(script=lambda messages, options: "Who can say?")
    done = begin(matrix(tmp_path, "oracle_ipas", game=SMALL, roles=ROLES), models=given)
    (variant,) = done.metrics.providers
    assert variant.unreadable == variant.requests > 0
    assert scores(done)["oracle_ipas"]["style fit"] is None
    (cell,) = done.manifest.cells
    assert cell.models["judge"]["unread"] == cell.models["judge"]["calls"]


def judged(*answers, votes=1):
    """The verdict, if a model that is asked again repeats its last words."""
    role = RoleModel(ScriptedProvider([*answers, *answers[-1:] * votes]))
    judge = model_judge(role, load_prompt("judge"), votes, SCRIPT, BEAT, [Exchange("What?", "So.")])
    verdict = asyncio.run(judge)
    return verdict.fit, verdict.agreement, role.spent["unread"]


@pytest.mark.parametrize(
    ("answer", "fit"),
    [
        ('{"fit": true}', True),
        ('Well.\n```json\n{"fit": false}\n```', False),
        ('{"fit": "true"}', None),
        ('{"fit": 1}', None),
        ('{"fit": true} or {"fit": false}', None),
        ('{"fit": true} and again {"fit": true}', True),
        ("fit: true", None),
        ("{" * 100_000, None),
        ("", None),
        ("[true]", None),
    ],
)
def test_a_judgement_is_read_or_not(answer, fit):
    assert judged(answer) == (fit, 0.0 if fit is None else 1.0, 2 if fit is None else 0)


def test_votes_have_a_majority_or_none():
    yes, no = '{"fit": true}', '{"fit": false}'
    assert judged(yes, no, yes, votes=3) == (True, 2 / 3, 0)
    assert judged(yes, "?", no, "?", votes=3) == (None, 0.0, 2)
    assert judged(no, "?", "?", votes=3) == (False, 1 / 3, 4)
    assert judged("?", "?", votes=2) == (None, 0.0, 4)


def test_a_judgement_that_cannot_be_read_is_asked_for_after_the_others_in_other_words():
    yes, no = '{"fit": true}', '{"fit": false}'
    assert judged("I would say yes.", no, yes, yes, votes=3) == (True, 2 / 3, 1)
    provider = ScriptedProvider(["I would say yes.", yes])
    role = RoleModel(provider)
    judge = model_judge(role, load_prompt("judge"), 1, SCRIPT, BEAT, [Exchange("What?", "So.")])
    assert asyncio.run(judge).fit is True
    first, second = (messages[-1].content for messages, _ in provider.requests)
    assert first != second


def test_a_simulator_opens_with_the_goal_and_ends():
    role = RoleModel(ScriptedProvider(["Shorter!", "DONE."]))
    say = partial(model_simulator, role, load_prompt("simulator"), SCRIPT, BEAT)

    async def talk():
        said = [await say([])]
        exchanges = [Exchange(BEAT.goal, "Long.")]
        said.append(await say(exchanges))
        said.append(await say([*exchanges, Exchange("Shorter!", "Long.")]))
        said.append(await say([*exchanges] * 3))
        return said

    assert asyncio.run(talk()) == [BEAT.goal, "Shorter!", None, None]
    assert role.spent["calls"] == 2


def test_another_prompt_is_not_resumed(tmp_path):
    """A file in place of our prompt: its hash stands in the manifest, and a changed one is another experiment."""
    file = tmp_path / "judge.md"
    file.write_text("Wish: {wish}\nTalk: {conversation}\nReply with JSON.", encoding="utf-8")
    roles = {**ROLES, "judge": {"provider": "scripted", "prompt": str(file)}}
    done = begin(matrix(tmp_path / "out", "no_memory", game=SMALL, roles=roles), models=models())
    (judge,) = (role for role in done.manifest.roles if role.role == "judge")
    assert judge.prompt_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    load_prompt.cache_clear()
    file.write_text("Another wish: {wish}\nTalk: {conversation}\nReply with JSON.", encoding="utf-8")
    with pytest.raises(ConfigError, match="roles changed since it began"):
        resume(
            matrix(tmp_path / "out", "no_memory", game=SMALL, roles=roles), done.directory, models=models()
        )


def test_a_prompt_without_its_placeholder_is_refused_before_anything_is_written(tmp_path):
    file = tmp_path / "judge.md"
    file.write_text("Judge {conversation}.", encoding="utf-8")
    roles = {**ROLES, "judge": {"provider": "scripted", "prompt": str(file)}}
    with pytest.raises(
        ConfigError, match=r"roles\.judge\.prompt: .*judge\.md lacks the placeholder \{wish\}"
    ):
        begin(matrix(tmp_path / "out", "no_memory", game=SMALL, roles=roles), models=models())
    roles["judge"]["prompt"] = str(tmp_path / "nowhere.md")
    experiment = matrix(tmp_path / "out", "no_memory", game=SMALL, roles=roles)
    with pytest.raises(ConfigError, match=r"nowhere\.md cannot be read"):
        begin(experiment, models=models())
    assert not (tmp_path / "out").exists()


def test_a_model_that_fails_ends_its_cell_with_the_reason(tmp_path):
    given = models()
    given["assistant"] = ScriptedProvider([BackendUnavailable("gone")])
    done = begin(matrix(tmp_path, "no_memory", game=SMALL, roles=ROLES), models=given)
    (cell,) = done.manifest.cells
    assert cell.status == "stopped"
    assert (cell.error.type, cell.fault) == ("Interrupted", "harness")
    assert cell.error.message == "the assistant: gone"
    (provider,) = done.metrics.providers
    assert provider.missing == provider.requests > 0, "the memory has no part in it"


class Breaking(HttpServer):
    """Speaks chat completions; answers 500 from one request on, to the end of its patience."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last, self.seen = first, last, 0

    def respond(self, request):
        self.seen += 1
        if self.first <= self.seen <= self.last:
            return LoopbackAnswer(500, {"error": {"message": "no"}})
        return chat('{"fit": false}')


class Recording(HttpServer):
    """Speaks chat completions, and keeps the ``max_tokens`` of each model's requests."""

    def __init__(self):
        super().__init__()
        self.limits: dict[str, set[int | None]] = {}

    def respond(self, request):
        body = request.json
        self.limits.setdefault(body["model"], set()).add(body.get("max_tokens"))
        return chat('{"fit": false}')


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"max_tokens": 77}, 77),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in (({}, 2048), ({"max_tokens": None}, None))
        ),
    ],
)
def test_a_judge_and_a_simulator_have_a_limit_of_their_own(tmp_path, given, sent):
    with Recording() as server:
        limits = {"assistant": {}, "simulator": given, "judge": given}
        roles = {
            role: {
                "provider": "openai_compatible",
                "options": {"base_url": f"{server.url}/v1", "model": role, **limit},
            }
            for role, limit in limits.items()
        }
        begin(matrix(tmp_path, "no_memory", game={**SMALL, "tests": 1}, roles=roles))
    assert server.limits == {"assistant": {None}, "simulator": {sent}, "judge": {sent}}


@pytest.mark.thorough
def test_one_500_is_tried_again_and_a_model_that_stays_away_stops_a_cell_that_goes_on(tmp_path):
    def asked(server):
        options = {"model": "m", "base_url": f"{server.url}/v1", "max_retries": 1}
        role = {"provider": "openai_compatible", "options": options}
        return matrix(tmp_path, "no_memory", game={**SMALL, "tests": 1}, roles=dict.fromkeys(ROLES, role))

    with Breaking(9, 9) as once, Breaking(9, 10) as twice:
        whole, done = begin(asked(once)), begin(asked(twice))
        assert whole.manifest.status == "completed"
        (cell,) = done.manifest.cells
        assert (cell.status, cell.fault, done.manifest.status) == ("stopped", "harness", "stopped")
        assert cell.error.type == "Interrupted"
        assert sum(spent["calls"] for spent in cell.models.values()) == 9, "the failed call counts"
        (provider,) = done.metrics.providers
        assert provider.missing == provider.requests > 0, "the memory has no part in it"
        assert verify(done.directory).deviations == ()
        again = resume(asked(twice), done.directory)
        assert again.manifest.status == "completed"
        assert verify(again.directory).deviations == ()


@pytest.mark.thorough
def test_seeds_and_temperatures_are_sent_and_recorded(tmp_path):
    roles = {
        "assistant": {"provider": "scripted", "seed": 5, "temperature": 0.5},
        "simulator": {"provider": "scripted"},
        "judge": {"provider": "scripted", "seed": 100, "votes": 3},
    }
    given = models()
    done = begin(matrix(tmp_path, "no_memory", game=SMALL, roles=roles, replicates=2), models=given)
    sent = {role: [options for _, options in given[role].requests] for role in ROLES}
    half = len(sent["assistant"]) // 2
    assert [options.seed for options in sent["assistant"]] == [5] * half + [21] * half
    assert {options.temperature for options in sent["assistant"]} == {0.5}
    # Votes of one seed would be one vote.
    assert [options.seed for options in sent["judge"]][:6] == [100, 101, 102] * 2
    assert {options.seed for options in sent["simulator"]} == {None}
    recorded = {role.role: (role.seed, role.temperature) for role in done.manifest.roles}
    assert recorded["assistant"] == (5, 0.5)
    assert recorded["judge"] == (100, None)
    assert {recorded[role] for role in ("simulator", "reader", "answer_judge")} == {(None, None)}
    assert "&#34;votes&#34;: 3" in done.report.read_text(encoding="utf-8")


def test_a_seed_that_an_api_does_not_take_is_refused(tmp_path):
    roles = {**ROLES, "judge": {"provider": "anthropic", "seed": 1}}
    with pytest.raises(ConfigError, match=r"bench\.roles\.judge\.seed: the provider anthropic takes none"):
        begin(matrix(tmp_path, "no_memory", game=SMALL, roles=roles))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (
            {"provider": "openai", "options": {"modle": "m"}},
            r"bench\.roles\.judge\.options\.modle: is not a known",
        ),
        (
            {"provider": "openai", "options": {"model": "m", "base_url": "http://me:word@127.0.0.1:9"}},
            r"bench\.roles\.judge\.options\.base_url: must not hold credentials",
        ),
        ({"provider": "opnai"}, r"bench\.roles\.judge.*did you mean openai"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path, judge, message):
    experiment = matrix(tmp_path, "no_memory", game=SMALL, roles={"judge": judge})
    with pytest.raises(MemslotError, match=message):
        begin(experiment)
    assert not list(tmp_path.iterdir())


def test_no_key_of_a_role_is_in_any_file(tmp_path):
    roles = {
        role: {
            "provider": "scripted",
            "options": {"api_key": "sk-planted-secret", "lines": ["planted words"]},
        }
        for role in ROLES
    }
    done = begin(matrix(tmp_path, "no_memory", game=SMALL, roles=roles), models=models())
    for file in (path for path in done.directory.rglob("*") if path.is_file()):
        assert b"planted" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"assistant": {"provider": "scripted"}}, "rules cannot judge what a model says"),
        ({"simulator": {"provider": "scripted"}}, "do not understand a simulator"),
        ({"judge": {"provider": "scripted", "votes": 0}}, "votes"),
        ({"assistant": "rules", "judge": "chance"}, "judge"),
    ],
)
def test_roles_that_do_not_fit_are_refused(tmp_path, roles, message):
    with pytest.raises(ConfigError, match=message):
        matrix(tmp_path, "no_memory", roles=roles)
