"""Async thinking with a scripted model in the place of the real one."""

from __future__ import annotations

import pytest

from langgraph_flash.demo.thinking import QUESTIONS, coordinator, flash_tools, stock_tools, think
from langgraph_flash.testing import ScriptedChatModel, call, run_virtual, says


def thinker():
    return ScriptedChatModel(
        [lambda messages: f"About {messages[-1].content[:7]}\n it is so."],
        loop=True,
        model="thinker",
        first_token_seconds=2.0,
    )


def on_virtual_clock(model, tools):
    async def run():
        return await think(model, tools)

    return run_virtual(run())


@pytest.mark.parametrize(("make", "least", "most"), [(stock_tools, 8.0, 9.0), (flash_tools, 2.0, 3.5)])
def test_sub_agents_answer_behind_either_node(make, least, most):
    model = thinker()
    found = on_virtual_clock(coordinator(QUESTIONS, decode_seconds=0.1), make(model))
    assert found.answers == {question: f"About {question[:7].strip()} it is so." for question in QUESTIONS}
    assert least <= found.seconds <= most
    assert list(found.answers) == list(QUESTIONS)
    assert found.last == "4 of 4 answers are in."
    assert len(model.calls) == len(QUESTIONS)
    assert [span.name for span in found.spans if span.kind == "tool"] == ["think"] * 4
    assert {span.name for span in found.spans if span.kind == "model"} == {"replayed coordinator"}


def test_a_model_that_coordinates_itself():
    model = ScriptedChatModel(
        [says("", call("think", question="One?"), call("think", question="Two?")), "Done.", "So."]
    )
    node = flash_tools(thinker())
    found = on_virtual_clock(node.bind(model), node)
    assert found.answers == {"One?": "About One? it is so.", "Two?": "About Two? it is so."}
    assert set(model.bound_tools[0]) == {"think", "await_future"}
