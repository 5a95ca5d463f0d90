"""Daemon threads: no limit, no leak, no hold on the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from langgraph_flash.futures import threads as module
from langgraph_flash.futures.threads import DaemonThreads

GUARD = 20.0


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    pool = DaemonThreads()
    yield pool
    pool.shutdown()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.001)


class Thing:
    pass


class ThingError(Exception):
    pass


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_whatever_a_job_raises_reaches_who_waits_and_the_thread_lives_on(
    threads: DaemonThreads, error: BaseException
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        threads.submit(fails).result(GUARD)
    assert caught.value is error
    until(lambda: len(threads._idle) == 1)
    assert threads.submit(lambda: 5).result(GUARD) == 5


async def test_a_stop_iteration_in_a_thread_does_not_hang_the_loop_that_awaits_it(threads: DaemonThreads) -> None:
    """A plain `next(...)` in a synchronous tool; asyncio's futures refuse this exception before Python 3.12."""
    loop = asyncio.get_running_loop()
    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    waiting = loop.run_in_executor(threads, next, iter(()))
    done, _ = await asyncio.wait({waiting}, timeout=2)
    assert done, "the job has ended, and whoever awaits it never hears of it"
    assert isinstance(waiting.exception(), (RuntimeError, StopIteration))
    assert not reported


def test_after_shutdown_work_is_refused_idle_threads_end_and_running_ones_finish(threads: DaemonThreads) -> None:
    release, started = threading.Event(), threading.Event()

    def job() -> int:
        started.set()
        release.wait(GUARD)
        return 7

    threads.submit(lambda: None).result(GUARD)
    until(lambda: len(threads._idle) == 1)
    idle = threads._idle[0].thread
    running = threads.submit(job)
    threads.submit(lambda: None).result(GUARD)
    until(lambda: len(threads._idle) == 1)
    other = threads._idle[0].thread
    assert started.wait(GUARD)
    threads.shutdown(wait=True)
    other.join(GUARD)
    assert not other.is_alive()
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.submit(lambda: None)
    release.set()
    assert running.result(GUARD) == 7
    idle.join(GUARD)
    assert not idle.is_alive()
    threads.shutdown()


def test_jobs_that_wait_for_jobs_fifty_deep_all_get_a_thread(threads: DaemonThreads) -> None:
    def deep(levels: int) -> int:
        return 0 if not levels else 1 + threads.submit(deep, levels - 1).result(GUARD)

    assert threads.submit(deep, 50).result(GUARD) == 50


def test_many_jobs_at_once_all_run_at_once(threads: DaemonThreads) -> None:
    barrier = threading.Barrier(40)
    jobs = [threads.submit(barrier.wait, GUARD) for _ in range(40)]
    assert sorted(job.result(GUARD) for job in jobs) == list(range(40))


def test_an_idle_thread_is_used_again(threads: DaemonThreads) -> None:
    seen = set()
    for _ in range(20):
        seen.add(threads.submit(threading.get_ident).result(GUARD))
        until(lambda: len(threads._idle) == 1)
    assert len(seen) == 1


def test_idle_threads_end_and_a_new_one_takes_over(threads: DaemonThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.01)
    workers = [threads.submit(threading.current_thread).result(GUARD) for _ in range(3)]
    for worker in workers:
        assert worker.daemon
        worker.join(GUARD)
        assert not worker.is_alive()
    assert threads._idle == []
    assert threads.submit(lambda: 1).result(GUARD) == 1


def test_jobs_given_at_the_moment_threads_go_idle_are_never_lost(
    threads: DaemonThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0005)
    for n in range(300):
        assert threads.submit(lambda n=n: n).result(GUARD) == n
        time.sleep(0.0004 + (n % 7) * 0.0001)


def test_an_idle_thread_keeps_neither_arguments_nor_result_nor_exception(threads: DaemonThreads) -> None:
    argument, keyword = Thing(), Thing()
    references = [weakref.ref(argument), weakref.ref(keyword)]

    def job(given: Thing, *, named: Thing) -> Thing:
        result = Thing()
        references.append(weakref.ref(result))
        return result

    def fails() -> None:
        error = ThingError("x")
        references.append(weakref.ref(error))
        raise error

    assert isinstance(threads.submit(job, argument, named=keyword).result(GUARD), Thing)
    with contextlib.suppress(ThingError):
        threads.submit(fails).result(GUARD)
    del argument, keyword

    def released() -> bool:
        gc.collect()
        return not any(reference() for reference in references)

    until(released)
    assert len(references) == 4


def test_a_job_cancelled_before_it_began_never_begins(threads: DaemonThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    original = Future.set_running_or_notify_cancel

    def cancel_first(self: Future[object]) -> bool:
        self.cancel()
        return original(self)

    monkeypatch.setattr(Future, "set_running_or_notify_cancel", cancel_first)
    job = threads.submit(ran.append, 1)
    until(job.done)
    until(lambda: len(threads._idle) == 1)
    assert job.cancelled()
    assert ran == []
