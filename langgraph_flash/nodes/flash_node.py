"""`FlashNode`: a `ToolNode` whose slow calls answer with futures and deliver their results later."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from pydantic import BaseModel

from langgraph_flash.errors import ConfigurationError, DeclarationError
from langgraph_flash.futures.runtime import FutureRuntime, default_runtime
from langgraph_flash.futures.scheduler import OrderFailure, longest_first, program_order
from langgraph_flash.futures.scope import Scope
from langgraph_flash.futures.timeouts import Timeout
from langgraph_flash.futures.uses import UNDECLARED, OnEnd, Uses, declared
from langgraph_flash.nodes.control import AWAIT, CANCEL, control_tools
from langgraph_flash.nodes.host import Host, Outputs, require_host
from langgraph_flash.nodes.schemas import accepts_text, widened
from langgraph_flash.nodes.step import final_message
from langgraph_flash.nodes.turn import Turn, take_turn
from langgraph_flash.nodes.visit import Visit

__all__ = ["FlashNode", "ToolPlan"]


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What a node settled about one of its tools when it was made."""

    uses: Uses
    background: bool
    timeout: Timeout | None
    schema: type[BaseModel] | None
    """Validates what a model passes, where that can be done before the tool runs."""


class FlashNode(Host):
    """A drop-in `ToolNode` that stops waiting for its tools.

    With nothing declared it does what `ToolNode` does, only better: calls that have finished are not run again after
    an interrupt or a retry, one failing call does not lose the results of the others, tools have timeouts, and tools
    that only have a coroutine work under `invoke`.

    A tool declared with `@uses`, or named by `background`, answers with a *future*: a placeholder the model can go on
    with. Its result is appended to the conversation as one message when the node is next left, so nothing that was
    said is ever rewritten. Calls run in program order wherever they conflict, and overlap where their declared
    resources allow it.

    Examples:
        ```python
        from langgraph.prebuilt import ToolNode

        from langgraph_flash import FlashNode, uses


        @uses(reads=["web"])
        def search(query: str) -> str:
            "Search the web."
            return f"results for {query}"


        node = FlashNode([search])
        assert isinstance(node, ToolNode)
        ```

    Args:
        tools: Tools or plain functions, as for `ToolNode`.
        name: The node's name, as for `ToolNode`.
        tags: Tags, as for `ToolNode`.
        handle_tool_errors: As for `ToolNode`. A background call that fails and is handled is delivered as a failure;
            one that is not handled raises in the graph at the point where its result would have been delivered.
        messages_key: The state's key for messages, as for `ToolNode`.
        wrap_tool_call: Wrapper around each call, as for `ToolNode`; it runs where the call runs, off the event loop.
        awrap_tool_call: Its async form, as for `ToolNode`.
        background: Which tools return futures: by default those declared with `@uses`; `True` for all; names for
            these as well; `False` for none, which keeps the ordering of declared tools and waits for all calls.
            `@uses(background=...)` on a tool wins. Tools with `return_direct` always run in the foreground.
        grace: Seconds to wait for background calls before answering with placeholders; a result that is there by
            then is returned as itself. Tools that are known to take longer are not waited for. `math.inf` waits for
            all.
        timeout: Limit for every call, in seconds or as a `Timeout`; or a mapping from tool name to limit. A limit
            declared on the tool wins. Running out of time is answered with an error message.
        on_end: What `flash_condition` does with pending futures at the model's final answer: `"drain"` waits for
            them and lets the model see them, `"cancel"` stops them, `"detach"` lets them arrive at the next turn.
            `@uses(on_end=...)` on a tool wins.
        on_order_failure: What a failure does to later calls that only wait for their turn: `"continue"`, as running
            them one by one would, or `"cancel"`. Calls that need the failed result are always cancelled.
        dispatch: `"program"` starts calls in their order, `"longest"` those expected to take longest first; it matters
            only when a limit on concurrency makes calls queue.
        max_parallel: Most calls running at once, besides the run's `max_concurrency`.
        is_failure: Given a tool's final message, says why it is a failure although nothing was raised, or `None`; for
            tools that return an error object.
        cancellation: Offer the model a `cancel_future` tool.
        runtime: Where futures live; by default the process's shared runtime.
        loop: Where coroutine tools in the background run under async graph methods: `"runtime"`, where they outlive
            the caller's loop, or `"caller"`, for tools that hold clients bound to the caller's loop.

    Raises:
        ConfigurationError: An option can never work.
        DeclarationError: A tool's declaration does not fit the tool.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        name: str = "tools",
        tags: list[str] | None = None,
        handle_tool_errors: Any = ...,
        messages_key: str = "messages",
        wrap_tool_call: Any = None,
        awrap_tool_call: Any = None,
        background: bool | Collection[str] | None = None,
        grace: float = 0.05,
        timeout: Timeout | float | timedelta | Mapping[str, Timeout | float | timedelta] | None = None,
        on_end: OnEnd = "drain",
        on_order_failure: OrderFailure = "continue",
        dispatch: Literal["program", "longest"] = "program",
        max_parallel: int | None = None,
        is_failure: Callable[[ToolMessage], str | None] | None = None,
        cancellation: bool = False,
        runtime: FutureRuntime | None = None,
        loop: Literal["runtime", "caller"] = "runtime",
    ) -> None:
        require_host()
        errors = {} if handle_tool_errors is ... else {"handle_tool_errors": handle_tool_errors}
        super().__init__(
            tools,
            name=name,
            tags=tags,
            messages_key=messages_key,
            wrap_tool_call=wrap_tool_call,
            awrap_tool_call=awrap_tool_call,
            **errors,
        )
        _one_of("on_end", on_end, ("drain", "cancel", "detach"))
        _one_of("on_order_failure", on_order_failure, ("continue", "cancel"))
        _one_of("dispatch", dispatch, ("program", "longest"))
        _one_of("loop", loop, ("runtime", "caller"))
        if not _is_seconds(grace):
            raise ConfigurationError(f"grace={grace!r} is not a number of at least 0 seconds, or math.inf to wait.")
        if max_parallel is not None and not (type(max_parallel) is int and max_parallel >= 1):
            raise ConfigurationError(
                f"max_parallel={max_parallel!r} is not a number of calls; give at least 1, or None."
            )
        self.grace = None if math.isinf(grace) else float(grace)
        self.on_end: OnEnd = on_end
        self._on_order_failure: OrderFailure = on_order_failure
        self._dispatch = longest_first if dispatch == "longest" else program_order
        self.max_parallel = max_parallel
        self._is_failure = is_failure
        self.on_callers_loop = loop == "caller"
        self._runtime = runtime
        self._key = uuid.uuid4().hex
        self._text_arguments: dict[str, frozenset[str]] = {}
        self.plans = _plans(self._tools_by_name, background, timeout)
        self.default_timeout = None if isinstance(timeout, Mapping) else _limit(timeout)
        self._pulsing = any(plan.timeout is not None and plan.timeout.idle is not None for plan in self.plans.values())
        self.offers_futures = self.grace is not None and any(plan.background for plan in self.plans.values())
        self.active = any(plan.background for plan in self.plans.values()) or any(
            plan.uses is not UNDECLARED for plan in self.plans.values()
        )
        self.control_names: frozenset[str] = frozenset()
        if self.offers_futures:
            self._add_control_tools(cancel=cancellation)

    def _add_control_tools(self, *, cancel: bool) -> None:
        for tool in control_tools(cancel=cancel):
            if tool.name in self._tools_by_name:
                raise ConfigurationError(
                    f"FlashNode answers {tool.name!r} itself, but a tool of that name was passed. Rename that tool."
                )
            # Stock nodes register their injected arguments in the same pass; ours have none.
            self._tools_by_name[tool.name] = tool
        self.control_names = frozenset({AWAIT, CANCEL}) & set(self._tools_by_name)

    # The model's side -----------------------------------------------------------------------------------------

    def bind(self, model: BaseChatModel | None = None, **kwargs: Any) -> Any:
        """Bind a chat model to this node's tools, each argument of which then also takes a future's id.

        Args:
            model: The chat model. Without one this is the `bind` that every runnable has.
            **kwargs: Passed on to `model.bind_tools`, such as `tool_choice` or `parallel_tool_calls`.

        Returns:
            The bound model.
        """
        if model is None:
            return super().bind(**kwargs)
        return model.bind_tools(self.model_tools(), **kwargs)

    def model_tools(self) -> list[dict[str, Any] | BaseTool]:
        """The tools as the model should see them: `await_future` included, schemas widened where futures exist."""
        if not self.offers_futures:
            return list(self._tools_by_name.values())
        return [tool if name in self.control_names else widened(tool) for name, tool in self._tools_by_name.items()]

    # Visits ---------------------------------------------------------------------------------------------------

    @property
    def runtime(self) -> FutureRuntime:
        """Where this node's futures live."""
        return self._runtime or default_runtime()

    def cancel(self, future_id: str, reason: str = "it was cancelled by the application") -> bool:
        """Cancel a future by id, from any thread; `False` if it is unknown or has settled.

        The conversation is told at the next turn boundary, together with everything cancelled because of it.
        """
        return self.runtime.cancel(future_id, reason)

    def _func(
        self,
        input: list[AnyMessage] | dict[str, Any] | BaseModel,
        config: RunnableConfig,
        runtime: Runtime,  # LangGraph matches this annotation literally
    ) -> Any:
        turn = self._turn(input, config, runtime, None)
        return self.runtime.call(lambda: self._visit(turn))

    async def _afunc(
        self,
        input: list[AnyMessage] | dict[str, Any] | BaseModel,
        config: RunnableConfig,
        runtime: Runtime,  # LangGraph matches this annotation literally
    ) -> Any:
        turn = self._turn(input, config, runtime, asyncio.get_running_loop())
        if not self.active:
            return await self._visit(turn)
        return await self.runtime.acall(lambda: self._visit(turn), turn.pulse)

    def _turn(
        self, state: Any, config: RunnableConfig, runtime: Runtime[Any], loop: asyncio.AbstractEventLoop | None
    ) -> Turn:
        return take_turn(
            self,
            state,
            config,
            runtime,
            active=self.active,
            pulsing=self._pulsing,
            fallback=self._key,
            loop=loop,
        )

    async def _visit(self, turn: Turn) -> Any:
        if self.active:
            scope = self.runtime.scope(turn.place.key, lambda loop: self._scope(turn, loop))
        else:
            scope = self._scope(turn, asyncio.get_running_loop())
        scope.visitors += 1
        try:
            return await Visit(self, turn, scope).run()
        finally:
            scope.visitors -= 1
            self.runtime.release(scope)

    def _scope(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> Scope:
        runtime = self.runtime
        return Scope(
            turn.place.key,
            owner=turn.place.owner,
            loop=loop,
            on_order_failure=self._on_order_failure,
            order=runtime.order or self._dispatch,
            eager=runtime.eager,
            measured=runtime.measured,
        )

    def text_arguments(self, tool: str) -> frozenset[str]:
        """Names of a tool's arguments that take text, where text that is JSON must stay text."""
        if tool not in self._text_arguments:
            found = self._tools_by_name.get(tool)
            self._text_arguments[tool] = frozenset() if found is None else accepts_text(found)
        return self._text_arguments[tool]

    def view(self, outputs: Outputs) -> Any:
        """What references see of a call: the content it ended with, as text if it is nothing but text."""
        message = final_message(outputs, self._messages_key)
        if message is None:
            return None
        content = message.content
        if isinstance(content, list) and content and all(_is_text(block) for block in content):
            return "\n".join(block if isinstance(block, str) else block["text"] for block in content)
        return content

    def failure_of(self, outputs: Outputs) -> str | None:
        """Why a call that returned is a failure all the same, or `None`."""
        message = final_message(outputs, self._messages_key)
        if message is None:
            return None
        if message.status == "error":
            return str(message.content)
        return self._is_failure(message) if self._is_failure is not None else None

    def _on_loop(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self.runtime.call(make)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _is_text(block: Any) -> bool:
    return isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text" and "text" in block)


def _one_of(name: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ConfigurationError(f"{name}={given!r} is not one of {', '.join(map(repr, allowed))}.")


def _limit(value: Timeout | float | timedelta | None) -> Timeout | None:
    limit = Timeout.coerce(value)
    return None if limit == Timeout() else limit


def _plans(
    tools: Mapping[str, BaseTool],
    background: bool | Collection[str] | None,
    timeout: Timeout | float | timedelta | Mapping[str, Timeout | float | timedelta] | None,
) -> dict[str, ToolPlan]:
    if background is not None and (isinstance(background, str) or not isinstance(background, (bool, Collection))):
        raise ConfigurationError(
            f"background={background!r} is not True, False, None or a list of strings, the tool names."
        )
    named = frozenset() if background is None or isinstance(background, bool) else frozenset(background)
    for option, names in (("background", named), ("timeout", timeout if isinstance(timeout, Mapping) else ())):
        if unknown := sorted(set(names) - set(tools)):
            raise ConfigurationError(f"{option} names {unknown}, which are not tools of this node: {sorted(tools)}.")
    plans = {}
    for name, tool in tools.items():
        found = declared(tool)
        uses = found or UNDECLARED
        if uses.fields:
            uses.check(name, tool.args)
        if uses.background is not None:
            wanted = uses.background
        else:
            wanted = background is True or name in named or (found is not None and background is not False)
        if tool.return_direct:
            if uses.background:
                raise DeclarationError(
                    name,
                    "return_direct makes its result the run's final answer, which a placeholder must never be",
                    "Leave background out, or return_direct.",
                )
            wanted = False
        given = timeout.get(name) if isinstance(timeout, Mapping) else timeout
        schema = tool.tool_call_schema if wanted else None
        plans[name] = ToolPlan(
            uses=uses,
            background=wanted,
            timeout=uses.timeout or _limit(given),
            schema=schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None,
        )
    return plans
