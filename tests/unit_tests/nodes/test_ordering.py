"""Program order where calls conflict, overlap where they do not, within a message and across messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from node_lab import Lab, Play, agent, answer_to, count, fid, is_placeholder, play, thread, user

from langgraph_flash import FlashNode, FutureRuntime, uses
from langgraph_flash.testing import ScriptedChatModel, call, says, virtual_time


def finish(script: list[Any], tools: Any = None, **options: Any) -> Play:
    """Play a script and drain: the model says the same at every further turn."""
    return play([*script, *["Done."] * 12], tools, **options)


def before(lab: Lab, first: str, second: str) -> bool:
    return lab.at("end", first) <= lab.at("start", second)


# What must wait --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (call("write", path="a", label="one", seconds=5), call("write", path="a", label="two", seconds=1)),
        (call("write", path="a", label="one", seconds=5), call("read", path="a", label="two", seconds=1)),
        (call("read", path="a", label="one", seconds=5), call("write", path="a", label="two", seconds=1)),
        (call("write", path="a", label="one", seconds=5), call("write", path="a/b", label="two", seconds=1)),
        (call("write", path="a/b", label="one", seconds=5), call("read", path="a", label="two", seconds=1)),
        (call("plain", label="one", seconds=5), call("write", path="a", label="two", seconds=1)),
        (call("write", path="a", label="one", seconds=5), call("plain", label="two", seconds=1)),
        (call("plain", label="one", seconds=5), call("plain", label="two", seconds=1)),
    ],
)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("background", [None, True, False])
def test_conflicting_calls_run_in_program_order_in_one_message_and_across_messages(
    one: Any, two: Any, together: bool, background: Any
) -> None:
    one, two = {**one, "id": "c1"}, {**two, "id": "c2"}
    script = [says("", one, two)] if together else [says("", one), says("", two)]
    done = finish(script, background=background)
    assert before(done.lab, "one", "two")
    assert done.seconds == 6.0


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (call("write", path="a", label="one", seconds=5), call("write", path="b", label="two", seconds=3)),
        (call("read", path="a", label="one", seconds=5), call("read", path="a", label="two", seconds=3)),
        (call("write", path="a/b", label="one", seconds=5), call("write", path="a/c", label="two", seconds=3)),
        (call("search", query="one", seconds=5), call("plain", label="two", seconds=3)),
        (call("search", query="one", seconds=5), call("search", query="two", seconds=3)),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_calls_that_touch_different_things_overlap(one: Any, two: Any, together: bool) -> None:
    one, two = {**one, "id": "c1"}, {**two, "id": "c2"}
    script = [says("", one, two)] if together else [says("", one), says("", two)]
    done = finish(script)
    assert done.lab.at("start", "one") == done.lab.at("start", "two") == 0.0
    assert done.seconds == 5.0


def test_a_later_call_never_overtakes_one_that_waits() -> None:
    done = finish(
        [
            says("", call("write", id="c1", path="a", label="first", seconds=5)),
            says("", call("plain", id="c2", label="waits", seconds=1), call("read", id="c3", path="b", label="third")),
        ],
        background=True,
    )
    # The third conflicts with the barrier only, which itself waits for the first.
    assert before(done.lab, "first", "waits")
    assert before(done.lab, "waits", "third")


def test_a_call_behind_one_that_waits_for_its_data_keeps_its_place() -> None:
    done = finish(
        [
            says("", call("search", id="c1", query="tea", seconds=5)),
            lambda m: says(
                "",
                call("write", id="c2", path="a", label=fid(m, "c1"), seconds=1),
                call("write", id="c3", path="a", label="later", seconds=1),
            ),
        ]
    )
    assert before(done.lab, "found tea", "later")


def test_a_future_as_the_argument_of_a_template_widens_what_the_call_is_taken_to_touch() -> None:
    done = finish(
        [
            says("", call("echo", id="c1", text="a", seconds=5)),
            lambda m: says(
                "",
                call("write", id="c2", path=fid(m, "c1"), label="unknown", seconds=1),
                call("write", id="c3", path="b", label="known", seconds=1),
                call("search", id="c4", query="free", seconds=1),
            ),
        ]
    )
    assert before(done.lab, "unknown", "known")
    assert done.lab.at("start", "free") == 0.0


def test_a_template_over_a_nested_future_is_widened_too() -> None:
    lab_log: list[str] = []

    @tool
    @uses(writes="table/{rows}")
    async def fill(rows: list[str], label: str, seconds: float) -> str:
        """Fill."""
        lab_log.append(f"start {label}")
        await asyncio.sleep(seconds)
        lab_log.append(f"end {label}")
        return label

    finish(
        [
            says("", call("echo", id="c1", text="a", seconds=5)),
            lambda m: says(
                "",
                call("fill", id="c2", rows=["x", fid(m, "c1")], label="one", seconds=2),
                call("fill", id="c3", rows=["y"], label="two", seconds=1),
            ),
        ],
        [fill],
    )
    assert lab_log == ["start one", "end one", "start two", "end two"]


def test_spellings_of_one_argument_that_the_tool_takes_for_the_same_conflict() -> None:
    lab = Lab()

    @tool
    @uses(writes="row/{number}")
    async def fill(number: int, label: str, seconds: float) -> str:
        """Fill."""
        await lab.work(label, seconds)
        return label

    finish(
        [
            says(
                "",
                call("fill", id="c1", number=1, label="one", seconds=5),
                call("fill", id="c2", number="1", label="two", seconds=1),
            )
        ],
        [fill],
    )
    assert before(lab, "one", "two")


def test_a_default_value_the_model_leaves_out_is_known_or_widens() -> None:
    lab = Lab()

    @tool
    @uses(writes="disk/{path}")
    async def fill(label: str, seconds: float, path: str = "a") -> str:
        """Fill."""
        await lab.work(label, seconds)
        return label

    finish(
        [
            says(
                "",
                call("fill", id="c1", label="one", seconds=5),
                call("fill", id="c2", path="a", label="two", seconds=1),
            )
        ],
        [fill],
    )
    assert before(lab, "one", "two")


def test_the_answers_of_foreground_calls_keep_the_order_of_the_calls_whatever_their_speed() -> None:
    done = finish(
        [says("", *(call("front", id=f"c{n}", label=str(n), seconds=9 - n) for n in range(5)))],
    )
    answers = [m.tool_call_id for m in done.messages if m.type == "tool"]
    assert answers == [f"c{n}" for n in range(5)]


def test_background_false_keeps_the_order_of_declared_tools_without_futures() -> None:
    done = finish(
        [
            says(
                "",
                call("write", id="c1", path="a", label="one", seconds=5),
                call("write", id="c2", path="a", label="two", seconds=1),
                call("write", id="c3", path="b", label="other", seconds=1),
            )
        ],
        background=False,
    )
    assert not any(is_placeholder(m) for m in done.messages)
    assert "await_future" not in done.node.tools_by_name
    assert before(done.lab, "one", "two")
    assert done.lab.at("start", "other") == 0.0
    assert done.seconds == 6.0
    assert len(done.model.calls) == 2


def test_a_node_without_declarations_overlaps_its_calls_as_the_stock_node_does() -> None:
    lab = Lab()
    tools = [made for made in lab.tools() if made.name == "plain"]
    node = FlashNode(tools, runtime=FutureRuntime(loop="caller"))
    model = ScriptedChatModel(
        [says("", call("plain", id="c1", label="a", seconds=3), call("plain", id="c2", label="b", seconds=3)), "Done."]
    )
    with virtual_time() as clock:
        clock.run(agent(model, node).ainvoke(user()))
        assert clock.seconds == 3.0


# Limits ----------------------------------------------------------------------------------------------------------


def most_at_once(lab: Lab) -> int:
    most = now = 0
    for kind, _, _ in lab.log:
        now += {"start": 1, "end": -1, "cancelled": -1}[kind]
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("limit", "options", "config"),
    [
        (2, {}, {"max_concurrency": 2}),
        (3, {"max_parallel": 3}, None),
        (2, {"max_parallel": 2}, {"max_concurrency": 3}),
        (2, {"max_parallel": 3}, {"max_concurrency": 2}),
        (1, {"max_parallel": 1}, None),
        (1, {"max_parallel": 1, "background": False}, None),
    ],
)
def test_limits_on_concurrency_hold_for_background_work_across_messages(
    limit: int, options: dict[str, Any], config: Any
) -> None:
    done = finish(
        [
            says("", *(call("search", id=f"c{n}", query=f"q{n}", seconds=3) for n in range(4))),
            says("", *(call("search", id=f"d{n}", query=f"r{n}", seconds=3) for n in range(2))),
        ],
        config=config,
        **options,
    )
    assert most_at_once(done.lab) == limit
    assert len(done.lab.ended()) == 6


@pytest.mark.parametrize("limit", [1, 2])
def test_max_parallel_holds_for_a_node_with_nothing_declared(limit: int) -> None:
    lab = Lab()
    node = FlashNode(
        [made for made in lab.tools() if made.name == "plain"],
        max_parallel=limit,
        runtime=FutureRuntime(loop="caller"),
    )
    model = ScriptedChatModel([says("", *(call("plain", id=f"c{n}", label=str(n)) for n in range(4))), "Done."])
    with virtual_time() as clock:
        clock.run(agent(model, node).ainvoke(user()))
    assert most_at_once(lab) == limit


def test_a_foreground_call_that_needs_a_future_does_not_block_it_out_of_the_last_slot() -> None:
    done = finish(
        [
            says("", call("echo", id="c1", text="tea", seconds=3)),
            lambda m: says("", call("front", id="c2", label=fid(m, "c1"), seconds=1)),
        ],
        max_parallel=1,
    )
    assert answer_to(done.messages, "c2").content == "front tea"


def test_longest_first_starts_the_longest_of_those_that_queue() -> None:
    lab = Lab()

    def timed(name: str, seconds: float) -> Any:
        @tool(name)
        @uses(pure=True, seconds=seconds)
        async def act() -> str:
            """Act."""
            await lab.work(name, seconds)
            return name

        return act

    tools = [timed("short", 1), timed("long", 9), timed("middle", 4)]
    for dispatch, expected in (("program", ["short", "long", "middle"]), ("longest", ["long", "middle", "short"])):
        lab.log.clear()
        finish([says("", *(call(t.name, id=t.name) for t in tools))], tools, max_parallel=1, dispatch=dispatch)
        assert lab.started() == expected


def test_longest_first_never_breaks_program_order() -> None:
    lab = Lab()

    def timed(name: str, seconds: float, **declaration: Any) -> Any:
        @tool(name)
        @uses(seconds=seconds, **declaration)
        async def act() -> str:
            """Act."""
            await lab.work(name, seconds)
            return name

        return act

    tools = [timed("short", 1, writes="a"), timed("long", 9, writes="a"), timed("other", 3, pure=True)]
    finish([says("", *(call(t.name, id=t.name) for t in tools))], tools, max_parallel=1, dispatch="longest")
    assert lab.started().index("short") < lab.started().index("long")
    assert lab.started()[0] == "other"


def test_longest_first_learns_how_long_calls_take() -> None:
    done = finish(
        [
            says("", call("echo", id="c1", text="warm", seconds=1)),
            says("", call("search", id="c2", query="warm", seconds=8)),
            says("", call("front", id="c3", seconds=20)),
            says("", call("echo", id="c4", text="short", seconds=1), call("search", id="c5", query="long", seconds=8)),
        ],
        max_parallel=1,
        dispatch="longest",
    )
    assert done.lab.at("start", "long") < done.lab.at("start", "echo short")


# After the visit -------------------------------------------------------------------------------------------------


def test_order_is_kept_between_runs_of_one_thread() -> None:
    lab = Lab()
    node = FlashNode(lab.tools(), grace=0.0, runtime=FutureRuntime(loop="caller"), on_end="detach")
    model = ScriptedChatModel(
        [
            says("", call("write", id="c1", path="a", label="one", seconds=5)),
            "Later.",
            says("", call("write", id="c2", path="a", label="two", seconds=1)),
            lambda m: says("", call("await_future", id="c3", futures=[fid(m, "c2")])),
            "Done.",
        ]
    )
    graph = agent(model, node, saver=InMemorySaver())
    with virtual_time() as clock:
        clock.run(graph.ainvoke(user(), thread()))
        messages = clock.run(graph.ainvoke(user("More."), thread()))["messages"]
    assert before(lab, "one", "two")
    assert count(messages, "wrote a") == 2


def test_a_foreground_call_waits_for_the_background_call_it_conflicts_with() -> None:
    lab = Lab()

    @tool
    @uses(reads="disk/a", background=False)
    async def check() -> str:
        """Check."""
        await lab.work("check", 1)
        return "checked"

    done = finish(
        [says("", call("write", id="c1", path="a", seconds=5)), says("", call("check", id="c2"))],
        [check],
    )
    assert done.lab.at("end", "write a") <= lab.at("start", "check")
    assert answer_to(done.messages, "c2").content == "checked"
    assert count(done.messages, "wrote a") == 1


def test_waiting_for_its_turn_does_not_count_against_a_call_s_time_limit() -> None:
    done = finish(
        [says("", *(call("write", id=f"c{n}", path="a", label=str(n), seconds=4) for n in range(3)))], timeout=5
    )
    assert done.lab.ended() == ["0", "1", "2"]
    assert count(done.messages, "timed out") == 0


def test_a_timed_out_call_lets_the_next_in_line_go_on() -> None:
    done = finish(
        [
            says(
                "",
                call("write", id="c1", path="a", label="hung", seconds=1e6),
                call("write", id="c2", path="a", label="next", seconds=1),
            )
        ],
        timeout=5,
    )
    assert done.lab.at("start", "next") == 5.0
    assert count(done.messages, "timed out") == 1
