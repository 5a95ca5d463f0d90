"""Helpers of the node tests: an agent graph on a scripted model, tools that take time, and readers of histories."""

from __future__ import annotations

import asyncio
import functools
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, get_notification_metadata
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph

from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.futures.references import ID_PATTERN
from langgraph_flash.testing import ScriptedChatModel, virtual_time

UNKNOWN = "fut_0123456789"
SOURCE = "langgraph_flash"


def user(text: str = "Go.") -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def thread(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}, **more}


class Lab:
    """Tools that log when they start and end, on the clock of the loop they run on."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, float]] = []
        self.args: list[Any] = []

    async def work(self, label: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.log.append(("start", label, loop.time()))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.log.append(("cancelled", label, loop.time()))
            raise
        self.log.append(("end", label, loop.time()))

    def at(self, what: str, label: str) -> float:
        found = [when for kind, name, when in self.log if (kind, name) == (what, label)]
        assert len(found) == 1, f"{what} {label}: {self.log}"
        return found[0]

    def times(self, label: str) -> int:
        return sum(kind == "start" and name == label for kind, name, _ in self.log)

    def started(self) -> list[str]:
        return [name for kind, name, _ in self.log if kind == "start"]

    def ended(self) -> list[str]:
        return [name for kind, name, _ in self.log if kind == "end"]

    def tools(self) -> list[BaseTool]:
        """The tools, logging here. Their schemas are made once, because that is most of what a short test costs."""
        return [made.model_copy(update={"coroutine": _rebound(made.coroutine, self)}) for made in _templates()]  # type: ignore[attr-defined]

    def _make_tools(self) -> list[BaseTool]:
        lab = self

        @tool
        @uses(pure=True)
        async def search(query: str, seconds: float = 1.0) -> str:
            """Search."""
            await lab.work(query, seconds)
            return f"found {query}"

        @tool
        @uses(pure=True)
        async def number(value: int, seconds: float = 1.0) -> int:
            """Think of a number."""
            await lab.work(f"number {value}", seconds)
            return value

        @tool
        @uses(pure=True)
        async def record(seconds: float = 1.0) -> dict[str, Any]:
            """Get a record."""
            await lab.work("record", seconds)
            return {"id": 7, "name": "tea", "items": [{"id": "a"}, {"id": "b"}], "flag": True, "odd key": 1}

        @tool
        @uses(pure=True)
        async def add(a: int, b: int = 0, seconds: float = 0.0) -> int:
            """Add."""
            lab.args.append((a, b))
            await lab.work(f"add {a} {b}", seconds)
            return a + b

        @tool
        @uses(pure=True)
        async def echo(text: str, seconds: float = 0.0) -> str:
            """Say it again."""
            lab.args.append(text)
            await lab.work(f"echo {text}", seconds)
            return text

        @tool
        @uses(pure=True)
        async def nest(values: list[int], table: dict[str, Any], seconds: float = 0.0) -> str:
            """Take nested arguments."""
            lab.args.append((values, table))
            return "nested"

        @tool
        @uses(writes="disk/{path}")
        async def write(path: str, label: str = "", seconds: float = 1.0) -> str:
            """Write."""
            await lab.work(label or f"write {path}", seconds)
            return f"wrote {path}"

        @tool
        @uses(reads="disk/{path}")
        async def read(path: str, label: str = "", seconds: float = 1.0) -> str:
            """Read."""
            await lab.work(label or f"read {path}", seconds)
            return f"read {path}"

        @tool
        @uses(pure=True)
        async def boom(label: str = "boom", seconds: float = 1.0) -> str:
            """Fail."""
            await lab.work(label, seconds)
            raise ValueError(f"{label} broke")

        @tool
        @uses(writes="disk/{path}")
        async def crash(path: str, seconds: float = 1.0) -> str:
            """Fail while writing."""
            await lab.work(f"crash {path}", seconds)
            raise ValueError("crashed")

        @tool
        async def plain(label: str = "plain", seconds: float = 1.0) -> str:
            """Do something undeclared."""
            await lab.work(label, seconds)
            return f"did {label}"

        @tool
        @uses(pure=True, background=False)
        async def front(label: str = "front", seconds: float = 0.0) -> str:
            """Run in the foreground."""
            lab.args.append(label)
            await lab.work(label, seconds)
            return f"front {label}"

        return [search, number, record, add, echo, nest, write, read, boom, crash, plain, front]


@functools.cache
def _templates() -> list[BaseTool]:
    return Lab()._make_tools()


def _rebound(function: Any, lab: Lab) -> Any:
    """The same function over another lab; `lab` is the one variable it closes over."""
    assert function.__code__.co_freevars in ((), ("lab",))
    cells = tuple(types.CellType(lab) for _ in function.__code__.co_freevars)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, function.__annotations__
    made.__dict__.update(function.__dict__)
    return made


def agent(
    model: ScriptedChatModel,
    node: FlashNode,
    *,
    saver: Any = None,
    condition: Any = flash_condition,
    state: Any = MessagesState,
    key: str = "messages",
    start: str = "agent",
    **options: Any,
) -> Any:
    """An agent graph: the model, the node, and the edges between them."""
    bound = node.bind(model)

    def seen(state: Any) -> list[BaseMessage]:
        if isinstance(state, list):
            return state
        return state[key] if isinstance(state, dict) else getattr(state, key)

    def shaped(state: Any, message: BaseMessage) -> Any:
        return [message] if isinstance(state, list) else {key: [message]}

    def think(state: Any) -> Any:
        return shaped(state, bound.invoke(seen(state)))

    async def athink(state: Any) -> Any:
        return shaped(state, await bound.ainvoke(seen(state)))

    builder = StateGraph(state)
    builder.add_node("agent", RunnableLambda(think, athink))
    builder.add_node("tools", node, **options)
    builder.add_edge(START, start)
    builder.add_conditional_edges("agent", condition, {"tools": "tools", END: END})
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


def play(script: Sequence[Any], tools: Sequence[Any] | None = None, *, config: Any = None, **options: Any) -> Play:
    """Run one conversation on a virtual clock and keep everything worth looking at."""
    return Play(script, tools, config=config, **options)


class Play:
    def __init__(self, script: Sequence[Any], tools: Sequence[Any] | None, *, config: Any, **options: Any) -> None:
        self.lab = Lab()
        graph_options = {
            name: options.pop(name)
            for name in ("saver", "condition", "state", "key", "retry_policy", "timeout_policy")
            if name in options
        }
        if "timeout_policy" in graph_options:
            graph_options["timeout"] = graph_options.pop("timeout_policy")
        options.setdefault("grace", 0.0)
        options.setdefault("runtime", FutureRuntime(loop="caller"))
        self.runtime = options["runtime"]
        self.model = ScriptedChatModel(script, strict=True)
        self.node = FlashNode([*self.lab.tools(), *(tools or ())], **options)
        self.graph = agent(self.model, self.node, **graph_options)
        with virtual_time() as clock:
            self.messages = clock.run(self.graph.ainvoke(user(), config))["messages"]
            self.seconds = clock.seconds


def fid(messages: Sequence[BaseMessage], call_id: str) -> str:
    """The future id in the placeholder that answers a call."""
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id and is_placeholder(message):
            found: str = message.artifact[SOURCE]["future"]
            assert re.fullmatch(ID_PATTERN, found)
            assert found in message.content
            return found
    raise AssertionError(f"{call_id} has no placeholder in {[message.content for message in messages]}")


def is_placeholder(message: BaseMessage) -> bool:
    return (
        isinstance(message, ToolMessage)
        and isinstance(message.artifact, dict)
        and "future" in message.artifact.get(SOURCE, {})
    )


def answer_to(messages: Sequence[BaseMessage], call_id: str) -> ToolMessage:
    found = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id]
    assert len(found) == 1, f"{call_id} has {len(found)} answers"
    return found[0]


def notes(messages: Sequence[BaseMessage]) -> list[HumanMessage]:
    """The notifications of this package in a history."""
    found = []
    for message in messages:
        if isinstance(message, HumanMessage) and (data := get_notification_metadata(message)) is not None:
            assert data["source"] == SOURCE
            found.append(message)
    return found


def delivered(messages: Sequence[BaseMessage]) -> list[str]:
    """Every future id delivered by notifications, in order."""
    return [
        future
        for note in notes(messages)
        for future in get_notification_metadata(note)["data"]["delivered"]  # type: ignore[index]
    ]


def count(messages: Sequence[BaseMessage], text: str) -> int:
    """How many notifications and tool answers hold a text."""
    return sum(
        text in str(message.content)
        for message in messages
        if isinstance(message, ToolMessage) or message in notes(messages)
    )


def calls_of(message: BaseMessage) -> list[Any]:
    assert isinstance(message, AIMessage)
    return message.tool_calls


Turn = Callable[[list[BaseMessage]], Any]
