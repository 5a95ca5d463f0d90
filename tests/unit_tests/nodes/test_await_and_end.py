"""Waiting for futures, cancelling them, and what becomes of them when the model gives its final answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import tools_condition
from node_lab import (
    UNKNOWN,
    Lab,
    Play,
    agent,
    answer_to,
    count,
    delivered,
    fid,
    is_placeholder,
    notes,
    play,
    thread,
    user,
)

from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.errors import ConfigurationError
from langgraph_flash.testing import ScriptedChatModel, call, check_history, says, virtual_time


def finish(script: list[Any], tools: Any = None, **options: Any) -> Play:
    """Play a script and drain: the model says the same at every further turn."""
    return play([*script, *["Done."] * 12], tools, **options)


def awaits(*ids: str, id: str = "w", **arguments: Any) -> Any:
    """A turn that awaits the futures of some calls."""
    return lambda m: says("", call("await_future", id=id, futures=[fid(m, name) for name in ids], **arguments))


def searches(**seconds: float) -> AIMessage:
    return says("", *(call("search", id=name, query=name, seconds=time) for name, time in seconds.items()))


# Requests that cannot be answered --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"futures": []},
        {"futures": 3},
        {"futures": None},
        {"futures": [3]},
        {"futures": [None]},
        {"futures": [UNKNOWN], "mode": "some"},
        {"futures": [UNKNOWN], "timeout": -1},
        {"futures": [UNKNOWN], "timeout": "soon"},
        {"futures": [UNKNOWN], "until": "noon"},
        {"ids": [UNKNOWN]},
    ],
)
def test_bad_arguments_are_answered_with_what_is_wrong_and_nothing_waits(arguments: dict[str, Any]) -> None:
    wrong = {**call("await_future", id="w"), "args": arguments}
    done = finish([searches(a=50), says("", wrong)])
    answer = answer_to(done.messages, "w")
    assert answer.status == "error"
    assert answer.content.startswith("Error: await_future")
    assert done.seconds == 50.0


@pytest.mark.parametrize("given", [UNKNOWN, "tea", "", f"{UNKNOWN}.name"])
def test_an_id_that_is_not_known_is_answered_with_the_ids_that_are(given: str) -> None:
    done = finish([searches(a=50), says("", call("await_future", id="w", futures=[given]))])
    answer = answer_to(done.messages, "w")
    assert answer.status == "error"
    assert fid(done.messages, "a") in answer.content


def test_one_bad_id_among_good_ones_refuses_the_request_and_delivers_nothing_early() -> None:
    done = finish([searches(a=5), lambda m: says("", call("await_future", id="w", futures=[fid(m, "a"), UNKNOWN]))])
    assert answer_to(done.messages, "w").status == "error"
    assert delivered(done.messages) == [fid(done.messages, "a")]


def test_awaiting_a_failed_call_answers_with_its_failure_and_does_not_deliver_it_again() -> None:
    done = finish([says("", call("boom", id="a", seconds=3)), awaits("a")], handle_tool_errors=True)
    answer = answer_to(done.messages, "w")
    assert answer.status == "error"
    assert "boom broke" in answer.content
    assert not notes(done.messages)


def test_awaiting_a_call_that_is_cancelled_meanwhile_ends_the_wait() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    graph = agent(ScriptedChatModel([searches(a=1e6), awaits("a"), "Done."]), node, saver=InMemorySaver())

    async def run() -> Any:
        running = asyncio.create_task(graph.ainvoke(user(), thread()))
        await asyncio.sleep(5)
        future = fid((await graph.aget_state(thread())).values["messages"], "a")
        assert node.cancel(future, "the user left")
        return await running

    with virtual_time() as clock:
        messages = clock.run(run())["messages"]
        assert clock.seconds == 5.0
    answer = answer_to(messages, "w")
    assert answer.status == "error"
    assert "the user left" in answer.content
    assert ("cancelled", "a", 5.0) in lab.log


# Waiting ---------------------------------------------------------------------------------------------------------


def test_awaiting_one_future_answers_with_its_very_content() -> None:
    done = finish([searches(a=3), awaits("a")])
    assert answer_to(done.messages, "w").content == "found a"
    assert answer_to(done.messages, "w").name == "await_future"
    assert not notes(done.messages)
    assert len(done.model.calls) == 3
    assert done.seconds == 3.0


def test_one_id_may_be_given_without_a_list() -> None:
    done = finish([searches(a=3), lambda m: says("", call("await_future", id="w", futures=fid(m, "a")))])
    assert answer_to(done.messages, "w").content == "found a"


def test_awaiting_all_waits_for_the_last_and_names_each() -> None:
    done = finish([searches(a=7, b=3), awaits("a", "b")])
    text = str(answer_to(done.messages, "w").content)
    assert text.index(fid(done.messages, "a")) < text.index("found a") < text.index("found b")
    assert done.seconds == 7.0
    assert not notes(done.messages)


def test_awaiting_any_answers_with_the_first_and_leaves_the_others_pending() -> None:
    done = finish([searches(a=7, b=3), awaits("a", "b", mode="any")])
    assert answer_to(done.messages, "w").content == "found b"
    assert delivered(done.messages) == [fid(done.messages, "a")]
    assert done.seconds == 7.0


def test_a_wait_that_runs_out_says_what_is_still_pending_and_loses_nothing() -> None:
    done = finish([searches(a=7, b=3), awaits("a", "b", timeout=5)])
    answer = answer_to(done.messages, "w")
    assert answer.status == "success"
    assert "found b" in str(answer.content)
    assert "Still pending" in str(answer.content)
    assert fid(done.messages, "a") in str(answer.content)
    assert delivered(done.messages) == [fid(done.messages, "a")]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_wait_of_no_seconds_only_looks(mode: str) -> None:
    done = finish([searches(a=7), awaits("a", timeout=0, mode=mode)])
    assert "Still pending" in str(answer_to(done.messages, "w").content)
    assert count(done.messages, "found a") == 1


def test_an_id_given_twice_is_answered_once() -> None:
    done = finish([searches(a=3), awaits("a", "a")])
    assert answer_to(done.messages, "w").content == "found a"


def test_two_requests_for_one_future_in_a_message_are_both_answered_in_words() -> None:
    done = finish(
        [
            searches(a=3),
            lambda m: says(
                "",
                call("await_future", id="w1", futures=[fid(m, "a")]),
                call("await_future", id="w2", futures=[fid(m, "a")]),
            ),
        ]
    )
    assert answer_to(done.messages, "w1").content == "found a"
    assert str(answer_to(done.messages, "w2").content).strip()
    check_history(done.messages)


def test_what_was_awaited_is_not_delivered_again_and_what_arrived_besides_is() -> None:
    done = finish([searches(a=3, b=2, c=90), awaits("a"), says("", call("front", id="f", seconds=1))])
    assert delivered(done.messages)[:1] == [fid(done.messages, "b")]
    assert [count(done.messages, f"found {name}") for name in "abc"] == [1, 1, 1]


def test_a_wait_beside_other_calls_answers_each_in_its_place() -> None:
    done = finish(
        [
            searches(a=3),
            lambda m: says(
                "",
                call("front", id="f", seconds=1),
                call("await_future", id="w", futures=[fid(m, "a")]),
                call("search", id="b", query="b", seconds=9),
            ),
        ]
    )
    assert [m.tool_call_id for m in done.messages if m.type == "tool"] == ["a", "f", "w", "b"]
    assert answer_to(done.messages, "w").content == "found a"


def test_awaited_content_blocks_and_artifacts_are_kept() -> None:
    picture = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}

    @tool(response_format="content_and_artifact")
    @uses(pure=True)
    async def paint() -> Any:
        """Paint."""
        await asyncio.sleep(1)
        return [{"type": "text", "text": "a picture"}, picture], {"size": [1, 2]}

    done = finish([says("", call("paint", id="a")), awaits("a")], [paint])
    answer = answer_to(done.messages, "w")
    assert picture in answer.content
    assert answer.artifact["langgraph_flash"]["artifacts"] == {fid(done.messages, "a"): {"size": [1, 2]}}


def test_a_model_that_polls_is_bounded_and_one_that_awaits_needs_two_turns() -> None:
    done = finish([searches(a=60), awaits("a"), "Here."])
    assert len(done.model.calls) == 3  # the call, the wait, the answer

    def poll(n: int) -> Any:
        return awaits("a", id=f"p{n}", timeout=1)

    done = finish([searches(a=3.5), *(poll(n) for n in range(4))])
    assert [("found a" in str(answer_to(done.messages, f"p{n}").content)) for n in range(4)] == [False] * 3 + [True]
    assert "await_future" in str(answer_to(done.messages, "a").content)


# The end of a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("futures", [1, 2, 5])
def test_a_drain_takes_at_most_one_extra_turn_for_each_future(futures: int) -> None:
    done = finish([searches(**{f"s{n}": 3.0 * n + 1 for n in range(futures)})])
    assert len(done.model.calls) == 2 + futures
    assert [count(done.messages, f"found s{n}") for n in range(futures)] == [1] * futures
    assert done.seconds == 3.0 * (futures - 1) + 1


def test_results_that_come_within_the_grace_of_one_another_share_an_extra_turn() -> None:
    done = finish([searches(a=5, b=5.5, c=50)], grace=1.0)
    assert len(done.model.calls) == 4
    assert len(notes(done.messages)) == 2


def test_calls_made_while_draining_are_drained_too() -> None:
    done = finish([searches(a=5), "Done?", searches(b=5), "Done?"])
    assert count(done.messages, "found a") == count(done.messages, "found b") == 1
    check_history(done.messages)


def test_with_cancel_nothing_is_waited_for_and_the_next_turn_hears_of_it() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"), on_end="cancel")
    model = ScriptedChatModel([searches(a=50), "Done.", says("", call("front", id="f")), "Done."])
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        assert clock.seconds == 0.0
        messages = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
    assert ("cancelled", "a", 0.0) in lab.log
    assert count(messages, "Cancelled: the run ended") == 1


def test_with_detach_a_result_arrives_when_the_next_turn_goes_through_the_tools_first() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"), on_end="detach")
    model = ScriptedChatModel([searches(a=50), "Later.", "You asked.", "I see it.", "Nothing new."])
    graph = agent(model, node, saver=InMemorySaver(), start="tools")
    with virtual_time() as clock:
        first = clock.run(graph.ainvoke(user(), thread()))["messages"]
        assert clock.seconds == 0.0
        assert [m.type for m in first] == ["human", "ai", "tool", "ai"]
        second = clock.run(graph.ainvoke(user("Now?"), thread()))["messages"]
        assert clock.seconds == 0.0
        assert not notes(second)
        clock.run(asyncio.sleep(60))
        third = clock.run(graph.ainvoke(user("And now?"), thread()))["messages"]
        fourth = clock.run(graph.ainvoke(user("More?"), thread()))["messages"]
    assert count(third, "found a") == 1
    assert count(fourth, "found a") == 1
    assert third[-1].content == "I see it."


def test_the_stock_condition_works_and_leaves_the_rest_to_the_next_run() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel([searches(a=2), "Done.", says("", call("front", id="f", seconds=9)), "Done."])
    graph = agent(model, node, saver=InMemorySaver(), condition=tools_condition)
    with virtual_time() as clock:
        first = clock.run(graph.ainvoke(user(), thread()))["messages"]
        assert clock.seconds == 0.0
        assert is_placeholder(first[-2])
        messages = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
    assert count(messages, "found a") == 1


def test_the_flash_condition_reads_every_kind_of_state_and_refuses_one_without_messages() -> None:
    final = [HumanMessage("Go."), AIMessage("Done.")]
    calling = [HumanMessage("Go."), says("", call("search", id="c1", query="x"))]

    class State:
        messages = final

    assert flash_condition(final) == flash_condition({"messages": final}) == flash_condition(State()) == "__end__"
    assert flash_condition(calling) == flash_condition({"chat": calling}, messages_key="chat") == "tools"
    for empty in ([], {}, {"messages": []}, object()):
        with pytest.raises(ValueError, match="no messages"):
            flash_condition(empty)


def test_futures_are_gone_from_the_runtime_when_a_drained_run_has_ended() -> None:
    done = finish([searches(a=2, b=4)])
    assert done.runtime.statistics().futures == 0
    done = finish([searches(a=2), awaits("a")])
    assert done.runtime.statistics().futures == 0


# Cancelling ------------------------------------------------------------------------------------------------------


def test_the_model_cancels_by_id_only_where_it_is_offered() -> None:
    assert "cancel_future" not in finish([searches(a=1)]).node.tools_by_name
    done = finish(
        [
            searches(a=50, b=50),
            lambda m: says("", call("cancel_future", id="x", futures=[fid(m, "a")])),
            says("", call("front", id="f", seconds=1)),
        ],
        cancellation=True,
    )
    assert fid(done.messages, "a") in str(answer_to(done.messages, "x").content)
    assert ("cancelled", "a", 0.0) in done.lab.log
    assert count(done.messages, "Cancelled: the model asked for it") == 1
    assert count(done.messages, "found b") == 1


def test_cancelling_what_has_ended_says_so_and_its_result_still_arrives() -> None:
    done = finish(
        [
            searches(a=1),
            lambda m: says("", call("front", id="f", seconds=5), call("cancel_future", id="x", futures=[fid(m, "a")])),
        ],
        cancellation=True,
    )
    assert count(done.messages, "found a") + count(done.messages, "the model asked for it") == 1

    def wait_then(messages: list[BaseMessage]) -> Any:
        return says("", call("cancel_future", id="y", futures=[fid(messages, "b")]))

    @tool
    @uses(pure=True, background=False)
    async def hold() -> str:
        """Hold on, raising nothing."""
        await asyncio.sleep(5)
        return "held"

    done = finish([searches(b=1), says("", call("hold", id="h")), wait_then], [hold], cancellation=True)
    assert answer_to(done.messages, "y").status == "error"
    assert "already delivered" in str(answer_to(done.messages, "y").content)


def test_the_application_cancels_by_id_and_is_told_whether_there_was_anything_to_cancel() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    graph = agent(
        ScriptedChatModel(
            [searches(a=1e6), lambda m: says("", call("echo", id="b", text=fid(m, "a"))), *["Done."] * 5]
        ),
        node,
        saver=InMemorySaver(),
    )

    async def run() -> Any:
        running = asyncio.create_task(graph.ainvoke(user(), thread()))
        await asyncio.sleep(5)
        future = fid((await graph.aget_state(thread())).values["messages"], "a")
        assert node.cancel(future)
        assert not node.cancel(UNKNOWN)
        result = await running
        assert not node.cancel(future)
        return result

    with virtual_time() as clock:
        messages = clock.run(run())["messages"]
    assert count(messages, "cancelled by the application") == 1
    assert count(messages, "it needs the result of") == 1
    assert lab.args == []


def test_a_tool_that_refuses_to_be_cancelled_is_abandoned_and_the_conversation_goes_on() -> None:
    @tool
    @uses(pure=True)
    async def stubborn() -> str:
        """Refuse."""
        for _ in range(100):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
        return "finally"

    done = finish(
        [
            says("", call("stubborn", id="a"), call("search", id="b", query="b", seconds=30)),
            lambda m: says("", call("cancel_future", id="x", futures=[fid(m, "a")])),
            awaits("a"),
        ],
        [stubborn],
        cancellation=True,
    )
    assert "the model asked for it" in str(answer_to(done.messages, "w").content)
    assert done.seconds == 30.0


def test_cancel_works_from_any_thread(runtime: FutureRuntime) -> None:
    entered = threading.Event()
    ended = threading.Event()

    @tool
    @uses(pure=True)
    async def hang() -> str:
        """Hang."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    node = FlashNode([hang], grace=0.0, runtime=runtime)
    graph = agent(
        ScriptedChatModel([says("", call("hang", id="a")), awaits("a"), "Done."]), node, saver=InMemorySaver()
    )
    result: list[Any] = []
    runner = threading.Thread(target=lambda: result.append(graph.invoke(user(), thread())))
    runner.start()
    assert entered.wait(20)
    future = None
    while future is None:
        messages = graph.get_state(thread()).values["messages"]
        if any(is_placeholder(m) for m in messages):
            future = fid(messages, "a")
    assert node.cancel(future)
    runner.join(20)
    assert ended.wait(20)
    assert "cancelled by the application" in str(answer_to(result[0]["messages"], "w").content)


def test_no_wait_is_needed_where_the_grace_is_infinite() -> None:
    done = finish([searches(a=50)], grace=math.inf)
    assert answer_to(done.messages, "a").content == "found a"
    assert "await_future" not in done.node.tools_by_name


# What a tool says about the end of a run itself ---------------------------------------------------------------------


def test_a_tool_that_detaches_costs_no_turn_at_the_end_while_its_sibling_is_waited_for() -> None:
    lab = Lab()

    @tool
    @uses(pure=True, on_end="detach")
    async def note(text: str) -> str:
        """Write something down."""
        await lab.work(text, 50)
        return f"noted {text}"

    model = ScriptedChatModel(
        [says("", call("note", id="c1", text="x"), call("search", id="c2", query="tea", seconds=1)), "Wait.", "End."]
    )
    node = FlashNode([*lab.tools(), note], grace=0.0, runtime=FutureRuntime(loop="caller"))
    with virtual_time() as clock:
        messages = clock.run(agent(model, node).ainvoke(user(), thread()))["messages"]
        assert clock.seconds == 1
    assert messages[-1].content == "End."
    assert count(messages, "found tea") == 1
    assert count(messages, "noted x") == 0


def test_an_end_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'forget' is not one of 'drain', 'cancel', 'detach'"):
        uses(pure=True, on_end="forget")  # type: ignore[arg-type]
