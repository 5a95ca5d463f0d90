"""Futures as arguments: ids, projections, nested places, failures that spread, and ids that name nothing usable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
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

from langgraph_flash import FlashNode, FutureRuntime, uses
from langgraph_flash.testing import ScriptedChatModel, call, check_history, says, virtual_time


def finish(script: list[Any], tools: Any = None, **options: Any) -> Play:
    """Play a script and drain: the model says the same at every further turn."""
    return play([*script, *["Done."] * 12], tools, **options)


# Ids that cannot be used -----------------------------------------------------------------------------------------


def refused(reference: Any, *, name: str = "echo", argument: str = "text", **options: Any) -> tuple[ToolMessage, Play]:
    """Pass a reference while one future is pending, and return the answer to that call."""
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=50)),
            lambda m: says("", call(name, id="c2", **{argument: reference(m) if callable(reference) else reference})),
        ],
        **options,
    )
    return answer_to(done.messages, "c2"), done


@pytest.mark.parametrize(
    "reference",
    [
        UNKNOWN,
        f"{UNKNOWN}.name",
        ["a", UNKNOWN],
    ],
)
def test_an_unknown_id_is_answered_with_the_ids_that_are_valid_and_the_tool_does_not_run(reference: Any) -> None:
    answer, done = refused(reference)
    assert answer.status == "error"
    assert UNKNOWN in answer.content
    assert fid(done.messages, "c1") in answer.content
    assert done.lab.args == []


@pytest.mark.parametrize("suffix", [".", "[", "[x]", ".a..b", '["a', "[1", ".items[", "x y"])
def test_a_malformed_projection_is_answered_with_an_error_or_is_plain_text(suffix: str) -> None:
    answer, done = refused(lambda m: fid(m, "c1") + suffix)
    if suffix == "x y":
        assert done.lab.args == [fid(done.messages, "c1") + suffix]
        return
    assert answer.status == "error"
    assert "malformed" in answer.content
    assert done.lab.args == []


def test_an_id_within_a_sentence_is_text() -> None:
    _, done = refused(lambda m: f"see {fid(m, 'c1')}")
    assert done.lab.args == [f"see {fid(done.messages, 'c1')}"]


def test_the_id_of_another_thread_is_unknown_here() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"), on_end="detach")
    seen: list[str] = []

    def remember(messages: list[BaseMessage]) -> str:
        seen.append(fid(messages, "c1"))
        return "Later."

    model = ScriptedChatModel(
        [
            says("", call("search", id="c1", query="tea", seconds=50)),
            remember,
            lambda m: says("", call("echo", id="c2", text=seen[0])),
            lambda m: says("", call("await_future", id="c3", futures=[seen[0]])),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread("one")))
        messages = clock.run(graph.ainvoke(user(), thread("two")))["messages"]
    for call_id in ("c2", "c3"):
        assert answer_to(messages, call_id).status == "error"
        assert "Pending futures: none" in answer_to(messages, call_id).content
    assert lab.args == []


@pytest.mark.parametrize("way", ["notified", "awaited"])
def test_the_id_of_a_delivered_result_is_refused_by_saying_so(way: str) -> None:
    collect = (
        (lambda m: says("", call("await_future", id="c2", futures=[fid(m, "c1")])))
        if way == "awaited"
        else says("", call("front", id="c2", seconds=5))
    )
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=1), call("search", id="c9", query="x", seconds=90)),
            collect,
            lambda m: says("", call("echo", id="c3", text=fid(m, "c1"))),
            lambda m: says("", call("await_future", id="c4", futures=[fid(m, "c1")])),
        ]
    )
    for call_id in ("c3", "c4"):
        answer = answer_to(done.messages, call_id)
        assert answer.status == "error"
        assert "already delivered" in answer.content
        assert fid(done.messages, "c9") in answer.content
    assert [arg for arg in done.lab.args if arg != "front"] == []


def test_a_delivered_id_is_told_from_an_unknown_one_after_later_notifications() -> None:
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=1)),
            says("", call("front", id="c2", seconds=5)),
            says("", call("search", id="c3", query="milk", seconds=1)),
            says("", call("front", id="c4", seconds=5)),
            lambda m: says("", call("echo", id="c5", text=fid(m, "c1"))),
        ]
    )
    assert "already delivered" in answer_to(done.messages, "c5").content


@pytest.mark.parametrize("declared", [True, False])
def test_a_reference_to_a_later_call_of_the_same_message_is_refused(declared: bool) -> None:
    """Ids are stable, so a model that saw one in another branch of the thread can name it too early."""
    saver = InMemorySaver()
    runtime = FutureRuntime(loop="caller")
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=runtime)
    first = says("", call("search", id="c1", query="tea", seconds=1), call("search", id="c2", query="milk", seconds=9))
    first.id = "fixed"
    with virtual_time() as clock:
        graph = agent(ScriptedChatModel([first, *["Done."] * 9]), node, saver=saver)
        later = fid(clock.run(graph.ainvoke(user(), thread("same")))["messages"], "c2")
    name = "echo" if declared else "front"
    argument = {"text": later} if declared else {"label": later}
    second = says("", call(name, id="c1", **argument), call("search", id="c2", query="milk", seconds=9))
    second.id = "fixed"
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"))
    with virtual_time() as clock:
        graph = agent(ScriptedChatModel([second, *["Done."] * 9]), node, saver=InMemorySaver())
        messages = clock.run(graph.ainvoke(user(), thread("same")))["messages"]
    assert fid(messages, "c2") == later
    assert answer_to(messages, "c1").status == "error"
    assert "after it" in answer_to(messages, "c1").content
    assert lab.args == []
    check_history(messages)


def test_a_refused_call_does_not_touch_its_siblings() -> None:
    done = finish(
        [
            says(
                "",
                call("echo", id="c1", text=UNKNOWN),
                call("front", id="c2", seconds=1),
                call("search", id="c3", query="tea", seconds=1),
            ),
        ]
    )
    assert answer_to(done.messages, "c1").status == "error"
    assert answer_to(done.messages, "c2").content == "front front"
    assert count(done.messages, "found tea") == 1


@pytest.mark.parametrize("option", [{"grace": float("inf")}, {"background": False}])
def test_where_there_are_no_futures_text_that_looks_like_an_id_is_text(option: dict[str, Any]) -> None:
    done = finish([says("", call("echo", id="c1", text=UNKNOWN), call("front", id="c2", label=UNKNOWN))], **option)
    assert answer_to(done.messages, "c1").content == UNKNOWN
    assert answer_to(done.messages, "c2").content == f"front {UNKNOWN}"


# Failures spread along data --------------------------------------------------------------------------------------


def test_a_failed_dependency_cancels_everything_that_needs_it_in_one_message_and_nothing_else() -> None:
    done = finish(
        [
            says("", call("boom", id="c1", seconds=5), call("search", id="c2", query="tea", seconds=5)),
            lambda m: says("", call("echo", id="c3", text=fid(m, "c1"))),
            lambda m: says("", call("echo", id="c4", text=fid(m, "c3")), call("echo", id="c5", text=fid(m, "c2"))),
            says("", call("front", id="c6", seconds=20)),
        ],
        handle_tool_errors=True,
    )
    (note,) = notes(done.messages)
    text = str(note.content)
    assert text.count("Cancelled:") == 2
    assert f"it needs the result of {fid(done.messages, 'c1')}" in text
    assert f"it needs the result of {fid(done.messages, 'c3')}" in text
    assert "boom broke" in text
    assert text.count("found tea") == 2
    assert "found tea" in done.lab.args
    assert set(delivered(done.messages)) == {fid(done.messages, f"c{n}") for n in range(1, 6)}


def test_a_foreground_call_whose_dependency_failed_is_answered_at_once() -> None:
    done = finish(
        [
            says("", call("boom", id="c1", seconds=5)),
            lambda m: says("", call("front", id="c2", label=fid(m, "c1"))),
        ],
        handle_tool_errors=True,
    )
    answer = answer_to(done.messages, "c2")
    assert answer.status == "error"
    assert fid(done.messages, "c1") in answer.content
    assert done.lab.args == []


@pytest.mark.parametrize(("policy", "ran"), [("continue", True), ("cancel", False)])
def test_a_call_that_only_waits_for_its_turn_follows_the_policy(policy: Any, ran: bool) -> None:
    done = finish(
        [
            says(
                "", call("crash", id="c1", path="a"), call("write", id="c2", path="a"), call("write", id="c3", path="b")
            ),
            says("", call("front", id="c4", seconds=9)),
        ],
        handle_tool_errors=True,
        on_order_failure=policy,
    )
    assert (done.lab.times("write a") == 1) is ran
    assert done.lab.times("write b") == 1
    if not ran:
        assert f"it comes after {fid(done.messages, 'c1')}" in str(notes(done.messages)[0].content)


def test_a_result_that_the_predicate_calls_a_failure_cancels_what_needs_it() -> None:
    done = finish(
        [
            says("", call("echo", id="c1", text='{"error": "no such file"}', seconds=2)),
            lambda m: says("", call("echo", id="c2", text=fid(m, "c1"))),
            says("", call("front", id="c3", seconds=9)),
        ],
        is_failure=lambda m: "it returned an error" if "error" in str(m.content) else None,
    )
    assert done.lab.times('echo {"error": "no such file"}') == 1
    assert count(done.messages, "Cancelled: it needs the result") == 1
    assert count(done.messages, "no such file") >= 1


def test_a_tool_message_with_the_status_error_is_a_failure() -> None:
    @tool
    @uses(pure=True)
    async def refuse() -> ToolMessage:
        """Refuse."""
        await asyncio.sleep(2)
        return ToolMessage("no", tool_call_id="c1", status="error")

    done = finish(
        [
            says("", call("refuse", id="c1")),
            lambda m: says("", call("echo", id="c2", text=fid(m, "c1"))),
            says("", call("front", id="c3", seconds=9)),
        ],
        [refuse],
    )
    assert "failed" in str(notes(done.messages)[0].content)
    assert count(done.messages, "Cancelled") == 1
    assert "no" not in done.lab.args


def test_a_cancelled_future_cancels_what_needs_it() -> None:
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=50)),
            lambda m: says("", call("echo", id="c2", text=fid(m, "c1"))),
            lambda m: says("", call("cancel_future", id="c3", futures=[fid(m, "c1")])),
            says("", call("front", id="c4", seconds=1)),
        ],
        cancellation=True,
    )
    assert count(done.messages, "which was cancelled") == 1
    assert done.lab.args == ["front"]


def test_a_substituted_value_that_does_not_fit_fails_that_call_in_the_stock_words() -> None:
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=2)),
            lambda m: says("", call("add", id="c2", a=fid(m, "c1"))),
            says("", call("front", id="c3", seconds=9)),
        ]
    )
    assert count(done.messages, "Error invoking tool 'add'") == 1
    assert count(done.messages, "valid integer") == 1


# Values ----------------------------------------------------------------------------------------------------------


def test_a_future_as_an_argument_waits_for_its_value() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3), call("number", id="c2", value=5, seconds=6)),
            lambda m: says("", call("add", id="c3", a=fid(m, "c1"), b=fid(m, "c2"))),
        ]
    )
    assert done.lab.args == [(4, 5)]
    assert done.lab.at("start", "add 4 5") == 6.0


def test_a_chain_within_one_message_is_not_possible_but_across_messages_takes_no_extra_turn() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3)),
            lambda m: says("", call("add", id="c2", a=fid(m, "c1"), seconds=1)),
            lambda m: says("", call("add", id="c3", a=fid(m, "c2"), seconds=1)),
            lambda m: says("", call("await_future", id="c4", futures=[fid(m, "c3")])),
        ]
    )
    assert answer_to(done.messages, "c4").content == "4"
    assert done.seconds == 5.0


@pytest.mark.parametrize(
    ("projection", "value"),
    [
        (".id", 7),
        (".items[0].id", "a"),
        (".items[-1].id", "b"),
        ('["odd key"]', 1),
        ("['odd key']", 1),
        (".items", [{"id": "a"}, {"id": "b"}]),
        (".flag", True),
    ],
)
def test_a_projection_picks_a_part_of_a_json_result(projection: str, value: Any) -> None:
    seen: list[Any] = []

    @tool
    @uses(pure=True)
    async def keep(value: Any) -> str:
        """Keep."""
        seen.append(value)
        return "kept"

    finish(
        [
            says("", call("record", id="c1", seconds=2)),
            lambda m: says("", call("keep", id="c2", value=fid(m, "c1") + projection)),
        ],
        [keep],
    )
    assert seen == [value]


@pytest.mark.parametrize(("projection", "hint"), [(".nothing", "keys:"), (".items[9]", "2 items"), (".id.deep", "int")])
def test_a_projection_that_finds_nothing_fails_the_call_and_says_what_is_there(projection: str, hint: str) -> None:
    done = finish(
        [
            says("", call("record", id="c1", seconds=2)),
            lambda m: says("", call("echo", id="c2", text=fid(m, "c1") + projection)),
            says("", call("front", id="c3", seconds=9)),
        ]
    )
    assert done.lab.args == ["front"]
    assert count(done.messages, hint) == 1


def test_references_deep_inside_lists_and_tables_are_replaced() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3), call("record", id="c2", seconds=1)),
            lambda m: says(
                "",
                call(
                    "nest",
                    id="c3",
                    values=[1, fid(m, "c1")],
                    table={"a": [{"b": fid(m, "c2") + ".name"}], "c": fid(m, "c1"), "d": "plain"},
                ),
            ),
        ]
    )
    assert done.lab.args == [([1, 4], {"a": [{"b": "tea"}], "c": 4, "d": "plain"})]


def test_text_that_is_json_stays_text_for_a_text_argument_and_is_read_for_others() -> None:
    seen: list[Any] = []

    @tool
    @uses(pure=True)
    async def keep(text: str, maybe: str | None, table: dict[str, Any], numbers: list[int]) -> str:
        """Keep."""
        seen.append((text, maybe, table, numbers))
        return "kept"

    finish(
        [
            says(
                "", call("echo", id="c1", text='{"a": 1}', seconds=2), call("echo", id="c2", text="[1, 2]", seconds=2)
            ),
            lambda m: says(
                "",
                call("keep", id="c3", text=fid(m, "c1"), maybe=fid(m, "c2"), table=fid(m, "c1"), numbers=fid(m, "c2")),
            ),
        ],
        [keep],
    )
    assert seen == [('{"a": 1}', "[1, 2]", {"a": 1}, [1, 2])]


def test_a_text_result_in_blocks_can_be_passed_to_a_text_argument() -> None:
    @tool
    @uses(pure=True)
    async def blocks() -> Any:
        """Answer in blocks."""
        await asyncio.sleep(1)
        return [{"type": "text", "text": "in a block"}]

    done = finish(
        [says("", call("blocks", id="c1")), lambda m: says("", call("echo", id="c2", text=fid(m, "c1")))], [blocks]
    )
    assert done.lab.args == ["in a block"]


def test_a_number_stays_a_text_where_text_is_wanted() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3)),
            lambda m: says("", call("echo", id="c2", text=fid(m, "c1"))),
        ]
    )
    assert done.lab.args == ["4"]


def test_one_future_may_be_used_many_times_and_is_still_delivered_once() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3)),
            lambda m: says("", *(call("add", id=f"d{n}", a=fid(m, "c1"), b=n) for n in range(4))),
        ]
    )
    assert sorted(done.lab.args) == [(4, n) for n in range(4)]
    assert delivered(done.messages).count(fid(done.messages, "c1")) == 1


def test_a_foreground_call_that_uses_a_future_gets_its_value_and_the_future_is_delivered_beside_it() -> None:
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=3)),
            lambda m: says("", call("front", id="c2", label=fid(m, "c1"))),
        ]
    )
    assert answer_to(done.messages, "c2").content == "front found tea"
    assert delivered(done.messages) == [fid(done.messages, "c1")]
    assert len(done.model.calls) == 3


def test_a_value_is_still_usable_by_a_waiting_call_after_it_was_delivered() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=1), call("number", id="c2", value=5, seconds=9)),
            lambda m: says("", call("add", id="c3", a=fid(m, "c1"), b=fid(m, "c2"))),
            says("", call("front", id="c4", seconds=3)),
        ]
    )
    assert done.lab.args[-1] == (4, 5)


def test_the_model_is_shown_the_reference_and_the_tool_the_value_in_the_label() -> None:
    done = finish(
        [
            says("", call("number", id="c1", value=4, seconds=3)),
            lambda m: says("", call("add", id="c2", a=fid(m, "c1"), seconds=9)),
        ]
    )
    assert is_placeholder(answer_to(done.messages, "c2"))
    assert f'a="{fid(done.messages, "c1")}"' in str(answer_to(done.messages, "c2").content)
