"""Which conversation a node runs in, and which run: the keys that futures are filed under."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from langgraph.runtime import ExecutionInfo, Runtime

__all__ = ["Place", "place_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is running."""

    key: str
    """Identifies the conversation: thread and the sub-graph instance in it."""
    step: str
    """Identifies the graph step: the same for all tasks of a superstep and for every attempt at it."""
    run: Any
    """The same object throughout one run, and only then; compared by identity."""
    resumable: bool
    """Whether the conversation can be entered again: it has a thread."""


_TOKEN = uuid.uuid4().hex


def place_of(runtime: Runtime[Any], fallback: str) -> Place:
    """The place of a node's task.

    A conversation is a thread plus the namespace of the graph that the node belongs to, the node's own task left out:
    that differs at every step, while a sub-graph's instance keeps its own for as long as it lives. Without a thread a
    conversation lasts for one run; outside a graph, for one node.
    """
    control = getattr(runtime, "control", None)
    info = getattr(runtime, "execution_info", None)
    if not isinstance(info, ExecutionInfo):
        return Place(f"node:{fallback}", uuid.uuid4().hex, fallback, resumable=False)
    namespace = info.checkpoint_ns.rpartition("|")[0]
    if info.thread_id is not None:
        return Place(f"thread:{info.thread_id}|{namespace}", info.checkpoint_id, control, resumable=True)
    run = fallback if control is None else str(id(control))
    return Place(f"run:{_TOKEN}:{run}|{namespace}", info.checkpoint_id, control, resumable=False)
