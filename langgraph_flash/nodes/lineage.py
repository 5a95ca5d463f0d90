"""Whether one checkpoint descends from another: what tells a trimmed history from a forked one."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["descends"]


async def descends(
    saver: BaseCheckpointSaver[Any],
    checkpoint_id: str,
    ancestor_id: str,
    *,
    thread_id: str,
    namespace: str,
    threads: Executor,
) -> bool:
    """Whether `checkpoint_id` has `ancestor_id` among its ancestors.

    Checkpoint ids grow with time, so the walk up ends at the first one older than the ancestor: it costs as many reads
    as there were steps in between. The saver is asked in a thread, through the synchronous method that every saver has
    and that asynchronous ones serve from their own loop.
    """
    loop = asyncio.get_running_loop()
    current: str | None = checkpoint_id
    while current is not None and current > ancestor_id:
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": current}}
        found = await loop.run_in_executor(threads, saver.get_tuple, config)  # type: ignore[arg-type]
        if found is None or found.parent_config is None:
            return False
        current = found.parent_config["configurable"].get("checkpoint_id")
    return current == ancestor_id
