"""Turning settled futures into messages and state updates, at the boundary between two model turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

from langgraph_flash.errors import FutureError
from langgraph_flash.futures.future import Future
from langgraph_flash.nodes.control import AwaitRequest
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.ledger import Placeholder
from langgraph_flash.nodes.messages import Part, answer, notification, part_of
from langgraph_flash.nodes.step import Step, final_message, messages_in

__all__ = ["Courier", "is_own"]

_LOST = "Outcome unknown: the process that ran it has ended. It may or may not have taken effect."

_TOO_LATE = (
    "It returned a Command with goto, graph or resume, which can no longer take effect from the background. "
    "Declare the tool with @uses(background=False)."
)


class Courier:
    """Delivers for one visit, and can take back what it offered if the visit fails.

    Args:
        place: The step and task whose output carries what is delivered.
        messages_key: The state's key for messages.
    """

    def __init__(self, place: tuple[str, str], messages_key: str) -> None:
        self._place = place
        self._messages_key = messages_key
        self._offered: dict[str, Future] = {}
        self._written: set[str] = set()
        self.updates: list[Command[Any]] = []
        """State updates of what was delivered. They follow the answers of all calls, and precede the notification:
        one of them may clear the history."""

    def note(self, outputs: Outputs) -> None:
        """Take account of what the calls of this turn write themselves."""
        for output in outputs:
            if isinstance(output, Command):
                self._written |= self._keys([output])

    def record(self, future: Future) -> Placeholder:
        """The record of a future that stays pending."""
        return Placeholder(
            future=future.id,
            tool=future.tool,
            label=future.label,
            call=future.tags.call_id,
            on_end=future.tags.on_end,
        )

    def answer(self, step: Step) -> ToolMessage:
        """What an `await_future` call is answered with.

        Raises:
            BaseException: What an awaited tool raised, if nothing handles it.
        """
        assert isinstance(step.request, AwaitRequest)
        again = [future.id for future in step.targets if future.id in self._offered]
        parts = self._take(future for future in step.targets if future.id not in self._offered)
        waiting = [future for future in step.targets if future.id not in self._offered]
        if waiting and step.request.mode == "any" and (parts or again):
            waiting = []
        return answer(step.call.name, step.call.call_id, parts, waiting, again)

    def deliver(
        self, earlier: Sequence[Future], fresh: Iterable[Future], lost: Sequence[Placeholder], *, complete: bool
    ) -> HumanMessage | None:
        """The notification for everything that has arrived, if anything has.

        Args:
            earlier: Undelivered futures of earlier turns, in program order.
            fresh: Futures of this turn that were answered with placeholders.
            lost: Pending according to the history, but not known to this process.
            complete: Whether these are all the futures there are.

        Raises:
            BaseException: What a tool raised, if nothing handles it.
        """
        parts = self._take(earlier)
        parts += [Part(record.future, record.label, _LOST, failed=True) for record in lost]
        if not parts:
            return None
        pending = [self.record(future) for future in (*earlier, *fresh) if future.tags.offered is None]
        return notification(parts, pending, complete=complete)

    def take_back(self) -> None:
        """The visit failed, so nothing it offered reaches the conversation."""
        for future in self._offered.values():
            future.tags.offered = None

    def _take(self, futures: Iterable[Future]) -> list[Part]:
        """Offer those that are settled and still to be delivered, their state updates included."""
        ready = [future for future in futures if future.settled and future.tags.offered is None]
        for future in ready:
            raise_once(future)
        parts: list[Part] = []
        for future in ready:
            updates = self._updates_of(future)
            keys = self._keys(updates)
            if keys & self._written:
                # One step may write a plain key once; this result has its turn at the next boundary.
                continue
            self._written |= keys
            self.updates += updates
            future.tags.offered = self._place
            self._offered[future.id] = future
            outputs: Outputs = future.value or []
            if any(isinstance(output, Command) and _changes_course(output) for output in outputs):
                parts.append(Part(future.id, future.label, _TOO_LATE, failed=True))
            else:
                parts.append(part_of(future, final_message(outputs, self._messages_key)))
        return parts

    def _keys(self, updates: Iterable[Command[Any]]) -> set[str]:
        """Plain keys that updates write; messages have a reducer and may be written more than once."""
        keys: set[str] = set()
        for command in updates:
            update = command.update
            if isinstance(update, dict):
                keys |= set(update)
            elif update is not None and not messages_in(command, self._messages_key):
                keys |= {key for key, _ in update} if isinstance(update, (list, tuple)) else set(_fields(update))
        return keys - {self._messages_key}

    def _updates_of(self, future: Future) -> list[Command[Any]]:
        """The state updates a call returned, without the message that would have ended it in place."""
        updates: list[Command[Any]] = []
        for output in future.value or ():
            if not isinstance(output, Command) or _changes_course(output) or output.update is None:
                continue
            others = [message for message in messages_in(output, self._messages_key) if not _ends_a_call(message)]
            if isinstance(output.update, dict):
                rest = {name: value for name, value in output.update.items() if name != self._messages_key}
                if others:
                    rest[self._messages_key] = others
                if rest:
                    updates.append(Command(update=rest))
            elif messages_in(output, self._messages_key):
                if others:
                    updates.append(Command(update=others))
            else:
                updates.append(Command(update=output.update))
        return updates


def _ends_a_call(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage)


def _fields(update: Any) -> Iterable[str]:
    """Names in an update that is an object of a state class."""
    return getattr(type(update), "model_fields", None) or getattr(update, "__dict__", {})


def _changes_course(command: Command[Any]) -> bool:
    return bool(command.goto) or command.graph is not None or command.resume is not None


def is_own(future: Future) -> bool:
    """Whether its error is ours (a timeout, a reference that found nothing) and answered as text in any case."""
    return isinstance(future.error, FutureError) and future.error.future_id == future.id


def raise_once(future: Future) -> None:
    """Raise a background call's unhandled error in the graph, the first time it would be delivered.

    Afterwards it is delivered as text, so that a run which is resumed can go on.
    """
    error = future.error
    if error is None or is_own(future) or future.tags.raised:
        return
    future.tags.raised = True
    if isinstance(error, GraphBubbleUp):
        # Nobody can be asked, and no hand-over can happen, from a call whose node has long returned.
        wish = "ask a person" if isinstance(error, GraphInterrupt) else "change the course of the run"
        future.reason = f"it tried to {wish} from the background; declare the tool with @uses(background=False)"
        return
    raise error
