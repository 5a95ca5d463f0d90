"""What a visit does about one call, and what the node remembers about the future behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from langgraph_flash.futures.future import Future
from langgraph_flash.nodes.control import AwaitRequest, CancelRequest
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.turn import Call

__all__ = ["Step", "Tag", "final_message"]


@dataclass(slots=True)
class Tag:
    """What the node remembers about a future, in `Future.tags`."""

    run: Any
    """The run that dispatched it; compared by identity."""
    call_id: str
    offered: str | None = None
    """The graph step whose output delivers it. Whether that became history shows in the messages later."""
    raised: bool = False
    """Its error was raised in the graph once; from then on it is delivered as text."""


@dataclass(slots=True)
class Step:
    """One call of a turn: it has its outputs, or runs as a future, or asks about futures."""

    call: Call
    outputs: Outputs | None = None
    future: Future | None = None
    request: AwaitRequest | CancelRequest | None = None
    targets: Sequence[Future] = ()


def final_message(outputs: Outputs, messages_key: str) -> ToolMessage | None:
    """The `ToolMessage` that a call ended with, also where a `Command` carries it."""
    found: ToolMessage | None = None
    for output in outputs:
        if isinstance(output, ToolMessage):
            found = output
        elif isinstance(output, Command):
            update = output.update
            inside = update.get(messages_key, []) if isinstance(update, dict) else update
            for message in inside if isinstance(inside, list) else []:
                if isinstance(message, ToolMessage):
                    found = message
    return found
