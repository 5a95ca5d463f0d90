"""The virtual clock: what it refuses, what it waits for, and that a LangGraph graph runs on it."""

from __future__ import annotations

import asyncio
import gc
import math
import pickle
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from langgraph_flash.testing import (
    ScriptedChatModel,
    VirtualDeadlock,
    VirtualTimeLoop,
    call,
    run_virtual,
    says,
    virtual_time,
)

HOUR = 3600.0


def current_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_waiting_for_what_nobody_sets_is_a_deadlock_that_names_the_task() -> None:
    cleaned = []

    async def waits_for_nobody() -> None:
        await asyncio.sleep(2)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with pytest.raises(VirtualDeadlock, match=r"After 2 virtual seconds.*waits_for_nobody at .*\.py") as caught:
        run_virtual(waits_for_nobody())
    assert len(caught.value.waiting) == 1
    assert cleaned == [True]


def test_tasks_that_await_each_other_are_a_deadlock_also_after_thread_work() -> None:
    async def main() -> None:
        assert await asyncio.to_thread(lambda: 1) == 1
        first, second = asyncio.Event(), asyncio.Event()

        async def cross(mine: asyncio.Event, other: asyncio.Event) -> None:
            await other.wait()
            mine.set()

        await asyncio.gather(cross(first, second), cross(second, first))

    with pytest.raises(VirtualDeadlock) as caught:
        run_virtual(main())
    assert len(caught.value.waiting) == 3


def test_a_timer_at_infinity_keeps_nothing_alive() -> None:
    with pytest.raises(VirtualDeadlock):
        run_virtual(asyncio.sleep(math.inf))

    async def main() -> str:
        async with asyncio.timeout(math.inf):
            await asyncio.sleep(1)
        return "in time"

    assert run_virtual(main()) == "in time"


def test_a_deadlock_error_survives_pickling() -> None:
    error = VirtualDeadlock(1.5, ("Task-1 in main",))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.seconds, copy.waiting) == (str(error), 1.5, ("Task-1 in main",))


@pytest.mark.parametrize("error", [ValueError, RuntimeError, asyncio.CancelledError])
def test_what_the_coroutine_raises_comes_out(error: type[BaseException]) -> None:
    async def fails() -> None:
        await asyncio.sleep(3)
        raise error("on purpose")

    with virtual_time() as clock:
        with pytest.raises(error):
            clock.run(fails())
        assert clock.seconds == 3


async def test_inside_a_running_loop_it_refuses_without_a_warning_about_the_coroutine() -> None:
    with pytest.raises(RuntimeError, match="plain function"):
        run_virtual(asyncio.sleep(1))
    gc.collect()


def test_a_clock_does_not_run_inside_itself() -> None:
    with virtual_time() as clock:

        async def main() -> None:
            clock.run(asyncio.sleep(1))

        with pytest.raises(RuntimeError, match="running event loop"):
            clock.run(main())
    gc.collect()


@pytest.mark.parametrize("given", [None, asyncio.sleep])
def test_what_is_not_a_coroutine_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="coroutine was expected"):
        run_virtual(given)


def test_after_the_block_the_clock_refuses_to_run_and_still_tells_the_time() -> None:
    with virtual_time() as clock:
        clock.run(asyncio.sleep(4))
    with pytest.raises(RuntimeError, match="closed"):
        clock.run(asyncio.sleep(1))
    gc.collect()
    assert clock.seconds == 4


def test_hours_pass_at_once() -> None:
    with virtual_time() as clock:
        assert clock.seconds == 0
        assert clock.run(asyncio.sleep(100 * HOUR, "slept")) == "slept"
        clock.run(asyncio.sleep(0.5))
        assert clock.seconds == 100 * HOUR + 0.5


def test_time_does_not_move_while_something_is_runnable() -> None:
    async def main() -> list[float]:
        seen = []
        for _ in range(50):
            await asyncio.sleep(0)
            seen.append(asyncio.get_running_loop().time())
        return seen

    assert set(run_virtual(main())) == {0.0}


def test_a_timeout_fires_at_its_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=30)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 30


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e6) | st.integers(0, 3).map(float), max_size=20))
def test_timers_fire_by_time_and_those_of_one_instant_in_the_order_they_were_set(delays: list[float]) -> None:
    async def main() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[float, int]] = []
        for index, delay in enumerate(delays):
            loop.call_at(delay, lambda index=index: fired.append((loop.time(), index)))  # type: ignore[misc]
        await asyncio.sleep(1e6 + 1)
        return fired

    fired = run_virtual(main())
    assert [index for _, index in fired] == sorted(range(len(delays)), key=lambda index: delays[index])
    for at, index in fired:
        # The loop fires what is due within the resolution of the real clock, a nanosecond.
        assert at == pytest.approx(delays[index], abs=1e-8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=6))
def test_a_sequence_of_sleeps_takes_their_sum_and_a_gather_their_maximum(delays: list[int]) -> None:
    async def one_by_one() -> None:
        for delay in delays:
            await asyncio.sleep(delay)

    async def together() -> None:
        await asyncio.gather(*map(asyncio.sleep, delays))

    with virtual_time() as clock:
        clock.run(one_by_one())
        assert clock.seconds == sum(delays)
        clock.run(together())
        assert clock.seconds == sum(delays) + max(delays, default=0)


def test_thread_work_takes_real_time_and_no_virtual_time() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        timer = asyncio.create_task(asyncio.sleep(1))
        await asyncio.to_thread(time.sleep, 0.05)
        with ThreadPoolExecutor() as pool:
            await loop.run_in_executor(pool, time.sleep, 0.05)
        held_until = loop.time()
        await timer
        return held_until, loop.time()

    started = time.monotonic()
    assert run_virtual(main()) == (0, 1)
    assert time.monotonic() - started >= 0.1


def test_many_short_threads_never_let_the_clock_slip() -> None:
    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(1))
        for _ in range(300):
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(3)))
        seen = asyncio.get_running_loop().time()
        await timer
        return seen

    assert run_virtual(main()) == 0


def test_thread_work_whose_future_was_cancelled_still_holds_the_clock() -> None:
    async def main() -> tuple[bool, bool]:
        ended = threading.Event()
        release = threading.Event()

        def work() -> None:
            release.wait(5)
            time.sleep(0.05)
            ended.set()

        task = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        before = ended.is_set()
        release.set()
        await asyncio.sleep(1)
        return before, ended.is_set()

    assert run_virtual(main()) == (False, True)


def test_thread_work_cancelled_before_it_started_does_not_hold_the_clock() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        release = threading.Event()
        with ThreadPoolExecutor(max_workers=1) as pool:
            busy = loop.run_in_executor(pool, release.wait)
            queued = loop.run_in_executor(pool, int)
            queued.cancel()
            release.set()
            await busy
            await asyncio.sleep(5)
        return "slept"

    assert run_virtual(main()) == "slept"


def test_an_error_in_a_thread_reaches_the_coroutine() -> None:
    async def main() -> None:
        await asyncio.to_thread(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())


def test_a_thread_the_loop_does_not_know_of_may_still_call_back() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def driver() -> None:
            time.sleep(0.1)
            loop.call_soon_threadsafe(arrived.set_result, "called back")

        thread = threading.Thread(target=driver)
        thread.start()
        result: str = await arrived
        thread.join()
        return result

    assert run_virtual(main()) == "called back"


def test_a_hold_keeps_the_clock_for_a_thread_the_loop_does_not_know_of() -> None:
    async def main() -> float:
        loop = current_loop()
        arrived = asyncio.Event()
        entered = threading.Event()

        def driver() -> None:
            with loop.hold():
                entered.set()
                time.sleep(0.05)
                loop.call_soon_threadsafe(arrived.set)

        timer = asyncio.create_task(asyncio.sleep(60))
        thread = threading.Thread(target=driver)
        thread.start()
        entered.wait()
        await arrived.wait()
        at = loop.time()
        thread.join()
        await timer
        return at

    assert run_virtual(main()) == 0


def test_many_short_holds_never_let_the_clock_slip() -> None:
    async def main() -> float:
        loop = current_loop()
        timer = asyncio.create_task(asyncio.sleep(1))
        with ThreadPoolExecutor(1) as unknown:
            for _ in range(300):
                arrived = asyncio.Event()
                hold = loop.hold()
                hold.__enter__()

                def driver(arrived: asyncio.Event = arrived, hold: Any = hold) -> None:
                    loop.call_soon_threadsafe(arrived.set)
                    hold.__exit__(None, None, None)

                unknown.submit(driver)
                await arrived.wait()
        seen = loop.time()
        await timer
        return seen

    assert run_virtual(main()) == 0


def test_a_hold_that_ends_without_calling_back_lets_the_clock_go_on() -> None:
    async def main() -> float:
        loop = current_loop()
        entered = threading.Event()

        def driver() -> None:
            with loop.hold():
                entered.set()
                time.sleep(0.05)

        thread = threading.Thread(target=driver)
        thread.start()
        entered.wait()
        await asyncio.sleep(7)
        thread.join()
        return loop.time()

    assert run_virtual(main()) == 7


def test_streams_on_a_real_socket_are_waited_for() -> None:
    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            line = await reader.readline()
            writer.close()
            await writer.wait_closed()
        return line

    assert run_virtual(main()) == b"hello\n"


def test_left_over_tasks_generators_and_threads_are_ended() -> None:
    ended: list[str] = []
    names: list[str] = []

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            ended.append("generator")

    async def task() -> None:
        try:
            await asyncio.sleep(HOUR)
        finally:
            ended.append("task")

    kept: list[Any] = []

    async def main() -> None:
        kept.append(asyncio.create_task(task()))
        opened = generator()
        kept.append(opened)
        await anext(opened)
        await asyncio.to_thread(lambda: names.append(threading.current_thread().name))

    with virtual_time() as clock:
        clock.run(main())
    assert ended == ["task", "generator"]
    assert clock.seconds == 0
    assert names[0] not in {thread.name for thread in threading.enumerate()}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: list[float]


def build(checkpointer: Any) -> Any:
    model = ScriptedChatModel(
        [says("", call("look", where="here")), "Found it there."],
        position="history",
        seconds_per_token=0.5,
        first_token_seconds=1,
    )

    async def think(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def look(state: State) -> dict[str, Any]:
        time.sleep(0.01)
        made = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
        return {"messages": [{"role": "tool", "content": "seen", "tool_call_id": made["id"]}]}

    def route(state: State) -> str:
        return "look" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("look", look)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", route, ["look", END])
    graph.add_edge("look", "think")
    return graph.compile(checkpointer=checkpointer)


# One token for the name and five for {"where": "here"}; then three words.
GRAPH_SECONDS = (1 + 6 * 0.5) + (1 + 3 * 0.5)
QUESTION: Any = {"messages": [("user", "Where is it?")], "seen": []}


def test_a_graph_with_sync_nodes_and_a_checkpointer_takes_the_seconds_of_its_model() -> None:
    graph = build(InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    with virtual_time() as clock:
        state = clock.run(graph.ainvoke(QUESTION, config))
        assert clock.seconds == GRAPH_SECONDS
        saved = clock.run(graph.aget_state(config))
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert saved.values["messages"] == state["messages"]


@pytest.mark.parametrize("mode", ["updates", "messages"])
def test_a_streamed_graph_takes_the_same_seconds_every_time(mode: str) -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        config = {"configurable": {"thread_id": "1"}}
        return [loop.time() async for _ in build(InMemorySaver()).astream(QUESTION, config, stream_mode=mode)]

    first = run_virtual(main())
    assert first == run_virtual(main())
    assert first == sorted(first)
    assert first[-1] == GRAPH_SECONDS


def test_parallel_async_nodes_overlap_and_sync_nodes_beside_them_do_not_move_the_clock() -> None:
    class Times(TypedDict):
        ended: Annotated[list[str], lambda left, right: left + right]

    async def slow(state: Times) -> dict[str, Any]:
        await asyncio.sleep(20)
        return {"ended": ["slow"]}

    async def quick(state: Times) -> dict[str, Any]:
        await asyncio.sleep(10)
        return {"ended": ["quick"]}

    def threaded(state: Times) -> dict[str, Any]:
        time.sleep(0.02)
        return {"ended": ["threaded"]}

    graph = StateGraph(Times)
    for node in (slow, quick, threaded):
        graph.add_node(node)
        graph.add_edge(START, node.__name__)
    compiled = graph.compile(checkpointer=InMemorySaver())

    async def main() -> list[tuple[float, list[str]]]:
        loop = asyncio.get_running_loop()
        config: Any = {"configurable": {"thread_id": "1"}}
        stream = compiled.astream({"ended": []}, config, stream_mode="updates")
        return [(loop.time(), list(update)) async for update in stream]

    assert run_virtual(main()) == [(0, ["threaded"]), (10, ["quick"]), (20, ["slow"])]


def test_a_graph_on_a_database_driver_with_its_own_thread_runs_to_its_end() -> None:
    async def main() -> Any:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            return await build(saver).ainvoke(QUESTION, {"configurable": {"thread_id": "1"}})

    assert run_virtual(main())["messages"][-1].content == "Found it there."
