"""A service with many users and one memory: each sees their own, whatever backend the YAML names.

    pip install fastapi uvicorn
    uvicorn fastapi_app:app          # reads memslot.yaml; MEMSLOT_CONFIG names another configuration

The user comes from a header here; a real service takes it from its own authentication.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from memory import BackendError, InputError, MemslotError, ScopeError, open_memory

CONFIG = os.environ.get("MEMSLOT_CONFIG", "memslot.yaml")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with open_memory(CONFIG) as memory:  # one slot for the process, opened at start
        app.state.memory = memory
        yield


app = FastAPI(lifespan=lifespan)


class Turn(BaseModel):
    """What a user says in a conversation."""

    session_id: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=20_000)


def memory_of(request: Request, x_user: Annotated[str, Header(min_length=1, max_length=200)]):
    return request.app.state.memory.for_scope(persona_id=x_user)


@app.exception_handler(MemslotError)
async def answer_error(request: Request, error: MemslotError):
    theirs = isinstance(error, (InputError, ScopeError))
    return JSONResponse(
        {"detail": str(error) if theirs else "the memory is not available"}, 422 if theirs else 503
    )


@app.post("/chat")
async def chat(turn: Turn, mine: Annotated[object, Depends(memory_of)]) -> dict[str, str]:
    try:
        context = await mine.before_turn(turn.text, session_id=turn.session_id)
    except BackendError:
        context = ""  # the user gets an answer without a memory rather than none
    answer = f"You said: {turn.text}\n\nWhat I remember:\n{context or 'nothing yet'}"  # call your model here
    receipt = await mine.after_turn(session_id=turn.session_id, user=turn.text)
    return {"answer": answer, "recorded": receipt.status}


@app.delete("/memory")
async def forget(mine: Annotated[object, Depends(memory_of)]) -> dict[str, bool]:
    return {"empty": (await mine.reset()).verified}
