"""Small inputs of our own, shaped like the real ones, and a provider whose native system can be watched."""

import json
import sqlite3
import sys
import types
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint

import anyio

from memory.adapter import BaseAdapter, PluginInfo, PluginOptions, hookimpl
from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.verify import verify
from memory.bench.report.report import rendered, write_page
from memory.contract.adapter import capabilities_of
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FakeBackend

SENTINEL = "zanzibar-quokka"
"""Said by users in every fixture; must be in no file a run leaves behind."""


def locomo_sample(sample_id="talk-1", **changes):
    """A conversation of two sessions, the second one listed first, and a question of each kind."""
    sample = {
        "sample_id": sample_id,
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_2_date_time": "12:05 am on 1 March, 2024",
            "session_2": [
                {"dia_id": "D2:1", "speaker": "Bo", "text": "The kiln arrives on Monday."},
                {"dia_id": "D2:2", "speaker": "Ann", "text": "", "blip_caption": "a blue kiln"},
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"dia_id": "D1:1", "speaker": "Ann", "text": f"I ordered a kiln from {SENTINEL}."},
                {"dia_id": "D1:2", "speaker": "Bo", "text": "Which colour is it?"},
                {"dia_id": "D1:3", "speaker": "Ann", "text": "Blue like the\n  harbour."},
            ],
            "session_9_date_time": "9:00 am on 9 May, 2024",
        },
        "qa": [
            {"question": "What did Ann order?", "answer": "a kiln", "evidence": ["D1:1"], "category": 4},
            {"question": "Which colour?", "answer": 7, "evidence": ["D1:3; D2:2"], "category": 1},
            {"question": "When does it arrive?", "answer": "Monday", "evidence": ["D2:01"], "category": 2},
            {
                "question": "Would Bo like it?",
                "answer": "yes",
                "evidence": ["D:11:26", "D4:36"],
                "category": 3,
            },
            {"question": "Who sold it?", "adversarial_answer": "Bo", "evidence": ["D1:1"], "category": 5},
        ],
    }
    return {**sample, **changes}


def write_locomo(path, *samples):
    path.write_text(json.dumps(samples or [locomo_sample()]), encoding="utf-8")
    return path


class FakeOptions(PluginOptions):
    """The block of the provider under test."""

    api_key: str = ""


async def _stay_open():
    pass


def registry_with(adapter=None, *, name="fake", beside=(), **described):
    """The installed plugins and a backend ``name`` that is ``adapter``, or made by it for each slot.

    ``beside`` lists the names of backends that earlier calls made.
    """
    module = types.ModuleType(f"bench_plugin_{name}")
    given = adapter or FakeBackend(name=name)

    @hookimpl
    def memslot_describe():
        return PluginInfo(
            name=name,
            kind="architecture",
            summary="for tests",
            options=FakeOptions,
            capabilities=capabilities_of(FakeBackend()),
            **described,
        )

    @hookimpl
    def memslot_create(settings):
        if not isinstance(given, BaseAdapter):
            return given()
        given.aclose = _stay_open  # each cell opens it anew
        given.traits = replace(given.traits, store="what the test watches")
        return given

    module.memslot_describe, module.memslot_create = memslot_describe, memslot_create
    sys.modules[module.__name__] = module
    conditions = [
        EntryPoint(condition, f"conditions.{condition}", "memslot.conditions")
        for condition in ("no_memory", "full_history", "rolling_summary", "static_profile", "oracle_ipas")
    ]
    backends = [
        EntryPoint(backend, f"bench_plugin_{backend}", "memslot.backends") for backend in (name, *beside)
    ]
    return MemoryAdapterRegistry([*backends, *conditions])


def config_of(provider="fake", *, budget=None, run=None, **memory):
    """A configuration that selects one provider; unlimited unless a budget is given, and without the doctor."""
    kind, group = ("backend", "backends") if provider == "fake" else ("condition", "conditions")
    unlimited = {"max_tokens": None, "max_items": None}
    return {
        "memory": {kind: provider, group: {provider: {}}, "budget": budget or unlimited, **memory},
        "run": {"doctor": False, **(run or {})},
    }


async def run(config, *, registry=None, providers=None, progress=None, on_error=None):
    """What ``memslot run`` does, or with ``providers`` what ``memslot run`` does."""
    experiment = load_experiment(
        config,
        block="run",
        selected=providers is None,
        providers=providers,
        registry=registry,
    )
    listeners = Listeners(progress=progress, on_error=on_error, write_page=write_page)
    return await anyio.to_thread.run_sync(partial(begin, experiment, registry=registry, listeners=listeners))


async def verified(outcome, data=None):
    """What ``memslot report --verify`` does."""
    return await anyio.to_thread.run_sync(partial(verify, outcome.directory, data, render=rendered))


def rows(outcome, name="results.jsonl"):
    """The lines of a file of every cell, in the order of the cells."""
    found = []
    for cell in outcome.manifest.cells:
        text = (outcome.directory / "cells" / cell.cell_id / name).read_text(encoding="utf-8")
        found += [json.loads(line) for line in text.split("\n") if line]
    return found


def figure(outcome, name, label=None):
    """A figure of a provider."""
    provider = next(provider for provider in outcome.metrics.providers if label in (None, provider.label))
    return next(measure.estimate for measure in provider.measures if measure.name == name)


def stored_events(experiment):
    """The events that the conditions of an experiment's cells keep, as they stand in the cells' stores."""
    events = []
    for file in sorted(experiment.glob("cells/*/store/memslot.db")):
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("SELECT event FROM condition_events ORDER BY seq").fetchall()
        events += [json.loads(event) for (event,) in rows]
    return events
