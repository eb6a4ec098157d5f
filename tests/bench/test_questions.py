"""Questions: asked and judged by prompts of their own, and scored by words where no judge reads the answers."""

import json

import pytest
from bench_support import write_locomo

from memory import ConfigError
from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.models import read_judgement
from memory.bench.engine.prompts import KINDS, kind_of, load_prompt
from memory.bench.engine.verify import verify
from memory.bench.report.report import rendered, write_page
from memory.bench.scores.answers import Vocabulary, exact_match, token_f1
from memory.runtime import CompletionResult, Usage
from memory.runtime.providers.scripted import ScriptedProvider


def model(answer):
    """A model that answers by its whole prompt."""

    def said(messages, options):
        prompt = "\n".join([options.system_prompt or "", *(message.content for message in messages)])
        return CompletionResult(content=answer(prompt), usage=Usage(input_tokens=9, output_tokens=1))

    return ScriptedProvider(script=said)


def asked(tmp_path, roles, models, **bench):
    write_locomo(tmp_path / "talks.json")
    content = {
        "memory": {"condition": "full_history", "conditions": {"full_history": {}}},
        "bench": {
            "timeline": "locomo",
            "data": str(tmp_path / "talks.json"),
            "providers": ["full_history"],
            "doctor": False,
            "keep_texts": True,
            "roles": {role: {"provider": "scripted", **given} for role, given in roles.items()},
            **bench,
        },
    }
    experiment = load_experiment(content, output=tmp_path / "out")
    return begin(experiment, models=models, listeners=Listeners(write_page=write_page))


def shares(outcome):
    (provider,) = outcome.metrics.providers
    return {measure.name: measure.estimate.value for measure in provider.measures}


def prompts_of(provider):
    return [
        "\n".join([options.system_prompt or "", *(message.content for message in messages)])
        for messages, options in provider.requests
    ]


def test_an_answer_goes_to_a_judge_of_its_kind_and_never_to_the_style_judge(tmp_path):
    """The style judge is told to leave facts aside, and the style prompt asks for a manner."""
    reader, judge = model(lambda prompt: "painting"), model(lambda prompt: '{"right": true}')
    outcome = asked(tmp_path, {"reader": {}, "answer_judge": {}}, {"reader": reader, "answer_judge": judge})
    assert shares(outcome)["right answers"] == 1.0
    assert outcome.metrics.headlines[0] == "right answers"
    judged = prompts_of(judge)
    assert judged
    assert not [prompt for prompt in judged if "its manner, not" in prompt or "The wish in force" in prompt]
    rules = dict(load_prompt("answer_judge").rules)
    assert set(rules) == set(KINDS)
    assert len({rule for rule in rules.values() for prompt in judged if rule in prompt}) > 1
    assert all("Question: " in prompt and "Right answer: " in prompt for prompt in judged)
    read = prompts_of(reader)
    assert not [prompt for prompt in read if "likes to be dealt with" in prompt]
    assert all("<memory-context" in prompt for prompt in read)
    assert verify(outcome.directory, tmp_path / "talks.json", render=rendered).deviations == ()


def test_without_a_judge_answers_are_scored_by_their_words(tmp_path):
    outcome = asked(tmp_path, {"reader": {}}, {"reader": model(lambda prompt: "not mentioned")})
    found = shares(outcome)
    assert found["right answers"] is None
    assert outcome.metrics.headlines[0] == "answer F1"
    assert 0.0 < (found["answer F1"] or 0) < 1.0, "only questions that have no answer are right"
    assert (found["gold answer shown"] or 0) >= (found["nonsense shows"] or 0) > 0.0
    assert verify(outcome.directory, tmp_path / "talks.json", render=rendered).deviations == ()


def test_a_prompt_of_the_user_s_is_taken_as_it_stands(tmp_path):
    file = tmp_path / "paper.md"
    file.write_text(
        'Q: {question} A: {answer} R: {reply}\nSay {"label": "CORRECT"} or WRONG.', encoding="utf-8"
    )
    judge = model(lambda prompt: '{"label": "WRONG"}')
    outcome = asked(
        tmp_path,
        {"reader": {}, "answer_judge": {"prompt": {"multi-hop": str(file), "temporal": str(file)}}},
        {"reader": model(lambda prompt: "{answer}"), "answer_judge": judge},
    )
    own = [prompt for prompt in prompts_of(judge) if prompt.startswith("Q: ")]
    assert own
    assert all('Say {"label": "CORRECT"} or WRONG.' in prompt for prompt in own)
    assert all("R: {answer}" in prompt for prompt in own), "a reply that looks like a placeholder is none"
    assert shares(outcome)["right answers"] == 0.0


def test_a_price_table_without_a_model_that_is_used_is_refused(tmp_path):
    price = {"input": 1.0, "output": 2.0}
    with pytest.raises(ConfigError, match=r"prices: has no price of scripted, which roles\.reader uses"):
        asked(tmp_path, {"reader": {}}, {"reader": model(lambda _: "x")}, prices={"other": price})
    assert not (tmp_path / "out").exists()


def test_a_control_that_is_not_in_the_matrix_is_refused(tmp_path):
    with pytest.raises(ConfigError) as raised:
        asked(tmp_path, {}, {}, control="simple_rag", seeds=[1, 2])
    first, second = str(raised.value).splitlines()
    assert "control: simple_rag is not in the matrix" in first
    assert "seeds make generated games" in second, "all that is wrong is named in one round"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ('<think>{"right": false}</think>{"right": true}', True),
        ("CORRECT", True),
        ("**No.**", False),
        ('{"label": "WRONG"}', False),
        ("It is not correct.", None),
        (json.dumps({"right": "true"}), None),
    ],
)
def test_a_judgement_is_read_as_models_and_papers_write_it(answer, right):
    assert read_judgement(answer) is right


def test_categories_of_data_sets_are_kinds():
    found = [
        kind_of(name)
        for name in ("single-hop", "open-domain", "Temporal-Reasoning", "knowledge-update", "new")
    ]
    assert found == ["single-hop", "open", "temporal", "knowledge-update", "open"]


def test_answers_are_compared_as_squad_does():
    assert token_f1("The answer is: seven May.", "7 May") == pytest.approx(2 / 6)
    assert exact_match("A  cat!", "cat")
    assert token_f1("", "cat") == 0.0
    assert token_f1("北京大学", "北京") == pytest.approx(2 * 2 / 6)


def test_frequent_words_show_little_of_an_answer():
    """Words that every turn holds hardly weigh; nonsense of equal length has only those."""
    words = Vocabulary(
        [*(f"we went to the shop and talked of it {n % 3}" for n in range(40)), "I met Zubeida"]
    )
    assert words.shown("talked to Zubeida", "to talked and went") == pytest.approx(0, abs=0.05)
    assert words.shown("talked to Zubeida", "Zubeida") > 0.9
    assert words.by_nonsense("talked to Zubeida", "to talked and went the") < 0.05
    assert words.shown("the", "anything") is None
