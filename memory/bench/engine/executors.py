"""Plays cells in this process, in worker processes, or on a dask cluster, with the same jobs and records.

A worker that dies (killed, out of memory) costs only its cell, whose record says so. The other cells go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from memory.bench.engine.cell import Job, Progress, ended_record, run_job
from memory.bench.engine.manifest import CellRecord, ErrorRecord
from memory.bench.engine.settings import ExecutorSettings
from memory.contract.errors import ConfigError
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime._provider import Provider

Submit = Callable[[Job], "Future[CellRecord]"]
_CONNECT_S = 15
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Executor(Protocol):
    """Plays cells."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> Iterator[CellRecord]:
        """The record of each job as it ends."""


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

    def run(self, jobs: Sequence[Job], progress: Progress) -> Iterator[CellRecord]:
        for job in jobs:
            yield run_job(job, progress, self.registry, self.models)


def _in_turn(
    waiting: deque[Job], room: int, submit: Submit, lost: Collection[Job] = ()
) -> Iterator[tuple[Job, Future[CellRecord]]]:
    """Each job with its future, as it ends. At most ``room`` jobs run at a time; none begins after a lost one."""
    running: dict[Future[CellRecord], Job] = {}
    while True:
        while waiting and len(running) < room and not lost:
            job = waiting.popleft()
            running[submit(job)] = job
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future


def _record_of(job: Job, future: Future[CellRecord], progress: Progress) -> CellRecord:
    """The record of a job that another process played. Progress within a cell is not reported."""
    kind = type(future.exception()).__name__
    if kind == "NoneType":
        record = future.result()
    elif kind in ("BrokenProcessPool", "KilledWorker"):
        why = "each worker process that played this cell was killed, or ended on its own"
        record = ended_record(job, "died", ErrorRecord(type="WorkerEnded", message=why))
    else:
        why = f"{kind} in the worker"
        record = ended_record(job, "failed", ErrorRecord(type="WorkerFailed", message=why))
    progress(record.cell_id, *(2 * [record.sessions + record.tests + record.probes]))
    return record


def _start_worker(run: Connection) -> None:
    """Prepares a worker process. It ends when the run closes its end of the pipe, or is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _THREADS:  # workers would slow each other
        os.environ.setdefault(name, "1")

    def watch() -> None:
        with suppress(EOFError):
            run.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _pool(workers: int) -> Iterator[Submit]:
    """Worker processes. If an error leaves the context, they end at once; ``--resume`` continues their cells."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (theirs,))

    def submit(job: Job) -> Future[CellRecord]:
        try:
            return pool.submit(run_job, job)
        except BrokenProcessPool as error:
            lost: Future[CellRecord] = Future()
            lost.set_exception(error)
            return lost

    try:
        yield submit
        pool.shutdown()
    finally:
        ours.close()
        pool.shutdown()
        theirs.close()


@dataclass
class ProcessExecutor:
    """Plays cells in worker processes on this machine, each with one cell at a time.

    If a worker dies, all cells that were being played are played again, each alone. A cell whose worker dies
    then, too, is given up.
    """

    workers: int

    def run(self, jobs: Sequence[Job], progress: Progress) -> Iterator[CellRecord]:
        waiting, lost = deque(jobs), deque[Job]()
        while waiting or lost:
            while lost:
                job = lost.popleft()
                with _pool(1) as submit:
                    yield _record_of(job, submit(job), progress)
            with _pool(self.workers) as submit:
                ended = _in_turn(waiting, self.workers, submit, lost)
                for job, future in ended:
                    if isinstance(future.exception(), BrokenProcessPool):
                        lost.append(job)
                    else:
                        yield _record_of(job, future, progress)


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
        self._distributed, self._workers, self._address = distributed, workers, address

    def run(self, jobs: Sequence[Job], progress: Progress) -> Iterator[CellRecord]:
        """The record of each job as it ends."""
        if not jobs:
            return
        with self._client() as client, client.get_executor(pure=False, retries=0) as pool:
            room = max(1, sum(client.nthreads().values()))
            for job, future in _in_turn(deque(jobs), room, lambda job: pool.submit(run_job, job)):
                yield _record_of(job, future, progress)

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
