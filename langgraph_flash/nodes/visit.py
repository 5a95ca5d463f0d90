"""One visit of the node: register the calls, wait as long as it must, answer each, deliver what has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.errors import GraphInterrupt

from langgraph_flash.errors import FutureError
from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.memo import INTERRUPTED
from langgraph_flash.futures.scope import Scope
from langgraph_flash.nodes.control import AwaitRequest
from langgraph_flash.nodes.delivery import Courier
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.ledger import Ledger, read_ledger
from langgraph_flash.nodes.messages import error_message, placeholder
from langgraph_flash.nodes.planning import Planner
from langgraph_flash.nodes.step import Step, Tag
from langgraph_flash.nodes.turn import Turn

if TYPE_CHECKING:
    from langgraph_flash.nodes.flash_node import FlashNode

__all__ = ["Visit"]


class Visit:
    """One execution of a node, on the loop of its scope.

    Args:
        node: The node.
        turn: What it was given.
        scope: Where its futures run.
    """

    def __init__(self, node: FlashNode, turn: Turn, scope: Scope) -> None:
        self._node = node
        self._turn = turn
        self._scope = scope
        self._ledger = read_ledger(turn.messages) if node.active else Ledger()
        self._courier = Courier(scope.key, turn.place.step, node.messages_key, node.on_end)
        scope.scheduler.limit = min(
            (limit for limit in (turn.limit, node.max_parallel) if limit is not None), default=None
        )

    async def run(self) -> Any:
        """Do it, and return what the node returns.

        Raises:
            BaseException: What a foreground call raised, or a background call whose result was due, if nothing
                handles it. Every other call has been waited for by then, and its result is kept.
        """
        steps: list[Step] = []
        try:
            earlier = self._confirm() if self._node.active else []
            steps = Planner(self._node, self._turn, self._scope, self._ledger, earlier).plan()
            await self._wait(steps, earlier)
            outputs: list[Any] = [self._answer(step) for step in steps]
            if self._node.active and self._turn.delivers:
                outputs += self._deliver(steps, earlier)
        except BaseException:
            self._courier.take_back()
            self._keep_finished(steps)
            raise
        self._let_go(steps)
        return self._node.combined(outputs, self._turn.shape)

    def _confirm(self) -> list[Future]:
        """Drop futures whose results the history holds; return the others that belong to it, in program order."""
        place = self._turn.place
        own = {call.future_id for call in self._turn.calls} | set(self._turn.sibling_ids)
        earlier: list[Future] = []
        for future in self._scope.calls():
            if future.id in own or not future.background:
                continue
            tag: Tag = future.tags
            if future.id in self._ledger.pending:
                if tag.offered != place.step:
                    tag.offered = None
                earlier.append(future)
            elif future.id in self._ledger.delivered or tag.offered is not None:
                if future.settled and tag.offered != place.step:
                    self._scope.forget(future)
            elif tag.run is place.run:
                # Its placeholder was trimmed away within this run; the result must not be lost with it. A history
                # from another run that never held the placeholder is a fork, which has no part in this future.
                earlier.append(future)
        return earlier

    async def _wait(self, steps: Sequence[Step], earlier: Sequence[Future]) -> None:
        futures = [step.future for step in steps if step.future is not None]
        foreground = [future for future in futures if not future.background]
        waits: list[Coroutine[Any, Any, object]] = []
        if len(foreground) < len(futures):
            waits.append(self._scope.wait(futures, seconds=self._node.grace))
        if foreground:
            waits.append(self._scope.wait(foreground))
        for step in steps:
            if isinstance(step.request, AwaitRequest):
                need = 1 if step.request.mode == "any" else None
                waits.append(self._scope.wait(step.targets, need=need, seconds=step.request.timeout))
        if self._turn.closing and earlier:
            waits.append(self._next_results(earlier))
        try:
            await asyncio.gather(*waits) if len(waits) != 1 else await waits[0]
        except asyncio.CancelledError:
            for future in foreground:
                self._scope.cancel(future, "the run was cancelled")
            raise

    async def _next_results(self, earlier: Sequence[Future]) -> None:
        """Wait for the next result, and within the grace for others, so that they share one message and one turn."""
        await self._scope.wait(earlier, need=1)
        await self._scope.wait(earlier, seconds=self._node.grace or 0.0)

    def _answer(self, step: Step) -> Outputs:
        """What answers one call.

        Raises:
            BaseException: What its tool raised, if nothing handles it.
        """
        if step.outputs is not None:
            return step.outputs
        if step.request is not None:
            return self._courier.answer(step)
        future = step.future
        assert future is not None
        if not future.settled:
            return [placeholder(self._courier.record(future))]
        if future.value is not None:
            outputs: Outputs = future.value
            return outputs
        if future.state is State.CANCELLED:
            return [error_message(future.tool, step.call.call_id, f"cancelled: {future.reason}.")]
        if future.error is not None and not isinstance(future.error, FutureError):
            raise future.error
        return [error_message(future.tool, step.call.call_id, future.reason or "it failed without a reason")]

    def _deliver(self, steps: Sequence[Step], earlier: Sequence[Future]) -> list[Any]:
        here = {future.id for future in self._scope.calls()}
        return self._courier.deliver(
            earlier,
            [step.future for step in steps if step.future is not None and not step.future.settled],
            [record for record in self._ledger.pending.values() if record.future not in here],
            complete=not self._turn.siblings,
        )

    def _keep_finished(self, steps: Sequence[Step]) -> None:
        """The node raises: remember what has finished, so that entering it again does not run it again."""
        for step in steps:
            future = step.future
            if future is None or future.background or not future.settled:
                continue
            if self._turn.place.resumable:
                if isinstance(future.error, GraphInterrupt):
                    self._node.runtime.memo.keep(future.id, INTERRUPTED)
                elif future.state is State.SUCCEEDED:
                    self._node.runtime.memo.keep(future.id, future.value)
            self._scope.forget(future)
        self._node.runtime.release(self._scope)

    def _let_go(self, steps: Sequence[Step]) -> None:
        """The node returns: what it answered in place need not be remembered."""
        for step in steps:
            if self._turn.place.resumable:
                self._node.runtime.memo.drop(step.call.future_id)
            if step.future is not None and step.future.settled:
                self._scope.forget(step.future)
        self._node.runtime.release(self._scope)
