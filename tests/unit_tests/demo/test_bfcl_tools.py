"""The tools run the programs, wait as told, and carry what is declared about them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langgraph_flash.demo.bfcl import (
    ProgramResult,
    adversarial_orders,
    canonical,
    difference,
    footprint,
    fresh_instances,
    latency,
    make_tools,
    run_in_order,
)
from langgraph_flash.errors import ConfigurationError

pytestmark = pytest.mark.bfcl


def outcome(results, instances):
    return ProgramResult(tuple(results), {name: canonical(each) for name, each in instances.items()})


def test_one_tool_for_each_documented_method(programs):
    for program in programs[::10]:
        tools = make_tools(program, fresh_instances(program))
        names = [tool.name for tool in tools]
        assert len(set(names)) == len(names)
        assert {call.method for turn in program.turns for call in turn.calls} <= set(names)


def test_schemas_are_json_schema_and_keep_the_documented_parameters(programs):
    def check(schema):
        assert schema.get("type", "string") in {"object", "string", "number", "integer", "boolean", "array"}
        for each in schema.get("properties", {}).values():
            check(each)
        if "items" in schema:
            check(schema["items"])

    seen = {tool.name: tool for program in programs[::5] for tool in make_tools(program, fresh_instances(program))}
    for tool in seen.values():
        check(convert_to_openai_tool(tool)["function"]["parameters"])
    place = seen["place_order"]
    assert set(place.args) == {"order_type", "symbol", "price", "amount"}
    assert place.args["price"]["type"] == "number"
    assert place.args_schema["required"] == ["order_type", "symbol", "price", "amount"]
    assert "Tool description: Place an order." in place.description


async def test_asynchronous_tools_run_programs(programs, reference):
    for program in programs[::4]:
        instances = fresh_instances(program)
        tools = {tool.name: tool for tool in make_tools(program, instances)}
        results = [
            tuple([await tools[call.method].ainvoke(dict(call.args)) for call in turn.calls]) for turn in program.turns
        ]
        assert difference(reference[program.id], outcome(results, instances)) is None


def test_synchronous_tools_run_programs(programs, reference):
    for program in programs[::8]:
        instances = fresh_instances(program)
        tools = {tool.name: tool for tool in make_tools(program, instances, asynchronous=False)}
        results = [tuple(tools[call.method].invoke(dict(call.args)) for call in turn.calls) for turn in program.turns]
        assert difference(reference[program.id], outcome(results, instances)) is None


async def test_descending_delays_run_every_turn_backwards(programs):
    chosen = [program for program in programs if max(len(turn.calls) for turn in program.turns) > 2][:8]
    for program in chosen:
        instances = fresh_instances(program)
        delay = latency.delays(latency.descending(0.0, 0.04), program)
        tools = {tool.name: tool for tool in make_tools(program, instances, delay=delay)}
        results = [
            tuple(await asyncio.gather(*(tools[c.method].ainvoke(dict(c.args)) for c in turn.calls)))
            for turn in program.turns
        ]
        backwards = run_in_order(program, adversarial_orders(program, "none"))
        assert difference(backwards, outcome(results, instances)) is None


def test_synchronous_tools_block_their_own_thread_only(programs):
    everybody = threading.Barrier(4, timeout=30)

    def meets(method: str, arguments: dict[str, Any]) -> float:
        everybody.wait()  # broken, and an error, unless all four calls are in their delay at once
        return 0.0

    program = next(p for p in programs if "MathAPI" in p.classes)
    tools = {tool.name: tool for tool in make_tools(program, fresh_instances(program), delay=meets, asynchronous=False)}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(tools["mean"].invoke, [{"numbers": [1, 2]}] * 4))
    assert answers == ['{"result": 1.5}'] * 4


async def test_stock_tool_node_accepts_the_tools(programs, reference):
    program = next(p for p in programs if p.id == "multi_turn_base_0")
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(make_tools(program, fresh_instances(program))))
    graph.add_edge(START, "tools")
    call = program.turns[0].calls[0]
    message = AIMessage("", tool_calls=[{"name": call.method, "args": dict(call.args), "id": "1"}])
    state = await graph.compile().ainvoke({"messages": [HumanMessage("go"), message]})
    assert state["messages"][-1].content == reference[program.id].results[0][0]
    assert state["messages"][-1].status == "success"


def test_declarations_are_attached_by_the_hook(programs):
    program = next(p for p in programs if "TradingBot" in p.classes)
    declared = {}

    def declare(tool, what):
        declared[tool.name] = what
        return tool.model_copy(update={"tags": ["declared"]})

    tools = make_tools(program, fresh_instances(program), footprints="attribute", declare=declare)
    assert all(tool.tags == ["declared"] for tool in tools)
    assert declared["cancel_order"] == footprint("TradingBot", "cancel_order", "attribute")
    assert declared["cancel_order"].writes == ("TradingBot/orders",)
    assert set(declared) == {tool.name for tool in tools}


def test_without_footprints_nothing_is_declared(programs):
    make_tools(programs[0], fresh_instances(programs[0]), declare=lambda tool, what: pytest.fail("declared"))


def test_footprints_need_the_hook(programs):
    with pytest.raises(ConfigurationError, match="needs `declare`"):
        make_tools(programs[0], fresh_instances(programs[0]), footprints="class")


def test_latency_models_are_functions_of_the_position(programs):
    program = next(p for p in programs if len(p.turns[0].calls) == 3)
    uniform = latency.uniform(0.5, 1.5, seed=3)
    places = [(turn, call) for turn, each in enumerate(program.turns) for call in range(len(each.calls))]
    times = [uniform(program, *place) for place in places]
    assert times == [latency.uniform(0.5, 1.5, seed=3)(program, *place) for place in places]
    assert times != [latency.uniform(0.5, 1.5, seed=4)(program, *place) for place in places]
    assert all(0.5 <= seconds < 1.5 for seconds in times)
    assert len(set(times)) == len(times)
    assert latency.none()(program, 0, 0) == 0.0
    assert latency.constant(0.25)(program, 0, 1) == 0.25
    assert latency.proportional(0.1)(program, 0, 0) == pytest.approx(0.1 * len(program.turns[0].calls[0].source))
    assert [latency.descending(1, 3)(program, 0, call) for call in range(3)] == [3, 2, 1]


def test_uniform_times_are_the_same_in_every_process(programs):
    assert latency.uniform(0, 1)(programs[0], 0, 0) == pytest.approx(0.12615680828677292)


@pytest.mark.parametrize("make", [lambda: latency.constant(-1), lambda: latency.uniform(float("nan"), 1)])
def test_impossible_latencies_are_refused(make):
    with pytest.raises(ConfigurationError, match="a latency is a number of seconds"):
        make()


def test_equal_calls_take_their_own_times_in_turn(programs):
    def places_of(program, source):
        return [
            (turn, call)
            for turn, each in enumerate(program.turns)
            for call, one in enumerate(each.calls)
            if one.source == source
        ]

    program, source = next(
        (p, call.source)
        for p in programs
        for turn in p.turns
        for call in turn.calls
        if len(places_of(p, call.source)) > 1
    )
    places = places_of(program, source)
    repeated = program.turns[places[0][0]].calls[places[0][1]]
    model = latency.uniform(1, 2)
    delay = latency.delays(model, program)
    expected = [model(program, *place) for place in places]
    assert [delay(repeated.method, repeated.args) for _ in places] == expected
    assert delay(repeated.method, repeated.args) == expected[-1]
    assert delay(repeated.method, {"other": "arguments"}) == 0.0
