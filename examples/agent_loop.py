"""A complete small agent with a memory: recall before the model speaks, remember after.

    memslot setup
    python agent_loop.py                                        # two scripted sessions, no key, no network
    python agent_loop.py --config full_history.yaml             # another memory, the same agent
    python agent_loop.py --chat --base-url https://api.openai.com/v1 --model gpt-4.1-mini

A real model is reached with the key in OPENAI_API_KEY. Needs httpx: pip install 'memslot[mem0,bench]'.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx

from memory import BackendError, MemorySlot, MemslotError, SupportsReadiness, open_memory
from memory.testing import ScriptedLLM

CONFIG = Path("memslot.yaml")  # what 'memslot setup' writes
INSTRUCTIONS = (
    "You are a helpful assistant. What you remember of earlier conversations, if anything, follows."
)
CATCH_UP_S = 10.0

SESSIONS = (
    ("My dog is called Biscuit.", "I take my tea without sugar."),
    ("What is my dog called?", "How do I take my tea?"),
)
"""What the user says when nobody chats. The second session knows of the first by memory alone."""


class Model:
    """An OpenAI-compatible chat model."""

    def __init__(self, client: httpx.AsyncClient, name: str) -> None:
        self._client = client
        self._name = name

    async def reply(self, messages: list[dict[str, str]]) -> str:
        """The model's answer. Raises ``httpx.HTTPError`` if there is none."""
        response = await self._client.post(
            "chat/completions", json={"model": self._name, "messages": messages}
        )
        response.raise_for_status()
        return str(response.json()["choices"][0]["message"]["content"])


class Agent:
    """One conversation. A memory that fails costs it what it would have recalled, never the turn.

    Args:
        memory: whatever the configuration opened; nothing here knows which backend it is.
        model: who answers.
        session_id: the conversation's id.
    """

    def __init__(self, memory: MemorySlot, model: Model, session_id: str) -> None:
        self._memory = memory
        self._model = model
        self._session_id = session_id
        self._said: list[dict[str, str]] = []
        self.unsaved: deque[dict[str, Any]] = deque()

    async def turn(self, user: str) -> str:
        """Answer the user and remember both."""
        context = await self._recall(user)
        system = {"role": "system", "content": f"{INSTRUCTIONS}\n\n{context}".strip()}
        asked = {"role": "user", "content": user}
        answer = await self._model.reply([system, *self._said, asked])
        self._said += [asked, {"role": "assistant", "content": answer}]
        # The id and the time are fixed here, so that sending a turn later changes neither.
        self.unsaved.append(
            {
                "event_id": uuid.uuid4().hex,
                "timestamp": datetime.now(UTC),
                "user": user,
                "assistant": answer,
            }
        )
        await self.save()
        return answer

    async def _recall(self, user: str) -> str:
        try:
            # This agent shows the model no earlier messages, so the memory has to show this session, too.
            return await self._memory.before_turn(user, session_id=self._session_id, exclude_session=False)
        except BackendError as error:
            warn(f"answering without memory: {error}")
            return ""

    async def save(self) -> None:
        """Write what is not written yet, oldest first. What the backend refuses now is kept for the next call.

        A host whose turns must outlive its process sets ``memory.journal``.
        """
        while self.unsaved:
            try:
                receipt = await self._memory.after_turn(session_id=self._session_id, **self.unsaved[0])
            except BackendError as error:
                warn(f"{len(self.unsaved)} turns are not remembered yet: {error}")
                return
            # "unknown" may be stored already; sending it again could store it twice.
            self.unsaved.popleft()
            for warning in receipt.warnings:
                warn(f"{receipt.status}: {warning}")


def warn(text: str) -> None:
    """Tell the operator, not the user."""
    print(f"[memory] {text}", file=sys.stderr)


@asynccontextmanager
async def open_model(base_url: str | None, name: str) -> AsyncIterator[Model]:
    """The model at an endpoint; without one, a scripted model on the loopback that needs no key."""
    if base_url is None:
        with ScriptedLLM() as scripted:
            async with open_model(scripted.base_url, name) as model:
                yield model
        return
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=60.0) as client:
        yield Model(client, name)


async def converse(
    config: str | Path | Mapping[str, Any], model: Model, sessions: Iterable[Iterable[str]] = SESSIONS
) -> list[tuple[str, str]]:
    """Hold the sessions one after another; returns what was asked and answered."""
    turns: list[tuple[str, str]] = []
    async with open_memory(config) as memory:
        for number, said in enumerate(sessions, start=1):
            agent = Agent(memory, model, session_id=f"session-{number}")
            for user in said:
                turns.append((user, await agent.turn(user)))
            await agent.save()
            await catch_up(memory)
    return turns


async def catch_up(memory: MemorySlot) -> None:
    """Between two sessions, let a memory that works in the background finish what it was told."""
    readiness = memory.capability(SupportsReadiness)
    if readiness is not None and memory.scope is not None:
        state = await readiness.wait_until_ready(memory.scope, CATCH_UP_S)
        if state.state != "ready":
            warn(f"not caught up: {state.state} {state.detail}")


async def chat(config: str | Path, model: Model) -> None:
    """Talk on the terminal until an empty line or the end of the input."""
    async with open_memory(config) as memory:
        agent = Agent(memory, model, session_id=uuid.uuid4().hex)
        while user := await anyio.to_thread.run_sync(_ask, abandon_on_cancel=True):
            try:
                print(f"agent: {await agent.turn(user)}")
            except httpx.HTTPError as error:
                warn(f"the model did not answer ({type(error).__name__}); say it again")
        await agent.save()


def _ask() -> str:
    try:
        return input("you:   ").strip()
    except EOFError:
        return ""


async def run(arguments: argparse.Namespace) -> None:
    async with open_model(arguments.base_url, arguments.model) as model:
        if arguments.chat:
            await chat(arguments.config, model)
            return
        for user, answer in await converse(arguments.config, model):
            print(f"you:   {user}\nagent: {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", type=Path, default=CONFIG, help="the memory; default: memslot.yaml")
    parser.add_argument("--chat", action="store_true", help="talk to the agent")
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint; default: a scripted model")
    parser.add_argument("--model", default="scripted", help="the model's name at that endpoint")
    try:
        anyio.run(run, parser.parse_args())
    except (MemslotError, httpx.HTTPError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
