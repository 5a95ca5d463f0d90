"""Replays a program through an agent graph: the calls are the leaderboard's, everything that runs them is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_flash.demo.agent import build_agent
from langgraph_flash.demo.bfcl import (
    Program,
    ProgramResult,
    Projection,
    canonical,
    fill,
    fresh_instances,
    make_tools,
    value_at,
)
from langgraph_flash.demo.bfcl.latency import LatencyModel, delays
from langgraph_flash.demo.conversation import from_user, placeholders_in, results_in
from langgraph_flash.demo.executors import Executor, Mode, declare
from langgraph_flash.errors import FlashError
from langgraph_flash.records import Span
from langgraph_flash.spans import SpanRecorder
from langgraph_flash.testing import ScriptedChatModel

__all__ = ["Replay", "ReplayMismatch", "ReplayScript", "call_id", "replay"]


class ReplayMismatch(FlashError):
    """What a conversation says about a call is not what its tool returned."""

    def __init__(self, call: str, tool: str | None, conversation: str | None) -> None:
        self.call = call
        super().__init__(
            f"The tool behind call {call!r} returned {tool!r}, and the conversation has {conversation!r} for it."
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What one run of a program left behind."""

    # Not in the repr: asyncio prints what a finished task returned, and all of this would be megabytes.
    outcome: ProgramResult = field(repr=False)
    """Results as they reached the conversation, and final states, for `difference`."""

    turns: tuple[tuple[Span, ...], ...] = field(repr=False)
    """Model and tool spans of each user turn."""

    messages: tuple[BaseMessage, ...] = field(repr=False)
    """The conversation at the end."""

    executed: tuple[str, ...] = field(repr=False)
    """Ids of the calls in the order they ended in, which is the order they took effect in."""

    seconds: float
    """From the first user turn to the end of the last one, on the loop's clock."""

    references: int
    """How many arguments were written as references to results that were not there yet."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of all turns."""
        return tuple(span for turn in self.turns for span in turn)


def call_id(program: Program, turn: int, call: int) -> str:
    """The tool call id of a program's call."""
    return f"{program.id}/{turn}/{call}"


class ReplayScript:
    """The turn of a `ScriptedChatModel` that writes a program's calls, from nothing but the conversation.

    Asked in a turn that has calls left, it writes them: all, or the next one. Then it gives a final answer, and
    again after each notification that arrives at the turn's end.

    Args:
        program: The program; projections in it become references while the call they point to is pending, and the
            value itself, read from the conversation, once it has been delivered.
        mode: Whether to write all calls of a turn in one message.
    """

    def __init__(self, program: Program, mode: Mode) -> None:
        self._program = program
        self._mode = mode
        self.references = 0
        """References written so far."""

    def __call__(self, messages: list[BaseMessage]) -> AIMessage | str:
        """The next message of the model."""
        said = {call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
        turn = sum(map(from_user, messages)) - 1
        ids = [call_id(self._program, turn, index) for index in range(len(self._program.turns[turn].calls))]
        left = [index for index, name in enumerate(ids) if name not in said]
        if not left:
            return "Done." if isinstance(messages[-1], ToolMessage) or from_user(messages[-1]) else "Noted."
        chosen = left if self._mode == "all" else left[:1]
        value_of = self._reader(messages)
        calls = [self._program.turns[turn].calls[index] for index in chosen]
        return AIMessage(
            content="",
            tool_calls=[
                ToolCall(name=call.method, args=fill(call.args, value_of), id=ids[index], type="tool_call")
                for index, call in zip(chosen, calls, strict=True)
            ],
        )

    def _reader(self, messages: Sequence[BaseMessage]) -> Callable[[Projection], Any]:
        def value_of(projection: Projection) -> Any:
            name = call_id(self._program, projection.turn, projection.call)
            text = results_in(messages).get(name)
            if text is not None:
                return value_at(text, projection.path)
            self.references += 1
            return projection.reference(placeholders_in(messages)[name].future)

        return value_of


class _Results(BaseCallbackHandler):
    """Records what each tool returned, by call id, where it returned it."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if isinstance(output, ToolMessage):
            self.texts[output.tool_call_id] = str(output.text)


async def replay(
    program: Program,
    executor: Executor,
    *,
    latency: LatencyModel | None = None,
    projected: Program | None = None,
    first_token_seconds: float = 0.0,
    seconds_per_token: float = 0.0,
    on_turn: Callable[[int], None] | None = None,
) -> Replay:
    """Run a program on one thread of an agent, one graph invocation for each user turn.

    All waiting is done on the running event loop, so under `virtual_time` it is free. Every history the model is
    given is checked by the strictest reading of the large providers.

    Args:
        program: The program.
        executor: The node, and how its model writes calls.
        latency: How long each call takes.
        projected: The same program with projections, for a model that uses results before they are there.
        first_token_seconds: Seconds before the model's first token.
        seconds_per_token: Seconds for each token.
        on_turn: Told the index of each user turn that ends.

    Raises:
        ReplayMismatch: A tool's result did not reach the conversation as it was.
    """
    instances = fresh_instances(program)
    tools = make_tools(
        program,
        instances,
        footprints=executor.footprints,
        declare=declare,
        delay=None if latency is None else delays(latency, program),
    )
    script = ReplayScript(projected or program, executor.mode)
    model = ScriptedChatModel(
        [script],
        loop=True,
        model="replayed model",
        first_token_seconds=first_token_seconds,
        seconds_per_token=seconds_per_token,
    )
    agent = build_agent(model, executor.node(tools))
    loop = asyncio.get_running_loop()
    results = _Results()
    spans: list[tuple[Span, ...]] = []
    messages: list[BaseMessage] = []
    start = loop.time()
    for index, turn in enumerate(program.turns):
        recorder = SpanRecorder(loop.time)
        config: RunnableConfig = {
            "callbacks": [recorder, results],
            "configurable": {"thread_id": program.id},
            "recursion_limit": 10_000,
        }
        # Some entries only add functions in a turn, without a word from the user.
        said = HumanMessage(turn.user or "Please go on.")
        state = await agent.ainvoke({"messages": [said]}, config, durability="exit")
        messages = state["messages"]
        spans.append(recorder.spans)
        if on_turn is not None:
            on_turn(index)
    return Replay(
        outcome=ProgramResult(
            _checked(program, results.texts, results_in(messages)),
            {name: canonical(instance) for name, instance in instances.items()},
        ),
        turns=tuple(spans),
        messages=tuple(messages),
        executed=tuple(results.texts),
        seconds=loop.time() - start,
        references=script.references,
    )


def _checked(program: Program, returned: dict[str, str], conversation: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """The results in the conversation, after comparing them with what the tools returned."""
    names = [
        [call_id(program, index, call) for call in range(len(turn.calls))] for index, turn in enumerate(program.turns)
    ]
    for name in (name for turn in names for name in turn):
        if name not in conversation or conversation[name] != returned.get(name):
            raise ReplayMismatch(name, returned.get(name), conversation.get(name))
    return tuple(tuple(conversation[name] for name in turn) for turn in names)
