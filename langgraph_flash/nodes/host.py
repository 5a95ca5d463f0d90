"""The one file that knows LangGraph's protected surface, given plain names for the rest of the package.

`FlashNode` must be a `ToolNode` (LangGraph and LangChain check for it) and must parse inputs, inject state and shape
outputs exactly as it does, so it calls those methods instead of repeating them. `require_host` fails loudly, naming
what is missing, if a future LangGraph moves them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.futures.timeouts import heartbeat

__all__ = ["Host", "Outputs", "Shape", "is_async_only", "require_host", "saver_of"]

Shape = Literal["list", "dict", "tool_calls"]
"""How the node was given its calls, which decides the shape of what it returns."""

Outputs = list[ToolMessage | Command[Any]]
"""What one call produced."""

_PROTECTED = (
    "_parse_input",
    "_extract_state",
    "_run_one",
    "_arun_one",
    "_execute_tool_sync",
    "_execute_tool_async",
    "_combine_tool_outputs",
)


def require_host() -> None:
    """Check that the installed `ToolNode` has every protected method used here.

    Raises:
        ConfigurationError: One is missing; the message names it and the supported versions.
    """
    if missing := [name for name in _PROTECTED if not inspect.isfunction(getattr(ToolNode, name, None))]:
        raise ConfigurationError(
            f"This version of langgraph-prebuilt has no ToolNode.{', ToolNode.'.join(missing)}, which FlashNode builds "
            "on. Install a langgraph within the range that langgraph-flash declares."
        )


def saver_of(config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
    """The saver that keeps the current thread, if there is one.

    LangGraph has no public way to ask; without the key, conversations are taken to last for one run.
    """
    saver = (config.get("configurable") or {}).get("__pregel_checkpointer")
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def is_async_only(tool: BaseTool | None) -> bool:
    """Whether a tool has a coroutine and no plain function."""
    return getattr(tool, "func", None) is None and getattr(tool, "coroutine", None) is not None


class _PulsingRuntime(ToolRuntime[Any, Any]):
    """A `ToolRuntime` whose streaming output counts as a sign of life."""

    def emit_output_delta(self, delta: Any) -> None:
        heartbeat()
        super().emit_output_delta(delta)


class Host(ToolNode):
    """`ToolNode` with its steps callable one by one."""

    def parse(self, state: Any) -> tuple[list[ToolCall], Shape]:
        """The calls in a node's input and the shape it came in."""
        calls, shape = self._parse_input(state)
        return calls, shape

    def messages_of(self, state: Any) -> Sequence[AnyMessage]:
        """The conversation in a state of any kind; empty if there is none."""
        if isinstance(state, list):
            return state
        found = state.get(self._messages_key) if isinstance(state, dict) else getattr(state, self._messages_key, None)
        return found if isinstance(found, list) else []

    def tool_runtimes(
        self, state: Any, calls: Sequence[ToolCall], config: RunnableConfig, runtime: Runtime[Any], pulsing: bool
    ) -> list[ToolRuntime[Any, Any]]:
        """One `ToolRuntime` for each call, holding the state as it is now."""
        kind = _PulsingRuntime if pulsing else ToolRuntime
        tools = list(self.tools_by_name.values())
        writer = _pulsing(runtime.stream_writer) if pulsing else runtime.stream_writer
        return [
            kind(
                state=self._extract_state(state, call_config),
                tool_call_id=call["id"],
                config=call_config,
                context=runtime.context,
                store=runtime.store,
                stream_writer=writer,
                tools=tools,
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            )
            for call, call_config in zip(calls, get_config_list(config, len(calls)), strict=True)
        ]

    def run_call(self, call: ToolCall, shape: Shape, runtime: ToolRuntime[Any, Any]) -> Outputs:
        """Run one call, wrapper and error handling included, on this thread."""
        return _listed(self._run_one(call, shape, runtime))

    async def arun_call(self, call: ToolCall, shape: Shape, runtime: ToolRuntime[Any, Any]) -> Outputs:
        """Run one call, wrapper and error handling included, on this loop."""
        return _listed(await self._arun_one(call, shape, runtime))

    def combined(self, outputs: Sequence[Any], shape: Shape) -> Any:
        """The node's return value for the outputs of its calls, in their order."""
        return self._combine_tool_outputs(list(outputs), shape)

    def injected_names(self, tool: str) -> frozenset[str]:
        """Arguments of a tool that the graph fills in, and that a model must not."""
        injected = self._injected_args.get(tool)
        return frozenset(injected.all_injected_keys) if injected else frozenset()

    @property
    def messages_key(self) -> str:
        """The state's key for the conversation."""
        return self._messages_key

    @property
    def only_sync_wrapper(self) -> bool:
        """Whether calls are wrapped by a function that would block an event loop."""
        return self._wrap_tool_call is not None and self._awrap_tool_call is None

    @property
    def wrapped(self) -> bool:
        """Whether calls go through a wrapper, which may change or replace them."""
        return self._wrap_tool_call is not None or self._awrap_tool_call is not None

    def _execute_tool_sync(self, request: ToolCallRequest, input_type: Shape, config: RunnableConfig) -> Any:
        """Let tools that only have a coroutine work from synchronous code, where `ToolNode` refuses them."""
        if request.tool is not None and is_async_only(request.tool):
            return self._on_loop(lambda: self._execute_tool_async(request, input_type, config))
        return super()._execute_tool_sync(request, input_type, config)

    def _on_loop(self, make: Callable[[], Any]) -> Any:
        raise NotImplementedError


def _listed(output: Any) -> Outputs:
    return output if isinstance(output, list) else [output]


def _pulsing(writer: Callable[[Any], None]) -> Callable[[Any], None]:
    def write(chunk: Any) -> None:
        heartbeat()
        writer(chunk)

    return write
