"""Doubles to test a graph with: a model that replays a script, a clock that does not wait, a history checker.

from langgraph_flash.testing import ScriptedChatModel, call, says, virtual_time

model = ScriptedChatModel([says("Let me look.", call("search", query="tea")), "Found it."])
graph = build_my_graph(model)
with virtual_time() as clock:
    state = clock.run(graph.ainvoke({"messages": [("user", "Find tea.")]}))
assert clock.seconds < 3        # as slow as the graph would be, in no time at all
assert len(model.calls) == 2    # and every history the model saw was one a provider accepts
"""

from __future__ import annotations

from langgraph_flash.testing.history import HistoryRule, InvalidHistory, check_history
from langgraph_flash.testing.script import ScriptExhausted, Turn, call, says
from langgraph_flash.testing.scripted_model import ScriptedChatModel
from langgraph_flash.testing.tokens import count_tokens
from langgraph_flash.testing.virtual_time import (
    VirtualClock,
    VirtualDeadlock,
    VirtualTimeLoop,
    run_virtual,
    virtual_time,
)

__all__ = [
    "HistoryRule",
    "InvalidHistory",
    "ScriptExhausted",
    "ScriptedChatModel",
    "Turn",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualTimeLoop",
    "call",
    "check_history",
    "count_tokens",
    "run_virtual",
    "says",
    "virtual_time",
]
