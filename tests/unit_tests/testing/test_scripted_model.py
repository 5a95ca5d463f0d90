"""The scripted model: what it refuses, that it is a complete chat model, and that its stream is its answer."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.testing import (
    InvalidHistory,
    ScriptedChatModel,
    ScriptExhausted,
    Turn,
    call,
    check_history,
    count_tokens,
    says,
    virtual_time,
)

USER = HumanMessage("Hello there.", id="user")


class Weather(BaseModel):
    """The weather somewhere."""

    city: str
    degrees: float


@tool
def search(query: str) -> str:
    """Search the web."""
    return query


# What is refused


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"script": "Hello."}, r"give a list of turns"),
        ({"script": None}, r"give a list of turns"),
        ({"script": ["Hello.", 3]}, r"Turn 1 of the script is 3"),
        ({"script": [USER]}, r"Turn 0 of the script is HumanMessage"),
        ({"script": [], "loop": True}, r"empty script cannot loop"),
        ({"script": ["a"], "position": "state"}, r"position is 'state'; use one of 'calls', 'history'"),
        ({"script": ["a"], "seconds_per_token": -1}, r"seconds_per_token is -1"),
        ({"script": ["a"], "first_token_seconds": float("nan")}, r"first_token_seconds is nan"),
        ({"script": ["a"], "first_token_seconds": "1"}, r"first_token_seconds is '1'"),
        ({"script": ["a"], "second_per_token": 1}, r"has no argument second_per_token"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_by_name(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        ScriptedChatModel(**arguments)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), float("inf")])
def test_arguments_of_a_call_that_json_cannot_express_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'search'.*JSON cannot express"):
        call("search", query=value)
    raw = AIMessage("", tool_calls=[{"name": "search", "args": {"query": value}, "id": "a"}])
    with pytest.raises(ConfigurationError, match=r"'search'.*JSON cannot express"):
        ScriptedChatModel([raw]).invoke([USER])


def test_a_call_without_a_name_and_a_turn_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="name of a tool"):
        call("")
    with pytest.raises(ConfigurationError, match="takes the text first"):
        says(call("search"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"see call\(\)"):
        says("Hello.", "search")  # type: ignore[arg-type]


async def _coroutine(messages: list[BaseMessage]) -> str:
    return "late"


@pytest.mark.parametrize("turn", [lambda messages: None, lambda messages: messages[-1], _coroutine])
def test_a_function_that_returns_no_answer_is_refused_when_it_is_played(turn: Any) -> None:
    with pytest.raises(ConfigurationError, match="Turn 0 of the script returned"):
        ScriptedChatModel([turn]).invoke([USER])


def test_a_script_that_runs_out_says_how_long_it_was_and_what_it_was_asked() -> None:
    model = ScriptedChatModel(["One."])
    model.invoke([USER])
    for _ in range(2):
        with pytest.raises(
            ScriptExhausted, match=r"has 1 turn and .* HumanMessage 'Hello there\.'.*loop=True"
        ) as caught:
            model.invoke([USER])
        assert caught.value.turns == 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert len(model.calls) == 3


def test_an_empty_script_is_a_model_that_must_not_be_called() -> None:
    with pytest.raises(ScriptExhausted, match="has 0 turns"):
        ScriptedChatModel().invoke([USER])


def test_a_graph_does_not_retry_a_script_that_ran_out() -> None:
    model = ScriptedChatModel()
    graph = StateGraph(MessagesState)
    graph.add_node(
        "think",
        lambda state: {"messages": [model.invoke(state["messages"])]},
        retry_policy=RetryPolicy(initial_interval=0.001),
    )
    graph.add_edge(START, "think")
    with pytest.raises(ScriptExhausted):
        graph.compile().invoke({"messages": [USER]})
    assert len(model.calls) == 1


def test_a_strict_model_refuses_an_invalid_history_and_keeps_the_turn_for_a_valid_one() -> None:
    model = ScriptedChatModel(["One."])
    broken = [USER, says("", call("search", id="a"))]
    with pytest.raises(InvalidHistory):
        model.invoke(broken)
    with pytest.raises(InvalidHistory):
        list(model.stream(broken))
    assert model.invoke([USER]).content == "One."
    assert [len(seen) for seen in model.calls] == [2, 2, 1]


def test_a_lenient_model_answers_anything() -> None:
    assert ScriptedChatModel(["One."], strict=False).invoke([says("", call("search", id="a"))]).content == "One."


def test_what_a_turn_raises_comes_out_and_uses_the_turn_up() -> None:
    def overloaded(messages: list[BaseMessage]) -> str:
        raise ConnectionError("overloaded")

    model = ScriptedChatModel([overloaded, "Back."])
    with pytest.raises(ConnectionError):
        model.invoke([USER])
    assert model.invoke([USER]).content == "Back."


# The script and its position


def test_turns_are_played_in_order_and_a_loop_starts_again_with_fresh_messages() -> None:
    model = ScriptedChatModel([says("One."), lambda messages: f"You said {messages[-1].text}"], loop=True)
    answers = [model.invoke([USER]) for _ in range(5)]
    said = "You said Hello there."
    assert [answer.content for answer in answers] == ["One.", said, "One.", said, "One."]
    assert len({answer.id for answer in answers}) == 5


def test_the_position_in_the_history_survives_forks_and_fresh_instances() -> None:
    script: list[Turn] = ["One.", "Two.", says("", call("search"))]
    history: list[BaseMessage] = [USER]
    for _ in range(3):
        history.append(ScriptedChatModel(script, position="history").invoke(history))
        if len(history) < 5:
            history.append(USER)
    model = ScriptedChatModel(script, position="history")
    assert model.invoke(history[:3]).content == "Two."
    assert model.invoke(history[:1]).content == "One."
    assert model.invoke(history[:5]).tool_calls == history[5].tool_calls  # type: ignore[attr-defined]


def test_the_position_in_the_history_runs_out_and_loops_too() -> None:
    history = [USER, says("One."), USER]
    with pytest.raises(ScriptExhausted):
        ScriptedChatModel(["One."], position="history").invoke(history)
    assert ScriptedChatModel(["One."], position="history", loop=True).invoke(history).content == "One."


def test_calls_without_an_id_are_numbered_over_the_life_of_the_model() -> None:
    model = ScriptedChatModel(
        [says("", call("a"), call("b", id="mine"), call("c")), says("", call("d", id="call_3"), call("e"))]
    )
    ids = [[made["id"] for made in model.invoke([USER]).tool_calls] for _ in range(2)]
    assert ids == [["call_1", "mine", "call_2"], ["call_3", "call_4"]]


def test_calls_are_numbered_by_the_history_where_the_position_is() -> None:
    model = ScriptedChatModel([says("", call("a")), says("", call("b"), call("c"))], position="history")
    first = model.invoke([USER])
    history = [USER, first, ToolMessage("", tool_call_id="call_1")]
    for _ in range(2):
        assert [made["id"] for made in model.invoke(history).tool_calls] == ["call_2", "call_3"]


def test_a_number_that_the_history_uses_is_skipped() -> None:
    history = [USER, says("", call("a", id="call_1")), ToolMessage("", tool_call_id="call_1")]
    assert ScriptedChatModel([says("", call("b"))]).invoke(history).tool_calls[0]["id"] == "call_2"


def test_threads_take_each_turn_once() -> None:
    model = ScriptedChatModel([says(str(n), call("a")) for n in range(200)])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: model.invoke([USER]), range(200)))
    assert sorted(int(answer.text) for answer in answers) == list(range(200))
    assert len({answer.tool_calls[0]["id"] for answer in answers}) == 200
    assert len(model.calls) == len(model.bound_tools) == len(model.bound_options) == 200


def test_a_copy_or_a_pickle_of_the_model_goes_on_by_itself() -> None:
    model = ScriptedChatModel(["One.", "Two."])
    model.invoke([USER])
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.invoke([USER]).content == "Two."
        assert len(twin.calls) == 2
    assert len(model.calls) == 1


def test_the_script_is_not_changed_by_playing_it() -> None:
    turn = says("One.", call("search"))
    before = turn.model_copy(deep=True)
    answer = ScriptedChatModel([turn]).invoke([USER])
    answer.tool_calls[0]["args"]["query"] = "changed"
    assert turn == before


def test_the_recorded_messages_are_those_of_the_call_whatever_happens_to_them_later() -> None:
    message = HumanMessage("Hello there.")
    model = ScriptedChatModel(["One."])
    model.invoke([message])
    message.content = "changed"
    model.calls.clear()
    assert [[seen.text for seen in messages] for messages in model.calls] == [["Hello there."]]


# Tools and structured output


def test_bound_tools_and_options_are_recorded_per_call() -> None:
    model = ScriptedChatModel(["."], loop=True)
    model.invoke([USER])
    model.bind_tools([search, Weather], tool_choice="any", parallel_tool_calls=False).invoke([USER], stop=["x"])
    list(model.bind(tools=[search]).stream([USER]))
    assert [list(tools) for tools in model.bound_tools] == [[], ["search", "Weather"], ["search"]]
    assert model.bound_tools[1]["search"]["function"]["parameters"]["required"] == ["query"]
    assert model.bound_options == [{}, {"tool_choice": "any", "parallel_tool_calls": False, "stop": ["x"]}, {}]


@pytest.mark.parametrize("schema", [Weather, {"title": "Weather", **Weather.model_json_schema()}])
def test_structured_output_is_what_the_turn_calls(schema: Any) -> None:
    model = ScriptedChatModel([says("", call("Weather", city="Bern", degrees=3.5))], loop=True)
    parsed = model.with_structured_output(schema).invoke([USER])
    assert parsed in (Weather(city="Bern", degrees=3.5), {"city": "Bern", "degrees": 3.5})
    raw: Any = model.with_structured_output(schema, include_raw=True).invoke([USER])
    assert raw["parsing_error"] is None
    assert list(model.bound_tools[0]) == ["Weather"]


# The stream


def total(chunks: Iterable[AIMessageChunk]) -> AIMessage:
    first, *rest = chunks
    summed = message_chunk_to_message(first + rest if rest else first)
    assert isinstance(summed, AIMessage)
    return summed


def same(left: AIMessage, right: AIMessage) -> bool:
    """Equal but for the id, which belongs to the run."""
    return left.model_copy(update={"id": None}) == right.model_copy(update={"id": None})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    lambda name, args, call_id: {"name": name, "args": args, "id": call_id, "type": "tool_call"},
    st.text(min_size=1, max_size=8),
    st.dictionaries(st.text(), json_values, max_size=3),
    st.none() | st.text(min_size=1, max_size=4),
)
blocks = st.lists(
    st.text(max_size=20)
    | st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=20)}, optional={"index": st.just(0)})
    | st.just({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}),
    max_size=3,
)
answers = st.builds(
    AIMessage,
    content=st.text() | blocks,
    tool_calls=st.lists(calls, max_size=3),
    additional_kwargs=st.dictionaries(st.sampled_from(["reasoning", "refusal"]), json_values, max_size=2),
    response_metadata=st.dictionaries(st.sampled_from(["logprobs", "model_name"]), st.text(), max_size=2),
    id=st.none() | st.just("msg_1"),
)


@settings(max_examples=100, deadline=None)
@given(answers)
def test_a_stream_adds_up_to_the_invoked_answer(turn: AIMessage) -> None:
    model = ScriptedChatModel([turn], position="history")

    async def astreamed() -> list[AIMessageChunk]:
        return [chunk async for chunk in model.astream([USER])]

    invoked = model.invoke([USER])
    chunks = list(model.stream([USER]))
    assert same(total(chunks), invoked)
    assert same(total(asyncio.run(astreamed())), invoked)
    assert same(asyncio.run(model.ainvoke([USER])), invoked)
    assert [chunk.chunk_position for chunk in chunks if chunk.chunk_position] == ["last"]
    assert chunks[-1].chunk_position == "last"
    assert invoked.usage_metadata is not None
    assert invoked.usage_metadata["output_tokens"] == count_tokens(turn)
    assert invoked.usage_metadata["input_tokens"] == 2


@given(st.text())
def test_the_tokens_of_a_text_are_its_streamed_words(text: str) -> None:
    chunks = list(ScriptedChatModel([text]).stream([USER]))
    assert count_tokens(text) == len(chunks) - 1
    assert "".join(chunk.text for chunk in chunks) == text


def test_a_call_is_streamed_name_first_and_its_arguments_in_pieces() -> None:
    model = ScriptedChatModel([says("On it.", call("search", query="tea"))])
    pieces = [
        [(part["name"], part["id"], part["args"]) for part in chunk.tool_call_chunks] or chunk.content
        for chunk in model.stream([USER])
    ]
    assert pieces == [
        "On ",
        "it.",
        [("search", "call_1", "")],
        [(None, None, '{"qu')],
        [(None, None, 'ery"')],
        [(None, None, ': "t')],
        [(None, None, 'ea"}')],
        "",
    ]


def test_the_raw_calls_a_provider_keeps_in_additional_kwargs_are_not_read_twice() -> None:
    raw = {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"query": "tea"}'}}
    model = ScriptedChatModel([AIMessage("Hm.", additional_kwargs={"tool_calls": [raw]})], loop=True)
    invoked = model.invoke([USER])
    assert [made["id"] for made in invoked.tool_calls] == ["a"]
    assert same(total(model.stream([USER])), invoked)


def test_an_invalid_call_keeps_its_broken_text_in_the_stream() -> None:
    broken = {"name": "search", "args": "tea!", "id": "a", "error": None, "type": "invalid_tool_call"}
    model = ScriptedChatModel([AIMessage("", invalid_tool_calls=[broken])], loop=True)
    assert total(model.stream([USER])).invalid_tool_calls == model.invoke([USER]).invalid_tool_calls == [broken]


@pytest.mark.parametrize("content", ["Hello there.", ["Hello ", {"type": "text", "text": "there."}], ""])
def test_text_and_calls_stay_apart_in_version_one_output(content: Any) -> None:
    turn = AIMessage(content, tool_calls=[call("search", query="tea"), call("search", query="milk")])
    model = ScriptedChatModel([turn], position="history", output_version="v1")

    def outline(message: AIMessage) -> list[Any]:
        return [(block["type"], block.get("text"), block.get("args")) for block in message.content_blocks]

    assert outline(total(model.stream([USER]))) == outline(model.invoke([USER]))


def test_a_chunk_in_the_script_is_played_as_a_message() -> None:
    answer = ScriptedChatModel([AIMessageChunk("One.")]).invoke([USER])
    assert type(answer) is AIMessage


def test_usage_written_in_the_script_is_kept() -> None:
    usage: Any = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    model = ScriptedChatModel([AIMessage("One.", usage_metadata=usage)], loop=True)
    assert model.invoke([USER]).usage_metadata == total(model.stream([USER])).usage_metadata == usage


def test_tokens_of_calls_and_of_blocks_are_counted() -> None:
    assert count_tokens("") == 0
    assert count_tokens(" two  words\n") == 3
    assert count_tokens(says("one", call("two", a=1))) == 1 + 1 + 2
    assert count_tokens(HumanMessage([{"type": "text", "text": "a b"}, {"type": "image", "url": "x"}, "c"])) == 4


# Time


def test_an_answer_takes_its_first_token_and_then_each_token() -> None:
    model = ScriptedChatModel(["One two three."], loop=True, seconds_per_token=2, first_token_seconds=10)

    async def times() -> list[float]:
        loop = asyncio.get_running_loop()
        return [loop.time() async for _ in model.astream([USER])]

    with virtual_time() as clock:
        assert clock.run(times()) == [12, 14, 16, 16]
        clock.run(model.ainvoke([USER]))
        assert clock.seconds == 32


def test_a_synchronous_answer_really_takes_its_time() -> None:
    model = ScriptedChatModel(["One two."], loop=True, seconds_per_token=0.02, first_token_seconds=0.02)
    for play in (model.invoke, lambda messages: list(model.stream(messages))):
        started = time.perf_counter()
        play([USER])
        assert time.perf_counter() - started >= 0.06


async def test_other_tasks_run_between_the_chunks_also_without_delays() -> None:
    model = ScriptedChatModel(["One two."], loop=True)
    order = []

    async def consume(name: str) -> None:
        async for chunk in model.astream([USER]):
            order.append((name, chunk.text))

    await asyncio.gather(consume("a"), consume("b"))
    assert [name for name, _ in order[:4]] == ["a", "b", "a", "b"]


# In a graph


async def test_a_graph_streams_its_tokens_and_keeps_a_valid_history() -> None:
    model = ScriptedChatModel([says("Let me look.", call("search", query="tea")), "Found tea."])
    bound = model.bind_tools([search])

    async def think(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def look(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [search.invoke(made) for made in state["messages"][-1].tool_calls]}  # type: ignore[union-attr]

    graph = StateGraph(MessagesState)
    graph.add_node(think)
    graph.add_node(look)
    graph.add_edge(START, "think")
    graph.add_conditional_edges(
        "think",
        lambda state: "look" if state["messages"][-1].tool_calls else "__end__",
        ["look", "__end__"],
    )
    graph.add_edge("look", "think")
    compiled = graph.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    texts = [
        chunk.text
        async for chunk, _ in compiled.astream({"messages": [USER]}, config, stream_mode="messages")
        if isinstance(chunk, AIMessageChunk) and chunk.text
    ]
    messages = (await compiled.aget_state(config)).values["messages"]
    assert texts == ["Let ", "me ", "look.", "Found ", "tea."]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[1].tool_calls[0]["args"] == {"query": "tea"}
    check_history(messages)
