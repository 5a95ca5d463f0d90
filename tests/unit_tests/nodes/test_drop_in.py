"""A `FlashNode` in the place of a `ToolNode`: the rows of the stock node's feature list, side by side."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.errors import GraphInterrupt
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime, tools_condition
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from langgraph_flash import FlashNode, flash_condition
from langgraph_flash.testing import ScriptedChatModel, call, says

VARIANTS = ["default", "background"]
MODES = ["invoke", "ainvoke"]

variants = pytest.mark.parametrize("variant", VARIANTS)
modes = pytest.mark.parametrize("mode", MODES)


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    foo: str
    bar: str


def flash(variant: str, tools: Any, **options: Any) -> FlashNode:
    """A node that behaves as the stock one does: with nothing declared, or with all in the background, waited for."""
    more = {"background": True, "grace": math.inf} if variant == "background" else {}
    return FlashNode(tools, **more, **options)


def compiled(node: Any, *, state: Any = State, store: Any = None, route: Any = None, saver: Any = None) -> Any:
    builder = StateGraph(state)
    builder.add_node("tools", node)
    if route is None:
        builder.add_edge(START, "tools")
    else:
        builder.add_conditional_edges(START, route, ["tools"])
    return builder.compile(store=store, checkpointer=saver)


def given(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage("Go.", id="h"), AIMessage("", tool_calls=list(calls), id="a")], **more}


def plain(value: Any) -> Any:
    """A value without the ids that are drawn at random."""
    if isinstance(value, ToolMessage):
        return ("tool", value.content, value.name, value.tool_call_id, value.status, value.artifact)
    if isinstance(value, (AIMessage, HumanMessage)):
        return (value.type, value.content)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def outcome(graph: Any, mode: str, start: Any, **options: Any) -> Any:
    try:
        result = graph.invoke(start, **options) if mode == "invoke" else asyncio.run(graph.ainvoke(start, **options))
    except Exception as error:
        return ("raised", type(error).__name__, str(error))
    return plain(result)


def same(variant: str, mode: str, tools: Any, start: Any, *, options: Any = None, graph: Any = None, **run: Any) -> Any:
    """Run stock and flash on the same input, hold their outcomes against each other, and return that outcome."""
    options, graph = options or {}, graph or {}
    stock = outcome(compiled(ToolNode(tools, **options), **graph), mode, start, **run)
    ours = outcome(compiled(flash(variant, tools, **options), **graph), mode, start, **run)
    assert ours == stock
    return stock


def answers(result: Any) -> list[Any]:
    """Contents of the tool messages in a plain outcome."""
    assert isinstance(result, dict), result
    return [message[1] for message in result["messages"] if message[0] == "tool"]


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def aadd(a: int, b: int) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


@tool
def boom(text: str) -> str:
    """Fail."""
    raise ValueError(text)


# 1, 2: constructor and tools -------------------------------------------------------------------------------------


def test_the_constructor_takes_what_the_stock_one_takes_and_everything_else_by_keyword() -> None:
    stock = inspect.signature(ToolNode.__init__).parameters
    ours = inspect.signature(FlashNode.__init__).parameters
    assert list(ours)[: len(stock)] == list(stock)
    for name, parameter in stock.items():
        assert ours[name].kind is parameter.kind
        if name != "handle_tool_errors":
            assert ours[name].default == parameter.default
    extra = [parameter for name, parameter in ours.items() if name not in stock]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in extra)
    assert all(parameter.default is not parameter.empty for parameter in extra)


@variants
def test_name_tags_and_tools_by_name_are_the_stock_ones(variant: str) -> None:
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    options: dict[str, Any] = {"name": "mine", "tags": ["x", "y"], "messages_key": "chat"}
    stock, ours = ToolNode([add, shout], **options), flash(variant, [add, shout], **options)
    assert isinstance(ours, ToolNode)
    assert (ours.name, ours.tags, ours._messages_key) == (stock.name, stock.tags, stock._messages_key)
    assert list(ours.tools_by_name) == list(stock.tools_by_name) == ["add", "shout"]
    assert ours.tools_by_name["add"] is add
    assert isinstance(ours.tools_by_name["shout"], BaseTool)
    assert FlashNode([add]).name == ToolNode([add]).name == "tools"
    assert "await_future" in FlashNode([add], background=True).tools_by_name


@variants
def test_the_node_is_drawn_as_the_stock_one(variant: str) -> None:
    stock = compiled(ToolNode([add])).get_graph()
    ours = compiled(flash(variant, [add])).get_graph()
    assert {n: node.metadata for n, node in ours.nodes.items()} == {n: node.metadata for n, node in stock.nodes.items()}
    assert ours.draw_mermaid() == stock.draw_mermaid()


@variants
@modes
def test_a_node_without_tools_answers_as_the_stock_one(variant: str, mode: str) -> None:
    same(variant, mode, [], given(call("add", id="c1", a=1, b=2)))


# 3, 4: inputs ----------------------------------------------------------------------------------------------------


@variants
@modes
def test_dict_list_and_object_states_give_the_stock_result(variant: str, mode: str) -> None:
    calls = given(call("add", id="c1", a=1, b=2), call("add", id="c2", a=3, b=4))

    class Model(BaseModel):
        messages: Annotated[list[AnyMessage], add_messages] = []

    assert answers(same(variant, mode, [add], calls)) == ["3", "7"]
    same(variant, mode, [add], calls["messages"], graph={"state": Annotated[list[AnyMessage], add_messages]})
    same(variant, mode, [add], calls, graph={"state": Model})


@variants
@modes
def test_calls_sent_one_by_one_and_calls_with_context_give_the_stock_result(variant: str, mode: str) -> None:
    def alone(state: Any) -> Any:
        return [Send("tools", [made]) for made in state["messages"][-1].tool_calls]

    def together(state: Any) -> Any:
        return [Send("tools", list(state["messages"][-1].tool_calls))]

    def with_context(state: Any) -> Any:
        return [
            Send("tools", {"__type": "tool_call_with_context", "tool_call": made, "state": state})
            for made in state["messages"][-1].tool_calls
        ]

    calls = given(call("add", id="c1", a=1, b=2), call("add", id="c2", a=3, b=4))
    for route in (alone, together, with_context):
        assert answers(same(variant, mode, [add], calls, graph={"route": route})) == ["3", "7"]


@variants
@modes
@pytest.mark.parametrize("start", [{"messages": []}, {"messages": [HumanMessage("Go.", id="h")]}, {"foo": "x"}])
def test_a_state_without_calls_fails_as_in_the_stock_node_where_nothing_is_declared(
    variant: str, mode: str, start: Any
) -> None:
    stock = outcome(compiled(ToolNode([add])), mode, start)
    ours = outcome(compiled(flash(variant, [add])), mode, start)
    if variant == "default" or not start.get("messages"):
        assert ours == stock
    else:
        # A node with futures may be visited only to deliver.
        assert ours == plain(start)


@variants
@modes
def test_the_state_is_read_under_send_as_the_stock_node_reads_it(variant: str, mode: str) -> None:
    @tool
    def peek(state: Annotated[dict[str, Any], InjectedState], foo: Annotated[str, InjectedState("foo")]) -> str:
        """Look."""
        return f"{foo} {sorted(state)} {len(state['messages'])}"

    def alone(state: Any) -> Any:
        return [Send("tools", [made]) for made in state["messages"][-1].tool_calls]

    result = same(variant, mode, [peek], given(call("peek", id="c1"), foo="f"), graph={"route": alone})
    assert answers(result) == ["f ['foo', 'messages'] 2"]


# 5, 6, 7: injection ----------------------------------------------------------------------------------------------


@variants
@modes
def test_state_whole_field_and_optional_field_store_runtime_and_call_id_are_injected(variant: str, mode: str) -> None:
    @tool
    def everything(  # noqa: PLR0917 - one argument of each kind
        x: int,
        state: Annotated[dict[str, Any], InjectedState],
        foo: Annotated[str, InjectedState("foo")],
        store: Annotated[BaseStore, InjectedStore()],
        runtime: ToolRuntime,
        call_id: Annotated[str, InjectedToolCallId],
        bar: Annotated[str | None, InjectedState("bar")] = None,
    ) -> str:
        """Look at everything."""
        item = store.get(("n",), "k")
        return str(
            [
                x,
                sorted(state),
                foo,
                bar,
                item and item.value,
                call_id,
                runtime.tool_call_id,
                sorted(runtime.state),
                runtime.context,
                runtime.store is store,
                [made.name for made in runtime.tools],
                runtime.execution_info is not None,
                callable(runtime.stream_writer),
                runtime.emit_output_delta("x"),
                runtime.config["metadata"].get("mark"),
            ]
        )

    store = InMemoryStore()
    store.put(("n",), "k", {"v": 1})
    result = same(
        variant,
        mode,
        [everything],
        given(call("everything", id="c1", x=1), foo="f"),
        graph={"store": store},
        config={"metadata": {"mark": "m"}},
    )
    assert "'c1', 'c1'" in answers(result)[0]
    assert "{'v': 1}" in answers(result)[0]


@variants
@modes
def test_injection_that_cannot_be_done_fails_as_in_the_stock_node(variant: str, mode: str) -> None:
    @tool
    def needs_store(store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Need a store."""
        return "x"

    @tool
    def needs_foo(foo: Annotated[str, InjectedState("foo")]) -> str:
        """Need foo."""
        return foo

    for made in (needs_store, needs_foo):
        for handle in (True, False):
            result = same(
                variant, mode, [made], given(call(made.name, id="c1")), options={"handle_tool_errors": handle}
            )
            assert result[0] == "raised"
    list_state = Annotated[list[AnyMessage], add_messages]
    same(variant, mode, [needs_foo], given(call("needs_foo", id="c1"))["messages"], graph={"state": list_state})


@variants
@modes
def test_a_list_state_is_injected_as_in_the_stock_node(variant: str, mode: str) -> None:
    @tool
    def whole(state: Annotated[Any, InjectedState]) -> str:
        """Look."""
        return f"{type(state).__name__} {len(state['messages'])}"

    @tool
    def field(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Look."""
        return str(len(messages))

    start = given(call("whole", id="c1"), call("field", id="c2"))["messages"]
    same(variant, mode, [whole, field], start, graph={"state": Annotated[list[AnyMessage], add_messages]})


@variants
@modes
def test_forged_values_for_injected_arguments_are_stripped(variant: str, mode: str) -> None:
    @tool
    def guarded(
        x: int,
        foo: Annotated[str, InjectedState("foo")],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
        secret: Annotated[str, InjectedToolArg] = "safe",
    ) -> str:
        """Be careful."""
        return f"{x} {foo} {call_id} {type(runtime).__name__ != 'str'} {secret}"

    result = same(
        variant,
        mode,
        [guarded],
        given(
            call("guarded", "c1", x=1, foo="forged", call_id="forged", runtime="forged", secret="forged"), foo="true"
        ),
    )
    assert answers(result) == ["1 true c1 True safe"]


# 8, 9, 10, 11: outputs -------------------------------------------------------------------------------------------


@variants
@modes
def test_the_raw_output_has_the_stock_shape_for_every_kind_of_input_and_result(variant: str, mode: str) -> None:
    @tool
    def paint(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Paint."""
        return Command(update={"foo": "red", "messages": [ToolMessage("painted", tool_call_id=call_id)]})

    def raw(node: Any, start: Any, state: Any = State) -> Any:
        seen: list[Any] = []

        class Spy(type(node)):  # type: ignore[misc]
            def _combine_tool_outputs(self, *args: Any) -> Any:
                result = super()._combine_tool_outputs(*args)
                seen.append(result)
                return result

        node.__class__ = Spy
        outcome(compiled(node, state=state), mode, start)
        (result,) = seen
        return (
            [plain(item) if not isinstance(item, Command) else ("command", plain(item.update)) for item in result]
            if (isinstance(result, list))
            else plain(result)
        )

    for calls in (
        [call("add", id="c1", a=1, b=2)],
        [call("add", id="c1", a=1, b=2), call("paint", id="c2")],
        [call("paint", id="c1")],
    ):
        start = given(*calls)
        assert raw(flash(variant, [add, paint]), start) == raw(ToolNode([add, paint]), start)
    start = given(call("add", id="c1", a=1, b=2))["messages"]
    list_state = Annotated[list[AnyMessage], add_messages]
    assert raw(flash(variant, [add]), start, list_state) == raw(ToolNode([add]), start, list_state)


def commanding(update: Callable[[str], Any]) -> BaseTool:
    @tool
    def act(call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Act."""
        return update(call_id)

    return act


COMMANDS: dict[str, Callable[[str], Any]] = {
    "update": lambda c: Command(update={"foo": "x", "messages": [ToolMessage("ok", tool_call_id=c)]}),
    "no matching message": lambda c: Command(update={"foo": "x"}),
    "another's message": lambda c: Command(update={"messages": [ToolMessage("ok", tool_call_id="other")]}),
    "list update": lambda c: Command(update=[ToolMessage("ok", tool_call_id=c)]),
    "remove all": lambda c: Command(update={"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}),
    "extra message": lambda c: Command(update={"messages": [ToolMessage("ok", tool_call_id=c), HumanMessage("more")]}),
    "dict message": lambda c: Command(
        update={"foo": "x", "messages": [{"role": "tool", "content": "ok", "tool_call_id": c}]}
    ),
    "goto": lambda c: Command(goto=END, update={"messages": [ToolMessage("ok", tool_call_id=c)]}),
    "list of one": lambda c: [ToolMessage("ok", tool_call_id=c)],
    "list with command": lambda c: [Command(update={"foo": "x"}), ToolMessage("ok", tool_call_id=c)],
    "list without end": lambda c: [Command(update={"foo": "x"})],
    "list with two ends": lambda c: [ToolMessage("ok", tool_call_id=c), ToolMessage("no", tool_call_id=c)],
    "list with text": lambda c: [ToolMessage("ok", tool_call_id=c), "text"],
    "empty list": lambda c: [],
}


@variants
@modes
@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("handle", [True, None])
def test_commands_and_lists_give_the_stock_result(variant: str, mode: str, kind: str, handle: Any) -> None:
    options = {} if handle is None else {"handle_tool_errors": handle}
    calls = given(call("act", id="c1"), call("add", id="c2", a=1, b=2), foo="before")
    same(variant, mode, [commanding(COMMANDS[kind]), add], calls, options=options)


@variants
@modes
def test_commands_in_a_list_state_give_the_stock_result(variant: str, mode: str) -> None:
    calls = given(call("act", id="c1"))["messages"]
    for kind in ("list update", "update", "list of one"):
        same(
            variant,
            mode,
            [commanding(COMMANDS[kind])],
            calls,
            graph={"state": Annotated[list[AnyMessage], add_messages]},
            options={"handle_tool_errors": True},
        )


@variants
@modes
def test_hand_overs_to_the_parent_are_merged_into_one(variant: str, mode: str) -> None:
    @tool
    def transfer(to: str, state: Annotated[dict[str, Any], InjectedState]) -> Command[Any]:
        """Hand over."""
        return Command(graph=Command.PARENT, goto=[Send(to, {"foo": to, "messages": []})])

    def parent(node: Any) -> Any:
        def named(name: str) -> Any:
            return lambda state: {"messages": [HumanMessage(f"{name} got {state['foo']}", id=name)]}

        builder = StateGraph(State)
        builder.add_node("inner", compiled(node))
        builder.add_node("alice", named("alice"))
        builder.add_node("bob", named("bob"))
        builder.add_edge(START, "inner")
        return builder.compile()

    start = given(call("transfer", id="c1", to="alice"), call("transfer", id="c2", to="bob"))
    stock = outcome(parent(ToolNode([transfer])), mode, start)
    assert outcome(parent(flash(variant, [transfer])), mode, start) == stock
    assert sorted(m[1] for m in stock["messages"][2:]) == ["alice got alice", "bob got bob"]


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


CONTENTS: list[Any] = [
    "text",
    "",
    None,
    3,
    {"ü": ["é", None]},
    ["a", "b"],
    [{"type": "text", "text": "block"}],
    [{"type": "image_url", "image_url": {"url": "data:,"}}],
    [{"type": "odd"}],
    Odd(),
    (1, 2),
    {1, 2},
    b"bytes",
]


@variants
@modes
def test_contents_of_every_kind_and_artifacts_are_normalised_as_in_the_stock_node(variant: str, mode: str) -> None:
    @tool
    def give(index: int) -> Any:
        """Give."""
        return CONTENTS[index]

    @tool(response_format="content_and_artifact")
    def attach(index: int) -> Any:
        """Attach."""
        return "seen", {"index": index}

    @tool
    def message(call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Give a message."""
        return ToolMessage("own", tool_call_id=call_id, artifact="kept", status="error")

    calls = [call("give", id=f"c{n}", index=n) for n in range(len(CONTENTS))]
    same(
        variant,
        mode,
        [give, attach, message],
        given(*calls, call("attach", id="d1", index=7), call("message", id="d2")),
        options={"handle_tool_errors": True},
    )


# 12, 13, 14: errors ----------------------------------------------------------------------------------------------


def on_value(error: ValueError) -> str:
    return f"handled {error}"


def on_either(error: ValueError | KeyError) -> str:
    return f"either {error}"


def on_key(error: KeyError) -> str:
    return "key"


def on_any(error) -> str:  # type: ignore[no-untyped-def]
    return "any"


def broken(error: ValueError) -> str:
    raise RuntimeError("handler broke")


HANDLERS = [
    True,
    False,
    "It failed.",
    ValueError,
    KeyError,
    (KeyError, ValueError),
    (KeyError,),
    (),
    on_value,
    on_either,
    on_key,
    on_any,
    broken,
]


@variants
@modes
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: getattr(handler, "__name__", str(handler)))
def test_every_kind_of_error_handler_gives_the_stock_result(variant: str, mode: str, handler: Any) -> None:
    @tool
    def soft(text: str) -> str:
        """Fail softly."""
        raise ToolException(text)

    soft.handle_tool_error = True
    for calls in (
        [call("boom", id="c1", text="x"), call("add", id="c2", a=1, b=2)],
        [call("add", id="c2", a="x", b=2)],
        [call("soft", id="c3", text="gently")],
    ):
        same(variant, mode, [boom, add, soft], given(*calls), options={"handle_tool_errors": handler})


@variants
@modes
def test_the_default_handler_answers_bad_arguments_and_raises_what_a_tool_raises(variant: str, mode: str) -> None:
    assert same(variant, mode, [boom], given(call("boom", id="c1", text="x")))[:2] == ("raised", "ValueError")
    result = same(variant, mode, [add], given(call("add", id="c1", a="x"), call("add", id="c2", a=1, b=2)))
    assert "Error invoking tool 'add'" in answers(result)[0]
    assert answers(result)[1] == "3"


@variants
@modes
def test_validation_errors_quote_the_model_s_arguments_and_not_the_injected_ones(variant: str, mode: str) -> None:
    @tool
    def guarded(x: int, foo: Annotated[int, InjectedState("foo")], runtime: ToolRuntime) -> str:
        """Be careful."""
        return "x"

    text = answers(same(variant, mode, [guarded], given(call("guarded", id="c1", x="no"), foo="not a number")))[0]
    assert "{'x': 'no'}" in text
    assert "not a number" not in text


@variants
@modes
@pytest.mark.parametrize("handle", [True, False, None])
def test_an_unknown_tool_is_answered_with_the_names_there_are(variant: str, mode: str, handle: Any) -> None:
    options = {} if handle is None else {"handle_tool_errors": handle}
    result = same(
        variant, mode, [add], given(call("nothing", id="c1", x=1), call("add", id="c2", a=1, b=2)), options=options
    )
    assert "nothing is not a valid tool, try one of [add]" in answers(result)[0]


# 15, 20: wrappers ------------------------------------------------------------------------------------------------


def retrying(request: Any, execute: Any) -> Any:
    for _ in range(2):
        execute(request)
    return execute(request.override(tool_call={**request.tool_call, "args": {"a": 10, "b": 1}}))


def short_circuit(request: Any, execute: Any) -> Any:
    return ToolMessage("cached", tool_call_id=request.tool_call["id"])


def command_circuit(request: Any, execute: Any) -> Any:
    return Command(update={"foo": "wrapped", "messages": [ToolMessage("c", tool_call_id=request.tool_call["id"])]})


def failing(request: Any, execute: Any) -> Any:
    raise ValueError("wrapper broke")


def serving(request: Any, execute: Any) -> Any:
    return ToolMessage(f"served {request.tool}", tool_call_id=request.tool_call["id"])


def stateful(request: Any, execute: Any) -> Any:
    return execute(request.override(state={**request.state, "foo": "overridden"}))


async def aretrying(request: Any, execute: Any) -> Any:
    await execute(request)
    return await execute(request.override(tool_call={**request.tool_call, "args": {"a": 10, "b": 1}}))


@variants
@modes
@pytest.mark.parametrize("wrapper", [retrying, short_circuit, command_circuit, failing, serving])
@pytest.mark.parametrize("handle", [True, False])
def test_sync_wrappers_give_the_stock_result(variant: str, mode: str, wrapper: Any, handle: bool) -> None:
    calls = given(call("add", id="c1", a=1, b=2), call("unregistered", id="c2"), foo="x")
    if wrapper is retrying:
        calls = given(call("add", id="c1", a=1, b=2))
    same(variant, mode, [add], calls, options={"wrap_tool_call": wrapper, "handle_tool_errors": handle})


@variants
def test_an_async_wrapper_gives_the_stock_result_and_comes_first_under_ainvoke(variant: str) -> None:
    calls = given(call("add", id="c1", a=1, b=2))
    same(variant, "ainvoke", [add], calls, options={"awrap_tool_call": aretrying})
    same(variant, "ainvoke", [add], calls, options={"awrap_tool_call": aretrying, "wrap_tool_call": failing})
    same(variant, "invoke", [add], calls, options={"awrap_tool_call": aretrying, "wrap_tool_call": short_circuit})


@variants
@modes
def test_an_overridden_state_reaches_the_tool_both_ways(variant: str, mode: str) -> None:
    @tool
    def peek(foo: Annotated[str, InjectedState("foo")], runtime: ToolRuntime) -> str:
        """Look."""
        return f"{foo} {runtime.state['foo']}"

    result = same(variant, mode, [peek], given(call("peek", id="c1"), foo="x"), options={"wrap_tool_call": stateful})
    assert answers(result) == ["overridden overridden"]


@variants
@modes
def test_changing_a_request_in_place_warns_as_in_the_stock_node(variant: str, mode: str) -> None:
    def mutating(request: ToolCallRequest, execute: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            request.tool_call = {**request.tool_call, "args": {"a": 5, "b": 5}}
        assert [w.category for w in caught] == [DeprecationWarning]
        return execute(request)

    result = same(variant, mode, [add], given(call("add", id="c1", a=1, b=2)), options={"wrap_tool_call": mutating})
    assert answers(result) == ["10"]


@variants
def test_a_sync_wrapper_under_ainvoke_neither_blocks_the_loop_nor_puts_calls_in_a_row(variant: str) -> None:
    both = threading.Barrier(2 if variant == "default" else 1)
    released = threading.Event()

    def meeting(request: Any, execute: Any) -> Any:
        both.wait(20)  # breaks unless both wrappers are inside at once
        assert released.wait(20)  # set by the loop, which a blocked loop could not do
        return execute(request)

    node = flash(variant, [add], wrap_tool_call=meeting)

    async def run() -> Any:
        asyncio.get_running_loop().call_later(0.01, released.set)
        return await compiled(node).ainvoke(given(call("add", id="c1", a=1, b=2), call("add", id="c2", a=3, b=4)))

    assert answers(plain(asyncio.run(run()))) == ["3", "7"]


# 16: what bubbles up ---------------------------------------------------------------------------------------------


@variants
@modes
@pytest.mark.parametrize("wrap", [False, True])
def test_an_interrupt_always_surfaces_and_its_answer_arrives(variant: str, mode: str, wrap: bool) -> None:
    @tool
    def ask(what: str) -> str:
        """Ask."""
        return f"{what}: {interrupt(what)}"

    options: dict[str, Any] = {"handle_tool_errors": True}
    if wrap:
        options["wrap_tool_call"] = lambda request, execute: execute(request)
    seen = []
    for node in (ToolNode([ask], **options), flash(variant, [ask], **options)):
        graph = compiled(node, saver=InMemorySaver())
        config = {"configurable": {"thread_id": f"{variant} {mode} {wrap}"}}
        paused = graph.invoke(given(call("ask", id="c1", what="Sure?")), config)
        assert [i.value for i in paused["__interrupt__"]] == ["Sure?"]
        seen.append(outcome(graph, mode, Command(resume="yes"), config=config))
    assert seen[0] == seen[1]
    assert answers(seen[1]) == ["Sure?: yes"]


def test_an_interrupt_is_not_an_error_that_a_handler_sees() -> None:
    assert issubclass(GraphInterrupt, Exception)


# 17: sync and async ----------------------------------------------------------------------------------------------


@variants
def test_tools_that_only_have_a_coroutine_work_under_invoke_where_the_stock_node_refuses(variant: str) -> None:
    start = given(call("aadd", id="c1", a=1, b=2), call("add", id="c2", a=3, b=4))
    assert outcome(compiled(ToolNode([aadd, add])), "invoke", start)[:2] == ("raised", "NotImplementedError")
    for options in ({}, {"wrap_tool_call": lambda request, execute: execute(request)}):
        assert answers(outcome(compiled(flash(variant, [aadd, add], **options)), "invoke", start)) == ["3", "7"]


@variants
def test_a_tool_that_only_has_a_coroutine_works_behind_a_sync_wrapper_under_ainvoke(variant: str) -> None:
    node = flash(variant, [aadd], wrap_tool_call=lambda request, execute: execute(request))
    assert answers(outcome(compiled(node), "ainvoke", given(call("aadd", id="c1", a=1, b=2)))) == ["3"]


@variants
def test_async_tools_run_on_the_caller_s_loop_unless_they_are_in_the_background(variant: str) -> None:
    @tool
    async def where() -> str:
        """Say where."""
        return str(id(asyncio.get_running_loop()))

    async def run() -> None:
        result = await compiled(flash(variant, [where])).ainvoke(given(call("where", id="c1")))
        here = result["messages"][-1].content == str(id(asyncio.get_running_loop()))
        assert here is (variant == "default")
        node = flash(variant, [where], loop="caller")
        result = await compiled(node).ainvoke(given(call("where", id="c1")))
        assert result["messages"][-1].content == str(id(asyncio.get_running_loop()))

    asyncio.run(run())


@variants
@modes
def test_answers_keep_the_order_of_the_calls(variant: str, mode: str) -> None:
    turn = [threading.Event() for _ in range(3)]
    turn[2].set()

    @tool
    def late(n: int) -> str:
        """Finish in reverse."""
        if variant == "default":
            assert turn[n].wait(20)
        if n:
            turn[n - 1].set()
        return str(n)

    node = flash(variant, [late])
    start = given(*(call("late", id=f"c{n}", n=n) for n in range(3)))
    assert answers(outcome(compiled(node), mode, start)) == ["0", "1", "2"]


@modes
def test_an_undeclared_node_runs_the_calls_of_a_message_at_once(mode: str) -> None:
    both = threading.Barrier(2)

    @tool
    def meet(n: int) -> str:
        """Meet the other call."""
        both.wait(20)
        return str(n)

    start = given(call("meet", id="c1", n=1), call("meet", id="c2", n=2))
    assert answers(outcome(compiled(FlashNode([meet])), mode, start)) == ["1", "2"]


# 18: callbacks ---------------------------------------------------------------------------------------------------


class Watch(BaseCallbackHandler):
    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.seen: list[Any] = []
        self.guard = threading.Lock()

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, name: Any = None, **more: Any) -> None:
        self.names[run_id] = name

    def on_tool_start(
        self, serialized: Any, text: str, *, run_id: Any, parent_run_id: Any, tags: Any, metadata: Any, **more: Any
    ) -> None:
        with self.guard:
            self.names[run_id] = serialized["name"]
            keys = sorted(key for key in metadata if key.startswith("langgraph") or key == "mark")
            values = [metadata[key] for key in ("langgraph_node", "langgraph_step", "mark")]
            self.seen.append(
                (
                    "start",
                    serialized["name"],
                    text,
                    self.names.get(parent_run_id),
                    sorted(tags),
                    keys,
                    values,
                    more.get("tool_call_id"),
                )
            )

    def on_tool_end(self, output: Any, *, run_id: Any, **more: Any) -> None:
        with self.guard:
            self.seen.append(("end", self.names[run_id], plain(output)))

    def on_tool_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
        with self.guard:
            self.seen.append(("error", self.names[run_id], repr(error)))


@variants
@modes
def test_callbacks_tags_metadata_and_parent_runs_are_the_stock_ones(variant: str, mode: str) -> None:
    start = given(
        call("add", id="c1", a=1, b=2),
        call("aadd" if mode == "ainvoke" else "add", id="c2", a=3, b=4),
        call("boom", id="c3", text="x"),
    )
    seen = []
    for node in (
        ToolNode([add, aadd, boom], handle_tool_errors=True, tags=["of-node"]),
        flash(variant, [add, aadd, boom], handle_tool_errors=True, tags=["of-node"]),
    ):
        watch = Watch()
        outcome(
            compiled(node),
            mode,
            start,
            config={"callbacks": [watch], "tags": ["of-run"], "metadata": {"mark": "m"}, "run_name": "root"},
        )
        seen.append(sorted(watch.seen, key=repr))
    assert seen[0] == seen[1]
    assert len(seen[1]) == 6


# 19: streams -----------------------------------------------------------------------------------------------------


def streamed(graph: Any, mode: str, start: Any, kinds: list[str]) -> list[Any]:
    def event(kind: str, payload: Any) -> Any:
        if kind == "messages":
            return (kind, payload[0].content, payload[1]["langgraph_node"])
        if kind == "tools":
            return (kind, plain({k: v for k, v in payload.items() if k != "input"}))
        return (kind, plain(payload))

    if mode == "invoke":
        return [event(kind, payload) for kind, payload in graph.stream(start, stream_mode=kinds)]

    async def run() -> list[Any]:
        return [event(kind, payload) async for kind, payload in graph.astream(start, stream_mode=kinds)]

    return asyncio.run(run())


@variants
@modes
def test_the_streams_of_a_tool_are_the_stock_ones(variant: str, mode: str) -> None:
    @tool
    def report(n: int, runtime: ToolRuntime) -> str:
        """Report."""
        runtime.stream_writer({"by": "runtime", "n": n})
        get_stream_writer()({"by": "config", "n": n})
        runtime.emit_output_delta(f"delta {n}")
        return f"reported {n}"

    @tool
    def think(n: int) -> str:
        """Ask a model."""
        return str(ScriptedChatModel(["word by word"]).invoke([HumanMessage("Go.")]).content)

    @tool
    async def areport(n: int, runtime: ToolRuntime) -> str:
        """Report."""
        runtime.stream_writer({"by": "async", "n": n})
        get_stream_writer()({"by": "async config", "n": n})
        runtime.emit_output_delta(f"adelta {n}")
        return f"areported {n}"

    calls = [call("report", id="c1", n=1), call("think", id="c2", n=2), call("boom", id="c3", text="x")]
    if mode == "ainvoke":
        calls.append(call("areport", id="c4", n=4))
    tools = [report, think, boom, areport]
    kinds = ["custom", "tools", "messages", "updates"]
    stock = streamed(compiled(ToolNode(tools, handle_tool_errors=True)), mode, given(*calls), kinds)
    ours = streamed(compiled(flash(variant, tools, handle_tool_errors=True)), mode, given(*calls), kinds)
    assert sorted(map(repr, ours)) == sorted(map(repr, stock))
    for n in range(1, 5):
        # Events of one call keep their order.
        mine = [repr(e) for e in ours if f"'c{n}'" in repr(e) and e[0] == "tools"]
        assert mine == [repr(e) for e in stock if f"'c{n}'" in repr(e) and e[0] == "tools"]


# 21, 22, 23 ------------------------------------------------------------------------------------------------------


@variants
@modes
def test_a_graph_with_the_stock_condition_runs_as_before_and_so_it_does_with_ours(variant: str, mode: str) -> None:
    def agent(node: Any, condition: Any) -> Any:
        model = ScriptedChatModel(
            [says("", call("add", id="c1", a=1, b=2)), says("", call("add", id="c2", a=3, b=4)), "Done."]
        )
        bound = model.bind_tools(list(node.tools_by_name.values()))
        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
        builder.add_node("tools", node)
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", condition)
        builder.add_edge("tools", "agent")
        return builder.compile()

    stock = outcome(agent(ToolNode([add]), tools_condition), mode, {"messages": [HumanMessage("Go.")]})
    for condition in (tools_condition, flash_condition):
        ours = outcome(agent(flash(variant, [add]), condition), mode, {"messages": [HumanMessage("Go.")]})
        assert ours == stock


@modes
def test_a_tool_that_returns_directly_is_never_answered_with_a_placeholder(mode: str) -> None:
    @tool(return_direct=True)
    def direct() -> str:
        """Answer."""
        time.sleep(0.01)
        return "direct"

    node = FlashNode([direct, add], background=True, grace=0.0)
    assert node.tools_by_name["direct"].return_direct
    assert answers(outcome(compiled(node), mode, given(call("direct", id="c1")))) == ["direct"]


@modes
def test_a_call_of_a_provider_s_own_tool_is_answered_as_in_the_stock_node(mode: str) -> None:
    same("default", mode, [add], given(call("web_search", id="c1", query="x")))


@variants
@modes
def test_a_node_called_outside_a_graph_behaves_as_the_stock_one(variant: str, mode: str) -> None:
    def alone(node: Any) -> Any:
        try:
            start = given(call("add", id="c1", a=1, b=2))
            return plain(node.invoke(start) if mode == "invoke" else asyncio.run(node.ainvoke(start)))
        except Exception as error:
            return (type(error).__name__, str(error))

    assert alone(flash(variant, [add])) == alone(ToolNode([add]))


@variants
def test_runnable_methods_of_the_stock_node_still_work(variant: str) -> None:
    start = given(call("add", id="c1", a=1, b=2))
    for make in (
        lambda node: node.with_config(tags=["x"]),
        lambda node: node.with_retry(stop_after_attempt=2),
        lambda node: node | (lambda output: output),
    ):
        stock = outcome(compiled(make(ToolNode([add]))), "ainvoke", start)
        assert outcome(compiled(make(flash(variant, [add]))), "ainvoke", start) == stock


@variants
def test_bind_without_a_model_is_still_the_runnable_s(variant: str) -> None:
    start = given(call("add", id="c1", a=1, b=2))
    stock = outcome(compiled(ToolNode([add]).bind()), "ainvoke", start)
    assert outcome(compiled(flash(variant, [add]).bind()), "ainvoke", start) == stock
