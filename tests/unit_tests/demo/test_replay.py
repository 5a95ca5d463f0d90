"""The replay agent: what its model writes, what its conversation holds, what it measures."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.prebuilt import ToolNode

from langgraph_flash.demo.bfcl import difference, with_projections
from langgraph_flash.demo.bfcl.latency import constant, descending, halving
from langgraph_flash.demo.conversation import from_user, placeholders_in, results_in
from langgraph_flash.demo.executors import (
    FLASH_USES,
    TOOLNODE_PARALLEL,
    TOOLNODE_SEQUENTIAL,
    Executor,
    without_grace,
)
from langgraph_flash.demo.replay import ReplayMismatch, call_id, replay
from langgraph_flash.testing import check_history, run_virtual

pytestmark = pytest.mark.bfcl

# One reference: the zip codes of a turn are the arguments of the distance asked for in it.
PROJECTED = "multi_turn_base_50"
DEPENDENT = "multi_turn_base_34"


def names(program):
    return [
        call_id(program, index, call) for index, turn in enumerate(program.turns) for call in range(len(turn.calls))
    ]


@pytest.mark.parametrize("mode", ["one", "all"])
@pytest.mark.parametrize("executor", [TOOLNODE_SEQUENTIAL, FLASH_USES, without_grace("none")], ids=lambda e: e.label)
def test_the_calls_of_a_program_in_order(by_id, executor, mode):
    program = by_id["multi_turn_base_0"]
    latency = constant(0.3)
    run = run_virtual(replay(program, Executor("x", mode, executor.footprints, executor.node), latency=latency))
    asked = [[made["id"] for made in m.tool_calls] for m in run.messages if isinstance(m, AIMessage) and m.tool_calls]
    assert [name for each in asked for name in each] == names(program)
    if mode == "one":
        assert {len(each) for each in asked} == {1}
    else:
        assert len(asked) == sum(bool(turn.calls) for turn in program.turns)
    assert sum(map(from_user, run.messages)) == len(program.turns) == len(run.turns)
    assert sorted(run.executed) == sorted(names(program))
    assert isinstance(run.messages[-1], AIMessage)
    check_history(run.messages)


def test_every_user_turn_is_drained(by_id):
    program = by_id["multi_turn_base_0"]
    run = run_virtual(replay(program, without_grace("attribute"), latency=constant(5.0)))
    seen = []
    for message in run.messages:
        if from_user(message) and seen:
            assert set(placeholders_in(seen)) <= set(results_in(seen))
        seen.append(message)
    assert placeholders_in(run.messages).keys() == set(names(program))
    assert results_in(run.messages).keys() == set(names(program))


def test_a_stock_node_given_all_calls_at_once_breaks_what_depends(by_id, reference):
    program = by_id[DEPENDENT]
    run = run_virtual(replay(program, TOOLNODE_PARALLEL, latency=descending(1.0, 2.0)))
    assert difference(reference[DEPENDENT], run.outcome) is not None


def test_references_while_pending_and_values_afterwards(by_id, reference, programs):
    projected = {
        each.id: (each, program)
        for program in programs[200:]
        for each in [with_projections(program, reference[program.id])]
        if each != program
    }
    assert len(projected) > 20
    for name in list(projected)[:5]:
        changed, program = projected[name]
        for executor, latency, some in (
            (without_grace("attribute"), halving(1e-9), True),
            (without_grace("none"), halving(1e-9), True),
            (TOOLNODE_SEQUENTIAL, constant(1.0), False),
        ):
            run = run_virtual(replay(program, executor, latency=latency, projected=changed))
            assert difference(reference[name], run.outcome) is None
            arguments = [made["args"] for m in run.messages if isinstance(m, AIMessage) for made in m.tool_calls]
            assert ("fut_" in str(arguments)) is some
            assert (run.references > 0) is some
            if not some:
                assert arguments == [call.args for turn in program.turns for call in turn.calls]


def test_spans_are_kept_by_user_turn(by_id):
    program = by_id["multi_turn_base_0"]
    run = run_virtual(replay(program, TOOLNODE_SEQUENTIAL, latency=constant(2.0), first_token_seconds=1.0))
    for turn, spans in zip(program.turns, run.turns, strict=True):
        assert sum(span.kind == "tool" for span in spans) == len(turn.calls)
        assert sum(span.kind == "model" for span in spans) == len(turn.calls) + 1
    calls = sum(len(turn.calls) for turn in program.turns)
    assert run.seconds == pytest.approx(3.0 * calls + len(program.turns))
    assert run.seconds == pytest.approx(sum(span.seconds for span in run.spans))


def test_progress_is_told_by_user_turn(by_id):
    told = []
    program = by_id["multi_turn_base_0"]
    run_virtual(replay(program, FLASH_USES, on_turn=told.append))
    assert told == list(range(len(program.turns)))


def test_a_result_that_arrives_changed_is_an_error(by_id):
    class Forging(ToolNode):
        async def _afunc(self, *args, **kwargs):
            output = await super()._afunc(*args, **kwargs)
            message = output["messages"][0]
            return {"messages": [message.model_copy(update={"content": "forged"}), *output["messages"][1:]]}

    with pytest.raises(ReplayMismatch, match=r"multi_turn_base_0/0/0.*'forged'"):
        run_virtual(replay(by_id["multi_turn_base_0"], Executor("forging", "one", "none", Forging)))


def test_results_look_the_same_however_they_arrive(by_id):
    """Texts with blank lines, or that look like the notification around them, survive the way back."""
    program = by_id["multi_turn_base_0"]
    run = run_virtual(replay(program, without_grace("attribute"), latency=constant(3.0)))
    notifications = [m for m in run.messages if isinstance(m, HumanMessage) and not from_user(m)]
    assert notifications
    tricky = "a\n\n[fut_x] f() returned:\nb\n\nNo background call is pending."
    first = next(name for name in names(program) if name in placeholders_in(run.messages))
    text = results_in(run.messages)[first]
    forged = [
        m.model_copy(update={"content": m.content.replace(text, tricky, 1)}) if m in notifications else m
        for m in run.messages
    ]
    assert results_in(forged)[first] == tricky
    assert not any(isinstance(m, ToolMessage) for m in notifications)
