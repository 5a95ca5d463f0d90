"""One visit of the node: register the calls, wait as long as it must, answer each, deliver what has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphInterrupt

from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.memo import INTERRUPTED
from langgraph_flash.futures.runtime import live_runtimes
from langgraph_flash.futures.scope import Scope
from langgraph_flash.nodes.control import AwaitRequest
from langgraph_flash.nodes.delivery import Courier, is_own
from langgraph_flash.nodes.host import Outputs
from langgraph_flash.nodes.ledger import Ledger, read_ledger
from langgraph_flash.nodes.lineage import descends
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
        self._runtime = node.runtime
        self._ledger = read_ledger(turn.messages) if node.active else Ledger()
        self._mark = (turn.place.step, turn.place.task)
        self._courier = Courier(self._mark, node.messages_key)
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
            earlier = await self._confirm() if self._node.active else []
            steps = Planner(self._node, self._turn, self._scope, self._ledger, earlier).plan()
            await self._wait(steps, earlier)
            outputs: list[Any] = []
            for step in steps:
                answers = self._answer(step)
                self._courier.note(answers)
                outputs.append(answers)
            if self._node.active:
                outputs += self._deliver(steps, earlier)
        except BaseException:
            self._courier.take_back()
            self._keep_finished(steps)
            raise
        self._let_go(steps)
        return self._node.combined(outputs, self._turn.shape)

    async def _confirm(self) -> list[Future]:
        """Drop futures whose results the history holds; return the others that belong to it, in program order."""
        own = self._turn.future_ids
        earlier: list[Future] = []
        for future in self._scope.calls():
            if future.id in own or not future.background or self._taken_by_another_task(future):
                continue
            tag: Tag = future.tags
            if future.id in self._ledger.pending:
                tag.offered = None
                earlier.append(future)
            elif future.id in self._ledger.delivered or (tag.offered is not None and tag.offered != self._mark):
                self._remember_delivered(future)
            elif tag.run is self._turn.place.run or await self._is_ours(tag):
                # Its placeholder was trimmed away; the result must not be lost with it. A fork, whose history never
                # held the placeholder, has no part in the future.
                tag.offered = None
                earlier.append(future)
        known = own | {future.id for future in earlier}
        # A sub-graph that is entered again is a new conversation with the old messages, and a fork from between a
        # placeholder and its delivery asks for what was delivered elsewhere.
        for future_id in self._ledger.pending:
            found = None if future_id in known else self._runtime.find(future_id)
            if found is not None and not self._taken_by_another_task(found):
                found.tags.offered = None
                earlier.append(found)
        return earlier

    def _taken_by_another_task(self, future: Future) -> bool:
        """Whether another task of this very step delivers it."""
        offered: tuple[str, str] | None = future.tags.offered
        return offered is not None and offered[0] == self._mark[0] and offered[1] != self._mark[1]

    def _remember_delivered(self, future: Future) -> None:
        if future.settled:
            self._scope.forget(future)
            self._runtime.delivered.keep(future.id, future)

    async def _is_ours(self, tag: Tag) -> bool:
        """Whether this history grew from the step that dispatched a future."""
        place = self._turn.place
        if place.thread_id is None or not isinstance(place.owner, BaseCheckpointSaver):
            return False
        return await descends(
            place.owner,
            place.step,
            tag.step,
            thread_id=place.thread_id,
            namespace=place.namespace,
            threads=self._runtime.threads,
        )

    async def _wait(self, steps: Sequence[Step], earlier: Sequence[Future]) -> None:
        futures = [step.future for step in steps if step.future is not None]
        foreground = [future for future in futures if not future.background]
        waits: list[Coroutine[Any, Any, object]] = []
        if hopeful := [future for future in futures if future.background and self._may_end_soon(future)]:
            waits.append(self._scope.wait(hopeful, seconds=self._node.grace))
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
            # Within the bound after which a call is abandoned: a cancelled run has ended when its tools have.
            await self._scope.wait(foreground)
            raise

    def _may_end_soon(self, future: Future) -> bool:
        """Whether waiting for a call within the grace is worth it: calls of its tool have not been taking longer."""
        grace = self._node.grace
        usual = future.estimate
        return grace is None or usual is None or usual <= grace

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
            return [self._courier.answer(step)]
        future = step.future
        assert future is not None
        if not future.settled:
            return [placeholder(self._courier.record(future))]
        if future.value is not None:
            outputs: Outputs = future.value
            return outputs
        if future.state is State.CANCELLED:
            return [error_message(future.tool, step.call.call_id, f"cancelled: {future.reason}.")]
        if future.error is not None and not is_own(future):
            raise future.error
        return [error_message(future.tool, step.call.call_id, future.reason or "it failed without a reason")]

    def _deliver(self, steps: Sequence[Step], earlier: Sequence[Future]) -> list[Any]:
        """What follows the answers: state updates of what was delivered, and the notification."""
        notification = None
        if self._turn.delivers:
            known = {future.id for future in earlier} | {step.call.future_id for step in steps}
            notification = self._courier.deliver(
                earlier,
                self._fresh(steps),
                [record for record in self._ledger.pending.values() if not self._is_known(record.future, known)],
                complete=not self._turn.siblings,
            )
        return [*self._courier.updates, *([] if notification is None else [notification])]

    def _fresh(self, steps: Sequence[Step]) -> list[Future]:
        """Futures of this turn that are pending, those of sibling tasks included."""
        futures = [step.future for step in steps if step.future is not None]
        futures += [found for other in self._turn.sibling_ids if (found := self._scope.get(other)) is not None]
        return [future for future in dict.fromkeys(futures) if future.background and not future.settled]

    def _is_known(self, future_id: str, known: set[str]) -> bool:
        """Whether a pending future lives in this process, here or under another node's runtime."""
        return future_id in known or any(runtime.find(future_id) is not None for runtime in live_runtimes())

    def _keep_finished(self, steps: Sequence[Step]) -> None:
        """The node raises: remember what has finished, so that entering it again does not run it again."""
        for step in steps:
            future = step.future
            if future is None or not future.settled:
                continue
            if future.background and future.state is State.SUCCEEDED:
                continue  # it waits in the scope
            if self._turn.place.resumable:
                if isinstance(future.error, GraphInterrupt):
                    self._runtime.memo.keep(future.id, INTERRUPTED)
                elif future.value is not None:
                    self._runtime.memo.keep(future.id, future.value)
            self._scope.forget(future)

    def _let_go(self, steps: Sequence[Step]) -> None:
        """The node returns: what it answered in place need not be remembered."""
        for step in steps:
            if self._turn.place.resumable:
                self._runtime.memo.drop(step.call.future_id)
            if step.future is not None and step.future.settled:
                self._scope.forget(step.future)
