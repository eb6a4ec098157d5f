"""Roles played by language models.

The manifest holds the hashes of their prompts, and a run is resumed only with the same prompts. Judgements
that cannot be read are counted, never guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory.bench.data.timeline import Beat, Script
from memory.bench.engine.prompts import Prompt, kind_of
from memory.bench.engine.roles import Exchange, Verdict, WholeAnswers, lettered
from memory.contract.errors import BackendError
from memory.contract.events import Message
from memory.runtime._provider import CompletionOptions, CompletionResult, Provider, Usage

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


class ModelSimulator:
    """A user who speaks freely within the limits of the beat."""

    def __init__(self, model: RoleModel, prompt: Prompt) -> None:
        self._model, self._prompt = model, prompt

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """The script's goal, then the model's words, for as many turns as the script has lines."""
        if not exchanges:
            return beat.goal
        if len(exchanges) > sum(bool(line) for line in (beat.branch, beat.hint)):
            return None
        system = self._prompt.fill(
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
        answer = await self._model.ask(system, seen)
        return None if not answer or _DONE.match(answer) else answer


class ModelJudge:
    """Judges the manner of a reply by the majority of ``votes`` judgements. A tie yields no verdict."""

    def __init__(self, model: RoleModel, votes: int, prompt: Prompt) -> None:
        self._model, self._votes, self._prompt = model, votes, prompt

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """The majority of the readable votes; ``fit`` is None without a majority."""
        wish = beat.truth.current if beat.truth is not None else None
        talk = "\n".join(f"user: {said.user}\nassistant: {said.reply}" for said in exchanges)
        system = self._prompt.fill(
            goal=beat.goal, wish=wish or "none; nothing personal belongs into the reply", conversation=talk
        )
        return await majority(self._model, system, self._votes)


class ModelReader:
    """Answers a question only from what a memory shows."""

    def __init__(self, model: RoleModel, prompt: Prompt) -> None:
        self._model, self._prompt = model, prompt

    async def read(self, question: str, section: str, now: str, options: Sequence[str]) -> str:
        """The model's answer; errors as for :meth:`RoleModel.complete`."""
        memory = section.strip() or "(nothing is remembered)"
        asked = f"{question}\n{lettered(options)}" if options else question
        filled = self._prompt.fill(memory=memory, question=asked, now=now)
        return after_thinking(await self._model.ask("", [Message(role="user", content=filled)]))


class ModelAnswerJudge:
    """Judges the content of an answer, with the prompt for its kind of question."""

    def __init__(self, model: RoleModel, votes: int, prompts: Mapping[str, Prompt]) -> None:
        self._model, self._votes, self._prompts = model, votes, prompts

    async def judge(self, category: str, question: str, answer: str, reply: str) -> Verdict:
        """The majority of the votes, as for :class:`ModelJudge`."""
        kind = kind_of(category)
        prompt = self._prompts[kind]
        rule = dict(prompt.rules).get(kind, "")
        system = prompt.fill(
            kind=kind, rule=rule, question=question, answer=answer, reply=reply or "(nothing)"
        )
        return await majority(self._model, system, self._votes)


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
