"""Which conversation a node runs in, and which run, step and task: the keys that futures are filed under."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import ExecutionInfo, Runtime

from langgraph_flash.nodes.host import saver_of

__all__ = ["Place", "place_of", "send_index"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is running."""

    name: str
    """The conversation, as future ids are derived from it: the same on every replay and after a restart."""
    key: str
    """The conversation within this process: two graphs may use one thread id, each with a saver of its own."""
    step: str
    """The graph step: the same for all tasks of a superstep and for every attempt at it."""
    task: str
    """The task within the step: the same for every attempt at it."""
    run: Any
    """The same object throughout one run, and only then; compared by identity."""
    owner: Any
    """What `key` identifies by its address, kept alive for as long as the key is in use."""
    thread_id: str | None
    """The thread, if a saver keeps it."""
    namespace: str
    """The checkpoint namespace of the graph that the node belongs to."""
    resumable: bool
    """Whether the node can be entered again with the same input: it runs in a graph."""


_TOKEN = uuid.uuid4().hex


def place_of(runtime: Runtime[Any], config: RunnableConfig, fallback: str, messages_key: str) -> Place:
    """The place of a node's task.

    A conversation is a list of messages in a thread and in one instance of a graph there: the namespace of the task
    without its last part, which differs at every step, while a sub-graph's instance keeps its own for as long as it
    lives. Without a thread that a saver keeps, a conversation lasts for one run; outside a graph, for one node.
    """
    control = getattr(runtime, "control", None)
    info = getattr(runtime, "execution_info", None)
    if not isinstance(info, ExecutionInfo):
        once = uuid.uuid4().hex
        name = f"node:{fallback}|{messages_key}"
        return Place(name, name, once, once, run=fallback, owner=None, thread_id=None, namespace="", resumable=False)
    namespace = info.checkpoint_ns.rpartition("|")[0]
    saver = saver_of(config)
    owner: Any
    if info.thread_id is not None and saver is not None:
        name = f"thread:{info.thread_id}|{namespace}|{messages_key}"
        owner = saver
    else:
        owner = control if control is not None else fallback
        name = f"run:{_TOKEN}:{id(owner)}|{namespace}|{messages_key}"
    return Place(
        name,
        f"{name}|{id(owner)}",
        info.checkpoint_id,
        info.task_id,
        run=control,
        owner=owner,
        thread_id=info.thread_id if owner is saver else None,
        namespace=namespace,
        resumable=True,
    )


def send_index(config: Mapping[str, Any]) -> int | None:
    """Where a task made by `Send` stands among those of its step, or `None` for other tasks."""
    path = (config.get("metadata") or {}).get("langgraph_path")
    if isinstance(path, (list, tuple)) and len(path) >= 2 and isinstance(path[1], int):
        return path[1]
    return None
