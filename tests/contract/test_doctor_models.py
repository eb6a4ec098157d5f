"""A model that does not answer as configured shows in the doctor, before the first turn."""

import pytest

from memory.doctor.runner import Doctor
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FAKE_KEY, ScriptedLLM


def options_of(provider, llm):
    model = {"model": "scripted", "base_url": llm.base_url, "api_key": FAKE_KEY}
    return {
        "mem0": {"llm": model, "embedder": model},
        "graphiti": {
            "llm": model,
            "embedder": model,
            "cross_encoder": model,
            "recipe": "cross_encoder",
            "dimensions": 1536,
        },
        "rolling_summary": {"summariser": "llm", "llm": model},
    }[provider]


ROLES = {
    "mem0": ("llm", "embedder"),
    "graphiti": ("llm", "embedder", "cross_encoder"),
    "rolling_summary": ("llm",),
}


@pytest.fixture(params=ROLES)
def provider(request):
    rows = {row.name: row for row in MemoryAdapterRegistry().rows()}
    if not rows[request.param].installed:
        pytest.skip(f"not installed: {request.param}")
    return str(request.param)


async def examine(provider, tmp_path, options):
    kind = "condition" if provider == "rolling_summary" else "backend"
    memory = {kind: provider, "data_dir": str(tmp_path), f"{kind}s": {provider: options}}
    return await Doctor({"memory": memory}).run()


def check(report, name):
    return next(check for check in report.checks if check.name == name)


@pytest.mark.thorough
async def test_models_that_answer_pass(provider, llm, tmp_path):
    report = await examine(provider, tmp_path, options_of(provider, llm))
    assert check(report, "models").status == "passed", report
    assert check(report, "models").evidence == f"{', '.join(ROLES[provider])} answered"
    if provider != "rolling_summary":  # which summarises later
        written = check(report, "write").evidence
        assert "the extracting model was asked" in written
        assert "tokens; the slower write took" in written
        assert "memory.deadlines.write_s allows 60 s" in written
        assert "and the model accepts 32,768" in written
        assert report.write_s is not None


@pytest.mark.parametrize("role", ["llm", "embedder"])
async def test_a_dead_key_fails_before_anything_is_written(provider, role, llm, tmp_path):
    if role not in ROLES[provider]:
        pytest.skip(f"{provider} has no {role}")
    endpoint = "chat/completions" if role == "llm" else "embeddings"
    llm.faults.add("401", times=None, endpoint=endpoint)
    report = await examine(provider, tmp_path, options_of(provider, llm))
    found = next(check for check in report.checks if check.status == "failed")
    assert "HTTP 401" in found.evidence
    assert found.fix.startswith("correct the key in memory.")
    if (provider, role) == ("mem0", "embedder"):  # opening the store asks it for its dimensions
        assert found.name == "health"
    else:
        assert found.name == "models"
        assert f"{role}: " in found.evidence
        assert f".{role}:" in found.fix
    assert check(report, "write").status == "skipped"
    assert FAKE_KEY not in report.model_dump_json()


async def test_an_address_where_nobody_answers_is_named(provider, llm, tmp_path):
    options = options_of(provider, llm)
    options["llm"] = {**options["llm"], "base_url": "http://127.0.0.1:9/v1"}
    report = await examine(provider, tmp_path, options)
    failed = next(check for check in report.checks if check.status == "failed")
    assert failed.name == ("health" if provider == "rolling_summary" else "models")
    if failed.name == "models":
        assert failed.fix.endswith(f"its address in memory.backends.{provider}.llm")


class FixedLength(ScriptedLLM):
    """Its vectors have 1536 numbers, whatever is asked for."""

    def _answered(self, method, path, body):
        return super()._answered(method, path, {key: body[key] for key in body if key != "dimensions"})


@pytest.mark.parametrize("provider", ["mem0", "graphiti"], indirect=True)
async def test_vectors_of_another_length_are_named(provider, tmp_path):
    with FixedLength() as llm:
        report = await examine(provider, tmp_path, {**options_of(provider, llm), "dimensions": 2048})
    found = check(report, "models")
    assert found.status == "failed"
    assert "2048" in found.evidence
    assert "answers with 1536" in found.evidence
