"""The three roles played by language models. Their prompts' hashes stand in the manifest, and a run is not resumed
with another one. What a judge says that cannot be read is counted and never guessed at."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import anyio

from memory.bench.data.timeline import Beat, Script
from memory.bench.engine.files import NO_ANSWER, CeilingReached, HarnessFailed
from memory.bench.engine.roles import Exchange, RoleName, Verdict, WholeAnswers
from memory.contract.errors import BackendError, BackendRateLimited, ConfigError
from memory.contract.events import Message
from memory.runtime._provider import CompletionOptions, CompletionResult, Provider, Usage


class Pace:
    """Spreads calls evenly, so that no minute has more requests or tokens than the server grants. Tokens are known
    once a call is answered, and delay the next."""

    def __init__(self, requests: float | None = None, tokens: float | None = None) -> None:
        self._request_s = 60 / requests if requests else 0.0
        self.token_s = 60 / tokens if tokens else 0.0
        self._lock = threading.Lock()  # a dask worker may play cells in several threads
        self._next_request = self._next_token = 0.0

    async def wait(self) -> None:
        """Until the next call may be made."""
        with self._lock:
            now = time.monotonic()
            due = max(now, self._next_request, self._next_token)
            self._next_request = due + self._request_s
        if due > now:
            await anyio.sleep(due - now)

    def spent(self, tokens: int) -> None:
        with self._lock:
            self._next_token = max(time.monotonic(), self._next_token) + tokens * self.token_s

    def hold(self, seconds: float) -> None:
        """Make no call for so long, because the server asked for it."""
        with self._lock:
            self._next_request = max(self._next_request, time.monotonic() + seconds)


@cache
def pace_of(endpoint: str, requests: float | None, tokens: float | None) -> Pace:
    """The one of an endpoint; the same for every cell of this process."""
    return Pace(requests, tokens)


_PAUSES_S = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0)  # after refusals in a row for a rate limit that says no time
_RETRY_PAUSES_S = (0.5, 1.0, 2.0, 4.0, *(8.0,) * 6)  # after no answer
_LONGEST_S = 900.0  # a server that asks for more is not waited for; the cell ends, and can be resumed
_OBJECT = re.compile(r"\{[^{}]{0,500}\}")
_DONE = re.compile(r"\A\W*+DONE\W*+\Z")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, its version, and the hash of its file."""

    text: str
    version: int
    sha256: str


@cache
def load_prompt(role: RoleName) -> Prompt:
    raw = (Path(__file__).parent / "prompts" / f"{role}.md").read_bytes()
    first, _, text = raw.decode("utf-8").partition("\n")
    return Prompt(text.strip(), int(first.removeprefix("version:")), hashlib.sha256(raw).hexdigest())


class Meter:
    """Counts calls and tokens of models over all cells, in a file to which every call of every process appends one
    line; appending is atomic, so nobody waits. Calls that are under way at the same time, one for each cell that is
    being played, may each see the last place free."""

    def __init__(self, file: Path, max_calls: int | None, max_tokens: int | None) -> None:
        self._file, self._max_calls, self.max_tokens = file, max_calls, max_tokens
        self._read = 0
        self.calls = self.tokens = 0

    def check(self) -> None:
        """Refuse another call where a limit is reached, by what all processes have noted meanwhile."""
        if self._file.exists():
            with open(self._file, "rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            noted = [int(tokens) for tokens in whole.split() if tokens.isdigit()]
            self.calls += len(noted)
            self.tokens += sum(noted)
        limits = {"max_calls": (self._max_calls, self.calls), "max_tokens": (self.max_tokens, self.tokens)}
        for name, (limit, spent) in limits.items():
            if limit is not None and spent >= limit:
                raise CeilingReached(f"limits.{name}: {limit} is reached; set it higher and resume")

    def add(self, tokens: int) -> None:
        line = b" %d\n" % tokens  # apart from one that a full disk has torn
        try:
            with open(self._file, "ab", buffering=0) as file:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise HarnessFailed.full(self._file.name, error) from error


def _nothing() -> Counter[str]:
    """Attempts, tokens as far as the model says, answers that are no use, and those of which it does not say."""
    return Counter(calls=0, tokens=0, unread=0, unmetered=0)


@dataclass
class RoleModel(WholeAnswers):
    """A model in a role: a provider that counts its calls, and for which the limits hold."""

    provider: Provider
    meter: Meter
    temperature: float | None = None  # None leaves it to the model
    seed: int | None = None
    pace: Pace = field(default_factory=Pace)
    retries: int = 0  # after no answer; the SDK makes none of its own, so that each is counted
    spent: Counter[str] = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        self.id = self.provider.id

    async def complete(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> CompletionResult:
        asked = options or CompletionOptions()
        own = {"temperature": self.temperature, "seed": self.seed if asked.seed is None else asked.seed}
        result = await self._at_pace(messages, asked.model_copy(update=own))
        tokens = (result.usage.input_tokens or 0) + (result.usage.output_tokens or 0)
        self._count(tokens)
        if result.usage == Usage():
            self.spent["unmetered"] += 1
            if self.meter.max_tokens is not None or self.pace.token_s:
                raise ConfigError(
                    f"limits: the model of {self.provider.id} does not say how many tokens it takes, so they "
                    "cannot be limited; limit max_calls and requests_per_minute"
                )
        said = result.content.strip()
        self.spent["unread"] += not said
        return result.model_copy(update={"content": said})

    def _count(self, tokens: int) -> None:
        self.pace.spent(tokens)
        self.spent.update(calls=1, tokens=tokens)
        self.meter.add(tokens)

    async def _at_pace(self, messages: Sequence[Message], options: CompletionOptions) -> CompletionResult:
        refused, failed = list(_PAUSES_S), list(_RETRY_PAUSES_S[: self.retries])
        while True:
            await self.pace.wait()
            self.meter.check()
            try:
                return await self.provider.complete(messages, options)
            except BackendError as error:
                self._count(0)
                limited = isinstance(error, BackendRateLimited)
                if not limited and not isinstance(error, NO_ANSWER):
                    raise
                pauses = refused if limited else failed
                if not pauses:
                    raise
                asked_s, pause_s = error.retry_after_s or 0.0, pauses.pop(0)
                wait_s = asked_s if asked_s > 0 else pause_s
                if wait_s > _LONGEST_S:
                    raise
                self.pace.hold(wait_s)

    async def available(self) -> bool:
        return await self.provider.available()

    async def ask(self, system: str, messages: Sequence[Message], time: int = 0) -> str:
        """What the model says to a prompt, the first time or a later one; errors as for :meth:`complete`."""
        seed = None if self.seed is None else self.seed + time
        return (await self.complete(messages, CompletionOptions(system_prompt=system, seed=seed))).content

    def take_usage(self) -> dict[str, int]:
        """What it counted since it was asked last."""
        found, self.spent = dict(self.spent), _nothing()
        return found


class ModelSimulator:
    """A user who speaks freely, within what the beat holds."""

    def __init__(self, model: RoleModel) -> None:
        self._model, self._prompt = model, load_prompt("simulator")

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """The goal as the script has it, then what the model says, for as many turns as the script has lines."""
        if not exchanges:
            return beat.goal
        if len(exchanges) > sum(bool(line) for line in (beat.branch, beat.hint)):
            return None
        system = self._prompt.text.format(
            life_context=script.life_context,
            goal=beat.goal,
            constraint=beat.constraint or "your request is dealt with",
            branch=beat.branch or "(nothing)",
            hint=beat.hint or "(nothing)",
        )
        # From the user's side, what the assistant said is what is answered.
        seen = [
            Message(role=role, content=content)
            for said in exchanges
            for role, content in (("assistant", said.user), ("user", said.reply))
        ]
        answer = await self._model.ask(system, seen)
        return None if not answer or _DONE.match(answer) else answer


class ModelJudge:
    """A judge that reads; ``votes`` judgements of each reply, each with a seed of its own, counted up from the
    model's, and their majority, of which a tie has none."""

    def __init__(self, model: RoleModel, votes: int = 1) -> None:
        self._model, self._votes, self._prompt = model, votes, load_prompt("judge")

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """The majority of the votes that can be read; none where there is no majority."""
        wish = beat.truth.current if beat.truth is not None else None
        talk = "\n".join(f"user: {said.user}\nassistant: {said.reply}" for said in exchanges)
        system = self._prompt.text.format(
            goal=beat.goal, wish=wish or "none; nothing personal belongs into the reply", conversation=talk
        )
        votes: Counter[bool] = Counter()
        asked = [Message(role="user", content="Your judgement, please.")]
        for vote in range(self._votes):
            said = await self._model.ask(system, asked, vote)
            fit = _read(said)
            if fit is None:
                self._model.spent["unread"] += bool(said)  # one that says nothing is counted
            else:
                votes[fit] += 1
        if votes[True] == votes[False]:
            return Verdict(fit=None, votes=self._votes, agreement=0.0)
        fit, count = votes.most_common(1)[0]
        return Verdict(fit=fit, votes=self._votes, agreement=count / self._votes)


def _read(said: str) -> bool | None:
    """The one verdict in an answer, or None where it holds none, or two that differ."""
    found = set()
    for match in _OBJECT.finditer(said):
        try:
            row = json.loads(match[0])
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("fit"), bool):
            found.add(row["fit"])
    return found.pop() if len(found) == 1 else None


@contextmanager
def scripted_model(variable: str, *, wanted: bool) -> Iterator[None]:
    """Its address in an environment variable; nothing listens there where nobody would ask it (not ``wanted``)."""
    from memory.testing import ScriptedLLM

    before = os.environ.get(variable)
    with ScriptedLLM(record=False) if wanted else nullcontext() as llm:
        os.environ[variable] = llm.base_url if llm else "http://127.0.0.1:1"
        try:
            yield
        finally:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before
