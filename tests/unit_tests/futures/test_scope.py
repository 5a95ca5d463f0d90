"""A scope on a virtual clock: cancellation at every moment, waiting, contexts, and programs with real tasks."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import logging
import pickle
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_flash.errors import FutureCancelled, FutureError, FutureFailed, ProjectionError, ToolTimeout
from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.references import future_id
from langgraph_flash.futures.resources import BARRIER, PURE, Access
from langgraph_flash.futures.scheduler import longest_first, program_order
from langgraph_flash.futures.scope import CANCEL_SECONDS, Scope
from langgraph_flash.futures.threads import DaemonThreads
from langgraph_flash.testing import run_virtual

X = Access(writes=(("x",),))
Y = Access(writes=(("y",),))


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test on a virtual clock; it must leave no task behind."""

    async def checked(*args: Any, **kwargs: Any) -> None:
        await test(*args, **kwargs)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(checked(*args, **kwargs))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


def scope(**options: Any) -> Scope:
    return Scope("s", loop=asyncio.get_running_loop(), **options)


def future(name: str, work: Any, access: Access = PURE, **options: Any) -> Future:
    return Future(name, "tool", options.pop("arguments", None), access=access, work=work, **options)


def sleeps(seconds: float, value: Any = "value", log: list[Any] | None = None) -> Any:
    async def work(arguments: dict[str, Any]) -> Any:
        if log is not None:
            log.append(value)
        await asyncio.sleep(seconds)
        return value

    return work


def fails(error: BaseException, seconds: float = 0) -> Any:
    async def work(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(seconds)
        raise error

    return work


# Cancellation ------------------------------------------------------------------------------------------------


@virtually
async def test_cancelled_before_its_first_step_a_call_never_runs_and_its_dependents_hear_of_it() -> None:
    log: list[Any] = []
    place = scope()
    first = future("a", sleeps(1, "ran", log), X)
    after, needs = future("b", sleeps(1, "after", log), X), future("c", sleeps(1), needs=(first,))
    place.submit([first, after, needs])
    assert first.state is State.RUNNING
    assert place.cancel(first, "not wanted")
    await place.wait([first, after, needs])
    assert log == ["after"]
    assert (first.state, first.reason) == (State.CANCELLED, "not wanted")
    assert needs.root_cause() is first
    assert now() == 1


@virtually
async def test_cancelled_while_waiting_it_settles_at_once_and_holds_its_place() -> None:
    log: list[Any] = []
    place = scope()
    first, second, third = (future(n, sleeps(2, n, log), X) for n in "abc")
    needs = future("d", sleeps(1, "d", log), needs=(second,))
    place.submit([first, second, third, needs])
    await asyncio.sleep(1)
    assert place.cancel(second, "no")
    assert second.settled
    assert needs.settled
    assert log == ["a"]
    await place.wait([third])
    assert (log, now()) == (["a", "c"], 4)
    with pytest.raises(FutureCancelled, match="it needs the result of b"):
        needs.result()


@virtually
async def test_cancelled_while_running_it_may_clean_up_and_only_then_the_next_begins() -> None:
    log: list[Any] = []
    place = scope()

    async def careful(arguments: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)
            log.append("clean")

    first, second = future("a", careful, X), future("b", sleeps(1, "b", log), X)
    place.submit([first, second])
    await asyncio.sleep(1)
    assert place.cancel(first, "stop")
    assert place.cancel(first, "stop again")
    assert not first.settled
    await place.wait([first, second])
    assert log == ["clean", "b"]
    assert (first.reason, now()) == ("stop", 2.5)
    assert not place.cancel(first, "after the end")
    assert first.reason == "stop"
    assert place.abandoned == 0


@virtually
async def test_a_call_that_ends_well_in_spite_of_being_told_to_stop_keeps_its_value() -> None:
    place = scope()

    async def finishes(arguments: dict[str, Any]) -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "committed"
        return "never"

    call = future("a", finishes, X)
    place.submit([call])
    await asyncio.sleep(1)
    assert place.cancel(call, "stop")
    await place.wait([call])
    assert call.result() == "committed"
    assert now() == 1


@virtually
async def test_a_tool_that_raises_cancelled_error_by_itself_is_cancelled_and_says_so() -> None:
    place = scope()
    call = future("a", fails(asyncio.CancelledError()))
    place.submit([call])
    await place.wait([call])
    assert call.state is State.CANCELLED
    assert "from outside" in str(call.reason)


@virtually
async def test_a_task_cancelled_from_outside_before_its_first_step_does_not_stay_running() -> None:
    place = scope()
    call = future("a", sleeps(1))
    place.submit([call])
    place._runs["a"].task.cancel()
    await place.wait([call])
    assert call.state is State.CANCELLED
    assert call.reason


@virtually
async def test_cancel_all_ends_every_call_and_starts_none() -> None:
    log: list[Any] = []
    place = scope(limit=2)
    calls = [future(f"c{n}", sleeps(10, n, log), X if n % 3 else PURE) for n in range(12)]
    announced = Future("later", "tool")
    place.submit([*calls, announced])
    await asyncio.sleep(1)
    started = list(log)
    place.cancel_all("enough")
    await place.wait([*calls, announced])
    assert log == started
    assert {c.state for c in [*calls, announced]} == {State.CANCELLED}
    assert all(c.passed for c in [*calls, announced])
    assert place.scheduler.running == 0
    assert now() == 1


@virtually
async def test_close_waits_for_clean_up_and_leaves_no_task() -> None:
    log: list[Any] = []
    place = scope()

    async def careful(arguments: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(CANCEL_SECONDS / 2)
            log.append("clean")

    place.submit([future("a", careful, X), future("b", careful, Y), future("c", careful, X)])
    await asyncio.sleep(1)
    await place.close("the end")
    assert log == ["clean", "clean"]
    assert {c.reason for c in place.calls()} == {"the end"}
    await place.close("again")


# What a tool may raise ---------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), ValueError(), KeyboardInterrupt("k"), SystemExit(3), GeneratorExit(), Unprintable()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_tool_raises_becomes_the_error_of_that_call_and_of_nothing_else(error: BaseException) -> None:
    @virtually
    async def test() -> None:
        place = scope()
        bad, after = future("a", fails(error, 1), X), future("b", sleeps(1), X)
        needs = future("c", sleeps(1), needs=(bad,))
        place.submit([bad, after, needs])
        assert await place.wait([bad, after, needs], seconds=100)
        assert bad.state is State.FAILED
        assert bad.error is error
        assert bad.reason
        assert needs.cause is bad
        assert after.result() == "value"
        with pytest.raises(FutureFailed) as caught:
            bad.result()
        assert caught.value.__cause__ is error

    test()


async def test_a_synchronous_tool_that_lets_stop_iteration_out_fails_instead_of_running_for_ever() -> None:
    threads = DaemonThreads()

    async def work(arguments: dict[str, Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(threads, next, iter(()))

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    place = scope()
    call = future("a", work)
    place.submit([call])
    settled = await place.wait([call], seconds=2)
    if not settled:
        await place.close("the test is over")
    threads.shutdown()
    assert settled
    assert call.state is State.FAILED


@virtually
async def test_a_value_can_be_a_failure_and_a_check_that_raises_is_one_too() -> None:
    def failure(value: Any) -> str | None:
        if value == "explode":
            raise ValueError("the check broke")
        return "it said so" if value == "bad" else None

    place = scope(failure=failure)
    good, bad, worse = (future(n, sleeps(0, n)) for n in ("good", "bad", "explode"))
    lost = future("lost", sleeps(0), needs=(bad,))
    place.submit([good, bad, worse, lost])
    await place.wait([good, bad, worse, lost])
    assert [c.state for c in (good, bad, worse, lost)] == [
        State.SUCCEEDED,
        State.FAILED,
        State.FAILED,
        State.CANCELLED,
    ]
    assert (bad.reason, bad.value, bad.error) == ("it said so", "bad", None)
    assert worse.reason == "the check broke"


@virtually
async def test_the_error_of_a_future_inside_the_tool_is_not_taken_for_the_outer_futures_own() -> None:
    place = scope()
    call = future("outer", fails(FutureFailed("inner", "other", "boom")))
    place.submit([call])
    await place.wait([call])
    with pytest.raises(FutureFailed) as caught:
        call.result()
    assert caught.value.future_id == "outer"


@pytest.mark.parametrize(
    "error",
    [
        FutureFailed("a", "tool", "boom"),
        ToolTimeout("a", "tool", "5 s"),
        FutureCancelled("a", "no"),
        ProjectionError("a.b", "a", "finds nothing"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_the_error_of_a_future_can_be_copied_and_sent_to_another_process(error: FutureError) -> None:
    """Pools, test runners and checkpointers pickle exceptions, by default by their sentence alone."""
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert copied.future_id == "a"


# Data --------------------------------------------------------------------------------------------------------


A, B = future_id("s", "a"), future_id("s", "b")


@virtually
async def test_a_projection_that_finds_nothing_fails_that_call_and_cancels_those_that_need_it() -> None:
    place = scope()
    first = future(A, sleeps(1, {"x": 1}))
    second = future(B, sleeps(1), arguments={"v": f"{A}.nope"}, needs=(first,))
    third = future("third", sleeps(1), arguments={"v": B}, needs=(second,))
    place.submit([first, second, third])
    await place.wait([third])
    assert isinstance(second.error, FutureFailed)
    assert isinstance(second.error.__cause__, ProjectionError)
    assert third.root_cause() is second
    assert now() == 1


@virtually
async def test_text_that_only_looks_like_the_id_of_a_future_stays_text() -> None:
    place = scope()
    seen = []

    async def looks(arguments: dict[str, Any]) -> None:
        seen.append(arguments)

    first = future(A, sleeps(1, 5))
    stranger = future_id("elsewhere", "a")
    alone = future("b", looks, arguments={"v": stranger})
    beside = future("c", looks, arguments={"v": [A, stranger]}, needs=(first,))
    place.submit([first, alone, beside])
    await place.wait([first, alone, beside])
    assert seen == [{"v": stranger}, {"v": [5, stranger]}]


@virtually
async def test_values_reach_arguments_through_the_view_and_text_stays_text_where_it_is_wanted() -> None:
    place = scope(view=lambda value: value["content"])
    seen = []

    async def looks(arguments: dict[str, Any]) -> dict[str, Any]:
        seen.append(arguments)
        return {"content": "end"}

    first = future(A, sleeps(1, {"content": '{"id": 7}'}))
    second = future(
        B, looks, arguments={"t": A, "v": A, "p": [f"{A}.id"]}, needs=(first,), text_arguments=frozenset({"t"})
    )
    place.submit([first, second])
    place.forget(first)
    await place.wait([second])
    assert seen == [{"t": '{"id": 7}', "v": {"id": 7}, "p": [7]}]


@virtually
async def test_a_tool_that_changes_its_arguments_changes_no_other_future() -> None:
    place = scope()

    async def changes(arguments: dict[str, Any]) -> None:
        arguments["v"] = "changed"
        arguments["extra"] = 1

    given_ = {"v": 1}
    call = future("a", changes, arguments=given_)
    place.submit([call])
    await place.wait([call])
    assert given_ == {"v": 1}
    assert call.arguments == {"v": 1}


# Waiting -----------------------------------------------------------------------------------------------------


@virtually
async def test_waiting_ends_when_enough_have_settled_or_time_is_up_and_leaves_nothing_behind() -> None:
    place = scope()
    calls = [future(f"c{n}", sleeps(n)) for n in (1, 2, 3)]
    place.submit(calls)
    assert await place.wait([])
    assert await place.wait(calls, need=0)
    assert await place.wait(calls, need=-1)
    assert not await place.wait(calls, seconds=0.5)
    assert now() == 0.5
    assert [c.callbacks for c in calls] == [[], [], []]
    assert not await place.wait(calls, need=1, seconds=0)
    assert [c.callbacks for c in calls] == [[], [], []]
    assert await place.wait(calls, need=1)
    assert now() == 1
    assert [c.callbacks for c in calls] == [[], [], []]
    assert await place.wait(calls, need=1)
    assert await place.wait(calls, need=2)
    assert now() == 2
    assert await place.wait([calls[2], calls[2], calls[0]], need=99)
    assert now() == 3
    assert place._waiters == 0
    assert await place.wait(calls, seconds=0)


@virtually
async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    place = scope()
    call = future("a", sleeps(10))
    place.submit([call])
    task = asyncio.create_task(place.wait([call]))
    await asyncio.sleep(1)
    assert place._waiters == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert place._waiters == 0
    assert call.callbacks == []
    await place.wait([call])
    assert call.result() == "value"


@virtually
async def test_many_waiters_on_one_call_all_hear_of_it() -> None:
    place = scope()
    call = future("a", sleeps(1))
    place.submit([call])
    heard = await asyncio.gather(*(place.wait([call]) for _ in range(50)))
    assert heard == [True] * 50
    assert now() == 1


@virtually
async def test_waiting_without_patience_never_denies_what_has_settled() -> None:
    """The call ends in the very round in which the time runs out."""
    place = scope(eager=False)
    call = future("a", sleeps(0))

    async def at_once(arguments: dict[str, Any]) -> str:
        return "here"

    quick = future("b", at_once)
    place.submit([call, quick])
    answer = await place.wait([quick], seconds=0)
    assert answer is quick.settled
    await place.wait([call])


@virtually
async def test_without_eagerness_nothing_starts_until_somebody_waits() -> None:
    log: list[Any] = []
    place = scope(eager=False, order=lambda call: -call.index)
    calls = [future(f"c{n}", sleeps(1, n, log)) for n in range(3)]
    place.submit(calls)
    await asyncio.sleep(10)
    assert log == []
    assert not await place.wait(calls, seconds=0.5)
    assert log == [2, 1, 0]
    late = [future("d", sleeps(1, "d", log))]
    place.submit(late)
    await asyncio.sleep(10)
    assert log == [2, 1, 0]
    await place.wait(late)
    assert log[-1] == "d"


# Contexts ----------------------------------------------------------------------------------------------------


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@virtually
async def test_each_call_sees_its_own_context_and_leaves_it_to_nobody() -> None:
    place = scope()
    seen: dict[str, list[str]] = {}

    def notes(name: str) -> Any:
        async def work(arguments: dict[str, Any]) -> None:
            seen[name] = [variable.get()]
            variable.set(f"set by {name}")
            await asyncio.sleep(1)
            seen[name].append(variable.get())

        return work

    calls = []
    for name in "abc":
        context = contextvars.copy_context()
        context.run(variable.set, f"given to {name}")
        calls.append(future(name, notes(name), X if name != "b" else PURE, context=context))
    place.submit(calls)
    await place.wait(calls)
    assert seen == {name: [f"given to {name}", f"set by {name}"] for name in "abc"}
    assert variable.get() == "unset"


@virtually
async def test_a_call_without_a_context_does_not_see_that_of_the_call_whose_end_started_it() -> None:
    place = scope()
    seen = []

    async def sets(arguments: dict[str, Any]) -> None:
        variable.set("secret of the first")
        await asyncio.sleep(1)

    async def looks(arguments: dict[str, Any]) -> None:
        seen.append(variable.get())

    place.submit([future("a", sets, X), last := future("b", looks, X)])
    await place.wait([last])
    assert seen == ["unset"]


@virtually
async def test_a_passed_call_keeps_neither_its_work_nor_its_context() -> None:
    place = scope()
    call = future("a", sleeps(1), context=contextvars.copy_context())
    place.submit([call])
    await place.wait([call])
    assert call.work is None
    assert call.context is None


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with Python 3.12")
def test_on_a_loop_with_eager_tasks_calls_run_as_well() -> None:
    @virtually
    async def test() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        place = scope()
        calls = [future("a", sleeps(1), X), future("b", sleeps(1), X)]
        place.submit(calls)
        assert await place.wait(calls, seconds=10)
        assert [c.result() for c in calls] == ["value", "value"]

    test()


# All of it together ------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 10),
    limit=st.sampled_from([None, 1, 3]),
    eager=st.booleans(),
    order=st.sampled_from([program_order, longest_first]),
)
def test_any_program_of_real_tasks_does_what_running_it_call_by_call_does(
    seed: int, size: int, limit: int | None, eager: bool, order: Any
) -> None:
    random = Random(seed)
    cells = ["a", "b", "c"]
    program = [
        (
            random.sample(cells, random.randint(0, 2)),
            random.sample(cells, random.randint(0, 2)),
            random.choices(range(n), k=random.randint(0, 2)) if n else [],
            random.random() < 0.2,
            random.random() < 0.2,
        )
        for n in range(size)
    ]

    def outcome(n: int, seen: Any) -> int:
        return hash((n, seen)) % 10**9

    state = dict.fromkeys(cells, 0)
    expected: list[Any] = []
    for n, (reads, writes, inputs, failing, _) in enumerate(program):
        if any(not isinstance(expected[i], int) for i in inputs):
            expected.append(State.CANCELLED)
            continue
        value = outcome(n, (*(expected[i] for i in inputs), *(state[cell] for cell in reads)))
        expected.append(State.FAILED if failing else value)
        for cell in writes:
            state[cell] = value
    final = state

    @virtually
    async def test() -> None:
        place = scope(limit=limit, eager=eager, order=order)
        state = dict.fromkeys(cells, 0)
        ids = [future_id("s", str(n)) for n in range(size)]
        calls: list[Future] = []

        def work(n: int) -> Any:
            reads, writes, _, failing, _ = program[n]
            delay = random.choice([0, 0, 1, 2, 5])

            async def run(arguments: dict[str, Any]) -> Any:
                seen = (*(v["v"] for v in arguments["inputs"]), *(state[cell] for cell in reads))
                await asyncio.sleep(delay)
                value = outcome(n, seen)
                for cell in writes:
                    state[cell] = value
                if failing:
                    raise ValueError("boom")
                return {"v": value}

            return run

        for n, (reads, writes, inputs, _, barrier) in enumerate(program):
            access = Access(tuple((c,) for c in reads), tuple((c,) for c in writes))
            call = future(
                ids[n],
                work(n),
                BARRIER if barrier else access,
                arguments={"inputs": [ids[i] for i in inputs]},
                needs=tuple(calls[i] for i in inputs),
                estimate=random.random(),
            )
            calls.append(call)
            place.submit([call])
            if random.random() < 0.3:
                await place.wait(calls, seconds=random.choice([0, 1, 3]))
        await place.wait(calls)
        assert [c.value["v"] if c.state is State.SUCCEEDED else c.state for c in calls] == expected
        assert state == final
        assert len(place.scheduler._tree) == 0

    test()


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 10), limit=st.sampled_from([None, 1, 2]))
def test_cancelling_anything_at_any_time_leaves_nothing_waiting_or_running(
    seed: int, size: int, limit: int | None
) -> None:
    random = Random(seed)
    logging.getLogger("langgraph_flash").setLevel(logging.ERROR)

    def work() -> Any:
        delay, kind = random.choice([0, 1, 3]), random.choice(["polite", "polite", "slow", "stubborn", "raises"])

        async def run(arguments: dict[str, Any]) -> str:
            try:
                await asyncio.sleep(delay)
            except asyncio.CancelledError:
                if kind == "polite":
                    raise
                await asyncio.sleep({"slow": 0.5, "stubborn": 5, "raises": 0}[kind])
                if kind == "raises":
                    raise ValueError("in the clean-up") from None
            return "value"

        return run

    @virtually
    async def test() -> None:
        place = scope(limit=limit, on_order_failure=random.choice(["continue", "cancel"]))
        calls: list[Future] = []
        for n in range(size):
            needs = tuple(random.choices(calls, k=random.choice([0, 0, 1]))) if calls else ()
            access = random.choice([PURE, X, Y, BARRIER, Access(reads=(("x",),))])
            calls.append(future(f"c{n}", work(), access, needs=needs))
            place.submit([calls[-1]])
            if random.random() < 0.5:
                await asyncio.sleep(random.choice([0, 0.5, 1, 2]))
            if random.random() < 0.6:
                victim = random.choice(calls)
                settled = victim.settled
                assert place.cancel(victim, "no") is not settled
        if random.random() < 0.3:
            place.cancel_all("enough")
        assert await place.wait(calls, seconds=1000)
        assert all(c.passed for c in calls)
        assert place.scheduler.running == 0
        assert place._runs == {}
        assert len(place.scheduler._tree) == 0
        assert place._waiters == 0
        await asyncio.sleep(10)

    test()


@virtually
async def test_ten_thousand_pending_futures_are_no_trouble() -> None:
    place = scope(limit=100)
    chain = [future(f"x{n}", sleeps(0), Access(writes=(("x", str(n % 100)),))) for n in range(9_000)]
    reads = [future(f"r{n}", sleeps(0), Access(reads=(("x",),))) for n in range(500)]
    last = future("last", sleeps(1, "end"), BARRIER)
    behind = [future(f"b{n}", sleeps(0), needs=(last,)) for n in range(499)]
    everything = [*chain, *reads, last, *behind]
    place.submit(everything)
    assert len(place) == 10_000
    await place.wait(everything)
    assert all(c.state is State.SUCCEEDED and c.passed for c in everything)
    assert len(place.scheduler._tree) == 0
    for call in everything:
        place.forget(call)
    assert len(place) == 0


@virtually
async def test_a_chain_of_ten_thousand_that_depends_on_a_failure_ends_without_recursion() -> None:
    place = scope(on_order_failure="cancel")
    calls = [future("c0", fails(ValueError("boom"), 1), X)]
    for n in range(1, 10_000):
        calls.append(future(f"c{n}", sleeps(1), X if n % 2 else PURE, needs=(calls[-1],)))
    place.submit(calls)
    await place.wait(calls)
    assert calls[-1].root_cause() is calls[0]
    assert all(c.passed for c in calls)
    assert now() == 1


@virtually
async def test_independent_calls_take_as_long_as_the_longest_and_durations_are_reported() -> None:
    took: list[tuple[str, float]] = []
    place = scope(measured=lambda tool, seconds: took.append((tool, seconds)))
    calls = [future(f"c{n}", sleeps(n), Access(writes=((str(n),),))) for n in (1, 2, 3)]
    place.submit(calls)
    await place.wait(calls)
    assert now() == 3
    assert took == [("tool", 1), ("tool", 2), ("tool", 3)]
    assert repr(place) == "<Scope 's': 3 futures, 0 running>"
