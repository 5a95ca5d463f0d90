"""What a visit does about one call, and what the node remembers about the future behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langgraph.types import Command

from langgraph_flash.futures.future import Future
from langgraph_flash.futures.uses import OnEnd
from langgraph_flash.nodes.control import AwaitRequest, CancelRequest
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.turn import Call

__all__ = ["Step", "Tag", "final_message", "messages_in"]

_ROLES = frozenset({"human", "user", "ai", "assistant", "system", "developer", "function", "tool"})


@dataclass(slots=True)
class Tag:
    """What the node remembers about a future, in `Future.tags`."""

    run: Any
    """The run that dispatched it; compared by identity."""
    step: str
    """The graph step that dispatched it."""
    call_id: str
    on_end: OnEnd
    offered: tuple[str, str] | None = None
    """The graph step and task whose output delivers it. Whether that became history shows in the messages later."""
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
            for message in messages_in(output, messages_key):
                if isinstance(message, ToolMessage):
                    found = message
    return found


def messages_in(command: Command[Any], messages_key: str) -> list[BaseMessage]:
    """The messages a command adds, in whatever form they were given."""
    update = command.update
    inside = update.get(messages_key) if isinstance(update, dict) else update
    if inside is None or isinstance(inside, str) or not isinstance(inside, (list, tuple, BaseMessage)):
        return []
    listed = [inside] if isinstance(inside, BaseMessage) else list(inside)
    if any(isinstance(item, tuple) and len(item) == 2 and item[0] not in _ROLES for item in listed):
        return []  # a list of (key, value) updates, not of messages
    return convert_to_messages(listed)
