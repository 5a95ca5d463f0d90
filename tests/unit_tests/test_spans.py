"""The recorder under real graphs: what it measures, in threads, in virtual time, through failure and cancellation."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_flash.report import overlap, timeline_svg, timeline_view
from langgraph_flash.spans import SpanRecorder


class Scripted(BaseChatModel):
    """Says its lines in turn, each after a pause."""

    lines: list[Any]
    pause: float = 0.0

    @property
    def _llm_type(self):
        return "scripted"

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "test", "ls_model_type": "chat", "ls_model_name": "scripted-1"}

    def _next(self):
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatResult(generations=[ChatGeneration(message=line)])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        time.sleep(self.pause)
        return self._next()

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(self.pause)
        return self._next()


def asks(*calls, **more):
    return AIMessage(
        content="", tool_calls=[{"name": name, "args": args, "id": call_id} for name, args, call_id in calls], **more
    )


@tool
async def nap(seconds: float, note: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "rested"


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def broken(password: str) -> str:
    """Fail with a message that quotes the argument."""
    raise ValueError(f"cannot open with {password}")


@tool
def excused(a: int) -> str:
    """Fail in a way the tool itself turns into a message."""
    raise ToolException("no")


excused.handle_tool_error = True


def agent(model, *, tools=(nap, add, broken, excused)):
    graph = StateGraph(MessagesState)

    def sync(state, config):
        return {"messages": [model.invoke(state["messages"], config)]}

    async def call(state, config):
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph.add_node("model", RunnableLambda(sync, afunc=call))
    graph.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile()


def question(text="What is the launch code?"):
    return {"messages": [HumanMessage(text)]}


async def test_a_graph_is_recorded_as_it_ran():
    usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    model = Scripted(
        lines=[
            asks(("nap", {"seconds": 0.05}, "c1"), ("nap", {"seconds": 0.04}, "c2"), usage_metadata=usage),
            asks(("add", {"a": 1, "b": 2}, "c3")),
            AIMessage("The launch code is 0000."),
        ],
        pause=0.02,
    )
    recorder = SpanRecorder()
    await agent(model).ainvoke(question(), {"callbacks": [recorder]})

    spans = recorder.spans
    assert [(span.kind, span.name, span.turn, span.call_id) for span in spans] == [
        ("model", "scripted-1", 0, None),
        ("tool", "nap", 0, "c1"),
        ("tool", "nap", 0, "c2"),
        ("model", "scripted-1", 1, None),
        ("tool", "add", 1, "c3"),
        ("model", "scripted-1", 2, None),
    ]
    assert {span.outcome for span in spans} == {"ok"}
    assert (spans[0].input_tokens, spans[0].output_tokens) == (12, 5)
    assert (spans[3].input_tokens, spans[3].output_tokens) == (None, None)
    assert [span.detail for span in spans if span.kind == "tool"] == ["seconds=0.05", "seconds=0.04", "a=1, b=2"]
    assert [span.detail for span in spans if span.kind == "model"] == ["calls nap, nap", "calls add", "answers"]
    assert "launch code" not in repr(spans), "neither prompts nor answers are kept"
    assert recorder.running == 0

    found = overlap(spans)
    assert found.model_seconds >= 0.06 - 0.005
    assert found.saving_ff >= 0.03, "the two naps ran side by side"
    assert found.saving_de == 0, "ToolNode waits for the model and the model for it"
    assert "scripted-1" in timeline_svg(timeline_view("ToolNode", spans))


def test_a_synchronous_graph_runs_tools_in_threads():
    barrier = threading.Barrier(2, timeout=10)

    @tool
    def meet(name: str) -> str:
        """Wait for the other one."""
        barrier.wait()
        return name

    model = Scripted(lines=[asks(("meet", {"name": "a"}, "c1"), ("meet", {"name": "b"}, "c2")), AIMessage("done")])
    recorder = SpanRecorder()
    agent(model, tools=[meet]).invoke(question(), {"callbacks": [recorder]})
    first, second = (span for span in recorder.spans if span.kind == "tool")
    assert max(first.start, second.start) <= min(first.end, second.end), "they overlapped"
    assert {first.call_id, second.call_id} == {"c1", "c2"}


def test_failures_are_failures_however_they_are_reported():
    model = Scripted(
        lines=[
            asks(
                ("broken", {"password": "hunter2"}, "c1"), ("excused", {"a": 1}, "c2"), ("add", {"a": 1, "b": 1}, "c3")
            ),
            ConnectionError("https://user:hunter2@example.org"),
        ]
    )
    recorder = SpanRecorder()
    with pytest.raises(ConnectionError):
        agent(model).invoke(question(), {"callbacks": [recorder]})
    outcomes = {span.call_id or f"turn {span.turn}": (span.outcome, span.detail) for span in recorder.spans}
    assert outcomes == {
        "turn 0": ("ok", "calls broken, excused, add"),
        "c1": ("failed", "ValueError: password=•••"),
        "c2": ("failed", "a=1"),
        "c3": ("ok", "a=1, b=1"),
        "turn 1": ("failed", "ConnectionError"),
    }
    assert "hunter2" not in repr(recorder.spans)


@pytest.mark.parametrize("where", ["tool", "model"])
async def test_a_cancelled_call_ends_as_cancelled(where):
    pause = 0.0 if where == "tool" else 5.0
    model = Scripted(lines=[asks(("nap", {"seconds": 5}, "c1"))], pause=pause)
    recorder = SpanRecorder()
    run = asyncio.create_task(agent(model).ainvoke(question(), {"callbacks": [recorder]}))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if recorder.running and len(recorder.spans) == (1 if where == "tool" else 0):
            break
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    span = recorder.spans[-1]
    assert (span.kind, span.outcome) == (where, "cancelled")
    assert recorder.running == 0
    assert span.seconds < 5


async def test_concurrent_model_calls_keep_apart():
    model = Scripted(lines=[AIMessage("a"), AIMessage("b")], pause=0.03)
    recorder = SpanRecorder()
    await asyncio.gather(*(model.ainvoke("hi", {"callbacks": [recorder]}) for _ in range(2)))
    assert [span.turn for span in recorder.spans] == [0, 1]
    assert overlap(recorder.spans).saving_mm > 0


def test_a_streamed_answer_is_one_span():
    recorder = SpanRecorder()
    model = Scripted(lines=[AIMessage("a b c")])
    list(model.stream("hi", {"callbacks": [recorder]}))
    assert [(span.kind, span.outcome) for span in recorder.spans] == [("model", "ok")]


def test_a_text_completion_is_a_model_call():
    recorder = SpanRecorder()
    FakeListLLM(responses=["x"]).invoke("hi", {"callbacks": [recorder]})
    (span,) = recorder.spans
    assert (span.kind, span.name, span.detail) == ("model", "FakeListLLM", "answers")


def test_the_clock_is_the_callers():
    ticks = itertools.count(100)
    recorder = SpanRecorder(clock=lambda: float(next(ticks)))
    add.invoke({"a": 1, "b": 2}, {"callbacks": [recorder]})
    (span,) = recorder.spans
    assert (span.start, span.end, span.seconds) == (100, 101, 1)
    assert (span.turn, span.call_id) == (None, None), "no model asked for it"


def ended(*calls):
    return LLMResult(generations=[[ChatGeneration(message=asks(*calls))]])


def test_a_tool_started_while_its_model_still_decodes_belongs_to_that_turn():
    recorder = SpanRecorder(clock=itertools.count().__next__)
    first, second, run = uuid4(), uuid4(), uuid4()
    recorder.on_chat_model_start({}, [[]], run_id=first)
    recorder.on_chat_model_start({}, [[]], run_id=second)
    recorder.on_tool_start({"name": "nap"}, "", run_id=run, inputs={}, tool_call_id="c1")
    recorder.on_llm_end(ended(("nap", {}, "c1")), run_id=first)
    recorder.on_tool_end(ToolMessage("x", tool_call_id="c1"), run_id=run)
    recorder.on_llm_end(ended(), run_id=second)
    (span,) = (span for span in recorder.spans if span.kind == "tool")
    assert span.turn == 0


def test_a_tool_that_runs_late_keeps_the_turn_that_asked_for_it():
    recorder = SpanRecorder()
    first, second, run = uuid4(), uuid4(), uuid4()
    recorder.on_chat_model_start({}, [[]], run_id=first)
    recorder.on_llm_end(ended(("nap", {}, "c1")), run_id=first)
    recorder.on_chat_model_start({}, [[]], run_id=second)
    recorder.on_tool_start({"name": "nap"}, "", run_id=run, inputs={}, tool_call_id="c1")
    recorder.on_tool_end("x", run_id=run)
    (span,) = recorder.spans[1:]
    assert (span.turn, span.call_id) == (0, "c1")


def test_details_are_short_and_masked():
    recorder = SpanRecorder()
    long = "word " * 10_000
    for arguments in (
        {"text": long, "other": long},
        {"items": [1] * 1000, "table": {"a": long}, "flag": True, "none": None, "thing": object()},
        {"apiKey": "s3cret", "access_token": "s3cret", "PASSWORD": "s3cret", "author": "Ada"},
        {},
    ):
        run = uuid4()
        recorder.on_tool_start({"name": "t"}, "", run_id=run, inputs=arguments)
        recorder.on_tool_end("", run_id=run)
    details = [span.detail for span in recorder.spans]
    assert all(detail is None or len(detail) <= 80 for detail in details)
    assert "items=list[1000], table=dict[1], flag=True, none=None, thing=object" in details
    assert "apiKey=•••, access_token=•••, PASSWORD=•••, author='Ada'" in details
    assert None in details
    assert "s3cret" not in repr(details)


def test_a_snapshot_does_not_change_and_clearing_starts_over():
    recorder = SpanRecorder()
    config = {"callbacks": [recorder]}
    add.invoke({"a": 1, "b": 2}, config)
    before = recorder.spans
    add.invoke({"a": 1, "b": 2}, config)
    assert (len(before), len(recorder.spans)) == (1, 2)
    assert repr(recorder) == "SpanRecorder(finished=2, running=0)"
    recorder.on_tool_end("x", run_id=uuid4())
    recorder.clear()
    assert recorder.spans == ()
    Scripted(lines=[AIMessage("a")]).invoke("hi", config)
    assert recorder.spans[0].turn == 0


def test_many_threads_lose_nothing():
    recorder = SpanRecorder()
    start = threading.Barrier(8)

    def work():
        start.wait()
        for index in range(50):
            call = {"name": "add", "args": {"a": index, "b": 1}, "id": f"c{index}", "type": "tool_call"}
            add.invoke(call, {"callbacks": [recorder]})

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Counter(span.call_id for span in recorder.spans).values()) == {8}
    assert len(recorder.spans) == 400
    assert [span.start for span in recorder.spans] == sorted(span.start for span in recorder.spans)
