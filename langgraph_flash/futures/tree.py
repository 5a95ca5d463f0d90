"""The state tree: unfinished calls, filed under the resources they touch, so that conflicts are found quickly."""

from __future__ import annotations

from collections.abc import Iterator

from langgraph_flash.futures.future import Future
from langgraph_flash.futures.resources import Path

__all__ = ["ResourceNode", "ResourceTree"]


class ResourceNode:
    """One resource: the last unfinished call that writes it, and the calls that read it since."""

    __slots__ = ("children", "key", "parent", "readers", "writer")

    def __init__(self, parent: ResourceNode | None, key: str) -> None:
        self.parent = parent
        self.key = key
        self.children: dict[str, ResourceNode] = {}
        self.writer: Future | None = None
        self.readers: dict[int, Future] = {}

    def subtree(self) -> Iterator[ResourceNode]:
        """This node and everything below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


class ResourceTree:
    """Conflict lookup over hierarchical resources.

    A new call must wait for every earlier unfinished call it conflicts with. It is enough to know the *last* ones: a
    call that writes a path waits for everything filed at or below that path, so whoever comes later and waits for it
    waits for those too, and their records can go. (This needs a call to count as passed only once all it waits for
    has passed, even if it was cancelled before; see `Scheduler`.) Each record is filed once and removed once, so a
    call costs the depth of its paths plus the records it meets, however many calls are pending elsewhere.
    """

    def __init__(self) -> None:
        self._root = ResourceNode(None, "*")

    def add(self, call: Future) -> dict[int, Future]:
        """File a call and return the earlier calls it must wait for, by index."""
        met: dict[int, Future] = {}
        for path in call.access.writes:
            self._meet(path, met, writing=True)
        for path in call.access.reads:
            self._meet(path, met, writing=False)
        for path in call.access.reads:
            node = self._node(path)
            node.readers[call.index] = call
            call.marks.append(node)
        # Writes are filed last: they clear what they supersede, this call's own reads included.
        for path in call.access.writes:
            node = self._node(path)
            node.children.clear()
            node.readers.clear()
            node.writer = call
            call.marks.append(node)
        return met

    def remove(self, call: Future) -> None:
        """Take a call out again, and the branches that it leaves empty."""
        for mark in call.marks:
            if mark.writer is call:
                mark.writer = None
            mark.readers.pop(call.index, None)
            node = mark
            while node.parent is not None and node.writer is None and not node.readers and not node.children:
                if node.parent.children.get(node.key) is node:
                    del node.parent.children[node.key]
                node = node.parent
        call.marks.clear()

    def __len__(self) -> int:
        return sum(1 for _ in self._root.subtree()) - 1

    def _node(self, path: Path) -> ResourceNode:
        node = self._root
        for key in path:
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = ResourceNode(node, key)
            node = child
        return node

    def _meet(self, path: Path, met: dict[int, Future], *, writing: bool) -> None:
        node = self._root
        for key in path:
            _collect(node, met, writing=writing)
            child = node.children.get(key)
            if child is None:
                return
            node = child
        for below in node.subtree():
            _collect(below, met, writing=writing)


def _collect(node: ResourceNode, met: dict[int, Future], *, writing: bool) -> None:
    if node.writer is not None:
        met[node.writer.index] = node.writer
    if writing:
        met.update(node.readers)
