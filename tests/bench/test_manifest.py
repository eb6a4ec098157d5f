"""The manifest as a document: its schema is published, its readers are told what is wrong."""

import json
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from memory import ConfigError
from memory.bench.engine import provenance
from memory.bench.engine.run_manifest import (
    FORMAT_VERSION,
    GitRecord,
    ProviderRecord,
    RunManifest,
    manifest_schema,
    read_manifest,
    write_atomic,
    write_manifest,
)
from memory.bench.engine.rundir import new_run_id

PUBLISHED = Path(__file__).parents[2] / "manifests"


@pytest.fixture
def example():
    return read_manifest(PUBLISHED / "example")


def test_the_published_schema_is_the_code_s():
    assert json.loads((PUBLISHED / "schema.json").read_text(encoding="utf-8")) == manifest_schema()


def test_every_field_is_documented():
    models = [manifest_schema(), *manifest_schema()["$defs"].values()]
    ours = [model for model in models if model.get("title", "").endswith(("Record", "Manifest"))]
    assert len(ours) == 11
    missing = [
        f"{model['title']}.{name}"
        for model in ours
        for name, field in model["properties"].items()
        if not field.get("description")
    ]
    assert not missing


def test_the_example_is_a_finished_run_that_fits_the_schema(example):
    content = json.loads((PUBLISHED / "example" / "manifest.json").read_text(encoding="utf-8"))
    Draft202012Validator(manifest_schema()).validate(content)
    assert example.status == "completed"
    assert example.data.timeline == "quickstart"
    assert not [path for path in (PUBLISHED / "example").iterdir() if path.suffix == ".part"]


def test_the_schema_refuses_what_is_no_manifest(example):
    content = json.loads(example.model_dump_json())
    for change in ({"status": "fine"}, {"surprise": 1}, {"cells": None}):
        assert list(Draft202012Validator(manifest_schema()).iter_errors({**content, **change}))


def test_exactly_one_provider_is_active():
    assert ProviderRecord(backend=None, condition="no_memory", kind="control").name == "no_memory"
    for both in ({"backend": "a", "condition": "b"}, {"backend": None, "condition": None}):
        with pytest.raises(ValueError, match="exactly one of backend and condition"):
            ProviderRecord(**both, kind="control")


def test_what_is_written_is_what_is_read(example, tmp_path):
    write_manifest(example, tmp_path / "manifest.json")
    assert read_manifest(tmp_path) == read_manifest(tmp_path / "manifest.json") == example
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "manifest.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist; give the directory of a run"),
        ("{", "is not JSON"),
        ("[]", "is not a run manifest"),
        ("{}", "format_version is missing"),
        (f'{{"format_version": {FORMAT_VERSION + 1}}}', "upgrade memslot"),
        ('{"format_version": 1}', r"is not a run manifest: run_id: is required"),
    ],
)
def test_a_manifest_that_cannot_be_read_says_why(tmp_path, content, complaint):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        read_manifest(tmp_path)


def test_the_version_in_the_form_is_the_current_one(example):
    assert example.format_version == FORMAT_VERSION == RunManifest.model_fields["format_version"].default


def test_run_ids_are_safe_names_and_never_meet(example):
    ids = {new_run_id("käse/../../x y*" + "z" * 200, example.created_at) for _ in range(50)}
    assert len(ids) == 50
    for name in ids:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
        assert len(name) < 120


def test_what_git_does_not_say_is_unknown_and_its_lock_is_left_alone(monkeypatch):
    """A status that failed is no clean checkout; and whoever works in the checkout is not disturbed."""
    told = {"ls-files": (0, ""), "rev-parse": (0, "abc"), "status": (128, "")}

    def run(command, **_):
        assert "--no-optional-locks" in command
        (code, text) = next(told[word] for word in command if word in told)
        return subprocess.CompletedProcess(command, code, stdout=text)

    monkeypatch.setattr(subprocess, "run", run)
    assert provenance._git.__wrapped__(Path("x")) == GitRecord(revision="abc", dirty=None)
    told["status"] = (0, " M a.py")
    assert provenance._git.__wrapped__(Path("x")) == GitRecord(revision="abc", dirty=True)
