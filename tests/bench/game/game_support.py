"""Small experiments for the tests of the game."""

import json

from memory.bench.engine import experiment as engine
from memory.bench.engine import verify as checking
from memory.bench.engine.experiment import Listeners
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.report import rendered, write_page

SIZE = {"users": 1, "sessions": 12, "tests": 5, "attributes": 5}
CONDITIONS = {
    "no_memory": {},
    "full_history": {},
    "rolling_summary": {"max_tokens": 600},
    "simple_rag": {},
    "static_profile": {},
    "oracle_ipas": {},
}


def matrix(out, *providers, memory=None, **bench):
    """An experiment of a size that takes a fraction of a second per provider."""
    content = {
        "memory": {
            "condition": "no_memory",
            "budget": {"max_tokens": 600, "max_items": None},
            "conditions": CONDITIONS,
            **(memory or {}),
        },
        "bench": {
            "game": SIZE,
            "providers": list(providers),
            "doctor": False,
            "executor": {"kind": "local"},
            **bench,
        },
    }
    return load_experiment(content, output=out)


def begin(experiment, *, progress=None, **more):
    """Play an experiment, with its page."""
    return engine.begin(experiment, listeners=Listeners(progress=progress, write_page=write_page), **more)


def resume(experiment, place, *, progress=None, **more):
    """Take an experiment up again, with its page."""
    listeners = Listeners(progress=progress, write_page=write_page)
    return engine.begin(experiment, place, listeners=listeners, **more)


def verify(directory, data=None):
    """Compute an experiment anew, its page too."""
    return checking.verify(directory, data, render=rendered)


def play(out, *providers, **more):
    """Play such an experiment."""
    return begin(matrix(out, *providers, **more))


def lines(file):
    """The rows of a JSON lines file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def scores(outcome):
    """Provider -> figure -> share."""
    return {
        variant.label: {measure.name: measure.estimate.value for measure in variant.measures}
        for variant in outcome.metrics.providers
    }
