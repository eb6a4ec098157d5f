"""Roles played by language models, and the roles of a cell, built from the settings.

The manifest holds the hashes of their prompts, and a run is resumed only with the same prompts. Judgements
that cannot be read are counted, never guessed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memory.bench.data.language import language_of, load_language
from memory.bench.data.timeline import Beat, Script, TimelineSet
from memory.bench.engine.manifest import RoleRecord
from memory.bench.engine.prompts import ROLES, Prompt, RoleName, kind_of, prompt_hash, prompts_of
from memory.bench.engine.roles import (
    Exchange,
    Roles,
    RuleAssistant,
    Verdict,
    WholeAnswers,
    lettered,
    rule_judge,
    rule_simulator,
)
from memory.bench.engine.settings import ExperimentSettings, RoleSettings
from memory.contract.errors import BackendError, ConfigError
from memory.contract.events import Message
from memory.plugins.blocks import Lines, Problems, Resolver
from memory.plugins.redaction import is_credential, slow_hash
from memory.runtime._provider import CompletionOptions, CompletionResult, Provider, Usage
from memory.runtime.providers import create_provider, provider_options, takes_seed

_OBJECT = re.compile(r"\{[^{}]{0,500}\}")
_ASKING = ("Your judgement, please.", "Only the JSON of your judgement, please, and no other word.")
_DONE = re.compile(r"\A\W*+DONE\W*+\Z")


def _nothing() -> Counter[str]:
    """Zero counts: calls, tokens, output tokens, useless answers, and answers without reported tokens."""
    return Counter(calls=0, tokens=0, output_tokens=0, unread=0, unmetered=0)


@dataclass
class RoleModel(WholeAnswers):
    """A model in a role: a provider whose calls are counted."""

    provider: Provider
    temperature: float | None = None  # None: the model's default
    seed: int | None = None
    spent: Counter[str] = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        self.id = self.provider.id

    async def complete(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> CompletionResult:
        asked = options or CompletionOptions()
        own = {"temperature": self.temperature, "seed": self.seed if asked.seed is None else asked.seed}
        try:
            result = await self.provider.complete(messages, asked.model_copy(update=own))
        except BackendError:
            self.spent["calls"] += 1
            raise
        tokens = (result.usage.input_tokens or 0) + (result.usage.output_tokens or 0)
        self.spent.update(calls=1, tokens=tokens, output_tokens=result.usage.output_tokens or 0)
        if result.usage == Usage():
            self.spent["unmetered"] += 1
        said = result.content.strip()
        self.spent["unread"] += not said
        return result.model_copy(update={"content": said})

    async def available(self) -> bool:
        return await self.provider.available()

    async def ask(self, system: str, messages: Sequence[Message], time: int = 0) -> str:
        """Ask the model once. ``time`` numbers repetitions and is added to the seed."""
        seed = None if self.seed is None else self.seed + time
        return (await self.complete(messages, CompletionOptions(system_prompt=system, seed=seed))).content

    def take_usage(self) -> dict[str, int]:
        """The counts since the last call."""
        found, self.spent = dict(self.spent), _nothing()
        return found


async def model_simulator(
    model: RoleModel, prompt: Prompt, script: Script, beat: Beat, exchanges: Sequence[Exchange]
) -> str | None:
    """The script's goal, then the model's words, for as many turns as the script has lines."""
    if not exchanges:
        return beat.goal
    if len(exchanges) > sum(bool(line) for line in (beat.branch, beat.hint)):
        return None
    system = prompt.fill(
        life_context=script.life_context,
        goal=beat.goal,
        constraint=beat.constraint or "your request is dealt with",
        branch=beat.branch or "(nothing)",
        hint=beat.hint or "(nothing)",
    )
    # The model plays the user, so the roles are swapped.
    seen = [
        Message(role=role, content=content)
        for said in exchanges
        for role, content in (("assistant", said.user), ("user", said.reply))
    ]
    answer = await model.ask(system, seen)
    return None if not answer or _DONE.match(answer) else answer


async def model_judge(
    model: RoleModel, prompt: Prompt, votes: int, script: Script, beat: Beat, exchanges: Sequence[Exchange]
) -> Verdict:
    """Judge the manner of a reply by the majority of the readable votes; without one, ``fit`` is None."""
    wish = beat.truth.current if beat.truth is not None else None
    talk = "\n".join(f"user: {said.user}\nassistant: {said.reply}" for said in exchanges)
    system = prompt.fill(
        goal=beat.goal, wish=wish or "none; nothing personal belongs into the reply", conversation=talk
    )
    return await majority(model, system, votes)


async def model_reader(
    model: RoleModel, prompt: Prompt, question: str, section: str, now: str, options: Sequence[str]
) -> str:
    """The model's answer to a question, only from what a memory shows."""
    memory = section.strip() or "(nothing is remembered)"
    asked = f"{question}\n{lettered(options)}" if options else question
    filled = prompt.fill(memory=memory, question=asked, now=now)
    return after_thinking(await model.ask("", [Message(role="user", content=filled)]))


async def model_answer_judge(
    model: RoleModel,
    prompts: Mapping[str, Prompt],
    votes: int,
    category: str,
    question: str,
    answer: str,
    reply: str,
) -> Verdict:
    """Judge the content of an answer, with the prompt for its kind of question."""
    kind = kind_of(category)
    rule = dict(prompts[kind].rules).get(kind, "")
    said = reply or "(nothing)"
    system = prompts[kind].fill(kind=kind, rule=rule, question=question, answer=answer, reply=said)
    return await majority(model, system, votes)


async def majority(model: RoleModel, system: str, votes: int) -> Verdict:
    """The majority of ``votes`` judgements. The number of a vote is added to the model's seed.

    After all votes, the model is asked again, in other words, for each judgement that could not be read.
    """
    counts: Counter[bool] = Counter()
    unread = list(range(votes))
    for words in _ASKING:
        asked, due, unread = [Message(role="user", content=words)], unread, []
        for vote in due:
            said = await model.ask(system, asked, vote)
            if (fit := read_judgement(said)) is None:
                unread.append(vote)
                model.spent["unread"] += bool(said)  # empty answers are counted already
            else:
                counts[fit] += 1
    if counts[True] == counts[False]:
        return Verdict(fit=None, votes=votes, agreement=0.0)
    fit, count = counts.most_common(1)[0]
    return Verdict(fit=fit, votes=votes, agreement=count / votes)


def after_thinking(said: str) -> str:
    """A model's answer without its thinking."""
    return said.rpartition("</think>")[2].strip()


_WORDS = {"yes": True, "correct": True, "right": True, "true": True,
          "no": False, "wrong": False, "incorrect": False, "false": False}  # fmt: skip


def read_judgement(said: str) -> bool | None:
    """The verdict in an answer; None if it holds none, or two that differ.

    A verdict is JSON with ``fit``, ``right`` or ``label``, or an answer of one word such as yes or CORRECT.
    """
    said = after_thinking(said)
    if (whole := said.strip(" .!*\"'`\n").casefold()) in _WORDS:
        return _WORDS[whole]
    found = set()
    for match in _OBJECT.finditer(said):
        try:
            row = json.loads(match[0])
        except ValueError:
            continue
        value = next((row[name] for name in ("fit", "right", "label") if name in row), None)
        if isinstance(value, str) and "label" in row:
            value = _WORDS.get(value.strip().casefold())
        if isinstance(value, bool):
            found.add(value)
    return found.pop() if len(found) == 1 else None


_TRANSPORT = ("timeout_s", "max_retries")
_LONGEST = {"simulator": 2048, "judge": 2048, "answer_judge": 2048}  # tokens of an answer, unless options say
_RETRIES = 10  # of a call, by the SDK, unless options say


def role_records(
    settings: ExperimentSettings, given: Mapping[str, Provider] | None = None
) -> tuple[RoleRecord, ...]:
    """The roles, for the manifest. ``given`` providers replace those of the settings.

    Raises:
        ConfigError: a role can never be built.
    """
    found = []
    for role in ROLES:
        chosen: RoleSettings = getattr(settings.roles, role)
        prompt_sha256 = prompt_hash(role, chosen.prompt)
        if chosen.provider is None:
            found.append(RoleRecord(role=role, kind="rules"))
            continue
        where = f"bench.roles.{role}"
        if chosen.seed is not None and not takes_seed(chosen.provider, f"{where}.provider"):
            raise ConfigError(f"{where}.seed: the provider {chosen.provider} takes none; leave it out")
        options = _filled(role, chosen)
        if role not in (given or {}):
            provider_options(chosen.provider, options, f"{where}.options")
        decisive = {
            name: value
            for name, value in options.items()
            if not is_credential(name) and name not in _TRANSPORT
        }
        model, temperature = options.get("model"), chosen.temperature
        if temperature is None and isinstance(own := chosen.options.get("temperature"), int | float):
            temperature = own
        found.append(
            RoleRecord(
                role=role,
                kind="model",
                provider=chosen.provider,
                model=model if isinstance(model, str) else None,
                prompt_sha256=prompt_sha256,
                temperature=temperature,
                seed=chosen.seed,
                votes=chosen.votes,
                options_hash=slow_hash(decisive),
            )
        )
    return tuple(found)


def _filled(role: RoleName, chosen: RoleSettings) -> dict[str, Any]:
    """The options of a role's model, with variables filled in from the environment."""
    fill: dict[str, Any] = Resolver(os.environ, Problems("config", Lines())).fill(
        chosen.options, ("bench", "roles", role, "options")
    )
    return fill


class RoleSet(AsyncExitStack):
    """The roles of one cell. It closes the providers that it opened, but not the given ones."""

    def __init__(
        self,
        settings: ExperimentSettings,
        data: TimelineSet,
        *,
        replicate: int = 1,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        super().__init__()
        self._earlier_seeds = 16 * (replicate - 1)
        self._models: dict[str, RoleModel] = {}
        self._given = providers or {}
        roles = settings.roles
        game = data.name == "game"
        language = load_language().speaking(data.wordings) if game else language_of(data)
        prompts = {role: prompts_of(role, getattr(roles, role).prompt) for role in ROLES}
        first = {role: of_kind["open"] for role, of_kind in prompts.items()}
        played: dict[str, Any] = {"identity": first["assistant"]}
        if model := self._model("assistant", roles.assistant):
            played["assistant"] = model
        if model := self._model("simulator", roles.simulator):
            played["simulator"] = partial(model_simulator, model, first["simulator"])
        if model := self._model("judge", roles.judge):
            played["judge"] = partial(model_judge, model, first["judge"], roles.judge.votes)
        if model := self._model("reader", roles.reader):
            played["reader"] = partial(model_reader, model, first["reader"])
        if model := self._model("answer_judge", roles.answer_judge):
            votes = roles.answer_judge.votes
            played["answer_judge"] = partial(model_answer_judge, model, prompts["answer_judge"], votes)
        rules = Roles(language, RuleAssistant(language), rule_simulator, partial(rule_judge, language))
        self.roles = replace(rules, **played)

    def _model(self, role: RoleName, chosen: RoleSettings) -> RoleModel | None:
        if chosen.provider is None:
            return None
        provider = self._given.get(role)
        if provider is None:
            where = f"bench.roles.{role}.options"
            options = provider_options(chosen.provider, _filled(role, chosen), where)
            unset = type(options).model_fields.keys() - options.model_fields_set
            defaults = {"max_tokens": _LONGEST.get(role), "max_retries": _RETRIES}
            own = {name: value for name, value in defaults.items() if name in unset and value is not None}
            provider = create_provider(chosen.provider, options.model_copy(update=own), where)
            self.push_async_callback(provider.aclose)
        seed = None if chosen.seed is None else chosen.seed + self._earlier_seeds
        self._models[role] = RoleModel(provider, chosen.temperature, seed)
        return self._models[role]

    def take_usage(self) -> dict[str, dict[str, int]]:
        """The counts of the roles' models since the last call."""
        spent = {role: model.take_usage() for role, model in self._models.items()}
        return {role: counts for role, counts in spent.items() if any(counts.values())}
