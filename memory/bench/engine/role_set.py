"""The roles of an experiment, built from its settings for one cell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from memory.bench.data.language import language_of, load_language
from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.manifest import RoleRecord
from memory.bench.engine.models import (
    ModelAnswerJudge,
    ModelJudge,
    ModelReader,
    ModelSimulator,
    RoleModel,
)
from memory.bench.engine.prompts import ROLES, RoleName, prompt_hash, prompts_of
from memory.bench.engine.roles import (
    AnswerJudge,
    Judge,
    QuestionReader,
    Roles,
    RuleAssistant,
    RuleJudge,
    RuleReader,
    RuleSimulator,
    Simulator,
)
from memory.bench.engine.settings import ExperimentSettings, RoleSettings
from memory.contract.errors import ConfigError
from memory.plugins.blocks import Lines, Problems, Resolver
from memory.plugins.redaction import is_credential, slow_hash
from memory.runtime._provider import Provider
from memory.runtime.providers import create_provider, provider_options, takes_seed

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
                options_hash=slow_hash(_decisive(options)),
            )
        )
    return tuple(found)


def _filled(role: RoleName, chosen: RoleSettings) -> dict[str, Any]:
    """The options of a role's model, with variables filled in from the environment."""
    fill: dict[str, Any] = Resolver(os.environ, Problems("config", Lines())).fill(
        chosen.options, ("bench", "roles", role, "options")
    )
    return fill


def _decisive(options: Any) -> Any:
    """The options that may change a model's answers."""
    if isinstance(options, dict):
        return {
            name: _decisive(value)
            for name, value in options.items()
            if not is_credential(str(name)) and name not in _TRANSPORT
        }
    return [_decisive(item) for item in options] if isinstance(options, list) else options


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
        assistant: Provider = self._model("assistant", roles.assistant) or RuleAssistant(language)
        prompts = {role: prompts_of(role, getattr(roles, role).prompt) for role in ROLES}
        simulator: Simulator = RuleSimulator()
        if model := self._model("simulator", roles.simulator):
            simulator = ModelSimulator(model, prompts["simulator"]["open"])
        judge: Judge = RuleJudge(language)
        if model := self._model("judge", roles.judge):
            judge = ModelJudge(model, roles.judge.votes, prompts["judge"]["open"])
        reader: QuestionReader = RuleReader()
        if model := self._model("reader", roles.reader):
            reader = ModelReader(model, prompts["reader"]["open"])
        answer_judge: AnswerJudge | None = None
        if model := self._model("answer_judge", roles.answer_judge):
            answer_judge = ModelAnswerJudge(model, roles.answer_judge.votes, prompts["answer_judge"])
        self.roles = Roles(
            language,
            assistant,
            simulator,
            judge,
            reader,
            answer_judge,
            reads=roles.reader.provider is not None,
            identity=prompts["assistant"]["open"],
        )

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
