"""Turning settled futures into messages and state updates, at the boundary between two model turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

from langgraph_flash.errors import FutureError
from langgraph_flash.futures.future import Future
from langgraph_flash.nodes.control import AwaitRequest
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.ledger import OnEnd, Placeholder
from langgraph_flash.nodes.messages import Part, answer, notification, part_of
from langgraph_flash.nodes.step import Step, final_message

__all__ = ["Courier"]

_LOST = "Outcome unknown: the process that ran it has ended. It may or may not have taken effect."

_TOO_LATE = (
    "It returned a Command with goto, graph or resume, which can no longer take effect from the background. "
    "Declare the tool with @uses(background=False)."
)


class Courier:
    """Delivers for one visit, and can take back what it offered if the visit fails.

    Args:
        scope_key: The conversation.
        graph_step: The step whose output carries what is delivered.
        messages_key: The state's key for messages.
        on_end: What the node's placeholders say about the end of the run.
    """

    def __init__(self, scope_key: str, graph_step: str, messages_key: str, on_end: OnEnd) -> None:
        self._scope_key = scope_key
        self._graph_step = graph_step
        self._messages_key = messages_key
        self._on_end: OnEnd = on_end
        self._offered: list[Future] = []

    def record(self, future: Future) -> Placeholder:
        """The record of a future that stays pending."""
        return Placeholder(
            future=future.id, tool=future.tool, label=future.label, call=future.tags.call_id, on_end=self._on_end
        )

    def answer(self, step: Step) -> Outputs:
        """What an `await_future` call is answered with.

        Raises:
            BaseException: What an awaited tool raised, if nothing handles it.
        """
        assert isinstance(step.request, AwaitRequest)
        ready = [future for future in step.targets if future.settled and future.tags.offered is None]
        for future in ready:
            raise_once(future)
        parts = [self._offer(future) for future in ready]
        waiting = [future for future in step.targets if not future.settled]
        timed_out = step.request.mode == "all" or not ready
        message = answer(step.call.name, step.call.call_id, parts, waiting, timed_out=timed_out)
        return [message, *(update for future in ready for update in self._updates(future))]

    def deliver(
        self, earlier: Sequence[Future], fresh: Iterable[Future], lost: Sequence[Placeholder], *, complete: bool
    ) -> list[Any]:
        """The notification for everything that has arrived, and the state updates that belong to it.

        Args:
            earlier: Undelivered futures of earlier turns, in program order.
            fresh: Futures of this turn that were answered with placeholders.
            lost: Pending according to the history, but not known to this process.
            complete: Whether these are all the futures there are.

        Raises:
            BaseException: What a tool raised, if nothing handles it.
        """
        ready = [future for future in earlier if future.settled and future.tags.offered is None]
        for future in ready:
            raise_once(future)
        parts: list[Part] = []
        updates: list[Command[Any]] = []
        taken: set[str] = set()
        for future in ready:
            mine = self._updates(future)
            keys = {key for update in mine if isinstance(update.update, dict) for key in update.update}
            if keys & taken:
                # One step may write a plain key once; the later update has its turn at the next boundary.
                continue
            taken |= keys
            parts.append(self._offer(future))
            updates += mine
        parts += [Part(record.future, record.label, _LOST, failed=True) for record in lost]
        if not parts:
            return []
        pending = [self.record(future) for future in earlier if future.tags.offered is None]
        pending += [self.record(future) for future in fresh]
        return [notification(parts, pending, scope=self._scope_key, complete=complete), *updates]

    def take_back(self) -> None:
        """The visit failed, so nothing it offered reaches the conversation."""
        for future in self._offered:
            future.tags.offered = None

    def _offer(self, future: Future) -> Part:
        future.tags.offered = self._graph_step
        self._offered.append(future)
        outputs: Outputs = future.value or []
        if any(isinstance(output, Command) and _changes_course(output) for output in outputs):
            return Part(future.id, future.label, _TOO_LATE, failed=True)
        return part_of(future, final_message(outputs, self._messages_key))

    def _updates(self, future: Future) -> list[Command[Any]]:
        """The state updates a call returned, without the message that would have ended it in place."""
        updates: list[Command[Any]] = []
        for output in future.value or ():
            if not isinstance(output, Command) or _changes_course(output):
                continue
            update = output.update
            if isinstance(update, dict):
                rest = {name: value for name, value in update.items() if name != self._messages_key}
                if others := _without_tool_messages(update.get(self._messages_key)):
                    rest[self._messages_key] = others
                if rest:
                    updates.append(Command(update=rest))
            elif others := _without_tool_messages(update):
                updates.append(Command(update=others))
        return updates


def _changes_course(command: Command[Any]) -> bool:
    return bool(command.goto) or command.graph is not None or command.resume is not None


def _without_tool_messages(messages: Any) -> list[Any]:
    return [message for message in messages or () if not isinstance(message, ToolMessage)]


def raise_once(future: Future) -> None:
    """Raise a background call's unhandled error in the graph, the first time it would be delivered.

    Afterwards it is delivered as text, so that a run which is resumed can go on.
    """
    error = future.error
    if error is None or isinstance(error, FutureError) or future.tags.raised:
        return
    future.tags.raised = True
    if isinstance(error, GraphBubbleUp):
        # Nobody can be asked, and no hand-over can happen, from a call whose node has long returned.
        wish = "ask a person" if isinstance(error, GraphInterrupt) else "change the course of the run"
        future.reason = f"it tried to {wish} from the background; declare the tool with @uses(background=False)"
        return
    raise error
