"""Something private is planted in every option of every provider; no artefact, log or error of a run repeats it."""

import logging
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from bench_support import run
from one_loop import anyio_backend as anyio_backend
from planted import SECRET, SENTENCE, Planted
from pydantic import BaseModel, SecretStr
from variants import plain

from memory import BackendUnavailable
from memory.adapter import PluginInfo, hookimpl
from memory.contract.adapter import capabilities_of
from memory.plugins import redaction
from memory.plugins.config import MemslotConfig
from memory.plugins.redaction import texts_in
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FakeBackend

GAME = {"users": 1, "sessions": 10, "tests": 3, "attributes": 4}
MODELS = {row.name: row.info.options for row in MemoryAdapterRegistry().rows() if row.info is not None}


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(redaction, "_ROUNDS", 1)


def as_written(value):
    """Options as somebody wrote them into a YAML file, secrets readable."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return {
            field.alias or name: as_written(getattr(value, name))
            for name, field in type(value).model_fields.items()
        }
    if isinstance(value, dict):
        return {key: as_written(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_written(element) for element in value]
    return str(value) if isinstance(value, Path) else value


class Talkative(FakeBackend):
    """Repeats everything it is told, wherever an adapter can say something."""

    def __init__(self, said, *, fails):
        super().__init__(name="fake")
        self.said, self.fails = said, fails

    async def health(self):
        answer = {"details": {"said": self.said}, "warnings": tuple(self.said)}
        return (await super().health()).model_copy(update=answer)

    async def setup_scope(self, scope):
        if self.fails:
            raise BackendUnavailable(f"cannot use {self.said}", diagnostics={"said": self.said})
        await super().setup_scope(scope)

    async def retrieve(self, request):
        result = await super().retrieve(request)
        return result.model_copy(
            update={"trace": result.trace.model_copy(update={"warnings": tuple(self.said)})}
        )


def registry_of(options, make):
    module = types.ModuleType("private_plugin")

    @hookimpl
    def memslot_describe() -> PluginInfo:
        everything = capabilities_of(FakeBackend())
        return PluginInfo("fake", "architecture", "for tests", capabilities=everything, options=options)

    @hookimpl
    def memslot_create(settings: Any) -> FakeBackend:
        return make()

    module.memslot_describe, module.memslot_create = memslot_describe, memslot_create
    sys.modules[module.__name__] = module
    return MemoryAdapterRegistry([EntryPoint("fake", module.__name__, "memslot.backends")])


def assert_clean(directory, *more):
    files = [path for path in directory.rglob("*") if path.is_file() and "store" not in path.parts]
    assert {"manifest.json", "report.html"} <= {path.name for path in files}
    for text in (*(path.read_text(encoding="utf-8") for path in files), *more):
        assert SENTENCE not in text
        assert SENTENCE.replace("'", "&#39;") not in text
        assert SECRET not in text
        assert str(directory) not in text


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
@pytest.mark.parametrize("name", plain("mem0", "rolling_summary", of=MODELS))
async def test_no_artefact_repeats_an_option_even_where_the_adapter_does(
    name, fails, tmp_path, monkeypatch, caplog, capfd
):
    caplog.set_level(logging.DEBUG, "memslot")
    planted = Planted().model(MODELS[name])
    block = as_written(planted)
    # What is planted breaks every rule a validator knows, so none is asked.
    monkeypatch.setattr(MemslotConfig, "parse_options", lambda self, model: planted)
    said = list(texts_in(list(block.values())))
    private = tmp_path / f"{SENTENCE} {SECRET}"
    outcome = await run(
        {
            "memory": {"backend": "fake", "backends": {"fake": block}, "data_dir": str(private / "data")},
            "run": {"output": str(private / "out"), "game": GAME},
        },
        registry=registry_of(MODELS[name], lambda: Talkative(said, fails=fails)),
    )
    assert outcome.manifest.status == ("failed" if fails else "completed")
    assert_clean(outcome.directory, caplog.text, *capfd.readouterr())
