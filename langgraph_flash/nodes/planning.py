"""From the calls of a turn to steps: which become futures, what they wait for, and which are refused at once."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolCall, ToolMessage
from pydantic import ValidationError

from langgraph_flash.errors import FutureDelivered, FutureError, ProjectionError, UnknownFuture
from langgraph_flash.futures.future import Future, State, Work
from langgraph_flash.futures.loops import run_elsewhere
from langgraph_flash.futures.memo import INTERRUPTED
from langgraph_flash.futures.references import find_references
from langgraph_flash.futures.resources import BARRIER, PURE
from langgraph_flash.futures.scope import Scope
from langgraph_flash.nodes.control import CancelRequest, parse_request
from langgraph_flash.nodes.host import Outputs, is_async_only
from langgraph_flash.nodes.ledger import Ledger, was_delivered
from langgraph_flash.nodes.messages import describe, error_message
from langgraph_flash.nodes.step import Step, Tag
from langgraph_flash.nodes.turn import Call, Turn

if TYPE_CHECKING:
    from langgraph_flash.nodes.flash_node import FlashNode, ToolPlan

__all__ = ["Planner"]

_ARRIVAL_SECONDS = 1.0
"""How long an announced call keeps its place in program order without arriving."""


class Planner:
    """Plans one visit.

    Args:
        node: The node.
        turn: What it was given.
        scope: Where its futures run.
        ledger: What the history says about futures.
        earlier: The futures of earlier turns that calls may refer to, in program order.
    """

    def __init__(self, node: FlashNode, turn: Turn, scope: Scope, ledger: Ledger, earlier: Iterable[Future]) -> None:
        self._node = node
        self._turn = turn
        self._scope = scope
        self._ledger = ledger
        self._known = {future.id: future for future in earlier}
        self._planned = 0
        self._own = turn.future_ids

    def plan(self) -> list[Step]:
        """One step for each call; new futures are registered together, in program order."""
        if self._turn.siblings:
            self._announce()
        steps: list[Step] = []
        batch: dict[str, Future] = {}
        for call in self._turn.calls:
            step = self._step(call)
            steps.append(step)
            if (future := step.future) is not None:
                self._known[future.id] = future
                if future.index < 0:
                    batch[future.id] = future
        if batch:
            self._scope.submit(list(batch.values()))
        return steps

    def _step(self, call: Call) -> Step:
        kept = self._node.runtime.memo.get(call.future_id) if self._turn.place.resumable else None
        if kept is not None and kept is not INTERRUPTED:
            return Step(call, outputs=kept)
        try:
            if call.name in self._node.control_names:
                return self._control(call)
            if (twin := self._known.get(call.future_id)) is not None and twin.index < 0:
                return Step(call, future=twin)
            existing = self._scope.get(call.future_id)
            if existing is None or self._abandoned(existing):
                return Step(call, future=self._future(call.data, call.future_id, call))
            if existing.state is State.ANNOUNCED:
                existing.context = call.context
                self._scope.attach(existing, self._work(call, existing.background))
            return Step(call, future=existing)
        except FutureError as error:
            return Step(call, outputs=[error_message(call.name, call.call_id, str(error))])

    def _abandoned(self, existing: Future) -> bool:
        """Whether a call must run again: it ended badly in an attempt that raised, so nothing answers it yet."""
        if existing.state not in (State.FAILED, State.CANCELLED):
            return False
        self._scope.forget(existing)
        return True

    def _future(self, call: ToolCall, future_id: str, carrier: Call | None) -> Future:
        """A future for a call; without a carrier it only holds the call's place.

        Raises:
            FutureError: Its arguments mention a future that cannot be used.
        """
        node, name, arguments = self._node, call["name"], call["args"]
        plan = node.plans.get(name)
        needs: list[Future] = []
        access, background = PURE, False
        if node.active:
            injected = node.injected_names(name)
            # What the graph fills in is never the model's to give, references in it included.
            arguments = {key: value for key, value in arguments.items() if key not in injected}
            unknown = set()
            for place, reference in find_references(arguments) if node.offers_futures else ():
                needs.append(self._target(reference.future_id, future_id))
                unknown.add(str(place[0]))
            if plan is not None:
                access = plan.uses.access(arguments, frozenset(unknown))
                background = plan.background and node.runtime.has_room(self._planned + 1)
                if not needs and not node.wrapped and _refused(plan, arguments):
                    # It ends before the tool runs, and the model should hear so at once, in the stock words.
                    access, background = PURE, False
            elif node.wrapped:
                access = BARRIER
            self._planned += background
        return Future(
            future_id,
            name,
            arguments,
            access=access,
            work=None if carrier is None else self._work(carrier, background),
            context=None if carrier is None else carrier.context,
            needs=tuple(dict.fromkeys(needs)),
            timeout=node.default_timeout if plan is None else plan.timeout,
            estimate=(plan.uses.seconds if plan is not None else None) or node.runtime.usual_seconds(name),
            background=background,
            label=describe(name, arguments) if background else name,
            text_arguments=node.text_arguments(name) if needs else frozenset(),
            view=node.view,
            failure=node.failure_of,
            tags=Tag(
                self._turn.place.run,
                self._turn.place.step,
                call["id"] or "",
                on_end=(None if plan is None else plan.uses.on_end) or node.on_end,
            ),
        )

    def _target(self, future_id: str, own: str) -> Future:
        """The future a reference names, if it may be used.

        Raises:
            FutureError: It is the call itself or a later one, already delivered, lost, or unknown.
        """
        if (found := self._known.get(future_id)) is not None:
            return found
        if future_id == own or future_id in self._own:
            raise ProjectionError(
                future_id, future_id, "names this call itself or one that comes after it, so neither could ever start"
            )
        pending = [future.id for future in self._known.values() if future.background]
        if future_id in self._ledger.pending:
            raise FutureError(
                future_id,
                f"The outcome of {future_id!r} is unknown: the process that ran it has ended. "
                f"Pending futures: {', '.join(pending) or 'none'}.",
            )
        if future_id in self._ledger.delivered or was_delivered(self._turn.messages, future_id):
            raise FutureDelivered(future_id, pending)
        raise UnknownFuture(future_id, pending)

    # Calls that arrive one task at a time ---------------------------------------------------------------------

    def _announce(self) -> None:
        """Register all calls of the AIMessage when the first of its tasks arrives, whatever order they arrive in."""
        batch: list[Future] = []
        for data, future_id in zip(self._turn.siblings, self._turn.sibling_ids, strict=True):
            if data["name"] in self._node.control_names or data["name"] not in self._node.plans:
                continue
            future = self._scope.get(future_id)
            if future is None and self._node.runtime.memo.get(future_id) is None:
                try:
                    future = self._future(data, future_id, None)
                except FutureError:
                    continue  # its own task will say so
                batch.append(future)
            if future is not None:
                self._known[future_id] = future
        if batch:
            self._scope.submit(batch)
            self._scope.loop.call_later(_ARRIVAL_SECONDS, self._drop_absent, batch)

    def _drop_absent(self, batch: Iterable[Future]) -> None:
        for future in batch:
            if future.state is State.ANNOUNCED:
                self._scope.cancel(future, "its task never arrived")
                self._scope.forget(future)
        self._node.runtime.release(self._scope)

    # What a call does -----------------------------------------------------------------------------------------

    def _work(self, call: Call, background: bool) -> Work:
        node, turn, threads = self._node, self._turn, self._node.runtime.threads
        if turn.loop is None:
            in_thread = node.wrapped or not is_async_only(node.tools_by_name.get(call.name))
            home = None
        else:
            in_thread = node.only_sync_wrapper
            home = turn.loop if not background or node.on_callers_loop else None

        async def work(arguments: dict[str, Any]) -> Outputs:
            data: ToolCall = {**call.data, "args": arguments}
            loop = asyncio.get_running_loop()
            if in_thread:
                context = contextvars.copy_context()
                outputs = await loop.run_in_executor(
                    threads, context.run, node.run_call, data, turn.shape, call.runtime
                )
            elif home is None or home is loop:
                outputs = await node.arun_call(data, turn.shape, call.runtime)
            else:
                outputs = await run_elsewhere(home, lambda: node.arun_call(data, turn.shape, call.runtime))
            return outputs

        return work

    def _control(self, call: Call) -> Step:
        """A step for `await_future` or `cancel_future`.

        Raises:
            FutureError: It names a future that cannot be used.
        """
        request = parse_request(call.name, call.data["args"])
        if isinstance(request, str):
            return Step(call, outputs=[error_message(call.name, call.call_id, request)])
        targets = [self._target(given, call.future_id) for given in request.futures]
        if not isinstance(request, CancelRequest):
            return Step(call, request=request, targets=targets)
        stopped = [target.id for target in targets if self._scope.cancel(target, "the model asked for it")]
        text = f"Cancelled: {', '.join(stopped) or 'none'}."
        if ended := [target.id for target in targets if target.id not in stopped]:
            text += f" Already ended: {', '.join(ended)}; their results follow."
        return Step(call, outputs=[ToolMessage(text, name=call.name, tool_call_id=call.call_id or "")])


def _refused(plan: ToolPlan, arguments: dict[str, Any]) -> bool:
    if plan.schema is None:
        return False
    try:
        plan.schema.model_validate(arguments)
    except ValidationError:
        return True
    return False
