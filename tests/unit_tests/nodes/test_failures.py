"""What goes wrong: failing, hanging, interrupting and cancelled tools, lost processes, options that cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, RetryPolicy, TimeoutPolicy, interrupt
from node_lab import Lab, agent, answer_to, count, delivered, fid, notes, play, thread, user
from pydantic import BaseModel, field_validator

from langgraph_flash import FlashNode, FutureRuntime, Timeout, heartbeat, uses
from langgraph_flash.errors import ConfigurationError, DeadlockError, DeclarationError, ToolTimeout
from langgraph_flash.testing import ScriptedChatModel, call, check_history, says, virtual_time

DURABILITIES = ["sync", "async", "exit"]


# Starred row 3: order on a device --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["continue", "cancel"])
@pytest.mark.parametrize("background", [None, True])
def test_a_device_sees_actions_in_the_order_they_were_given_and_a_failure_follows_the_policy(
    policy: Any, background: Any
) -> None:
    log: list[str] = []

    def action(name: str, seconds: float) -> BaseTool:
        @tool(name)
        @uses(writes="screen")
        async def act() -> str:
            """Act."""
            await asyncio.sleep(seconds)
            log.append(name)
            if name == "click":
                raise ValueError("no such button")
            return f"{name} done"

        return act

    actions = [action(name, seconds) for name, seconds in [("move", 4), ("click", 3), ("type_it", 2), ("enter", 1)]]
    done = play(
        [
            says("", *(call(act.name, id=act.name) for act in actions)),
            says("", call("front", id="last", seconds=50)),
            "Done.",
        ],
        actions,
        on_order_failure=policy,
        handle_tool_errors=True,
        grace=0.0 if background else math.inf,
    )
    assert log == (["move", "click", "type_it", "enter"] if policy == "continue" else ["move", "click"])
    for act in actions:
        answer_to(done.messages, act.name)
    assert count(done.messages, "no such button") == 1
    if policy == "cancel":
        text = "".join(str(m.content) for m in done.messages)
        assert text.count("it comes after") == 2
    check_history(done.messages)


# Starred row 4: siblings are isolated ----------------------------------------------------------------------------


@pytest.mark.parametrize("handle", [True, None])
@pytest.mark.parametrize("how", ["stock", "declared", "background"])
def test_a_failing_call_loses_none_of_its_siblings_results(handle: Any, how: str) -> None:
    counts: Counter[str] = Counter()

    def step(name: str, seconds: float, fail: bool = False) -> BaseTool:
        async def act() -> str:
            """Act."""
            counts[name] += 1
            await asyncio.sleep(seconds)
            if fail and counts[name] == 1:
                raise ValueError("boom")
            return f"{name} fine"

        declared = act if how == "stock" else uses(pure=True)(act)
        return tool(name)(declared)

    tools = [step("fast", 1), step("boom", 2, fail=True), step("slow", 5)]
    options: dict[str, Any] = {} if handle is None else {"handle_tool_errors": handle}
    node = FlashNode(
        tools, runtime=FutureRuntime(loop="caller"), grace=0.0 if how == "background" else math.inf, **options
    )
    model = ScriptedChatModel([says("", *(call(t.name, id=t.name) for t in tools)), "Done.", "Yes.", "More.", "Ok."])
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        if handle is None:
            with pytest.raises(ValueError, match="boom"):
                clock.run(graph.ainvoke(user(), thread()))
            messages = clock.run(graph.ainvoke(None, thread()))["messages"]
        else:
            messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    check_history(messages)
    assert counts["fast"] == counts["slow"] == 1
    assert count(messages, "fast fine") == 1
    assert count(messages, "slow fine") == 1
    if handle is None and how != "background":
        # The call that failed is the one that runs again when the node does.
        assert answer_to(messages, "boom").content == "boom fine"
    else:
        assert counts["boom"] == 1
        assert count(messages, "boom") >= 1


# Starred row 6: charge and ask -----------------------------------------------------------------------------------


def charge_and_ask(charge_fails: bool = False) -> tuple[list[BaseTool], Counter[str]]:
    counts: Counter[str] = Counter()

    @tool
    async def charge() -> str:
        """Take money."""
        counts["charge"] += 1
        if charge_fails:
            raise ValueError("card refused, but charged")
        return "charged"

    @tool
    async def ask() -> str:
        """Ask a person."""
        counts["ask"] += 1
        return f"they said {interrupt('May I?')}"

    return [charge, ask], counts


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("declare", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_a_charge_beside_a_question_happens_once(durability: str, declare: bool, order: int) -> None:
    tools, counts = charge_and_ask()
    if declare:
        tools = [uses(writes="account", background=False)(made) for made in tools]
    node = FlashNode(tools, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel([says("", *[call("charge", id="c1"), call("ask", id="c2")][::order]), "Done."])
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        paused = clock.run(graph.ainvoke(user(), thread(), durability=durability))
        assert paused["__interrupt__"][0].value == "May I?"
        messages = clock.run(graph.ainvoke(Command(resume="yes"), thread(), durability=durability))["messages"]
    assert counts == {"charge": 1, "ask": 2}
    assert answer_to(messages, "c1").content == "charged"
    assert answer_to(messages, "c2").content == "they said yes"


def test_a_charge_whose_failure_was_handled_is_not_repeated_after_a_question() -> None:
    tools, counts = charge_and_ask(charge_fails=True)
    node = FlashNode(tools, runtime=FutureRuntime(loop="caller"), handle_tool_errors=True)
    model = ScriptedChatModel([says("", call("charge", id="c1"), call("ask", id="c2")), "Done."])
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(Command(resume="yes"), thread()))["messages"]
    assert counts["charge"] == 1
    assert "card refused" in answer_to(messages, "c1").content


def test_a_charge_beside_a_question_happens_once_under_invoke(runtime: FutureRuntime) -> None:
    counts: Counter[str] = Counter()

    @tool
    def charge() -> str:
        """Take money."""
        counts["charge"] += 1
        return "charged"

    @tool
    def ask() -> str:
        """Ask a person."""
        return f"they said {interrupt('May I?')}"

    node = FlashNode([charge, ask], runtime=runtime)
    graph = agent(
        ScriptedChatModel([says("", call("charge", id="c1"), call("ask", id="c2")), "Done."]),
        node,
        saver=InMemorySaver(),
    )
    graph.invoke(user(), thread())
    messages = graph.invoke(Command(resume="yes"), thread())["messages"]
    assert counts["charge"] == 1
    assert answer_to(messages, "c2").content == "they said yes"


def test_two_questions_in_one_message_get_the_answers_meant_for_them() -> None:
    counts: Counter[str] = Counter()

    @tool
    async def charge() -> str:
        """Take money."""
        counts["charge"] += 1
        return "charged"

    @tool
    async def ask(what: str) -> str:
        """Ask a person."""
        return f"{what}: {interrupt(what)}"

    for declare in (False, True):
        counts.clear()
        tools = [charge, ask]
        if declare:
            tools = [uses(writes="person", background=False)(made) for made in tools]
        node = FlashNode(tools, runtime=FutureRuntime(loop="caller"))
        model = ScriptedChatModel(
            [
                says("", call("ask", id="c1", what="one"), call("charge", id="c2"), call("ask", id="c3", what="two")),
                "Done.",
            ]
        )
        graph = agent(model, node, saver=InMemorySaver())
        with virtual_time() as clock:
            state = clock.run(graph.ainvoke(user(), thread()))
            while "__interrupt__" in state:
                question = state["__interrupt__"][0].value
                state = clock.run(graph.ainvoke(Command(resume=f"to {question}"), thread()))
        assert answer_to(state["messages"], "c1").content == "one: to one"
        assert answer_to(state["messages"], "c3").content == "two: to two"
        assert counts["charge"] == 1


def test_a_finished_background_call_beside_a_question_is_not_run_again() -> None:
    lab = Lab()

    @tool
    async def ask() -> str:
        """Ask a person."""
        return f"they said {interrupt('May I?')}"

    node = FlashNode([*lab.tools(), ask], grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says(
                "",
                call("search", id="c1", query="tea", seconds=0.5),
                call("search", id="c2", query="milk", seconds=50),
                call("ask", id="c3"),
                call("front", id="c4", seconds=2),
            ),
            "Done.",
            "Yes.",
            "Ok.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(Command(resume="yes"), thread()))["messages"]
    assert lab.times("tea") == lab.times("milk") == lab.times("front") == 1
    assert count(messages, "found tea") == 1
    assert count(messages, "found milk") == 1
    assert answer_to(messages, "c3").content == "they said yes"
    check_history(messages)


# Errors in the background ----------------------------------------------------------------------------------------


def test_an_unhandled_error_raises_once_at_the_delivery_and_the_resumed_run_goes_on() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("boom", id="c1", seconds=1), call("search", id="c2", query="tea", seconds=1)),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        with pytest.raises(ValueError, match="boom broke"):
            clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(None, thread()))["messages"]
    check_history(messages)
    assert count(messages, "boom broke") == 1
    assert count(messages, "found tea") == 1
    assert lab.times("boom") == lab.times("front") == 1


def test_two_unhandled_errors_each_raise_once() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("boom", id="c1", label="one"), call("boom", id="c2", label="two")),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    raised = []
    with virtual_time() as clock:
        request: Any = user()
        for _ in range(3):
            try:
                messages = clock.run(graph.ainvoke(request, thread()))["messages"]
                break
            except ValueError as error:
                raised.append(str(error))
                request = None
    assert raised == ["one broke", "two broke"]
    assert count(messages, "one broke") == count(messages, "two broke") == 1
    assert lab.times("front") == 1


def test_an_unhandled_error_that_is_awaited_raises_once_and_is_then_the_answer() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("boom", id="c1", seconds=1)),
            lambda m: says("", call("await_future", id="c2", futures=[fid(m, "c1")])),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        with pytest.raises(ValueError, match="boom broke"):
            clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(None, thread()))["messages"]
    assert answer_to(messages, "c2").status == "error"
    assert "boom broke" in answer_to(messages, "c2").content
    assert not notes(messages)


def test_a_handled_error_in_the_background_is_delivered_as_a_failure() -> None:
    done = play(
        [says("", call("boom", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        handle_tool_errors="It broke.",
    )
    (note,) = notes(done.messages)
    assert "failed" in note.content
    assert "It broke." in note.content


def test_a_question_asked_in_the_background_is_reported_and_not_asked() -> None:
    @tool
    @uses(pure=True)
    async def ask() -> str:
        """Ask a person."""
        await asyncio.sleep(1)
        return interrupt("May I?")

    done = play(
        [says("", call("ask", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        [ask],
        saver=InMemorySaver(),
        config=thread(),
    )
    (note,) = notes(done.messages)
    assert "failed" in note.content
    assert "background=False" in note.content
    assert not done.graph.get_state(thread()).interrupts


def test_a_question_asked_within_the_grace_is_asked() -> None:
    @tool
    @uses(pure=True)
    async def ask() -> str:
        """Ask a person."""
        return f"they said {interrupt('May I?')}"

    node = FlashNode([ask], grace=1.0, runtime=FutureRuntime(loop="caller"))
    graph = agent(ScriptedChatModel([says("", call("ask", id="c1")), "Done."]), node, saver=InMemorySaver())
    with virtual_time() as clock:
        assert clock.run(graph.ainvoke(user(), thread()))["__interrupt__"][0].value == "May I?"
        messages = clock.run(graph.ainvoke(Command(resume="yes"), thread()))["messages"]
    assert answer_to(messages, "c1").content == "they said yes"


# Retries of the node ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_a_retried_node_runs_only_the_call_that_failed(saver: Any) -> None:
    counts: Counter[str] = Counter()

    @tool
    async def charge() -> str:
        """Take money."""
        counts["charge"] += 1
        return "charged"

    @tool
    async def flaky() -> str:
        """Fail once."""
        counts["flaky"] += 1
        if counts["flaky"] == 1:
            raise ConnectionError("network")
        return "fine"

    node = FlashNode([charge, flaky], runtime=FutureRuntime(loop="caller"))
    graph = agent(
        ScriptedChatModel([says("", call("charge", id="c1"), call("flaky", id="c2")), "Done."]),
        node,
        saver=saver,
        retry_policy=RetryPolicy(initial_interval=0.01, retry_on=ConnectionError),
    )
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread() if saver else None))
    assert counts == {"charge": 1, "flaky": 2}


# Starred row 7: cut in the middle --------------------------------------------------------------------------------


def test_a_process_that_is_gone_leaves_an_unknown_outcome_that_is_told_once() -> None:
    lab = Lab()
    saver = InMemorySaver()
    model = ScriptedChatModel(
        [
            says(
                "", call("search", id="c1", query="tea", seconds=50), call("search", id="c2", query="milk", seconds=1)
            ),
            says("", call("front", id="c3", seconds=5)),
            "Waiting for tea.",
        ]
    )
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    graph = agent(model, node, saver=saver)
    with virtual_time() as clock:

        async def cut() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(graph.ainvoke(user(), thread()), 20)

        clock.run(cut())
    second = FlashNode(Lab().tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    after = ScriptedChatModel(
        [
            "Still waiting?",
            lambda m: "I see: " + str(m[-1].content),
            says("", call("front", id="c9", seconds=1)),
            "End.",
        ]
    )
    graph = agent(after, second, saver=saver)
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
        check_history(messages)
        messages = clock.run(graph.ainvoke(user("More?"), thread()))["messages"]
    check_history(messages)
    assert count(messages, "Outcome unknown") == 1
    assert count(messages, "found milk") == 1
    assert sorted(delivered(messages)) == sorted({fid(messages, "c1"), fid(messages, "c2")})


def test_a_run_cancelled_while_a_placeholder_is_out_can_be_continued_in_the_same_process() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=10)),
            "Wait for it.",
            "Here.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:

        async def cut() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(graph.ainvoke(user(), thread()), 3)

        clock.run(cut())
        messages = clock.run(graph.ainvoke(None, thread()))["messages"]
    assert count(messages, "found tea") == 1
    assert lab.times("tea") == 1


def test_a_message_whose_calls_were_cut_off_is_answered_when_the_run_is_resumed_by_a_new_process() -> None:
    saver = InMemorySaver()
    lab = Lab()
    script = [says("", call("front", id="c1", seconds=10), call("search", id="c2", query="tea", seconds=1)), "Done."]
    graph = agent(
        ScriptedChatModel(script), FlashNode(lab.tools(), grace=0, runtime=FutureRuntime(loop="caller")), saver=saver
    )
    with virtual_time() as clock:

        async def cut() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(graph.ainvoke(user(), thread()), 3)

        clock.run(cut())
    again = agent(
        ScriptedChatModel(["Done.", "Yes."]),
        FlashNode(Lab().tools(), grace=0, runtime=FutureRuntime(loop="caller")),
        saver=saver,
    )
    with virtual_time() as clock:
        messages = clock.run(again.ainvoke(None, thread()))["messages"]
    check_history(messages)
    assert answer_to(messages, "c1").content == "front front"
    assert count(messages, "found tea") == 1


# Cancellation ----------------------------------------------------------------------------------------------------


def test_cancelling_the_run_cancels_foreground_calls_and_leaves_background_ones_running() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [says("", call("front", id="c1", seconds=10), call("search", id="c2", query="tea", seconds=8))]
    )
    graph = agent(model, node)
    with virtual_time() as clock:

        async def cut() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(graph.ainvoke(user()), 3)
            await asyncio.sleep(20)

        clock.run(cut())
    assert ("cancelled", "front", 3.0) in lab.log
    assert lab.ended() == ["tea"]


async def test_a_cancelled_run_on_a_runtime_of_its_own_waits_for_the_clean_up_too(runtime: FutureRuntime) -> None:
    log: list[str] = []
    begun = asyncio.Event()

    async def work() -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.05)
            log.append("cleaned up")
        return "worked"

    builder = StateGraph(MessagesState)
    builder.add_node("tools", FlashNode([uses(pure=True, background=False)(work)], runtime=runtime))
    builder.add_edge(START, "tools")
    given = {"messages": [HumanMessage("Go."), says("", call("work", id="c1"))]}
    task = asyncio.create_task(builder.compile().ainvoke(given))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cleaned up"]


@pytest.mark.parametrize("kind", ["stock", "default", "declared"])
def test_a_cancelled_run_has_ended_only_when_its_tools_have_cleaned_up(kind: str) -> None:
    log: list[str] = []

    async def work() -> str:
        """Work."""
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.5)
            log.append("cleaned up")
        return "worked"

    if kind == "stock":
        node: Any = ToolNode([work])
    elif kind == "default":
        node = FlashNode([work])
    else:
        node = FlashNode([uses(pure=True, background=False)(work)], runtime=FutureRuntime(loop="caller"))
    builder = StateGraph(MessagesState)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    graph = builder.compile()
    given = {"messages": [HumanMessage("Go."), says("", call("work", id="c1"))]}

    async def cut() -> None:
        task = asyncio.create_task(graph.ainvoke(given))
        await asyncio.sleep(3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with virtual_time() as clock:
        clock.run(cut())
        assert log == ["cleaned up"]


def test_cancelling_a_run_on_its_own_runtime_cancels_the_foreground_call(runtime: FutureRuntime) -> None:
    entered, cancelled = threading.Event(), threading.Event()

    @tool
    @uses(pure=True, background=False)
    async def hang() -> str:
        """Hang."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    graph = agent(ScriptedChatModel([says("", call("hang", id="c1"))]), FlashNode([hang], runtime=runtime))

    async def cut() -> None:
        task = asyncio.create_task(graph.ainvoke(user()))
        await asyncio.to_thread(entered.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut())
    assert cancelled.wait(20)


# Starred row 11: hung tools and time limits ----------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_a_hung_async_tool_is_cancelled_and_reported_as_timed_out(background: bool) -> None:
    done = play(
        [
            says(
                "", call("search", id="c1", query="hung", seconds=1e6), call("search", id="c2", query="tea", seconds=0)
            ),
            "Done.",
            "Yes.",
            "Ok.",
        ],
        timeout=5.0,
        background=None if background else False,
    )
    assert done.seconds == 5.0
    assert ("cancelled", "hung", 5.0) in done.lab.log
    assert count(done.messages, "timed out") == 1
    assert count(done.messages, "found tea") == 1
    assert count(done.messages, "after 5 s") == 1
    check_history(done.messages)


def test_a_hung_thread_is_given_up_counted_as_abandoned_and_reported(
    runtime: FutureRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @tool
    @uses(pure=True, timeout=0.05)
    def hang() -> str:
        """Hang."""
        release.wait(30)
        return "too late"

    @tool
    @uses(pure=True)
    async def other() -> str:
        """Keep the conversation alive."""
        await asyncio.Event().wait()
        return ""

    node = FlashNode([hang, other], grace=0.0, runtime=runtime, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("hang", id="c1"), call("other", id="c2")),
            lambda m: says("", call("await_future", id="c3", futures=[fid(m, "c1")])),
            "Done.",
        ]
    )
    try:
        with caplog.at_level(logging.WARNING):
            messages = agent(model, node, saver=InMemorySaver()).invoke(user(), thread())["messages"]
        assert "timed out" in answer_to(messages, "c3").content
        assert answer_to(messages, "c3").status == "error"
        assert runtime.statistics().abandoned == 1
    finally:
        release.set()


def test_limits_may_be_a_number_a_timedelta_a_mapping_or_declared_and_the_declared_one_wins() -> None:
    @tool
    @uses(pure=True, background=False, timeout=7)
    async def declared() -> str:
        """Hang."""
        await asyncio.sleep(1e6)
        return ""

    for limit, expected in [
        (3, {"front": 3.0, "declared": 7.0}),
        (timedelta(seconds=3), {"front": 3.0, "declared": 7.0}),
        (Timeout(3), {"front": 3.0, "declared": 7.0}),
        ({"front": timedelta(seconds=3), "declared": 2}, {"front": 3.0, "declared": 7.0}),
    ]:
        for name, seconds in expected.items():
            arguments = {"seconds": 1e6} if name == "front" else {}
            done = play([says("", call(name, id="c1", **arguments)), "Done."], [declared], timeout=limit)
            assert done.seconds == seconds
            assert "timed out" in answer_to(done.messages, "c1").content


def test_signs_of_life_put_off_an_idle_limit_and_silence_does_not() -> None:
    @tool
    @uses(pure=True, background=False, timeout=Timeout(idle=2))
    async def chatty(signs: int) -> str:
        """Work, with signs of life."""
        for _ in range(signs):
            await asyncio.sleep(1.5)
            heartbeat()
        await asyncio.sleep(100 if signs == 3 else 1)
        return "finished"

    done = play([says("", call("chatty", id="c1", signs=4), call("chatty", id="c2", signs=3)), "Done."], [chatty])
    assert answer_to(done.messages, "c1").content == "finished"
    assert "no sign of life for 2 s" in answer_to(done.messages, "c2").content
    assert done.seconds == 7.0


def test_a_drain_of_a_hung_future_ends_with_its_limit() -> None:
    done = play(
        [says("", call("search", id="c1", query="hung", seconds=1e9)), "Done.", "I see."], timeout={"search": 30}
    )
    assert done.seconds == 30.0
    assert count(done.messages, "timed out") == 1


def test_a_node_with_an_idle_limit_of_its_own_is_kept_alive_while_it_drains() -> None:
    done = play(
        [says("", call("search", id="c1", query="tea", seconds=60)), "Done.", "Yes."],
        timeout_policy=TimeoutPolicy(idle_timeout=3, refresh_on="heartbeat"),
    )
    assert count(done.messages, "found tea") == 1


def test_a_node_with_a_run_limit_of_its_own_is_cut_and_its_background_work_is_not() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=6)),
            says("", call("front", id="c2", label="x", seconds=50)),
        ]
    )
    graph = agent(model, node, saver=InMemorySaver(), timeout=TimeoutPolicy(run_timeout=5))
    with virtual_time() as clock:

        async def run() -> None:
            with pytest.raises(Exception, match=r"(?i)time"):
                await graph.ainvoke(user(), thread())
            await asyncio.sleep(10)

        clock.run(run())
    assert ("cancelled", "x", 5.0) in lab.log
    assert lab.ended() == ["tea"]


# What a model may not break --------------------------------------------------------------------------------------


def test_forged_injected_arguments_that_look_like_references_do_not_crash_the_run() -> None:
    class Forged(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    @tool
    @uses(pure=True)
    async def peek(text: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look at the state."""
        return f"{text} with {len(state['messages'])} messages"

    for forged in ("fut_0123456789", "fut_0123456789[", None):
        done = play(
            [
                says("", call("search", id="c1", query="tea", seconds=1)),
                lambda m, forged=forged: says(
                    "", call("peek", id="c2", text=fid(m, "c1"), state=forged or fid(m, "c1"))
                ),
                says("", call("front", id="c3", seconds=9)),
                "Done.",
                "Yes.",
            ],
            [peek],
            state=Forged,
        )
        assert count(done.messages, "found tea with 4 messages") == 1


def test_a_validator_that_raises_something_else_is_handled_as_the_stock_node_handles_it() -> None:
    class Arguments(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def look_up(cls, value: int) -> int:
            raise RuntimeError("database down")

    @tool(args_schema=Arguments)
    def check(x: int) -> str:
        """Check."""
        return "checked"

    given = {"messages": [HumanMessage("Go."), says("", call("check", id="c1", x=1))]}
    answers = []
    for node in (
        ToolNode([check], handle_tool_errors=True),
        FlashNode([check], handle_tool_errors=True),
        FlashNode([check], handle_tool_errors=True, background=True, runtime=FutureRuntime(loop="caller")),
    ):
        builder = StateGraph(MessagesState)
        builder.add_node("tools", node)
        builder.add_edge(START, "tools")
        with virtual_time() as clock:
            answers.append(clock.run(builder.compile().ainvoke(given))["messages"][-1].content)
    assert answers[0] == answers[1] == answers[2]


def test_a_predicate_of_failure_that_raises_does_not_lose_the_sibling_results() -> None:
    def broken(message: ToolMessage) -> str | None:
        if "tea" in str(message.content):
            raise KeyError("predicate")
        return None

    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"), is_failure=broken)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea"), call("search", id="c2", query="milk")),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        with pytest.raises(KeyError):
            clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(None, thread()))["messages"]
    assert count(messages, "found milk") == 1


def test_an_async_tool_that_invokes_a_graph_synchronously_on_the_runtime_s_loop_is_told_so(
    runtime: FutureRuntime,
) -> None:
    @tool
    @uses(pure=True)
    async def leaf() -> str:
        """A leaf."""
        return "leaf"

    inner = agent(
        ScriptedChatModel([says("", call("leaf", id="i1")), "Done."]), FlashNode([leaf], runtime=runtime, grace=5.0)
    )

    @tool
    @uses(pure=True)
    async def sub() -> str:
        """Call a graph the wrong way."""
        return inner.invoke(user())["messages"][-1].content

    node = FlashNode([sub], runtime=runtime, grace=5.0)
    graph = agent(ScriptedChatModel([says("", call("sub", id="c1")), "Done."]), node)
    with pytest.raises(DeadlockError, match="ainvoke"):
        asyncio.run(graph.ainvoke(user()))


def test_a_sync_tool_may_invoke_a_graph_whose_node_shares_the_runtime(runtime: FutureRuntime) -> None:
    @tool
    @uses(pure=True)
    async def leaf() -> str:
        """A leaf."""
        return "leaf"

    inner = agent(
        ScriptedChatModel([says("", call("leaf", id="i1")), "Done inside."]),
        FlashNode([leaf], runtime=runtime, grace=20.0),
    )

    @tool
    @uses(pure=True)
    def sub() -> str:
        """Call a graph."""
        return inner.invoke(user())["messages"][-1].content

    node = FlashNode([sub], runtime=runtime, grace=20.0)
    graph = agent(ScriptedChatModel([says("", call("sub", id="c1")), "Done."]), node)
    assert answer_to(graph.invoke(user())["messages"], "c1").content == "Done inside."


# Options that can never work -------------------------------------------------------------------------------------


def plain_tool() -> BaseTool:
    @tool
    def look(path: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look."""
        return path

    return look


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grace": -1}, "grace=-1"),
        ({"grace": -math.inf}, "grace=-inf"),
        ({"grace": math.nan}, "grace=nan"),
        ({"grace": True}, "grace=True"),
        ({"grace": "soon"}, "grace='soon'"),
        ({"grace": None}, "grace=None"),
        ({"background": ["nothing"]}, "nothing"),
        ({"background": "look"}, "string"),
        ({"background": 3}, "background=3"),
        ({"timeout": {"nothing": 3}}, "nothing"),
        ({"timeout": 0}, "0"),
        ({"timeout": -1}, "-1"),
        ({"timeout": {"look": "soon"}}, "soon"),
        ({"max_parallel": 0}, "max_parallel=0"),
        ({"max_parallel": -2}, "max_parallel=-2"),
        ({"max_parallel": 1.5}, "max_parallel=1.5"),
        ({"max_parallel": "2"}, "max_parallel='2'"),
        ({"on_end": "explode"}, "drain"),
        ({"on_order_failure": "explode"}, "continue"),
        ({"dispatch": "shortest"}, "longest"),
        ({"loop": "mine"}, "caller"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FlashNode([plain_tool()], **options)
    assert sentence in str(caught.value)


def test_a_tool_with_the_name_of_a_control_tool_is_refused_only_where_there_are_futures() -> None:
    @tool
    def await_future(x: int) -> str:
        """Mine."""
        return "mine"

    with pytest.raises(ConfigurationError, match="await_future"):
        FlashNode([await_future], background=True)
    assert FlashNode([await_future]).tools_by_name["await_future"] is await_future
    assert FlashNode([await_future], background=True, grace=math.inf).tools_by_name["await_future"] is await_future

    @tool
    def cancel_future(x: int) -> str:
        """Mine."""
        return "mine"

    with pytest.raises(ConfigurationError, match="cancel_future"):
        FlashNode([cancel_future], background=True, cancellation=True)
    assert FlashNode([cancel_future], background=True).tools_by_name["cancel_future"] is cancel_future


@pytest.mark.parametrize("name", ["nothing", "state"])
def test_a_template_that_names_an_absent_or_an_injected_argument_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=name):
        FlashNode([uses(reads=f"disk/{{{name}}}")(plain_tool())])
    declared = plain_tool().model_copy(update={"metadata": {"flash": {"reads": [f"disk/{{{name}}}"]}}})
    with pytest.raises(DeclarationError, match=name):
        FlashNode([declared])


def test_a_template_over_an_injected_argument_of_a_plain_function_is_refused_by_the_node() -> None:
    @uses(reads="disk/{state}")
    def look(path: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look."""
        return path

    with pytest.raises(DeclarationError, match="state"):
        FlashNode([look])


def test_return_direct_and_background_contradict_each_other() -> None:
    @tool(return_direct=True)
    @uses(pure=True, background=True)
    def answer() -> str:
        """Answer."""
        return "direct"

    with pytest.raises(DeclarationError, match="return_direct"):
        FlashNode([answer])


def test_a_closed_runtime_says_so() -> None:
    gone = FutureRuntime()
    gone.close()
    graph = agent(
        ScriptedChatModel([says("", call("search", id="c1", query="tea"))]), FlashNode(Lab().tools(), runtime=gone)
    )
    with pytest.raises(Exception, match="closed"):
        graph.invoke(user())


def test_a_runtime_on_the_caller_s_loop_refuses_invoke_in_words() -> None:
    graph = agent(
        ScriptedChatModel([says("", call("search", id="c1", query="tea"))]),
        FlashNode(Lab().tools(), runtime=FutureRuntime(loop="caller")),
    )
    with pytest.raises(ConfigurationError, match="ainvoke"):
        graph.invoke(user())


def test_a_timeout_error_is_both_a_flash_error_and_the_builtin_one() -> None:
    assert issubclass(ToolTimeout, TimeoutError)


# The caller's loop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_loop", [True, False])
def test_nothing_on_the_way_blocks_the_caller_s_loop(own_loop: bool, runtime: FutureRuntime) -> None:
    @tool
    @uses(pure=True)
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    @tool
    def plain() -> str:
        """Do something undeclared."""
        return "did"

    node = FlashNode([search, plain], grace=0.0, runtime=runtime if own_loop else FutureRuntime(loop="caller"))
    graph = agent(
        ScriptedChatModel(
            [
                says("", call("search", id="c1", query="tea"), call("plain", id="c2")),
                says("", call("plain", id="c3")),
                *["Done."] * 3,
            ]
        ),
        node,
        saver=InMemorySaver(),
    )

    async def run() -> Any:
        with blockbuster_ctx("langgraph_flash"):
            return await graph.ainvoke(user(), thread())

    messages = asyncio.run(run())["messages"]
    assert count(messages, "found tea") == 1
