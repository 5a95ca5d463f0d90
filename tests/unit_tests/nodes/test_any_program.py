"""Any program, any annotation, any timing, any failure, through a real graph: the outcome is sequential execution's."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool
from node_lab import agent, thread, user

from langgraph_flash import FlashNode, FutureRuntime, uses
from langgraph_flash.demo.conversation import placeholders_in, results_in
from langgraph_flash.nodes.ledger import read_ledger
from langgraph_flash.testing import ScriptedChatModel, call, check_history, says, virtual_time

CELLS = ("a", "b", "c")
FAILED = object()


@dataclass(frozen=True)
class Op:
    """One call: what it does to which cell, with a literal or an earlier result, how long, and whether it fails."""

    kind: str
    cell: str
    value: int
    source: int | None
    seconds: float
    fails: bool


@dataclass
class Store:
    """State whose operations read at their start and write at their end, so that overlapping ones would show."""

    cells: dict[str, list[str]] = field(default_factory=lambda: {cell: [] for cell in CELLS})

    async def run(self, kind: str, cell: str, value: str, seconds: float, fails: bool) -> str:
        before = list(self.cells[cell])
        await asyncio.sleep(seconds)
        if fails:
            raise ValueError(f"{kind} {cell} broke")
        if kind == "echo":
            return f"<{value}>"
        if kind == "get":
            return f"{cell}={','.join(before)}"
        self.cells[cell] = [*before, value]
        return f"{cell}+{value}"


def declarations(kind: str, level: str) -> dict[str, Any]:
    if level == "barrier" or (level == "mixed" and kind == "append"):
        return {"barrier": True}
    if kind == "echo":
        return {"pure": True}
    path = "store" if level == "coarse" else "store/{cell}"
    return {"reads": [path]} if kind == "get" else {"writes": [path]}


STORE: list[Store] = []
"""The store that the tools act on."""


@functools.cache
def tools_of(level: str) -> tuple[BaseTool, ...]:
    """The tools, made once for each level: their schemas are most of what a short run costs."""

    def make(kind: str) -> BaseTool:
        async def run(cell: str, value: str, seconds: float, fails: bool) -> str:
            return await STORE[-1].run(kind, cell, value, seconds, fails)

        made = StructuredTool.from_function(coroutine=run, name=kind, description=kind)
        return uses(**declarations(kind, level))(made)

    return tuple(make(kind) for kind in ("append", "get", "echo"))


def sequentially(program: list[Op]) -> tuple[dict[str, list[str]], list[Any]]:
    async def run() -> tuple[dict[str, list[str]], list[Any]]:
        store, results = Store(), []
        for op in program:
            value = str(op.value) if op.source is None else results[op.source]
            if value is FAILED:
                results.append(FAILED)
                continue
            try:
                results.append(await store.run(op.kind, op.cell, value, 0.0, op.fails))
            except ValueError:
                results.append(FAILED)
        return store.cells, results

    return asyncio.run(run())


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Op], list[int]]:
    """A program and the number of calls in each message."""
    count = draw(st.integers(1, 9))
    program = [
        Op(
            kind=draw(st.sampled_from(("append", "append", "get", "echo"))),
            cell=draw(st.sampled_from(CELLS)),
            value=index,
            source=draw(st.none() | st.integers(0, index - 1)) if index else None,
            seconds=draw(st.sampled_from((0.0, 0.01, 0.3, 1.0, 5.0))),
            fails=draw(st.integers(0, 4)) == 0,
        )
        for index in range(count)
    ]
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(draw(st.integers(1, count - sum(sizes))))
    return program, sizes


def turn(program: list[Op], expected: list[Any], indices: range) -> Any:
    def write(messages: list[BaseMessage]) -> AIMessage:
        pending, placeholders = read_ledger(messages).pending, placeholders_in(messages)
        calls = []
        for index in indices:
            op = program[index]
            value = str(op.value)
            if op.source is not None:
                record = placeholders.get(f"c{op.source}")
                if record is not None and (record.future in pending or expected[op.source] is FAILED):
                    value = record.future
                elif expected[op.source] is not FAILED:
                    value = expected[op.source]
                else:
                    value = "fut_0000000000"  # failed in place: nothing to pass on, so nothing may run
            calls.append(call(op.kind, id=f"c{index}", cell=op.cell, value=value, seconds=op.seconds, fails=op.fails))
        return says("", *calls)

    return write


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    programs(),
    st.sampled_from(("exact", "coarse", "barrier", "mixed")),
    st.sampled_from((0.0, 0.2)),
    st.fixed_dictionaries(
        {
            "grace": st.sampled_from((0.0, 0.05, 2.0)),
            "max_parallel": st.none() | st.integers(1, 3),
            "dispatch": st.sampled_from(("program", "longest")),
        }
    ),
)
def test_the_outcome_of_any_program_is_that_of_sequential_execution(
    written: tuple[list[Op], list[int]], level: str, decode: float, options: dict[str, Any]
) -> None:
    program, sizes = written
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    # A call can only refer to an earlier message's call: within a message the model does not know any id yet.
    heads = {index: start for start, size in zip(starts, sizes, strict=True) for index in range(start, start + size)}
    program = [
        op if op.source is None or op.source < heads[index] else Op(**{**op.__dict__, "source": None})
        for index, op in enumerate(program)
    ]
    state, expected = sequentially(program)
    store = Store()
    STORE[:] = [store]
    runtime = FutureRuntime(loop="caller")
    node = FlashNode(tools_of(level), background=True, handle_tool_errors=True, runtime=runtime, **options)
    script = [turn(program, expected, range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    model = ScriptedChatModel([*script, *["Done."] * (len(program) + 2)], first_token_seconds=decode)
    with virtual_time() as clock:
        messages = clock.run(agent(model, node).ainvoke(user(), thread()))["messages"]
    check_history(messages)
    assert store.cells == state
    results = results_in(messages)
    assert set(results) == {f"c{index}" for index in range(len(program))}
    for index, value in enumerate(expected):
        if value is FAILED:
            assert (
                "broke" in results[f"c{index}"] or "rror" in results[f"c{index}"] or "ancelled" in results[f"c{index}"]
            )
        else:
            assert results[f"c{index}"] == value
    assert node.runtime.statistics().running == 0
