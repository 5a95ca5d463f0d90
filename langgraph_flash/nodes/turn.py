"""What a node was given for one visit, taken on the caller's thread before anything moves."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import Runtime

from langgraph_flash.futures.references import future_id
from langgraph_flash.nodes.host import Host, Shape
from langgraph_flash.nodes.scoping import Place, place_of, send_index

__all__ = ["Call", "Turn", "take_turn"]


@dataclass(slots=True)
class Call:
    """One call of a turn."""

    data: ToolCall
    future_id: str
    runtime: ToolRuntime[Any, Any]
    context: contextvars.Context

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.data["name"]

    @property
    def call_id(self) -> str | None:
        """The tool call id."""
        return self.data["id"]


@dataclass(slots=True)
class Turn:
    """Everything a visit needs to know about its caller."""

    place: Place
    shape: Shape
    calls: list[Call]
    messages: Sequence[AnyMessage]
    """The conversation as the node sees it."""
    siblings: list[ToolCall]
    """All calls of the AIMessage when the node was sent only some of them (`Send`); empty otherwise."""
    sibling_ids: list[str]
    """Their future ids, in the same order."""
    closing: bool
    """The model has given a final answer: the visit is there to wait for what is pending."""
    limit: int | None
    """`max_concurrency` of the run."""
    loop: asyncio.AbstractEventLoop | None
    """The caller's event loop; `None` under `invoke`."""
    pulse: Callable[[], None] | None
    """Keeps a node with an idle timeout alive."""

    send_index: int | None
    """Where the task stands among those that `Send` made."""

    @property
    def future_ids(self) -> set[str]:
        """Ids of all futures of this turn, those of sibling tasks included."""
        return {call.future_id for call in self.calls} | set(self.sibling_ids)

    @property
    def delivers(self) -> bool:
        """Whether this visit is the one that delivers: its messages end the step.

        When calls come as tasks of their own, that is the task of the last call, provided the tasks were sent in the
        order of their calls; otherwise another answer might follow, and the delivery waits for the next boundary.
        """
        if not self.siblings:
            return True
        last = any(call.call_id == self.siblings[-1]["id"] for call in self.calls)
        return last and (self.send_index is None or self.send_index >= len(self.siblings) - 1)


def take_turn(
    node: Host,
    state: Any,
    config: RunnableConfig,
    runtime: Runtime[Any],
    *,
    active: bool,
    pulsing: bool,
    fallback: str,
    loop: asyncio.AbstractEventLoop | None,
) -> Turn:
    """Read a node's input.

    Args:
        node: The node.
        state: Its input, of any of the shapes a `ToolNode` takes.
        config: The task's config.
        runtime: The task's runtime.
        active: Whether the node deals in futures: calls that have their answer are left out, and an input without
            calls is a visit that only delivers.
        pulsing: Whether streaming must count as a sign of life.
        fallback: The conversation's key outside a graph.
        loop: The caller's event loop, if there is one.
    """
    messages = node.messages_of(state)
    position = _last_ai(messages)
    if active and not _holds_calls(state) and (position is None or not _open_calls(messages, position)) and messages:
        data: list[ToolCall] = []
        shape: Shape = "list" if isinstance(state, list) else "dict"
    else:
        data, shape = node.parse(state)
    runtimes = node.tool_runtimes(state, data, config, runtime, pulsing)
    if shape == "tool_calls" and runtimes:
        messages = node.messages_of(runtimes[0].state)
        position = _holding(messages, data[0]["id"])
    elif active and position is not None and data:
        answered = _answered(messages, position)
        kept = [index for index, call in enumerate(data) if call["id"] not in answered]
        data, runtimes = [data[index] for index in kept], [runtimes[index] for index in kept]
    place = place_of(runtime, config, fallback, node.messages_key)
    origin = "direct" if position is None else _identity(messages[position], position)
    siblings: list[ToolCall] = []
    if active and shape == "tool_calls" and position is not None:
        answered = _answered(messages, position)
        siblings = [call for call in _calls(messages[position]) if call["id"] not in answered]
        if len(siblings) == len(data):
            siblings = []
    return Turn(
        place=place,
        shape=shape,
        calls=[
            Call(call, _future_id(place, origin, call), call_runtime, contextvars.copy_context())
            for call, call_runtime in zip(data, runtimes, strict=True)
        ],
        messages=messages,
        siblings=siblings,
        sibling_ids=[_future_id(place, origin, call) for call in siblings],
        closing=not data and position is not None and position == len(messages) - 1,
        limit=config.get("max_concurrency"),
        loop=loop,
        pulse=_pulse(runtime),
        send_index=send_index(config),
    )


_NO_PULSE = Runtime().heartbeat


def _pulse(runtime: Runtime[Any]) -> Callable[[], None] | None:
    """What keeps the node's task alive, if the node has an idle timeout at all."""
    heartbeat = getattr(runtime, "heartbeat", _NO_PULSE)
    return None if heartbeat is _NO_PULSE else heartbeat


def _holds_calls(state: Any) -> bool:
    """Whether the input is calls rather than a conversation."""
    if isinstance(state, dict):
        return state.get("__type") == "tool_call_with_context"
    if not isinstance(state, list) or not state:
        return False
    return isinstance(state[-1], dict) and state[-1].get("type") == "tool_call"


def _calls(message: AnyMessage) -> list[ToolCall]:
    # A state model read back from a checkpoint may hold plain messages of type "ai".
    return list(getattr(message, "tool_calls", None) or ()) if message.type == "ai" else []


def _last_ai(messages: Sequence[AnyMessage]) -> int | None:
    return next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], AIMessage)), None)


def _holding(messages: Sequence[AnyMessage], call_id: str | None) -> int | None:
    for index in range(len(messages) - 1, -1, -1):
        if any(call["id"] == call_id for call in _calls(messages[index])):
            return index
    return None


def _answered(messages: Sequence[AnyMessage], position: int) -> set[str]:
    return {message.tool_call_id for message in messages[position + 1 :] if isinstance(message, ToolMessage)}


def _open_calls(messages: Sequence[AnyMessage], position: int) -> bool:
    answered = _answered(messages, position)
    return any(call["id"] not in answered for call in _calls(messages[position]))


def _identity(message: AnyMessage, position: int) -> str:
    # A message without an id is told apart by where it stands; the calls themselves are part of the future's id.
    return message.id or f"at {position}"


# Made once: `json.dumps` with options makes one for every call.
_ENCODER = json.JSONEncoder(sort_keys=True, default=str)


def _future_id(place: Place, origin: str, call: ToolCall) -> str:
    arguments = _ENCODER.encode(call["args"])
    digest = hashlib.blake2b(arguments.encode(), digest_size=8).hexdigest()
    return future_id(place.name, f"{origin}\0{call['id']}\0{call['name']}\0{digest}")
