"""`flash_condition`: the edge after the model, which does not end a run while results are on their way."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from langgraph_flash.futures.runtime import live_runtimes
from langgraph_flash.nodes.ledger import read_ledger
from langgraph_flash.nodes.scoping import place_of

__all__ = ["flash_condition"]


def flash_condition(state: Any, messages_key: str = "messages") -> Literal["tools", "__end__"]:
    """Route to the tools as `tools_condition` does, and also while futures are pending at a final answer.

    A visit of the node then waits for the next result, delivers it, and lets the model go on; each such visit delivers
    at least one future, so there are at most as many extra turns as pending futures. Futures of a node with
    `on_end="cancel"` are cancelled here instead, and those of one with `on_end="detach"` are left to arrive at the
    thread's next turn.

    Args:
        state: The graph's state: a list of messages, a dict, or an object.
        messages_key: Where the messages are.

    Raises:
        ValueError: The state has no messages.
    """
    if isinstance(state, list):
        messages = state
    else:
        messages = state.get(messages_key, []) if isinstance(state, dict) else getattr(state, messages_key, [])
    if not messages:
        raise ValueError(f"flash_condition found no messages under {messages_key!r} in the state: {state!r}")
    last = messages[-1]
    if isinstance(last, AIMessage) and last.tool_calls:
        return "tools"
    ledger = read_ledger(messages)
    if ledger.delivered:
        for runtime in live_runtimes():
            runtime.confirm(ledger.delivered)
    if any(record.on_end == "drain" for record in ledger.pending.values()) or _trimmed(messages_key):
        return "tools"
    for record in ledger.pending.values():
        if record.on_end == "cancel":
            for runtime in live_runtimes():
                runtime.cancel(record.future, "the run ended with it still pending")
    return "__end__"


def _trimmed(messages_key: str) -> bool:
    """Whether this run has pending futures whose placeholders were removed from its messages."""
    try:
        place = place_of(get_runtime(), get_config(), "", messages_key)
    except RuntimeError:  # called outside a graph
        return False
    return any(
        tag.run is place.run and tag.offered is None and tag.on_end == "drain"
        for runtime in live_runtimes()
        if (scope := runtime.find_scope(place.key)) is not None
        for future in scope.calls()
        if future.background and (tag := future.tags) is not None
    )
