"""The programs that ``memslot setup`` writes, run as they are, with a scripted model in place of ``# yours``."""

import gc
import importlib
from collections.abc import Callable
from typing import Any

import pytest
from host_model import HostModel
from setting_up import set_up

from memory.hosts.table import HOSTS


def _openai(module: Any, script: HostModel) -> Any:
    app = module.App(None, script)
    app._model.extend([module.ModelStep.respond(app._answer)])
    return app._model


def _pydantic(module: Any, script: HostModel) -> Any:
    async def answer(messages: Any, info: Any) -> Any:
        return module.ModelResponse(parts=[module.TextPart((await script.acall(str(messages))).text)])

    return module.FunctionModel(answer)


MODELS: dict[str, Callable[[Any, HostModel], Any]] = {
    "langchain": lambda module, script: module.Scripted(script=script),
    "openai-agents": _openai,
    "llama-index": lambda module, script: module.Scripted(script=script),
    "crewai": lambda module, script: module.Scripted(model="scripted", script=script),
    "strands": lambda module, script: module.Scripted(script),
    "adk": lambda module, script: module.Scripted(script=script),
    "pydantic-ai": _pydantic,
    "agent-framework": lambda module, script: module.Scripted(script),
}
INSTALLED = [name for name in MODELS if HOSTS[name].installed]
if not INSTALLED:
    pytest.skip("none of these hosts' SDKs is installed", allow_module_level=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ImportWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", INSTALLED)
def test_a_program_remembers_when_it_is_run_again(name, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    set_up(tmp_path, name)
    lines = (tmp_path / f"{HOSTS[name].module}_agent.py").read_text("utf-8").splitlines()
    program = "\n".join(line for line in lines if not line.endswith("# yours"))
    assert program.count("Which tea do I like?") == 1
    module, script = importlib.import_module(f"test_{HOSTS[name].module}"), HostModel()
    for said in ("I like oolong tea.", "Which tea do I like?"):
        model = MODELS[name](module, script)
        exec(program.replace("Which tea do I like?", said), {"model": model, "__name__": "program"})
    # LlamaIndex leaves its connections to the collector; while this test runs, that is no error.
    gc.collect()
    assert "I like oolong tea." in script.shown[-1]
    assert "I like oolong tea." in script.shown[0]
    assert len(script.shown) == 2
