"""The checks of an open slot. Each judges by evidence; a check without evidence is pending."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import permutations

import anyio

from memory.contract._quantity import quantity
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendTimeout, MemslotError
from memory.contract.receipts import BackendReadiness, RetrieveResult, WriteReceipt
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.doctor.hints import LEAK, Hints, unreached
from memory.doctor.report import CheckStatus, Trial, new_word, request, shows
from memory.plugins.hookspecs import PluginInfo
from memory.slot.probing import missing_of, probe_models
from memory.slot.slot import MemorySlot

Outcome = tuple[CheckStatus, str]

_POLL_S = 0.5
_WORST = ("ready", "unknown", "pending", "failed")
_BY_HAND = "see whether the backend's workers run, and clear the scopes named memslot-doctor-* by hand"


class CheckFailed(MemslotError):
    def __init__(self, seen: str, fix: str | None = None) -> None:
        super().__init__(seen)
        self.fix = fix


class SlotChecks:
    """One method for each check. The caller calls them in order.

    A failed check raises :class:`CheckFailed`, or the slot's own error.
    """

    def __init__(self, slot: MemorySlot, info: PluginInfo, hints: Hints, ready_timeout_s: float) -> None:
        self._slot = slot
        self._info = info
        self._hints = hints
        self._ready_timeout_s = ready_timeout_s
        self._trials = Trial.pair()
        self._readiness: BackendReadiness | None = None
        self._closed = False
        self.needed_write_s: int | None = None

    async def health(self) -> Outcome:
        health, mended = await self._slot.health(), ""
        silent = unreached(health.details) or "deadline_s" in health.details
        if health.status != "ok" and not silent:
            # A server that answers may lack only the resources that a set-up creates.
            before = health.status
            with suppress(MemslotError):
                await self._set_up(self._trials[0])
                health = await self._slot.health()
            mended = f"{before} until a scope was set up; now " if health.status != before else ""
        notes = "; ".join(health.warnings)
        if health.status == "unavailable":
            seen = notes or "the backend says that it is unavailable, and not why"
            raise CheckFailed(seen, self._hints.unavailable(health.details))
        versions = ", ".join(f"{name} {version}" for name, version in sorted(health.versions.items()))
        return "passed", mended + "; ".join(part for part in (health.status, versions, notes) if part)

    async def setup(self) -> Outcome:
        for trial in self._trials:
            await self._set_up(trial)
        ids, *others = (self._slot.native_scope(trial.scope) for trial in self._trials)
        if ids and ids in others:
            raise CheckFailed(
                "two personas got the same native ids; they would share memory", self._hints.templates
            )
        listed = ", ".join(f"{name}={value}" for name, value in ids.items()) or "no native ids"
        return "passed", listed if others else f"{listed}; the configuration has room for one scope alone"

    async def capabilities(self) -> Outcome:
        """The slot offers what the plugin's description declares, except what the configuration withholds."""
        offered, traits = self._slot.capabilities(), self._slot.traits
        undeclared = offered - self._info.capabilities
        if undeclared:
            names = ", ".join(sorted(undeclared))
            raise CheckFailed(f"offers {names}, which its description does not declare")
        if missing := missing_of(self._slot, self._info.capabilities):
            name, methods = min(missing.items())
            raise CheckFailed(
                f"its description declares {name}, and the adapter lacks {', '.join(methods)}",
                "for the plugin's author: add them, or name what a configuration lacks in withheld_capabilities",
            )
        listed = ", ".join(sorted(offered)) or "none"
        declared = f"CS filtering {traits.cs_filtering}; PET {traits.pet_observability or 'not declared'}"
        return "passed", f"{listed}; {traits.consistency}; {declared}"

    async def models(self) -> Outcome:
        answers = await probe_models(self._slot)
        if not answers:
            none = "the plugin names none" if answers is None else "this configuration names none"
            return "skipped", f"no model to reach from here: {none}"
        silent = {role: error for role, error in answers.items() if error is not None}
        if silent:
            said = "; ".join(f"{role}: {error}" for role, error in silent.items())
            role, error = next(iter(silent.items()))
            raise CheckFailed(said, self._hints.fix(error, role)) from error
        return "passed", f"{', '.join(answers)} answered"

    async def write(self) -> Outcome:
        receipts: list[WriteReceipt] = []
        slowest_s = 0.0
        for trial in self._trials:
            began = anyio.current_time()
            receipts.append(await self._slot.record_event(trial.event()))
            slowest_s = max(slowest_s, anyio.current_time() - began)
            trial.written = True
        warnings = dict.fromkeys(text for receipt in receipts for text in receipt.warnings)
        if any(receipt.status == "unknown" for receipt in receipts):
            raise CheckFailed(
                "; ".join(("a write was sent, and nothing says whether it is stored", *warnings)),
                "the backend's own log may say what became of it; if it was late, raise memory.deadlines.write_s",
            )
        statuses = " and ".join(dict.fromkeys(receipt.status for receipt in receipts))
        extraction = await self._extraction(receipts, slowest_s)
        return "passed", "; ".join((f"an event for each persona: {statuses}", *extraction, *warnings))

    async def _extraction(self, receipts: Sequence[WriteReceipt], slowest_s: float) -> list[str]:
        """Calls, tokens and seconds of the writes, compared with the deadline and the model's context."""
        traces = [receipt.trace for receipt in receipts if receipt.trace is not None]
        calls = sum(trace.llm_calls or 0 for trace in traces)
        tokens = sum(trace.llm_tokens or 0 for trace in traces)
        if not calls:
            return []
        write_s = self._slot.delivery.deadlines.write_s
        self.needed_write_s = math.ceil(3 * slowest_s)
        counted = f" and used {tokens:,} tokens" if tokens else ""
        found = [
            f"the extracting model was asked {calls} times{counted}; the slower write took {slowest_s:.1f} s, "
            f"and memory.deadlines.write_s allows {write_s:g} s"
        ]
        if context := await self._hints.model_context():
            found.append(f"a call takes about {tokens // calls:,} tokens, and the model accepts {context:,}")
        if slowest_s > write_s / 2:
            found.append(f"longer events take longer: set memory.deadlines.write_s to {self.needed_write_s}")
        return found

    async def readiness(self) -> Outcome:
        """The backend reports that all writes are retrievable."""
        waits = self._slot.capability(SupportsReadiness)
        if waits is None:
            return "passed", f"no readiness to ask for; {self._slot.traits.consistency} by declaration"
        answers: list[BackendReadiness] = []
        ends = anyio.current_time() + self._ready_timeout_s
        for trial in self._trials:
            left = max(0.0, ends - anyio.current_time())
            answers.append(await waits.wait_until_ready(trial.scope, left))
        self._readiness = max(answers, key=lambda answer: _WORST.index(answer.state))
        state, detail = self._readiness.state, self._readiness.detail
        if state == "failed":
            raise CheckFailed(
                f"what was written was not processed: {detail or 'the backend does not say why'}",
                "see the models and workers behind the backend; their log says what failed",
            )
        return "passed" if state == "ready" else "pending", f"{state}: {detail}" if detail else state

    async def write_read(self) -> Outcome:
        """Each persona finds its own writes."""
        results = [await self._recalled(trial) for trial in self._trials]
        size = f"{quantity(len(results[0].included), 'entries')}, {results[0].trace.token_count} tokens"
        if not self._slot.traits.recalls_writes:
            if any(trial.seen for trial in self._trials):
                raise CheckFailed("declares that it does not recall what is written, and did")
            return "passed", f"does not recall what is written, by design; context has {size}"
        if all(trial.seen for trial in self._trials):
            return "passed", f"found what was written; context has {size}"
        if self._may_come_later:
            state = self._readiness.state if self._readiness else self._slot.traits.consistency
            return "pending", f"not retrievable yet, and readiness is {state}"
        said = "said to be ready, and " if self._readiness else ""
        raise CheckFailed(
            f"{said}what was written was not found; {size} came back",
            "see the models behind the backend, and what the write above said",
        )

    async def isolation(self) -> Outcome:
        """No persona sees the other's writes, although each finds its own."""
        for asking, owner in permutations(self._trials, 2):
            if shows(await self._ask(asking.scope, owner.question), owner.marker, raw=True):
                raise CheckFailed(f"{asking.name} was shown what was written for {owner.name}", LEAK)
        if not self._slot.traits.recalls_writes:
            return "passed", "nothing that was written is recalled, by design"
        blind = " and ".join(trial.name for trial in self._trials if not trial.seen)
        if blind:
            return "pending", f"no leak seen, but {blind} could not see its own yet, so this shows nothing"
        return "passed", "each of two personas sees its own, and not the other's"

    async def read_only(self) -> Outcome:
        """A read-only session leaves nothing behind, neither its turn nor its question."""
        trial, said, asked = self._trials[0], new_word(), new_word()
        await self._slot.set_mode(AdapterMode(read_only=True, reason="doctor"))
        try:
            receipt = await self._slot.after_turn(
                session_id="doctor", user=f"My favourite tea at {said} is {said}.", scope=trial.scope
            )
            if receipt.status != "skipped_read_only":
                raise CheckFailed(f"a write in read-only mode was {receipt.status}")
            await self._ask(trial.scope, f"Which is my favourite tea at {asked}?")
        finally:
            await self._slot.set_mode(AdapterMode(read_only=False, reason="doctor"))
        for word in (said, asked):
            if shows(await self._ask(trial.scope, f"Which is my favourite tea at {word}?"), word):
                raise CheckFailed(
                    "what was said in read-only mode was remembered", "its test sessions cannot be trusted"
                )
        return (
            "passed",
            "a write was skipped; neither it nor the question asked meanwhile is found afterwards",
        )

    async def reset(self) -> Outcome:
        """Clearing one persona empties it and leaves the other unchanged; then the other is cleared."""
        ours = [trial for trial in self._trials if trial.set_up]
        left: set[str] = set()
        problems: list[MemslotError] = []
        for trial in ours:
            try:
                left.update(await self._reset(trial))
            except MemslotError as error:
                problems.append(error)
            trial.set_up = False
        if problems:
            raise problems[0]
        stays = f"; stays: {', '.join(sorted(left))}" if left else ""
        if not ours:
            return "skipped", "nothing was set up"
        if not any(trial.written for trial in ours) or not self._slot.traits.recalls_writes:
            return "passed", f"said to be empty; nothing had been written that could be seen{stays}"
        if not all(trial.seen for trial in ours):
            return "pending", f"said to be empty, but what was written had not been seen before either{stays}"
        return "passed", f"what was written is gone, and the other persona kept its own meanwhile{stays}"

    async def close(self) -> Outcome:
        self._closed = True
        await self._slot.aclose()
        return "passed", "closed"

    async def abandon(self) -> None:
        """After an early end, clear the scopes and close. Does nothing after :meth:`close`."""
        if self._closed:
            return
        self._closed = True
        try:
            for trial in self._trials:
                if trial.set_up:
                    await self._slot.reset_scope(trial.scope)
        finally:
            await self._slot.aclose()

    async def _set_up(self, trial: Trial) -> None:
        await self._slot.setup_scope(trial.scope)
        trial.set_up = True

    async def _ask(self, scope: MemoryScope, question: str) -> RetrieveResult:
        return await self._slot.retrieve(request(scope, question))

    @property
    def _may_come_later(self) -> bool:
        """Whether a missing write may still appear, by the backend's own statements."""
        if self._readiness is not None:
            return self._readiness.state != "ready"
        return self._slot.traits.consistency != "immediate"

    async def _recalled(self, trial: Trial) -> RetrieveResult:
        """The answer to a persona's own question, asked repeatedly if the backend reports no readiness."""
        patient = self._readiness is None and self._may_come_later and self._slot.traits.recalls_writes
        ends = anyio.current_time() + self._ready_timeout_s
        while True:
            result = await self._ask(trial.scope, trial.question)
            trial.seen = shows(result, trial.marker)
            if trial.seen or not patient or anyio.current_time() + _POLL_S > ends:
                return result
            await anyio.sleep(_POLL_S)

    async def _reset(self, trial: Trial) -> tuple[str, ...]:
        """Reset one persona, and check all of them. Returns what the backend cannot clear."""
        try:
            receipt = await self._slot.reset_scope(trial.scope)
        except BackendTimeout as error:
            raise CheckFailed(str(error), _BY_HAND) from error
        stays = f"; stays: {', '.join(receipt.left)}" if receipt.left else ""
        if not receipt.verified:
            raise CheckFailed(f"{trial.name} was not empty after its reset{stays}", _BY_HAND)
        if not self._slot.traits.recalls_writes:
            return receipt.left
        if trial.seen and shows(await self._ask(trial.scope, trial.question), trial.marker, raw=True):
            raise CheckFailed(
                f"the reset of {trial.name} said verified, and what was written is still there{stays}",
                f"do not rely on its resets: what is to be forgotten stays; {_BY_HAND}",
            )
        for other in self._trials:
            known = other is not trial and other.seen and other.set_up
            if known and not shows(await self._ask(other.scope, other.question), other.marker):
                raise CheckFailed(
                    f"the reset of {trial.name} emptied {other.name} as well{stays}",
                    "never reset with it: it deletes the memory of other users",
                )
        return receipt.left
