"""How futures appear in a conversation: placeholders, one notification per boundary, every result exactly once."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    get_notification_metadata,
)
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import tools_condition
from langgraph.types import Command, RetryPolicy, Send, interrupt
from node_lab import (
    Lab,
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
from pydantic import BaseModel

from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.testing import ScriptedChatModel, call, check_history, says, virtual_time


def virtual_node(lab: Lab, *more: Any, **options: Any) -> FlashNode:
    options.setdefault("grace", 0.0)
    options.setdefault("runtime", FutureRuntime(loop="caller"))
    return FlashNode([*lab.tools(), *more], **options)


# What could be lost or doubled -----------------------------------------------------------------------------------


class Both(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    kept: Annotated[list[str], operator.add]


def test_a_node_that_is_entered_again_by_its_retry_policy_delivers_once_and_runs_nothing_twice() -> None:
    lab = Lab()
    failures = [ConnectionError("network")]

    @tool
    async def flaky() -> str:
        """Fail once."""
        await lab.work("flaky", 1)
        if failures:
            raise failures.pop()
        return "fine"

    node = virtual_node(lab, flaky)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("write", id="c2", path="a", seconds=1), call("flaky", id="c3")),
            "Done.",
            "Really.",
        ]
    )
    graph = agent(
        model, node, saver=InMemorySaver(), retry_policy=RetryPolicy(initial_interval=0.01, retry_on=ConnectionError)
    )
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    assert lab.times("flaky") == 2
    assert lab.times("write a") == 1
    assert lab.times("tea") == 1
    assert count(messages, "found tea") == 1
    assert count(messages, "wrote a") == 1


def test_a_result_is_delivered_when_the_function_around_the_node_fails_after_it_and_is_retried() -> None:
    lab = Lab()
    node = virtual_node(lab)
    failures = [ConnectionError("network"), ConnectionError("network")]

    async def around(state: MessagesState) -> Any:
        output = await node.ainvoke(state)
        if notes(output["messages"]) and failures:
            raise failures.pop()
        return output

    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("plain", id="c2", seconds=2)),
            "Done.",
        ]
    )
    bound = node.bind(model)

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", think)
    builder.add_node("tools", around, retry_policy=RetryPolicy(initial_interval=0.01, retry_on=ConnectionError))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    assert count(messages, "found tea") == 1


def test_a_result_is_delivered_when_the_function_around_the_node_asks_a_person_after_it() -> None:
    lab = Lab()
    node = virtual_node(lab)

    async def around(state: MessagesState) -> Any:
        output = await node.ainvoke(state)
        if notes(output["messages"]):
            interrupt("May I show this?")
        return output

    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("plain", id="c2", seconds=2)),
            "Done.",
        ]
    )
    bound = node.bind(model)

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", think)
    builder.add_node("tools", around)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(Command(resume="yes"), thread()))["messages"]
    assert count(messages, "found tea") == 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_sibling_node_that_fails_in_the_same_superstep_neither_loses_nor_doubles_a_delivery(durability: str) -> None:
    lab = Lab()
    node = virtual_node(lab)
    failures = [ConnectionError("network")]

    async def sibling(state: Both) -> Any:
        await asyncio.sleep(10)
        if len(notes(state["messages"])) == 0 and failures and count(state["messages"], "running") == 1:
            raise failures.pop()
        return {"kept": ["sibling"]}

    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=3)),
            says("", call("plain", id="c2", seconds=5)),
            "Done.",
        ]
    )
    bound = node.bind(model)

    async def think(state: Both) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def route(state: Both) -> Any:
        answered = any(is_placeholder(m) for m in state["messages"])
        if not state["messages"][-1].tool_calls:
            return END
        return ["tools", "sibling"] if answered else "tools"

    builder = StateGraph(Both)
    builder.add_node("agent", think)
    builder.add_node("tools", node)
    builder.add_node("sibling", sibling)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "sibling", END])
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        with pytest.raises(ConnectionError):
            clock.run(graph.ainvoke({**user(), "kept": []}, thread(), durability=durability))
        messages = clock.run(graph.ainvoke(None, thread(), durability=durability))["messages"]
    assert count(messages, "found tea") == 1
    assert lab.times("tea") == 1


def test_a_sibling_that_fails_first_cancels_the_visit_and_the_resumed_run_still_delivers_once() -> None:
    lab = Lab()
    node = virtual_node(lab)
    failures = [ConnectionError("network")]

    async def sibling(state: Both) -> Any:
        await asyncio.sleep(3)
        if failures:
            raise failures.pop()
        return {"kept": ["sibling"]}

    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("front", id="c2", seconds=5), call("search", id="c3", query="milk", seconds=4)),
            "Done.",
            "Really.",
            "Yes.",
        ]
    )
    bound = node.bind(model)

    async def think(state: Both) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def route(state: Both) -> Any:
        where = flash_condition(state)
        answered = any(is_placeholder(m) for m in state["messages"])
        return ["tools", "sibling"] if where == "tools" and answered else where

    builder = StateGraph(Both)
    builder.add_node("agent", think)
    builder.add_node("tools", node)
    builder.add_node("sibling", sibling)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "sibling", END])
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        with pytest.raises(ConnectionError):
            clock.run(graph.ainvoke({**user(), "kept": []}, thread()))
        messages = clock.run(graph.ainvoke(None, thread()))["messages"]
    assert count(messages, "found tea") == 1
    assert count(messages, "found milk") == 1
    assert lab.times("tea") == 1
    assert lab.times("milk") == 1
    assert ("cancelled", "front", 3.0) in lab.log
    check_history(messages)


def trimming(remove: Any, script: list[Any], *, condition: Any = flash_condition) -> tuple[list[BaseMessage], Lab]:
    """Run an agent whose history goes through `remove` before each model turn."""
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(script)
    bound = node.bind(model)

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("trim", lambda state: {"messages": remove(state["messages"])})
    builder.add_node("agent", think)
    builder.add_node("tools", node)
    builder.add_edge(START, "trim")
    builder.add_edge("trim", "agent")
    builder.add_conditional_edges("agent", condition)
    builder.add_edge("tools", "trim")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        return clock.run(graph.ainvoke(user(), thread()))["messages"], lab


def drop_placeholder(messages: list[BaseMessage]) -> list[Any]:
    """Remove the first placeholder and the AIMessage it answers."""
    for index, message in enumerate(messages):
        if is_placeholder(message) and index and isinstance(messages[index - 1], AIMessage):
            return [RemoveMessage(id=messages[index - 1].id), RemoveMessage(id=message.id)]
    return []


def summarise(messages: list[BaseMessage]) -> list[Any]:
    """Replace everything by a summary, as soon as there is a placeholder."""
    if not any(is_placeholder(message) for message in messages):
        return []
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("A summary of what was said.")]


@pytest.mark.parametrize("remove", [drop_placeholder, summarise])
def test_a_result_survives_the_removal_of_its_placeholder_when_the_model_calls_on(remove: Any) -> None:
    messages, _ = trimming(
        remove,
        [
            says("", call("search", id="c1", query="tea", seconds=2)),
            says("", call("front", id="c2", seconds=5)),
            "Done.",
        ],
    )
    assert count(messages, "found tea") == 1
    check_history(messages)


@pytest.mark.parametrize("remove", [drop_placeholder, summarise])
def test_a_result_survives_the_removal_of_its_placeholder_when_the_model_answers_at_once(remove: Any) -> None:
    messages, _ = trimming(
        remove, [says("", call("search", id="c1", query="tea", seconds=2)), "Done.", "Found it.", "Yes."]
    )
    assert count(messages, "found tea") == 1


def test_a_result_survives_a_summary_made_between_two_runs_of_a_thread() -> None:
    lab = Lab()
    node = virtual_node(lab, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=20)),
            "It is on its way.",
            says("", call("front", id="c2", seconds=30)),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        clock.run(
            graph.aupdate_state(
                thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("A summary.")]}, "agent"
            )
        )
        messages = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
    assert count(messages, "found tea") == 1


# Shape and place -------------------------------------------------------------------------------------------------


def test_a_slow_call_is_answered_by_a_placeholder_and_delivered_by_one_tagged_message_at_the_next_boundary() -> None:
    seen: list[list[BaseMessage]] = []

    def look(messages: list[BaseMessage]) -> Any:
        seen.append(messages)
        return says("", call("front", id="c2", seconds=5))

    done = play([says("", call("search", id="c1", query="tea", seconds=2)), look, "Done."])
    first = answer_to(done.messages, "c1")
    assert is_placeholder(first)
    assert first.status == "success"
    assert first.name == "search"
    (note,) = notes(done.messages)
    assert note.additional_kwargs["lc_source"] == "langgraph_flash"
    assert "found tea" in note.content
    assert fid(done.messages, "c1") in note.content
    assert "No background call is pending" in note.content
    # Nothing said before was rewritten, and the note follows the answers of the message it arrived with.
    assert done.messages[: len(seen[0])] == seen[0]
    assert [type(m).__name__ for m in done.messages[len(seen[0]) :]] == [
        "AIMessage",
        "ToolMessage",
        "HumanMessage",
        "AIMessage",
    ]


def test_histories_only_ever_grow_at_the_end() -> None:
    done = play(
        [
            says("", call("search", id="c1", query="tea", seconds=3), call("front", id="c2", seconds=1)),
            says("", call("search", id="c3", query="milk", seconds=1), call("plain", id="c4", seconds=2)),
            says("", call("front", id="c5", seconds=3)),
            "Done.",
            "Yes.",
            "Yes, yes.",
        ]
    )
    histories = [*done.model.calls, done.messages]
    for before, after in itertools.pairwise(histories):
        assert [(m.id, m.content) for m in after[: len(before)]] == [(m.id, m.content) for m in before]


def test_results_that_arrive_together_share_a_message_in_the_order_of_their_calls() -> None:
    done = play(
        [
            says(
                "",
                call("search", id="c1", query="slow", seconds=3),
                call("search", id="c2", query="quick", seconds=1),
                call("search", id="c3", query="middle", seconds=2),
            ),
            says("", call("front", id="c4", seconds=5)),
            "Done.",
        ]
    )
    (note,) = notes(done.messages)
    text = str(note.content)
    assert text.index("found slow") < text.index("found quick") < text.index("found middle")
    assert delivered(done.messages) == [fid(done.messages, name) for name in ("c1", "c2", "c3")]


def test_a_notification_restates_exactly_what_is_still_pending() -> None:
    done = play(
        [
            says("", call("search", id="c1", query="tea", seconds=1), call("search", id="c2", query="milk", seconds=9)),
            says("", call("front", id="c3", seconds=2), call("search", id="c4", query="honey", seconds=9)),
            says("", call("front", id="c5", seconds=20)),
            "Done.",
        ]
    )
    first, second = notes(done.messages)
    pending = str(first.content).rpartition("Still pending")[2]
    assert fid(done.messages, "c2") in pending
    assert fid(done.messages, "c4") in pending
    assert fid(done.messages, "c1") not in pending
    assert "No background call is pending" in str(second.content)
    assert sorted(delivered(done.messages)) == sorted(fid(done.messages, name) for name in ("c1", "c2", "c4"))


def test_nothing_is_delivered_twice_however_many_turns_follow() -> None:
    script: list[Any] = [says("", call("search", id="c0", query="tea", seconds=2))]
    script += [says("", call("front", id=f"c{n}", seconds=1)) for n in range(1, 8)]
    done = play([*script, "Done."], config={"recursion_limit": 50})
    assert count(done.messages, "found tea") == 1
    assert len(notes(done.messages)) == 1
    assert done.runtime.statistics().futures == 0


def test_a_result_within_the_grace_is_an_ordinary_answer() -> None:
    done = play(
        [
            says("", call("search", id="c1", query="tea", seconds=1), call("search", id="c2", query="milk", seconds=9)),
            "Done.",
            "Yes.",
        ],
        grace=2.0,
    )
    assert answer_to(done.messages, "c1").content == "found tea"
    assert is_placeholder(answer_to(done.messages, "c2"))
    assert delivered(done.messages) == [fid(done.messages, "c2")]


def test_content_blocks_and_artifacts_arrive_whole() -> None:
    picture = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}

    @tool(response_format="content_and_artifact")
    @uses(pure=True)
    async def paint() -> Any:
        """Paint."""
        await asyncio.sleep(1)
        return [{"type": "text", "text": "a picture"}, picture], {"size": [1, 2]}

    done = play(
        [
            says("", call("paint", id="c1"), call("search", id="c2", query="tea", seconds=1)),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
        ],
        [paint],
        saver=InMemorySaver(),
        config=thread(),
    )
    (note,) = notes(done.messages)
    assert isinstance(note.content, list)
    assert picture in note.content
    joined = "".join(block["text"] for block in note.content if isinstance(block, dict) and block["type"] == "text")
    assert "a picture" in joined
    assert "found tea" in joined
    assert fid(done.messages, "c1") in joined
    data = get_notification_metadata(note)
    assert data is not None
    assert data["data"]["artifacts"] == {fid(done.messages, "c1"): {"size": [1, 2]}}


# Commands of background tools ------------------------------------------------------------------------------------


class Keyed(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    colour: str
    shade: str
    kept: Annotated[list[str], operator.add]


def setter(seconds_per_call: float = 0.0) -> Any:
    @tool
    @uses(pure=True)
    async def paint(colour: str, seconds: float, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Set the colour."""
        await asyncio.sleep(seconds)
        return Command(
            update={
                "colour": colour,
                "kept": [colour],
                "messages": [ToolMessage(f"painted {colour}", tool_call_id=tool_call_id)],
            }
        )

    return paint


def run_keyed(script: list[Any], *tools: Any, condition: Any = flash_condition, **options: Any) -> dict[str, Any]:
    lab = Lab()
    node = virtual_node(lab, *tools, **options)
    graph = agent(ScriptedChatModel(script), node, state=Keyed, condition=condition, saver=InMemorySaver())
    with virtual_time() as clock:
        return clock.run(graph.ainvoke({**user(), "colour": "none", "kept": []}, thread()))


def test_the_command_of_a_background_tool_is_applied_when_it_is_delivered() -> None:
    state = run_keyed(
        [
            says("", call("paint", id="c1", colour="red", seconds=2)),
            says("", call("front", id="c2", seconds=5)),
            "Done.",
        ],
        setter(),
    )
    assert state["colour"] == "red"
    assert state["kept"] == ["red"]
    assert count(state["messages"], "painted red") == 1
    assert not [m for m in state["messages"] if isinstance(m, ToolMessage) and "painted" in str(m.content)]


def test_two_background_commands_that_write_one_plain_key_are_applied_in_the_order_of_their_calls() -> None:
    state = run_keyed(
        [
            says(
                "",
                call("paint", id="c1", colour="red", seconds=3),
                call("paint", id="c2", colour="blue", seconds=1),
            ),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
            "Yes.",
        ],
        setter(),
    )
    assert state["colour"] == "blue"
    assert state["kept"] == ["red", "blue"]
    assert count(state["messages"], "painted red") == 1
    assert count(state["messages"], "painted blue") == 1


def test_a_delivered_command_and_one_of_the_same_step_may_write_the_same_plain_key() -> None:
    @tool
    async def repaint(colour: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Set the colour now."""
        await asyncio.sleep(5)
        return Command(
            update={"colour": colour, "messages": [ToolMessage(f"repainted {colour}", tool_call_id=tool_call_id)]}
        )

    state = run_keyed(
        [
            says("", call("paint", id="c1", colour="red", seconds=2)),
            says("", call("repaint", id="c2", colour="blue")),
            "Done.",
            "Yes.",
        ],
        setter(),
        repaint,
    )
    assert count(state["messages"], "painted red") == 1
    assert answer_to(state["messages"], "c2").content == "repainted blue"


def test_awaiting_two_commands_that_write_one_plain_key_does_not_break_the_step() -> None:
    state = run_keyed(
        [
            says(
                "",
                call("paint", id="c1", colour="red", seconds=3),
                call("paint", id="c2", colour="blue", seconds=1),
            ),
            lambda m: says("", call("await_future", id="c3", futures=[fid(m, "c1"), fid(m, "c2")])),
            "Done.",
            "Yes.",
        ],
        setter(),
    )
    assert state["colour"] == "blue"
    assert count(state["messages"], "painted red") == 1
    assert count(state["messages"], "painted blue") == 1


def test_commands_that_only_add_messages_share_one_boundary() -> None:
    @tool
    @uses(pure=True)
    async def remark(text: str, seconds: float, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Say something besides."""
        await asyncio.sleep(seconds)
        return Command(
            update={"messages": [ToolMessage(f"said {text}", tool_call_id=tool_call_id), HumanMessage(f"note {text}")]}
        )

    state = run_keyed(
        [
            says("", call("remark", id="c1", text="one", seconds=1), call("remark", id="c2", text="two", seconds=1)),
            says("", call("front", id="c3", seconds=5)),
            "Done.",
        ],
        remark,
        condition=tools_condition,
    )
    assert count(state["messages"], "said one") == 1
    assert count(state["messages"], "said two") == 1
    assert [m.content for m in state["messages"] if str(m.content).startswith("note")] == ["note one", "note two"]


def test_a_background_command_whose_tool_message_is_a_dict_keeps_the_history_valid() -> None:
    @tool
    @uses(pure=True)
    async def paint(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Set the colour."""
        await asyncio.sleep(1)
        return Command(
            update={
                "colour": "red",
                "messages": [{"role": "tool", "content": "painted red", "tool_call_id": tool_call_id}],
            }
        )

    state = run_keyed(
        [says("", call("paint", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        paint,
    )
    check_history(state["messages"])
    assert state["colour"] == "red"
    assert count(state["messages"], "painted red") == 1


@dataclass
class ColourUpdate:
    colour: str = "red"


def test_a_background_command_with_an_object_for_an_update_is_applied() -> None:
    @tool
    @uses(pure=True)
    async def paint(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Set the colour."""
        await asyncio.sleep(1)
        return [Command(update=ColourUpdate()), ToolMessage("painted red", tool_call_id=tool_call_id)]

    state = run_keyed(
        [says("", call("paint", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        paint,
    )
    assert state["colour"] == "red"
    assert count(state["messages"], "painted red") == 1


def test_a_background_command_that_clears_the_history_does_not_take_its_own_result_with_it() -> None:
    @tool
    @uses(pure=True)
    async def forget_all(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Clear the conversation."""
        await asyncio.sleep(1)
        return Command(
            update={
                "messages": [
                    RemoveMessage(id=REMOVE_ALL_MESSAGES),
                    HumanMessage("Start over."),
                    ToolMessage("cleared", tool_call_id=tool_call_id),
                ]
            }
        )

    state = run_keyed(
        [says("", call("forget_all", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        forget_all,
    )
    check_history(state["messages"])
    assert count(state["messages"], "cleared") + count(state["messages"], "background=False") >= 1


def test_a_background_command_with_a_goto_is_reported_and_changes_nothing() -> None:
    @tool
    @uses(pure=True)
    async def leave(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Go elsewhere."""
        await asyncio.sleep(1)
        return Command(goto=END, update={"colour": "red", "messages": [ToolMessage("left", tool_call_id=tool_call_id)]})

    state = run_keyed(
        [says("", call("leave", id="c1")), says("", call("front", id="c2", seconds=5)), "Done."],
        leave,
    )
    assert state["colour"] == "none"
    assert count(state["messages"], "background=False") == 1


# Forks, runs, threads --------------------------------------------------------------------------------------------


def test_a_fork_from_before_the_call_does_not_receive_the_other_branch_s_result() -> None:
    lab = Lab()
    node = virtual_node(lab, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=4)),
            "Later.",
            says("", call("front", id="c2", seconds=30)),
            "Done in the fork.",
            says("", call("front", id="c3", seconds=1)),
            "Done in the trunk.",
        ]
    )
    saver = InMemorySaver()
    graph = agent(model, node, saver=saver)
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))

        async def history() -> list[Any]:
            return [snapshot async for snapshot in graph.aget_state_history(thread())]

        snapshots = clock.run(history())
        trunk = snapshots[0].config
        before = next(s for s in snapshots if s.next == ("agent",) and len(s.values["messages"]) == 1)
        forked = clock.run(graph.aupdate_state(before.config, {"messages": [HumanMessage("Something else.")]}, "tools"))
        fork = clock.run(graph.ainvoke(None, forked))["messages"]
        assert count(fork, "found tea") == 0
        assert not notes(fork)
        back = clock.run(graph.ainvoke(user("And the tea?"), trunk))["messages"]
    assert count(back, "found tea") == 1


def test_a_fork_from_after_the_placeholder_is_not_told_that_a_living_process_has_ended() -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel([says("", call("search", id="c1", query="tea", seconds=4)), *["Done."] * 6])
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))

        async def history() -> list[Any]:
            return [snapshot async for snapshot in graph.aget_state_history(thread())]

        after = next(s for s in clock.run(history()) if s.next == ("agent",) and len(s.values["messages"]) == 3)
        fork = clock.run(graph.ainvoke(None, after.config))["messages"]
    assert count(fork, "has ended") == 0


def test_a_new_run_on_the_thread_receives_what_the_last_one_left() -> None:
    lab = Lab()
    node = virtual_node(lab, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=4)),
            "Later.",
            says("", call("front", id="c2", seconds=30)),
            "Done.",
            says("", call("front", id="c3", seconds=30)),
            "Done again.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        first = clock.run(graph.ainvoke(user(), thread()))["messages"]
        assert count(first, "found tea") == 0
        second = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
        assert count(second, "found tea") == 1
        third = clock.run(graph.ainvoke(user("More?"), thread()))["messages"]
    assert count(third, "found tea") == 1
    assert lab.times("tea") == 1


def test_two_threads_in_parallel_keep_their_results_apart() -> None:
    lab = Lab()
    node = virtual_node(lab)

    def ask(messages: list[BaseMessage]) -> Any:
        return says("", call("search", id="c1", query=str(messages[0].content), seconds=2))

    model = ScriptedChatModel([ask, says("", call("front", id="c2", seconds=5)), "Done."], position="history")
    graph = agent(model, node, saver=InMemorySaver())

    async def both() -> list[Any]:
        return await asyncio.gather(
            graph.ainvoke(user("tea"), thread("one")), graph.ainvoke(user("milk"), thread("two"))
        )

    with virtual_time() as clock:
        one, two = clock.run(both())
    assert count(one["messages"], "found tea") == 1
    assert count(one["messages"], "found milk") == 0
    assert count(two["messages"], "found milk") == 1
    assert count(two["messages"], "found tea") == 0
    assert fid(one["messages"], "c1") != fid(two["messages"], "c1")


def test_runs_without_a_thread_do_not_share_futures() -> None:
    lab = Lab()
    node = virtual_node(lab)

    def ask(messages: list[BaseMessage]) -> Any:
        return says("", call("search", id="c1", query=str(messages[0].content), seconds=2))

    model = ScriptedChatModel([ask, says("", call("front", id="c2", seconds=5)), "Done."], position="history")
    graph = agent(model, node)

    async def both() -> list[Any]:
        return await asyncio.gather(graph.ainvoke(user("tea")), graph.ainvoke(user("milk")))

    with virtual_time() as clock:
        one, two = clock.run(both())
    assert (count(one["messages"], "found tea"), count(one["messages"], "found milk")) == (1, 0)
    assert (count(two["messages"], "found tea"), count(two["messages"], "found milk")) == (0, 1)


class Topics(TypedDict):
    results: Annotated[list[list[BaseMessage]], operator.add]


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_one_node_in_two_parallel_instances_of_a_sub_graph_does_not_mix_them(saver: Any) -> None:
    lab = Lab()
    node = virtual_node(lab)

    def ask(messages: list[BaseMessage]) -> Any:
        return says("", call("search", id="c1", query=str(messages[0].content), seconds=2))

    model = ScriptedChatModel([ask, says("", call("front", id="c2", seconds=5)), "Done."], position="history")
    inner = agent(model, node)

    async def research(state: dict[str, Any]) -> Any:
        return {"results": [(await inner.ainvoke(user(state["topic"])))["messages"]]}

    builder = StateGraph(Topics)
    builder.add_node("research", research)
    builder.add_conditional_edges(START, lambda _: [Send("research", {"topic": topic}) for topic in ("tea", "milk")])
    graph = builder.compile(checkpointer=saver)
    with virtual_time() as clock:
        results = clock.run(graph.ainvoke({"results": []}, thread()))["results"]
    assert [(count(r, "found tea"), count(r, "found milk")) for r in results] == [(1, 0), (0, 1)]


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_two_sub_agents_called_as_tools_in_one_message_do_not_mix(saver: Any) -> None:
    lab = Lab()
    runtime = FutureRuntime(loop="caller")
    node = virtual_node(lab, runtime=runtime)

    def ask(messages: list[BaseMessage]) -> Any:
        return says("", call("search", id="c1", query=str(messages[0].content), seconds=2))

    inner = agent(
        ScriptedChatModel([ask, says("", call("front", id="c2", seconds=5)), "Done."], position="history"), node
    )
    results: dict[str, list[BaseMessage]] = {}

    @tool
    @uses(pure=True)
    async def research(topic: str) -> str:
        """Look into a topic."""
        results[topic] = (await inner.ainvoke(user(topic)))["messages"]
        return f"report on {topic}"

    outer = FlashNode([research], runtime=runtime, grace=0.0)
    graph = agent(
        ScriptedChatModel(
            [says("", call("research", id="o1", topic="tea"), call("research", id="o2", topic="milk")), *["Wait."] * 3]
        ),
        outer,
        saver=saver,
    )
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    assert count(messages, "report on tea") == 1
    assert count(messages, "report on milk") == 1
    assert {t: (count(r, "found tea"), count(r, "found milk")) for t, r in results.items()} == {
        "tea": (1, 0),
        "milk": (0, 1),
    }


def test_a_sub_graph_that_is_entered_again_still_finds_its_pending_future() -> None:
    lab = Lab()
    node = virtual_node(lab, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=4)),
            "Later.",
            says("", call("front", id="c2", seconds=30)),
            "Done.",
        ]
    )
    inner = agent(model, node)
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(user("And?"), thread()))["messages"]
    assert count(messages, "found tea") == 1
    assert count(messages, "unknown") == 0


# One task per call -----------------------------------------------------------------------------------------------


def send_graph(model: ScriptedChatModel, node: FlashNode, *, saver: Any = None, order: Any = list) -> Any:
    bound = node.bind(model)

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def route(state: MessagesState) -> Any:
        last = state["messages"][-1]
        if isinstance(last, AIMessage) and last.tool_calls:
            return order(Send("tools", [made]) for made in last.tool_calls)
        return flash_condition(state)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", think)
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_calls_sent_one_by_one_each_get_one_answer_and_results_never_come_between(limit: int | None) -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=2), call("write", id="c2", path="a", seconds=9)),
            says(
                "",
                call("front", id="c3", label="x", seconds=4),
                call("search", id="c4", query="milk", seconds=2),
                call("front", id="c5", label="y", seconds=1),
            ),
            "Done.",
            "Yes.",
            "Yes, yes.",
        ]
    )
    graph = send_graph(model, node, saver=InMemorySaver())
    config = thread() if limit is None else thread(max_concurrency=limit)
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), config))["messages"]
    check_history(messages)
    for call_id in ("c1", "c2", "c3", "c4", "c5"):
        answer_to(messages, call_id)
    for text in ("found tea", "wrote a", "found milk"):
        assert count(messages, text) == 1
    assert len(delivered(messages)) == len(set(delivered(messages))) == 3


def test_the_notification_of_one_task_per_call_restates_what_its_sibling_tasks_left_pending() -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("search", id="c2", query="milk", seconds=90), call("front", id="c3", seconds=5)),
            "Done.",
            "Yes.",
        ]
    )
    graph = send_graph(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    note = next(note for note in notes(messages) if "found tea" in str(note.content))
    assert "No background call is pending" not in str(note.content)
    assert fid(messages, "c2") in str(note.content).rpartition("Still pending")[2]


def test_calls_sent_in_another_order_keep_the_history_valid_and_their_program_order() -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c0", query="tea", seconds=1)),
            says(
                "",
                call("write", id="c1", path="a", label="first", seconds=2),
                call("write", id="c2", path="a", label="second", seconds=1),
                call("front", id="c3", seconds=9),
            ),
            "Done.",
            "Yes.",
            "Yes, yes.",
        ]
    )
    graph = send_graph(model, node, saver=InMemorySaver(), order=lambda sends: list(sends)[::-1])
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    check_history(messages)
    assert lab.at("end", "first") <= lab.at("start", "second")
    assert count(messages, "found tea") == 1


def test_tasks_that_arrive_in_another_order_keep_program_order() -> None:
    lab = Lab()
    node = virtual_node(lab)

    class Late(FlashNode):
        async def _afunc(self, input: Any, config: Any, runtime: Any) -> Any:
            if isinstance(input, list) and isinstance(input[-1], dict) and input[-1]["id"] == "c1":
                await asyncio.sleep(0.5)
            return await super()._afunc(input, config, runtime)

    node = Late(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says(
                "",
                call("plain", id="c1", label="first", seconds=2),
                call("plain", id="c2", label="second", seconds=1),
                call("write", id="c3", path="a", label="third", seconds=1),
            ),
            "Done.",
            "Yes.",
        ]
    )
    graph = send_graph(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread()))["messages"]
    assert lab.started() == ["first", "second", "third"]
    assert lab.at("end", "first") <= lab.at("start", "second")
    assert lab.at("end", "second") <= lab.at("start", "third")
    check_history(messages)


def test_reversed_tasks_one_at_a_time_do_not_wait_for_ever() -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(
        [says("", call("plain", id="c1", label="first"), call("plain", id="c2", label="second")), "Done."]
    )
    graph = send_graph(model, node, saver=InMemorySaver(), order=lambda sends: list(sends)[::-1])
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke(user(), thread(max_concurrency=1)))["messages"]
    assert answer_to(messages, "c1").content == "did first"
    assert answer_to(messages, "c2").content == "did second"


# Kinds of state --------------------------------------------------------------------------------------------------


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []


@dataclass
class DataclassState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


class ChatState(TypedDict):
    chat: Annotated[list[AnyMessage], add_messages]


STATES = [
    pytest.param(MessagesState, "messages", id="dict"),
    pytest.param(Annotated[list[AnyMessage], add_messages], None, id="list"),
    pytest.param(PydanticState, "messages", id="pydantic"),
    pytest.param(DataclassState, "messages", id="dataclass"),
    pytest.param(ChatState, "chat", id="custom-key"),
]


@pytest.mark.parametrize(("state", "key"), STATES)
@pytest.mark.parametrize("mode", ["invoke", "stream", "ainvoke", "astream"])
def test_every_kind_of_state_and_every_way_to_run_a_graph_delivers_once(
    state: Any, key: str | None, mode: str, runtime: FutureRuntime
) -> None:
    gate = threading.Event()

    @tool
    @uses(pure=True)
    def search(query: str) -> str:
        """Search."""
        assert gate.wait(20)
        return f"found {query}"

    @tool
    @uses(pure=True, background=False)
    def front() -> str:
        """Open the gate and wait for what is behind it."""
        gate.set()
        return "opened"

    name = key or "messages"
    node = FlashNode([search, front], grace=0.0, messages_key=name, runtime=runtime)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea")),
            lambda m: says("", call("front", id="c2")),
            "Done.",
            "Yes.",
        ]
    )

    def condition(state: Any) -> str:
        return flash_condition(state, messages_key=name)

    graph = agent(model, node, state=state, key=name, condition=condition, saver=InMemorySaver())
    start: Any = [HumanMessage("Go.")] if key is None else {key: [HumanMessage("Go.")]}

    async def streamed() -> None:
        async for _ in graph.astream(start, thread()):
            pass

    if mode == "invoke":
        graph.invoke(start, thread())
    elif mode == "stream":
        list(graph.stream(start, thread()))
    elif mode == "ainvoke":
        asyncio.run(graph.ainvoke(start, thread()))
    else:
        asyncio.run(streamed())
    final = graph.get_state(thread()).values
    messages = final if key is None else final[key]
    check_history(messages)
    assert is_placeholder(answer_to(messages, "c1"))
    assert count(messages, "found tea") == 1
    assert delivered(messages) == [fid(messages, "c1")]
    assert len(model.calls) <= 4


# Two nodes -------------------------------------------------------------------------------------------------------


def two_nodes(
    first: FlashNode, second: FlashNode, model: ScriptedChatModel, *, state: Any = MessagesState, saver: Any = None
) -> Any:
    bound = model.bind_tools([*first.model_tools(), *second.tools_by_name.values()])

    async def think(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def route(state: MessagesState) -> str:
        last = state["messages"][-1]
        if isinstance(last, AIMessage) and any(made["name"] in second.plans for made in last.tool_calls):
            return "second"
        return {"tools": "first", "__end__": END}[flash_condition(state)]

    builder = StateGraph(state)
    builder.add_node("agent", think)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["first", "second", END])
    builder.add_edge("first", "agent")
    builder.add_edge("second", "agent")
    return builder.compile(checkpointer=saver)


def test_two_nodes_of_one_graph_deliver_each_result_once_whichever_is_visited() -> None:
    lab = Lab()
    shared = FutureRuntime(loop="caller")
    tools = {made.name: made for made in lab.tools()}
    first = FlashNode([tools["search"]], grace=0.0, runtime=shared)
    second = FlashNode([tools["write"], tools["front"]], grace=0.0, runtime=shared)
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=2)),
            says("", call("write", id="c2", path="a", seconds=9)),
            says("", call("front", id="c3", seconds=4)),
            "Done.",
            "Yes.",
        ]
    )
    with virtual_time() as clock:
        messages = clock.run(two_nodes(first, second, model, saver=InMemorySaver()).ainvoke(user(), thread()))[
            "messages"
        ]
    assert count(messages, "found tea") == 1
    assert count(messages, "wrote a") == 1


def test_two_nodes_with_runtimes_of_their_own_do_not_call_each_other_s_futures_lost() -> None:
    lab = Lab()
    tools = {made.name: made for made in lab.tools()}
    first = FlashNode([tools["search"]], grace=0.0, runtime=FutureRuntime(loop="caller"))
    second = FlashNode([tools["write"], tools["front"]], grace=0.0, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=6)),
            says("", call("front", id="c3", seconds=1)),
            "Done.",
            "Yes.",
        ]
    )
    with virtual_time() as clock:
        messages = clock.run(two_nodes(first, second, model, saver=InMemorySaver()).ainvoke(user(), thread()))[
            "messages"
        ]
    assert count(messages, "unknown") == 0
    assert count(messages, "found tea") == 1


def test_each_of_two_nodes_keeps_its_own_opinion_of_failure() -> None:
    lab = Lab()
    shared = FutureRuntime(loop="caller")
    tools = {made.name: made for made in lab.tools()}
    first = FlashNode([tools["search"]], grace=0.0, runtime=shared)
    second = FlashNode(
        [tools["echo"], tools["front"]],
        grace=0.0,
        runtime=shared,
        is_failure=lambda message: "it says error" if "error" in str(message.content) else None,
    )
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=50)),
            says("", call("echo", id="c2", text="error: no such file", seconds=1)),
            lambda m: says("", call("front", id="c3", label=fid(m, "c2"))),
            says("", call("front", id="c4", label="end", seconds=60)),
            "Done.",
            "Yes.",
        ]
    )
    with virtual_time() as clock:
        messages = clock.run(two_nodes(first, second, model, saver=InMemorySaver()).ainvoke(user(), thread()))[
            "messages"
        ]
    assert answer_to(messages, "c3").status == "error"
    assert lab.args == ["error: no such file", "end"]


class TwoChats(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    aside: Annotated[list[AnyMessage], add_messages]


def test_two_conversations_in_one_state_do_not_receive_each_other_s_results() -> None:
    lab = Lab()
    shared = FutureRuntime(loop="caller")
    first = FlashNode(lab.tools(), grace=0.0, runtime=shared)
    second = FlashNode(lab.tools(), grace=0.0, runtime=shared, messages_key="aside")
    builder = StateGraph(TwoChats)
    builder.add_node(
        "ask", lambda s: {"messages": [AIMessage("", tool_calls=[call("search", id="c1", query="tea", seconds=2)])]}
    )
    builder.add_node("first", first)
    builder.add_node("ask_aside", lambda s: {"aside": [AIMessage("", tool_calls=[call("front", id="d1", seconds=9)])]})
    builder.add_node("second", second)
    builder.add_node("finish", lambda s: {"messages": [AIMessage("Done.")]})
    builder.add_node("first_again", first)
    for before, after in [
        (START, "ask"),
        ("ask", "first"),
        ("first", "ask_aside"),
        ("ask_aside", "second"),
        ("second", "finish"),
        ("finish", "first_again"),
    ]:
        builder.add_edge(before, after)
    with virtual_time() as clock:
        state = clock.run(
            builder.compile(checkpointer=InMemorySaver()).ainvoke(
                {"messages": [HumanMessage("Go.")], "aside": [HumanMessage("Psst.")]}, thread()
            )
        )
    assert count(state["aside"], "found tea") == 0
    assert count(state["messages"], "found tea") == 1


def test_two_graphs_with_savers_of_their_own_may_use_one_thread_id() -> None:
    shared = FutureRuntime(loop="caller")
    script: list[Any] = [says("", call("plain", id="c1", seconds=40)), "Done.", "Yes."]
    first_lab, second_lab = Lab(), Lab()
    first = FlashNode(first_lab.tools(), grace=0.0, runtime=shared, background=True, on_end="detach")
    second = FlashNode(second_lab.tools(), grace=0.0, runtime=shared)
    with virtual_time() as clock:
        clock.run(agent(ScriptedChatModel(script), first, saver=InMemorySaver()).ainvoke(user(), thread("1")))
        messages = clock.run(
            agent(
                ScriptedChatModel([says("", call("plain", id="c1", seconds=1)), "Done."]), second, saver=InMemorySaver()
            ).ainvoke(user(), thread("1"))
        )["messages"]
        assert answer_to(messages, "c1").content == "did plain"
        assert clock.seconds == 1.0


# Odds and ends ---------------------------------------------------------------------------------------------------


def test_no_more_futures_are_made_than_the_runtime_has_room_for() -> None:
    done = play(
        [
            says("", *(call("search", id=f"c{n}", query=f"q{n}", seconds=1) for n in range(5))),
            "Done.",
            "Yes.",
            "Yes, yes.",
        ],
        runtime=FutureRuntime(loop="caller", max_futures=2),
    )
    assert sum(is_placeholder(m) for m in done.messages) <= 2
    assert sum(count(done.messages, f"found q{n}") for n in range(5)) == 5


def test_a_system_message_in_the_state_stays_first() -> None:
    lab = Lab()
    node = virtual_node(lab)
    model = ScriptedChatModel(
        [says("", call("search", id="c1", query="tea", seconds=2)), says("", call("front", id="c2", seconds=5)), "Ok."]
    )
    graph = agent(model, node)
    with virtual_time() as clock:
        messages = clock.run(graph.ainvoke({"messages": [SystemMessage("Be brief."), HumanMessage("Go.")]}))["messages"]
    assert isinstance(messages[0], SystemMessage)
    assert count(messages, "found tea") == 1


def test_a_result_after_the_end_of_the_run_is_kept_for_a_person_who_asks_again_in_real_time(
    runtime: FutureRuntime,
) -> None:
    gate = threading.Event()

    @tool
    @uses(pure=True)
    def search(query: str) -> str:
        """Search."""
        assert gate.wait(20)
        return f"found {query}"

    node = FlashNode([search], grace=0.0, runtime=runtime, on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea")),
            "Later.",
            lambda m: says("", call("await_future", id="c2", futures=[fid(m, "c1")])),
            "Here.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    asyncio.run(graph.ainvoke(user(), thread()))
    gate.set()
    messages = asyncio.run(graph.ainvoke(user("Now?"), thread()))["messages"]
    assert answer_to(messages, "c2").content == "found tea"
