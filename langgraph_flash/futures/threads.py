"""Daemon worker threads for synchronous tools, so that a tool that never returns cannot keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["DaemonThreads"]

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_SECONDS = 10.0


class DaemonThreads(ThreadPoolExecutor):
    """An executor whose threads start on demand, are reused, end when idle, and are never joined at exit.

    The standard pool joins its threads when the interpreter exits and has a fixed size: a hung tool would block the
    exit, and tools that call graphs whose tools need a thread could wait for each other forever. How many calls run
    at once is the scheduler's business, so this pool has no limit of its own. It subclasses `ThreadPoolExecutor`
    because an event loop accepts nothing else as its default executor.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="langgraph-flash-tool")
        self._idle: list[_Worker] = []
        self._guard = threading.Lock()
        self._closed = False
        self.abandoned = 0
        """Jobs still running although nobody waits for them any more."""

    def count_abandoned(self, change: int) -> None:
        """Note that a running job was given up (1), or that such a job has ended (-1)."""
        with self._guard:
            self.abandoned += change

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` on an idle thread, or on a new one."""
        if self._closed:
            raise RuntimeError("cannot schedule new work after shutdown")
        future: Future[T] = _Job(self)
        job = (future, fn, args, kwargs)
        with self._guard:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker(self)
            worker.jobs.put(job)
            worker.thread.start()
        else:
            worker.jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further work and let idle threads end; running ones are left to finish on their own."""
        self._closed = True
        with self._guard:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.jobs.put(None)

    def rest(self, worker: _Worker) -> bool:
        """Offer a worker for reuse; `False` if it should end instead."""
        with self._guard:
            if self._closed:
                return False
            self._idle.append(worker)
            return True

    def retire(self, worker: _Worker) -> bool:
        """Withdraw an idle worker; `False` if it was just given a job."""
        with self._guard:
            if worker in self._idle:
                self._idle.remove(worker)
                return True
            return False


class _Job(Future[T]):
    """A future that notices when its running job is given up."""

    def __init__(self, pool: DaemonThreads) -> None:
        super().__init__()
        self._pool = pool
        self._given_up = False

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if not cancelled and self.running() and not self._given_up:
            self._given_up = True
            self._pool.count_abandoned(1)
            self.add_done_callback(lambda _: self._pool.count_abandoned(-1))
        return cancelled


class _Worker:
    __slots__ = ("jobs", "pool", "thread")

    def __init__(self, pool: DaemonThreads) -> None:
        self.pool = pool
        self.jobs: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="langgraph-flash-tool", daemon=True)

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self.pool.retire(self):
                    return
                continue
            if job is None:
                return
            future, fn, args, kwargs = job
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except StopIteration as error:
                    # An asyncio future refuses it, and whoever awaits would wait for ever.
                    translated = RuntimeError("the function raised StopIteration")
                    translated.__cause__ = error
                    future.set_exception(translated)
                except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the job
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            # An idle thread must not keep the last call's arguments and result alive.
            del job, future, fn, args, kwargs
            if not self.pool.rest(self):
                return
