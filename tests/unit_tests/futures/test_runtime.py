"""The runtime: visits from threads and loops, scopes that come and go, and the end of everything."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from langgraph_flash.errors import ConfigurationError, DeadlockError, FlashError, RuntimeClosed
from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.memo import INTERRUPTED, Memo
from langgraph_flash.futures.resources import PURE, Access
from langgraph_flash.futures.runtime import FutureRuntime, default_runtime, live_runtimes
from langgraph_flash.futures.scope import Scope
from langgraph_flash.testing import run_virtual

GUARD = 20.0
X = Access(writes=(("x",),))


@pytest.fixture
def runtime() -> Iterator[FutureRuntime]:
    made = FutureRuntime()
    yield made
    made.close()


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test on a virtual clock."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


def ends(function: Callable[[], Any], seconds: float = 3.0) -> BaseException | Any:
    """What a function returns or raises in another thread; a failure of the test if it never does."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, "it waits for ever"
    return outcome[0]


def make(key: str = "s", **options: Any) -> Callable[[asyncio.AbstractEventLoop], Scope]:
    return lambda loop: Scope(key, loop=loop, **options)


def future(name: str, work: Any, access: Access = PURE, **options: Any) -> Future:
    return Future(name, "tool", access=access, work=work, **options)


def sleeps(seconds: float, value: Any = "value") -> Any:
    async def work(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(seconds)
        return value

    return work


def raises(error: BaseException) -> Any:
    async def work(arguments: dict[str, Any]) -> Any:
        raise error

    return work


def run_script(script: str, seconds: float = 60.0) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


# Options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"loop": "mine"}, {"max_futures": 0}, {"max_futures": -1}, {"ttl": 0}, {"ttl": -1}, {"ttl": math.nan}],
    ids=str,
)
def test_an_option_that_can_never_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        FutureRuntime(**options)


# Visits from synchronous code --------------------------------------------------------------------------------


def test_a_call_from_the_runtimes_own_thread_is_a_deadlock_error_and_not_a_deadlock(runtime: FutureRuntime) -> None:
    made = []

    async def inner() -> None:
        made.append("inner")

    async def visit() -> None:
        runtime.call(inner)

    with pytest.raises(DeadlockError, match="wait for itself"):
        runtime.call(visit)
    assert made == []

    async def fine() -> int:
        return 5

    assert runtime.call(fine) == 5


def test_a_call_from_a_tool_in_a_thread_of_the_runtime_works_however_deep(runtime: FutureRuntime) -> None:
    def deep(levels: int) -> int:
        async def visit() -> int:
            return await asyncio.to_thread(deep, levels - 1) + 1

        return runtime.call(visit) if levels else 0

    assert deep(50) == 50


def test_a_runtime_on_the_callers_loop_serves_no_synchronous_code() -> None:
    async def visit() -> None: ...

    with pytest.raises(ConfigurationError, match="ainvoke and astream only"):
        FutureRuntime(loop="caller").call(visit)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x"), asyncio.CancelledError()])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_visit_may_raise_anything_without_ending_the_runtime_for_everybody(error: BaseException) -> None:
    """Visits raise what a foreground tool raised, `SystemExit` included."""
    runtime = FutureRuntime()

    async def visit() -> None:
        raise error

    async def fine() -> int:
        return 5

    outcome = ends(lambda: runtime.call(visit))
    assert isinstance(outcome, BaseException)
    assert ends(lambda: runtime.call(fine)) == 5
    runtime.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_tool_that_raises_system_exit_does_not_kill_the_thread_of_the_runtime(
    runtime: FutureRuntime, error: BaseException
) -> None:
    async def visit() -> tuple[State, BaseException | None, Any]:
        scope = runtime.scope("s", make())
        bad, good = future("a", raises(error), X), future("b", sleeps(0), X)

        def in_thread() -> None:
            raise error

        async def threaded(arguments: dict[str, Any]) -> None:
            await asyncio.to_thread(in_thread)

        also = future("c", threaded)
        scope.submit([bad, good, also])
        await scope.wait([bad, good, also])
        assert also.error is error
        return bad.state, bad.error, good.result()

    assert runtime.call(visit) == (State.FAILED, error, "value")
    assert runtime.call(visit) is not None


def test_contexts_of_visits_are_those_of_their_callers(runtime: FutureRuntime) -> None:
    import contextvars

    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def visit() -> str:
        before = variable.get()
        variable.set("set by the visit")
        return before

    variable.set("mine")
    assert runtime.call(visit) == "mine"
    assert variable.get() == "mine"


# Visits from a loop ------------------------------------------------------------------------------------------


async def test_cancelling_the_caller_cancels_the_visit_on_another_loop(runtime: FutureRuntime) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def visit() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    task = asyncio.create_task(runtime.acall(visit))
    assert await asyncio.to_thread(begun.wait, GUARD)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, GUARD)


@virtually
async def test_cancelling_the_caller_cancels_the_visit_on_its_own_loop_and_waits_for_its_end() -> None:
    runtime = FutureRuntime(loop="caller")
    log = []

    async def visit() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            log.append("clean")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await runtime.acall(visit)
    assert log == ["clean"]
    assert asyncio.get_running_loop().time() == 6
    runtime.close()


@virtually
async def test_a_visit_that_fails_while_it_is_cancelled_does_not_swallow_the_cancellation() -> None:
    runtime = FutureRuntime(loop="caller")

    async def visit() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise ValueError("in the clean-up") from None

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await runtime.acall(visit)
    runtime.close()


@virtually
async def test_a_pulse_that_raises_does_not_leave_the_visit_behind() -> None:
    runtime = FutureRuntime(loop="caller")

    def pulse() -> None:
        raise RuntimeError("the stream is closed")

    with contextlib.suppress(RuntimeError):
        await runtime.acall(lambda: asyncio.sleep(100), pulse)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert not left
    runtime.close()


async def test_a_visitor_that_is_thrown_away_goes_without_complaint() -> None:
    """What happens to a coroutine whose loop ended before it did."""
    runtime = FutureRuntime(loop="caller")
    ended = []

    async def visit() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(True)

    visitor = runtime.acall(visit)
    visitor.send(None)
    await asyncio.sleep(0)
    visitor.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert ended == [True]


@virtually
async def test_the_pulse_beats_while_the_visit_lasts_and_its_value_and_errors_come_through() -> None:
    runtime = FutureRuntime(loop="caller")
    beats = []

    async def visit() -> int:
        await asyncio.sleep(3.5)
        return 7

    async def fails() -> None:
        raise ValueError("boom")

    loop = asyncio.get_running_loop()
    assert await runtime.acall(visit, lambda: beats.append(loop.time())) == 7
    assert beats == [1, 2, 3]
    with pytest.raises(ValueError, match="boom"):
        await runtime.acall(fails)
    runtime.close()


async def test_work_outlives_the_loop_that_asked_for_it(runtime: FutureRuntime) -> None:
    release = threading.Event()

    async def waits(arguments: dict[str, Any]) -> str:
        await asyncio.to_thread(release.wait, GUARD)
        return "kept"

    async def submit() -> None:
        runtime.scope("s", make()).submit([future("a", waits)])

    async def collect() -> Any:
        scope = runtime.find_scope("s")
        assert scope is not None
        call = scope.get("a")
        assert call is not None
        await scope.wait([call])
        return call.result()

    await asyncio.to_thread(lambda: asyncio.run(runtime.acall(submit)))
    release.set()
    assert await asyncio.to_thread(lambda: asyncio.run(runtime.acall(collect))) == "kept"


# Scopes ------------------------------------------------------------------------------------------------------


@virtually
async def test_a_scope_nobody_touched_is_cancelled_and_dropped_after_its_time() -> None:
    runtime = FutureRuntime(loop="caller", ttl=100)
    runtime.start()
    scope = runtime.scope("s", make())
    assert runtime.scope("s", make()) is scope
    call = future("a", sleeps(10**6))
    scope.submit([call])
    await asyncio.sleep(99)
    assert runtime.find_scope("s") is scope
    await asyncio.sleep(30)
    assert runtime.find_scope("s") is None
    assert call.state is State.CANCELLED
    assert "within 100 s" in str(call.reason)
    assert runtime.statistics().scopes == 0
    fresh = runtime.scope("s", make())
    assert fresh is not scope
    await asyncio.sleep(200)
    assert runtime.find_scope("s") is None


@virtually
async def test_a_scope_is_not_swept_while_somebody_waits_for_its_call() -> None:
    runtime = FutureRuntime(loop="caller", ttl=100)
    runtime.start()
    scope = runtime.scope("s", make())
    call = future("a", sleeps(1000))
    scope.submit([call])
    assert await scope.wait([call])
    assert call.state is State.SUCCEEDED, call.reason
    assert asyncio.get_running_loop().time() == 1000


@virtually
async def test_a_wait_that_ended_without_a_result_counts_as_asking() -> None:
    runtime = FutureRuntime(loop="caller", ttl=100)
    runtime.start()
    scope = runtime.scope("s", make())
    call = future("a", sleeps(1000))
    scope.submit([call])
    assert not await scope.wait([call], seconds=174)
    await asyncio.sleep(50)
    assert not call.settled, call.reason
    scope.cancel_all("the test is over")
    await scope.wait([call])


@virtually
async def test_a_scope_somebody_works_with_is_not_dropped_even_if_it_holds_nothing() -> None:
    runtime = FutureRuntime(loop="caller", ttl=100)
    runtime.start()
    scope = runtime.scope("s", make())
    scope.visitors += 1
    runtime.release(scope)
    await asyncio.sleep(1000)
    assert runtime.find_scope("s") is scope
    scope.visitors -= 1
    runtime.release(scope)
    assert runtime.find_scope("s") is None


@virtually
async def test_asking_again_for_a_scope_keeps_it() -> None:
    runtime = FutureRuntime(loop="caller", ttl=100)
    runtime.start()
    call = future("a", sleeps(1000))
    runtime.scope("s", make()).submit([call])
    for _ in range(20):
        await asyncio.sleep(50)
        assert runtime.scope("s", make()).get("a") is call
    await asyncio.sleep(1)
    assert call.state is State.SUCCEEDED


@virtually
async def test_only_an_empty_scope_is_released() -> None:
    runtime = FutureRuntime(loop="caller")
    runtime.start()
    scope = runtime.scope("s", make())
    call = future("a", sleeps(1))
    scope.submit([call])
    runtime.release(scope)
    assert runtime.find_scope("s") is scope
    await scope.wait([call])
    scope.forget(call)
    runtime.release(scope)
    assert runtime.find_scope("s") is None
    newer = runtime.scope("s", make())
    runtime.release(scope)
    assert runtime.find_scope("s") is newer
    runtime.close()


def test_a_future_is_cancelled_and_confirmed_from_any_thread(runtime: FutureRuntime) -> None:
    async def submit() -> None:
        runtime.scope("s", make()).submit([future("a", sleeps(1000), X), future("b", sleeps(0), X)])

    async def wait(name: str) -> Future:
        scope = runtime.find_scope("s")
        assert scope is not None
        call = scope.get(name)
        assert call is not None
        await scope.wait([call])
        return call

    async def nothing() -> None: ...

    runtime.call(submit)
    assert runtime.statistics()[:3] == (1, 2, 1)
    assert not runtime.cancel("unknown", "why")
    assert runtime.cancel("a", "from another thread")
    assert runtime.call(lambda: wait("a")).reason == "from another thread"
    assert not runtime.cancel("a", "again")
    assert runtime.call(lambda: wait("b")).result() == "value"
    runtime.confirm(["a", "unknown"])
    runtime.call(nothing)
    assert runtime.statistics()[:3] == (1, 1, 0)
    runtime.confirm(["b"])
    runtime.call(nothing)
    assert runtime.statistics()[:3] == (0, 0, 0)


@virtually
async def test_a_future_that_has_not_settled_cannot_be_confirmed_away() -> None:
    runtime = FutureRuntime(loop="caller")
    runtime.start()
    scope = runtime.scope("s", make())
    call = future("a", sleeps(10))
    scope.submit([call])
    runtime.confirm(["a"])
    await asyncio.sleep(1)
    assert scope.get("a") is call
    await scope.wait([call])


@virtually
async def test_there_is_room_up_to_the_limit_over_all_scopes() -> None:
    runtime = FutureRuntime(loop="caller", max_futures=3)
    runtime.start()
    assert runtime.has_room(3)
    assert not runtime.has_room(4)
    for key in "st":
        runtime.scope(key, make(key)).submit([future("a", sleeps(0))])
    assert runtime.has_room(1)
    assert not runtime.has_room(2)
    scope = runtime.find_scope("s")
    assert scope is not None
    (call,) = scope.calls()
    await scope.wait([call])
    assert not runtime.has_room(2)
    scope.forget(call)
    assert runtime.has_room(2)


@virtually
async def test_a_new_loop_of_the_caller_starts_with_nothing_of_the_old_one() -> None:
    runtime = FutureRuntime(loop="caller")
    runtime.start()
    runtime.scope("s", make()).submit([future("a", sleeps(1000))])

    def other() -> tuple[Any, bool]:
        async def main() -> tuple[Any, bool]:
            runtime.start()
            return runtime.find_scope("s"), runtime.cancel("a", "why")

        return asyncio.run(main())

    assert await asyncio.to_thread(other) == (None, False)


def test_durations_are_averaged_by_tool() -> None:
    runtime = FutureRuntime()
    assert runtime.usual_seconds("t") is None
    runtime.measured("t", 10)
    assert runtime.usual_seconds("t") == 10
    runtime.measured("t", 0)
    assert runtime.usual_seconds("t") == pytest.approx(8)
    assert runtime.usual_seconds("u") is None


# The end -----------------------------------------------------------------------------------------------------


def test_a_closed_runtime_refuses_everything_and_closing_twice_is_fine() -> None:
    runtime = FutureRuntime()

    async def visit() -> int:
        return 5

    assert runtime.call(visit) == 5
    thread = runtime._thread
    assert thread is not None
    assert thread.daemon
    runtime.close()
    runtime.close()
    assert not thread.is_alive()
    with pytest.raises(RuntimeClosed):
        runtime.call(visit)
    with pytest.raises(RuntimeClosed):
        asyncio.run(runtime.acall(visit))
    with pytest.raises(RuntimeClosed):
        runtime.start()
    assert "closed" in repr(runtime)
    assert not runtime.cancel("a", "why")
    runtime.confirm(["a"])
    never_started = FutureRuntime()
    never_started.close()
    with pytest.raises(RuntimeClosed):
        never_started.start()


def test_a_closed_runtime_is_not_among_those_in_use() -> None:
    runtime = FutureRuntime()
    assert runtime in live_runtimes()
    runtime.close()
    assert runtime not in live_runtimes()


def test_closing_cancels_what_runs_lets_it_clean_up_and_leaves_no_task() -> None:
    runtime = FutureRuntime()
    log: list[str] = []

    async def careful(arguments: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.01)
            log.append("clean")

    async def visit() -> list[Future]:
        calls = [future("a", careful, X), future("b", careful, X), future("c", careful)]
        runtime.scope("s", make()).submit(calls)
        await asyncio.sleep(0)
        return calls

    calls = runtime.call(visit)
    loop = runtime._loop
    assert loop is not None
    runtime.close()
    assert log == ["clean", "clean"]
    assert {c.reason for c in calls} == {"the runtime was closed"}
    assert {c.state for c in calls} == {State.CANCELLED}
    assert loop.is_closed()
    assert asyncio.all_tasks(loop) == set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_closing_ends_a_visit_that_waits_for_something_else_than_a_future() -> None:
    """Otherwise the thread that called it blocks for ever."""
    runtime = FutureRuntime()
    begun = threading.Event()

    async def visit() -> None:
        begun.set()
        await asyncio.Event().wait()

    outcome: list[BaseException] = []

    def call() -> None:
        try:
            runtime.call(visit)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert begun.wait(GUARD)
    runtime.close()
    thread.join(3)
    assert not thread.is_alive(), "it waits for ever"
    assert len(outcome) == 1


def test_closing_from_the_runtimes_own_thread_is_a_deadlock_error_and_changes_nothing() -> None:
    runtime = FutureRuntime()

    async def closes() -> None:
        runtime.close()

    async def fine() -> int:
        return 5

    outcome = ends(lambda: runtime.call(closes), 10)
    assert outcome is None or isinstance(outcome, FlashError), repr(outcome)
    if isinstance(outcome, DeadlockError):
        assert runtime.call(fine) == 5
        runtime.close()


@virtually
async def test_closing_a_runtime_on_the_callers_loop_cancels_what_runs_as_well() -> None:
    runtime = FutureRuntime(loop="caller")
    runtime.start()
    call = future("a", sleeps(1000))
    runtime.scope("s", make()).submit([call])
    await asyncio.sleep(1)
    runtime.close()
    await asyncio.sleep(5)
    assert call.state is State.CANCELLED


def test_a_tool_that_cannot_be_stopped_does_not_keep_the_interpreter_alive() -> None:
    script = """
        import asyncio, threading
        from langgraph_flash.futures import Future, default_runtime, PURE, Scope

        runtime = default_runtime()
        started = threading.Event()

        async def hung(arguments):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(runtime.threads, lambda: (started.set(), threading.Event().wait()))

        async def stubborn(arguments):
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    pass

        async def visit():
            calls = [Future("a", "t", access=PURE, work=hung), Future("b", "t", access=PURE, work=stubborn)]
            runtime.scope("s", lambda loop: Scope("s", loop=loop)).submit(calls)

        runtime.call(visit)
        assert started.wait(20)
        print("main is done")
    """
    code, out, _ = run_script(script)
    assert (code, out.strip()) == (0, "main is done")


@pytest.fixture(scope="module")
def forked() -> str:
    """What three children of one process with two started runtimes say, and the parent after them."""
    script = """
        import asyncio, os, signal, sys
        from langgraph_flash.futures import FutureRuntime, default_runtime

        async def visit():
            return 5

        def child(function):
            sys.stdout.flush()
            if (pid := os.fork()) == 0:
                signal.alarm(5)
                function()
                sys.stdout.flush()
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        default, own = default_runtime(), FutureRuntime()
        assert (default.call(visit), own.call(visit)) == (5, 5)

        def asks_for_the_default():
            print("default:", default_runtime().call(visit))

        def uses_the_parents():
            try:
                own.call(visit)
            except Exception:
                pass
            print("own: ended")

        def exits():
            def touched(coroutine, loop):
                coroutine.close()
                print("exit: used the parent's loop")
                raise TimeoutError

            asyncio.run_coroutine_threadsafe = touched
            sys.exit(0)

        print("codes:", child(asks_for_the_default), child(uses_the_parents), child(exits))
        print("parent:", default.call(visit), own.call(visit))
    """
    _, out, errors = run_script(script)
    return out + errors


def test_a_forked_child_gets_a_default_runtime_that_works(forked: str) -> None:
    assert "default: 5\n" in forked
    assert "parent: 5 5\n" in forked


def test_a_runtime_started_before_a_fork_works_or_raises_in_the_child_but_does_not_hang(forked: str) -> None:
    assert "own: ended\n" in forked


def test_a_forked_child_that_exits_in_the_ordinary_way_leaves_the_parents_loop_alone(forked: str) -> None:
    assert "used the parent's loop" not in forked
    assert forked.count("codes: 0 ") == 1


def test_the_default_runtime_is_one_until_it_is_closed() -> None:
    first = default_runtime()
    assert default_runtime() is first
    first.close()
    second = default_runtime()
    assert second is not first
    assert second in live_runtimes()


def test_many_threads_that_start_one_runtime_get_one_loop(runtime: FutureRuntime) -> None:
    barrier = threading.Barrier(16)
    loops = []

    def start() -> None:
        barrier.wait(GUARD)
        loops.append(runtime.start())

    threads = [threading.Thread(target=start) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert len(loops) == 16
    assert len(set(map(id, loops))) == 1


# Memo --------------------------------------------------------------------------------------------------------


def test_the_memo_drops_the_least_recently_used_first() -> None:
    memo = Memo(limit=3)
    for name in "abc":
        memo.keep(name, name.upper())
    assert memo.get("a") == "A"
    memo.keep("d", "D")
    assert memo.get("b") is None
    assert [memo.get(name) for name in "acd"] == ["A", "C", "D"]
    memo.keep("a", "again")
    memo.keep("e", "E")
    assert memo.get("a") == "again"
    assert len(memo) == 3


def test_what_is_known_to_have_interrupted_stays_so_until_it_is_dropped() -> None:
    memo = Memo()
    memo.keep("a", INTERRUPTED)
    memo.keep("a", "result")
    assert memo.get("a") is INTERRUPTED
    memo.drop("a")
    memo.drop("a")
    memo.keep("a", "result")
    assert memo.get("a") == "result"
    assert memo.get("unknown") is None
    assert len(memo) == 1
