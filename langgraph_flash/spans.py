"""The recorder: a LangChain callback handler that measures every model call and tool call as a `Span`.

    recorder = SpanRecorder()
    graph.invoke(state, {"callbacks": [recorder]})
    recorder.spans

It sees what LangChain's callbacks see, so it works unchanged under `ToolNode`, `FlashNode` and
`create_agent`. It keeps durations, names and a short digest of tool arguments; prompts, answers and tool
results are never stored.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from langgraph_flash.records import Span

__all__ = ["SpanRecorder"]

_DETAIL_LIMIT = 80
_VALUE_LIMIT = 32
_SECRET_NAMES = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|token|authorization|credentials?|api_?key|access_key|private_key)(_|$)"
)


@dataclass
class _Run:
    """One call being measured; `end` is `None` while it runs."""

    kind: Literal["model", "tool"]
    name: str
    start: float
    parent: UUID | None
    end: float | None = None
    outcome: Literal["ok", "failed", "cancelled"] = "ok"
    call_id: str | None = None
    turn: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    detail: str | None = None


class SpanRecorder(BaseCallbackHandler):
    """Records one `Span` for each finished model call and tool call of the runs it is attached to.

    Safe to share between threads, event loops and concurrent runs. A call appears in `spans` when it has
    ended; a call that LangChain abandons without an end event (a model cancelled inside `ainvoke`) ends as
    "cancelled" with the graph node that made it.

    `turn` counts model calls from zero in the order they start. A tool call carries the turn of the model
    call that asked for it; where no model answer names its call id, the latest turn that had started.

    Args:
        clock: Returns seconds; only differences are used. Pass the clock of a virtual-time event loop to
            measure in virtual time.
    """

    # Inline callbacks run where the event happens: the clock is read at once, and start precedes end.
    run_inline = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[UUID, _Run] = {}
        self._finished: list[_Run] = []
        self._turns = 0
        self._asked_by: dict[str, int] = {}
        self._tools: dict[str, _Run] = {}

    def __repr__(self) -> str:
        with self._lock:
            return f"SpanRecorder(finished={len(self._finished)}, running={len(self._runs)})"

    @property
    def spans(self) -> tuple[Span, ...]:
        """The finished spans so far, ordered by start, then end; later calls do not change the tuple."""
        with self._lock:
            finished = sorted(self._finished, key=lambda run: (run.start, run.end or run.start, run.kind, run.name))
            return tuple(_span(run) for run in finished)

    @property
    def running(self) -> int:
        """How many calls have started and not ended."""
        with self._lock:
            return len(self._runs)

    def clear(self) -> None:
        """Forget everything, also the calls now running, and count turns from zero again."""
        with self._lock:
            self._runs.clear()
            self._finished.clear()
            self._asked_by.clear()
            self._tools.clear()
            self._turns = 0

    # LangChain's events. Every parameter that is not read stays in **kwargs: the protocol keeps growing.

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Start the span of a chat model call."""
        self._start_model(serialized, run_id, parent_run_id, kwargs)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Start the span of a text-completion model call."""
        self._start_model(serialized, run_id, parent_run_id, kwargs)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """End a model span; note its token counts and which tool calls it asked for."""
        message = _message(response)
        usage = getattr(message, "usage_metadata", None) or {}
        calls = [call for call in getattr(message, "tool_calls", None) or [] if isinstance(call, Mapping)]
        with self._lock:
            run = self._finish(run_id, "ok")
            if run is None:
                return
            run.input_tokens = usage.get("input_tokens")
            run.output_tokens = usage.get("output_tokens")
            run.detail = _clip("calls " + ", ".join(str(call.get("name")) for call in calls)) if calls else "answers"
            for call_id in (call.get("id") for call in calls):
                if run.turn is None or call_id is None:
                    continue
                self._asked_by[call_id] = run.turn
                early = self._tools.get(call_id)
                # A node that reads the stream starts tools before the model has finished asking for them.
                if early is not None and early.start >= run.start:
                    early.turn = run.turn

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End a model span as failed or cancelled."""
        self._fail(run_id, error)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Start the span of a tool call."""
        name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        call_id = kwargs.get("tool_call_id")
        detail = _clip(_one_line(input_str)) if inputs is None else _digest(inputs)
        with self._lock:
            run = _Run("tool", name, self._clock(), parent_run_id, call_id=call_id, detail=detail)
            latest = self._turns - 1 if self._turns else None
            run.turn = latest if call_id is None else self._asked_by.get(call_id, latest)
            self._runs[run_id] = run
            if call_id is not None:
                self._tools[call_id] = run

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a tool span; an error the tool turned into a message counts as failed."""
        with self._lock:
            self._finish(run_id, "failed" if getattr(output, "status", None) == "error" else "ok")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End a tool span as failed or cancelled."""
        self._fail(run_id, error)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the model spans that a cancelled chain leaves behind.

        `BaseChatModel.agenerate` reports no end when its own task is cancelled; the chain around it does.
        """
        if not isinstance(error, asyncio.CancelledError):
            return
        with self._lock:
            orphans = [key for key, run in self._runs.items() if run.kind == "model" and run.parent == run_id]
            for key in orphans:
                self._finish(key, "cancelled")

    def _start_model(
        self,
        serialized: Mapping[str, Any] | None,
        run_id: UUID,
        parent: UUID | None,
        extra: Mapping[str, Any],
    ) -> None:
        name = _model_name(serialized or {}, extra)
        with self._lock:
            self._runs[run_id] = _Run("model", name, self._clock(), parent, turn=self._turns)
            self._turns += 1

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        outcome: Literal["failed", "cancelled"] = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        with self._lock:
            run = self._finish(run_id, outcome)
            if run is not None and outcome == "failed":
                # The type alone: an error's message may quote a prompt or a secret.
                kind = type(error).__name__
                run.detail = _clip(f"{kind}: {run.detail}" if run.detail else kind)

    def _finish(self, run_id: UUID, outcome: Literal["ok", "failed", "cancelled"]) -> _Run | None:
        """Move a run to the finished ones. The caller holds the lock; an unknown run is not ours to end."""
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        run.end = self._clock()
        run.outcome = outcome
        self._finished.append(run)
        return run


def _span(run: _Run) -> Span:
    return Span(
        kind=run.kind,
        name=run.name,
        start=run.start,
        end=run.start if run.end is None else run.end,
        outcome=run.outcome,
        call_id=run.call_id,
        turn=run.turn,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        detail=run.detail,
    )


def _model_name(serialized: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """The model's own name where it says it, else the name of its class."""
    metadata = extra.get("metadata") or {}
    params = extra.get("invocation_params") or {}
    named = metadata.get("ls_model_name") or params.get("model") or params.get("model_name")
    path = serialized.get("id") or [None]
    return str(named or extra.get("name") or serialized.get("name") or path[-1] or "model")


def _message(response: LLMResult) -> BaseMessage | None:
    """The message a model call produced, or `None` for a text completion."""
    for candidates in response.generations:
        for generation in candidates:
            message = getattr(generation, "message", None)
            if isinstance(message, BaseMessage):
                return message
    return None


def _digest(arguments: Mapping[str, Any]) -> str | None:
    """`city='Oslo', days=3`, short; the value of an argument named like a secret is masked."""
    parts = []
    for name, value in arguments.items():
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        shown = "•••" if _SECRET_NAMES.search(snake) else _clip(_one_line(_shown(value)), _VALUE_LIMIT)
        parts.append(f"{name}={shown}")
    return _clip(", ".join(parts)) or None


def _shown(value: object) -> str:
    """The form of a value in a digest; a big value is described, its text neither built nor kept."""
    match value:
        case str():
            return repr(value[: _VALUE_LIMIT + 1])
        case bool() | int() | float() | None:
            return repr(value)
        case list() | tuple() | set() | frozenset() | Mapping():
            return f"{type(value).__name__}[{len(value)}]"
        case _:
            return type(value).__name__


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * _DETAIL_LIMIT].split())


def _clip(text: str, limit: int = _DETAIL_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
