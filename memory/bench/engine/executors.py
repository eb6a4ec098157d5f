"""Plays cells in this process, in worker processes, or on a dask cluster, with the same jobs and records.

A worker that dies (killed, out of memory) costs only its cell, whose record says so. The other cells go on.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from memory.bench.engine.cell import Job, Progress, ended_record, run_job
from memory.bench.engine.manifest import CellRecord, ErrorRecord
from memory.bench.engine.settings import ExecutorSettings
from memory.contract.errors import ConfigError
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider

MayBegin = Callable[[], bool]
_CONNECT_S = 15
_REPORT_EVERY_S = 0.2
_ORPHANED = 3  # exit code of a worker whose run is gone
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Executor(Protocol):
    """Plays cells."""

    def run(self, jobs: Sequence[Job], progress: Progress, may_begin: MayBegin) -> Iterator[CellRecord]:
        """The record of each job as it ends. Jobs begin while ``may_begin`` is true; the rest is left out."""


def make_executor(
    settings: ExecutorSettings,
    registry: MemoryAdapterRegistry | None = None,
    models: Mapping[str, Provider] | None = None,
) -> Executor:
    """The executor that the settings name. Only the local one uses ``registry`` and ``models``."""
    if settings.kind == "processes":
        return ProcessExecutor(settings.workers)
    if settings.kind == "dask":
        return DaskExecutor(settings.workers, settings.address)
    return LocalExecutor(registry, models)


@dataclass
class LocalExecutor:
    """Plays cells one after another in this process."""

    registry: MemoryAdapterRegistry | None
    models: Mapping[str, Provider] | None

    def run(self, jobs: Sequence[Job], progress: Progress, may_begin: MayBegin) -> Iterator[CellRecord]:
        for job in takewhile(lambda _: may_begin(), jobs):
            yield run_job(job, progress, self.registry, self.models)


def _work(pipe: Connection) -> None:
    """The main loop of a worker: takes jobs, sends progress and records, until the pipe is closed."""
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while (job := pipe.recv()) is not None:
            try:
                record = run_job(job, _reporter(pipe))
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                record = _ended(job, f"{type(error).__name__} in {where.name}", "failed")
            pipe.send(("done", record))


def _reporter(pipe: Connection) -> Progress:
    """Reports the progress of a cell, but not every step: messages take time on a core that workers need.

    If the run has died, the worker ends. The run that resumes it continues the cell.
    """
    said = -math.inf

    def report(cell_id: str, done: int, total: int) -> None:
        nonlocal said
        if done < total and time.monotonic() < said + _REPORT_EVERY_S:
            return
        said = time.monotonic()
        try:
            pipe.send(("at", (cell_id, done, total)))
        except OSError:
            os._exit(_ORPHANED)

    return report


def _ended(job: Job, why: str, status: str) -> CellRecord:
    error = ErrorRecord(type="WorkerEnded" if status == "died" else "WorkerFailed", message=why)
    return ended_record(job, status, error)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers that start within use one thread for linear algebra, so that they do not slow each other."""
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


class _Worker:
    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _one_thread_each():
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        self.pipe.send(job)

    def end(self) -> None:
        with suppress(OSError):
            self.pipe.send(None)
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ProcessExecutor:
    """Plays cells in worker processes on this machine, each with one cell at a time."""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._took_ms: dict[str, float] = {}

    def run(self, jobs: Sequence[Job], progress: Progress, may_begin: MayBegin) -> Iterator[CellRecord]:
        waiting = list(jobs)
        try:
            while True:
                while waiting and len(self._workers) < min(self._count, len(jobs)) and may_begin():
                    self._workers.append(_Worker(self._context))
                    self._workers[-1].give(self._next(waiting))
                busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
                if not busy:
                    return
                for pipe in wait(list(busy)):
                    worker = busy[pipe]
                    record = self._receive(worker, progress)
                    if record is None:
                        continue
                    self._took_ms[record.label] = record.wall_ms or 0.0
                    if worker in self._workers and waiting and may_begin():
                        worker.give(self._next(waiting))
                    yield record
        finally:
            for worker in self._workers:
                worker.end()
            self._workers.clear()

    def _next(self, waiting: list[Job]) -> Job:
        """The next job. The longest of the last jobs comes first, so that no worker is left alone with it."""
        if len(waiting) > 2 * self._count:
            return waiting.pop(0)
        took = [self._took_ms.get(job.spec.label, 0.0) for job in waiting]
        return waiting.pop(took.index(max(took)))

    def _receive(self, worker: _Worker, progress: Progress) -> CellRecord | None:
        """A worker's message: a record, or None if it only reports progress."""
        job = worker.job
        assert job is not None
        try:
            kind, what = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(5)
            self._workers.remove(worker)
            worker.pipe.close()
            code = worker.process.exitcode
            how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
            return _ended(job, f"the worker process ended {how} while it played this cell", "died")
        if kind == "at":
            progress(*what)
            return None
        worker.job = None
        return what  # type: ignore[no-any-return]


class DaskExecutor:
    """Plays cells on a ``dask.distributed`` cluster. Its workers see the directory under the same path.

    If a worker is lost, its cell starts on another worker and continues from its journal. Without an address
    of a scheduler, a cluster with ``workers`` workers is started on this machine.
    """

    def __init__(self, workers: int, address: str | None) -> None:
        try:
            import distributed

            if address is not None:
                distributed.comm.get_address_host_port(address)
        except ImportError:
            raise ConfigError(
                "bench.executor.kind: dask needs distributed; pip install 'memslot[dask]'"
            ) from None
        except ValueError:
            raise ConfigError("bench.executor.address: is no address, such as tcp://host:8786") from None
        self._distributed = distributed
        self._workers, self._address = workers, address

    def run(self, jobs: Sequence[Job], progress: Progress, may_begin: MayBegin) -> Iterator[CellRecord]:
        """The record of each job as it ends. Progress within a cell is not reported."""
        if not jobs:
            return
        with self._client() as client:
            room = max(1, sum(client.nthreads().values()))
            waiting, running = deque(jobs), dict[Any, Job]()

            def submit() -> Any:
                future = client.submit(run_job, waiting[0], pure=False, retries=0)
                running[future] = waiting.popleft()
                return future

            begun = [submit() for _ in range(min(room, len(waiting))) if may_begin()]
            ended = self._distributed.as_completed(begun, loop=client.loop)
            for future in ended:
                job = running.pop(future)
                record: CellRecord
                try:
                    record = future.result()
                except self._distributed.KilledWorker:
                    record = _ended(job, "worker after worker was lost while it played this cell", "died")
                except Exception as error:
                    record = _ended(job, f"{type(error).__name__} in the worker", "failed")
                progress(job.spec.cell_id, *(2 * [record.sessions + record.tests + record.probes]))
                yield record
                if waiting and may_begin():
                    ended.add(submit())

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with ExitStack() as stack:
            where = self._address or stack.enter_context(
                self._distributed.LocalCluster(
                    n_workers=self._workers, threads_per_worker=1, processes=True, dashboard_address=":0"
                )
            )
            try:
                client = self._distributed.Client(where, timeout=_CONNECT_S, set_as_default=False)
            except (OSError, TimeoutError):
                raise ConfigError(
                    "bench.executor.address: no dask scheduler answers there; start one, or leave the address out"
                ) from None
            yield stack.enter_context(client)
