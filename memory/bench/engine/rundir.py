"""A run's directory: files grow under a ``.part`` name and get their own only when whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from memory.adapter._lockfile import FileLock
from memory.bench.engine.run_manifest import RunManifest, write_atomic, write_manifest
from memory.bench.scores.figures import RunMetrics
from memory.bench.scores.llm_use import Phased
from memory.bench.scores.run_metrics import ProbeRecord
from memory.bench.scores.scoring import EvidenceHit, PreferenceHit
from memory.contract._model import first_problem
from memory.contract.errors import BackendUnavailable, ConfigError
from memory.contract.receipts import RetrieveResult, Trace

_HASHED = ("calls.log", "diagnostics.jsonl", "journal.jsonl", "results.jsonl", "texts.jsonl", "times.jsonl",
           "traces.jsonl")  # fmt: skip
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_probe: ContextVar[str | None] = ContextVar("memslot_probe", default=None)


def new_run_id(label: str, at: datetime) -> str:
    """A fresh id that reads well and is safe as a file name and in native ids."""
    readable = _UNSAFE.sub("-", label).strip("-")[:80] or "run"
    return f"{readable}-{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def make_directory(path: Path) -> None:
    """Make a new directory, with its parents.

    Raises:
        ConfigError: it cannot be made, or exists.
    """
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"run.output: {path} exists already; choose another directory") from None
    except OSError as error:
        raise ConfigError(f"run.output: {path} cannot be made ({error.strerror}); choose another") from None


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Work in an experiment's directory alone.

    Raises:
        ConfigError: another process does.
    """
    lock = FileLock(
        directory / ".lock", what=f"the experiment {directory.name}", instead="wait until it has ended"
    )
    try:
        lock.acquire()
    except BackendUnavailable as error:
        raise ConfigError(str(error)) from None
    try:
        yield
    finally:
        lock.release()


class RunDirectory:
    """The files of one run. Also the sink of its traces, whose warnings go through ``scrub``.

    With ``keep_texts`` there is a file more, with what each probe asked and was shown; with ``diagnostics`` one
    with answers to native queries, whose texts it holds with ``keep_texts`` alone. No other holds a text.
    """

    def __init__(
        self,
        path: Path,
        scrub: Callable[[tuple[str, ...]], tuple[str, ...]] = tuple,
        *,
        keep_texts: bool = False,
        diagnostics: bool = False,
    ) -> None:
        self.path = path
        self._scrub = scrub
        self._names = ["traces.jsonl", "results.jsonl"]
        self._names += ["texts.jsonl"] if keep_texts else []
        self._names += ["diagnostics.jsonl"] if diagnostics else []
        self._growing: dict[str, IO[str]] = {}
        self.llm = Phased()
        self.provider = ""  # its label, for every line

    @property
    def store(self) -> Path:
        """Where embedded stores of this run live."""
        return self.path / "store"

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Make the directory, and take it away again if what is done within fails: nothing half-made is left.

        Raises:
            ConfigError: it cannot be made, or exists.
        """
        make_directory(self.path)
        try:
            yield
        except BaseException:
            self.close()
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def begin(self, manifest: RunManifest) -> None:
        """Write the manifest of a run that begins, and open the growing files."""
        self.write_manifest(manifest)
        for name in self._names:
            self._growing[name] = open(  # noqa: SIM115
                self._part(name), "w", encoding="utf-8", newline="\n"
            )

    def emit(self, trace: Trace) -> None:
        """Append one trace."""
        self.llm.add(trace)
        if trace.warnings:
            trace = trace.model_copy(update={"warnings": self._scrub(trace.warnings)})
        self._append("traces.jsonl", {**trace.model_dump(mode="json"), "probe_id": _probe.get()})

    @contextmanager
    def asking(self, probe_id: str) -> Iterator[None]:
        """Traces of calls made within name the probe, so that results and traces join."""
        token = _probe.set(probe_id)
        try:
            yield
        finally:
            _probe.reset(token)

    def add_result(self, record: ProbeRecord) -> None:
        """Append one probe's result."""
        self._append("results.jsonl", asdict(record))

    def add_texts(self, probe_id: str, persona_id: str, query: str, result: RetrieveResult) -> None:
        """Append what a probe asked and was shown, where texts are kept."""
        if "texts.jsonl" in self._growing:
            shown = result.formatted_context
            row = {"probe_id": probe_id, "persona_id": persona_id, "query": query, "context": shown}
            self._append("texts.jsonl", row)

    def add_diagnosis(self, row: Mapping[str, object]) -> None:
        """Append the answer of a native query."""
        self._append("diagnostics.jsonl", row)

    def _append(self, name: str, row: Mapping[str, object]) -> None:
        told = {**row, "provider": self.provider}
        self._growing[name].write(json.dumps(told, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        """Let a crash lose nothing of what was appended so far."""
        for file in self._growing.values():
            file.flush()

    def write_manifest(self, manifest: RunManifest) -> None:
        """Replace the manifest."""
        write_manifest(manifest, self.path / "manifest.json")

    def write_metrics(self, metrics: RunMetrics) -> None:
        """Write the figures."""
        write_atomic(self.path / "metrics.json", metrics.model_dump_json(indent=2) + "\n")

    def finish(self) -> None:
        """Give the grown files their own names."""
        names = list(self._growing)
        self.close()
        for name in names:
            os.replace(self._part(name), self.path / name)

    def close(self) -> None:
        """Close the growing files, leaving their names as they are. Idempotent."""
        while self._growing:
            self._growing.popitem()[1].close()

    def _part(self, name: str) -> Path:
        return self.path / f"{name}.part"


def file_hashes(directory: Path) -> dict[str, str]:
    """SHA-256, hex, of the files that figures of a run, or of a cell of an experiment, come from."""
    found = {name: directory / name for name in _HASHED if (directory / name).exists()}
    hashes = {}
    for name, path in found.items():
        with open(path, "rb") as file:
            hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def read_results(directory: Path) -> list[ProbeRecord]:
    """The probes of a finished run, as they were scored.

    Raises:
        ConfigError: there are none (the run is incomplete), or they are damaged.
    """
    file = directory / "results.jsonl"
    try:
        with open(file, encoding="utf-8") as lines:
            return [_record(json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; the run is incomplete, start it again") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(f"{file} is damaged, or of another version of memslot") from None


def _record(row: dict[str, Any]) -> ProbeRecord:
    evidence, preference, _ = row.pop("evidence"), row.pop("preference"), row.pop("provider")
    return ProbeRecord(
        **row,
        evidence=EvidenceHit(**evidence) if evidence else None,
        preference=PreferenceHit(**preference) if preference else None,
    )


def read_metrics(directory: Path) -> RunMetrics:
    """The figures of a finished run.

    Raises:
        ConfigError: there are none (the run is incomplete), or they are damaged.
    """
    file = directory / "metrics.json"
    try:
        return RunMetrics.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; the run is incomplete, start it again") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{file} cannot be read") from None
    except ValidationError as error:
        raise ConfigError(f"{file} is damaged: {first_problem(error)}") from None
