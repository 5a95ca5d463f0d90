"""The history checker, against examples of each rule and against a reference written the slow way."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_flash.errors import FlashError
from langgraph_flash.testing import HistoryRule, InvalidHistory, call, check_history, says

USER = HumanMessage("Hello.")
SYSTEM = SystemMessage("Be brief.")


def answer(call_id: str) -> ToolMessage:
    return ToolMessage("42", tool_call_id=call_id)


def calling(*ids: str | None) -> AIMessage:
    return says("", *(call("search", id=call_id) for call_id in ids))


def broken_call(call_id: str | None) -> AIMessage:
    invalid = {"name": "search", "args": "{", "id": call_id, "error": None, "type": "invalid_tool_call"}
    return AIMessage("", invalid_tool_calls=[invalid])


def without_content() -> HumanMessage:
    message = HumanMessage("")
    message.content = None  # type: ignore[assignment]
    return message


BROKEN: list[tuple[HistoryRule, int, Sequence[Any]]] = [
    ("empty history", 0, []),
    ("unknown message", 0, ["Hello."]),
    ("unknown message", 1, [USER, RemoveMessage(id="1")]),
    ("unknown message", 1, [USER, ChatMessage("Hi.", role="assistant")]),
    ("invalid content", 0, [without_content()]),
    ("invalid content", 0, [HumanMessage.model_construct(content=[None])]),
    ("invalid content", 0, [HumanMessage.model_construct(content=3)]),
    ("late system message", 1, [USER, SYSTEM]),
    ("late system message", 2, [SYSTEM, USER, SYSTEM]),
    ("no user message first", 0, [says("Hi.")]),
    ("no user message first", 1, [SYSTEM, calling("a"), answer("a")]),
    ("no user message first", 0, [answer("a")]),
    ("no user message first", 1, [SYSTEM, answer("a"), USER]),
    ("missing call id", 1, [USER, calling("")]),
    ("missing call id", 1, [USER, calling(None)]),
    ("missing call id", 1, [USER, broken_call(None)]),
    ("repeated call id", 1, [USER, calling("a", "a"), answer("a")]),
    ("unanswered call", 1, [USER, calling("a")]),
    ("unanswered call", 2, [USER, calling("a", "b"), answer("a")]),
    ("unanswered call", 2, [USER, calling("a"), USER, answer("a")]),
    ("unanswered call", 2, [USER, calling("a"), calling("b"), answer("a"), answer("b")]),
    ("unanswered call", 2, [USER, calling("a"), SYSTEM]),
    ("unanswered call", 1, [USER, broken_call("a")]),
    ("repeated answer", 3, [USER, calling("a"), answer("a"), answer("a")]),
    ("repeated answer", 3, [USER, calling("a", "b"), answer("a"), answer("a"), answer("b")]),
    ("answer without call", 1, [USER, answer("a")]),
    ("answer without call", 2, [USER, calling("a"), answer("b"), answer("a")]),
    ("answer without call", 4, [USER, calling("a"), answer("a"), says("So."), answer("a")]),
]


@pytest.mark.parametrize(("rule", "index", "messages"), BROKEN)
def test_a_broken_rule_is_named_with_the_message_that_breaks_it(
    rule: HistoryRule, index: int, messages: Sequence[Any]
) -> None:
    with pytest.raises(InvalidHistory) as caught:
        check_history(messages)
    assert (caught.value.rule, caught.value.index) == (rule, index)
    assert str(caught.value).startswith(f"Message {index} ({rule}): ")


def test_every_rule_has_an_example() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(get_args(HistoryRule))


def test_the_sentence_names_the_calls_that_wait_and_says_what_to_do() -> None:
    with pytest.raises(InvalidHistory, match=r"to 'b', 'c', called in message 1.*Add one ToolMessage per call"):
        check_history([USER, calling("a", "b", "c"), answer("a")])


def test_an_invalid_history_is_a_value_error_of_this_package_and_survives_pickling() -> None:
    error = InvalidHistory(3, "repeated answer", "problem", "Remedy.")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ValueError)
    assert isinstance(copy, FlashError)
    assert (str(copy), copy.index, copy.rule) == (str(error), 3, "repeated answer")


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM],
        [SYSTEM, SYSTEM, USER, USER],
        [USER, says("Hi."), says("Again."), USER],
        [HumanMessage([{"type": "text", "text": "Hello."}, "again"])],
        [USER, calling("a", "b"), answer("b"), answer("a")],
        [USER, calling("a"), answer("a"), calling("a"), answer("a"), says("Done.")],
        [USER, broken_call("a"), answer("a"), USER],
    ],
)
def test_a_history_that_providers_accept_passes(messages: Sequence[BaseMessage]) -> None:
    check_history(messages)


def is_valid(messages: Sequence[BaseMessage]) -> bool:
    """The rules, by cutting the history into a prefix of system messages and blocks that must each be right."""
    rest = list(messages)
    if not rest:
        return False
    while rest and isinstance(rest[0], SystemMessage):
        rest.pop(0)
    if rest and not isinstance(rest[0], HumanMessage):
        return False
    while rest:
        head = rest.pop(0)
        if isinstance(head, SystemMessage | ToolMessage):
            return False
        answers = []
        while rest and isinstance(rest[0], ToolMessage):
            answers.append(rest.pop(0).tool_call_id)
        calls = [made["id"] for made in head.tool_calls] if isinstance(head, AIMessage) else []
        if not all(calls) or len(set(calls)) != len(calls) or sorted(answers) != sorted(calls):
            return False
    return True


ids = st.sampled_from(["a", "b", ""])
pieces = st.one_of(
    st.just([USER]),
    st.just([SYSTEM]),
    st.lists(ids, max_size=2).map(lambda made: [calling(*made)]),
    ids.map(lambda call_id: [answer(call_id)]),
    st.permutations(["a", "b"]).map(lambda order: [calling("a", "b"), *map(answer, order)]),
)


@settings(max_examples=400)
@given(st.lists(pieces, max_size=6).map(lambda parts: [message for part in parts for message in part]))
def test_the_checker_agrees_with_the_reference(messages: list[BaseMessage]) -> None:
    if is_valid(messages):
        check_history(messages)
        return
    with pytest.raises(InvalidHistory) as caught:
        check_history(messages)
    assert 0 <= caught.value.index < max(1, len(messages))
