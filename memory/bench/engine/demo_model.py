"""The scripted language model beside an experiment whose configuration names its address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from memory.testing import ScriptedLLM


@contextmanager
def scripted_model(variable: str, *, wanted: bool) -> Iterator[None]:
    """Its address in an environment variable; nothing listens there where nobody would ask it (not ``wanted``)."""
    before = os.environ.get(variable)
    with ScriptedLLM(record=False) if wanted else nullcontext() as llm:
        os.environ[variable] = llm.base_url if llm else "http://127.0.0.1:1"
        try:
            yield
        finally:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before
