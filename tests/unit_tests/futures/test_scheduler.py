"""The scheduler against its definition: who may run, who is cancelled, and that no race can be observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from langgraph_flash.errors import ConfigurationError, FutureCancelled, FutureFailed, FutureNotFinished
from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.resources import BARRIER, PURE, Access, Path, conflicts, covers
from langgraph_flash.futures.scheduler import Scheduler, longest_first, program_order

ALPHABET = ("a", "b")


async def no_work(arguments: dict[str, Any]) -> Any:
    raise AssertionError("the scheduler runs nothing")


def call(name: str, access: Access = BARRIER, *needs: Future, **more: Any) -> Future:
    return Future(name, "tool", access=access, work=more.pop("work", no_work), needs=needs, **more)


def writes(*paths: str) -> Access:
    return Access(writes=tuple(tuple(path.split("/")) for path in paths))


def reads(*paths: str) -> Access:
    return Access(reads=tuple(tuple(path.split("/")) for path in paths))


def start_all(scheduler: Scheduler) -> list[str]:
    started = []
    while (next_call := scheduler.pop_ready()) is not None:
        started.append(next_call.id)
    return started


# Edge cases and cancellation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nothing_run_is_refused(limit: int) -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        Scheduler(limit=limit)


def test_an_unknown_failure_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_order_failure"):
        Scheduler(on_order_failure="stop")  # type: ignore[arg-type]


def test_only_a_running_call_finishes_and_only_a_waiting_one_is_cancelled_or_attached() -> None:
    scheduler = Scheduler()
    first = call("a")
    scheduler.add([first])
    with pytest.raises(ConfigurationError, match="not running"):
        scheduler.finish(first)
    with pytest.raises(ConfigurationError, match="already has its work"):
        scheduler.attach(first, no_work)
    assert scheduler.pop_ready() is first
    with pytest.raises(ConfigurationError, match="only waiting"):
        scheduler.cancel(first, "why")
    scheduler.finish(first, value=1)
    with pytest.raises(ConfigurationError, match="not running"):
        scheduler.finish(first)
    with pytest.raises(ConfigurationError, match="only waiting"):
        scheduler.cancel(first, "why")
    assert scheduler.running == 0


def test_a_cancelled_call_goes_on_holding_its_place_until_those_before_it_have_ended() -> None:
    scheduler = Scheduler()
    first, second, third = call("a", writes("x")), call("b", writes("x")), call("c", writes("x"))
    scheduler.add([first, second, third])
    assert start_all(scheduler) == ["a"]
    assert scheduler.cancel(second, "not wanted") == [second]
    assert start_all(scheduler) == []
    late = call("d", reads("x/y"))
    scheduler.add([late])
    assert start_all(scheduler) == []
    scheduler.finish(first, value=1)
    assert second.passed
    assert start_all(scheduler) == ["c"]
    scheduler.finish(third, value=1)
    assert start_all(scheduler) == ["d"]


def test_a_call_that_mentions_one_future_twice_waits_once() -> None:
    scheduler = Scheduler()
    first = call("a", PURE)
    second = call("b", PURE, first, first)
    scheduler.add([first, second])
    assert start_all(scheduler) == ["a"]
    scheduler.finish(first, value=1)
    assert start_all(scheduler) == ["b"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_added_after_what_it_needs_was_lost_is_cancelled_at_once(cancelled: bool) -> None:
    scheduler = Scheduler()
    first = call("a", PURE)
    scheduler.add([first])
    scheduler.pop_ready()
    scheduler.finish(first, reason="no", cancelled=cancelled)
    second = call("b", PURE, first)
    third = call("c", PURE, second)
    free = call("d", PURE)
    assert scheduler.add([second, third, free]) == [second, third]
    assert (second.cause, third.cause) == (first, second)
    assert third.root_cause() is first
    assert "needs the result of a" in str(second.reason)
    assert ("was cancelled" if cancelled else "failed") in str(second.reason)
    assert start_all(scheduler) == ["d"]


def test_an_announced_call_holds_its_place_and_runs_only_when_attached() -> None:
    scheduler = Scheduler()
    announced = call("a", writes("x"), work=None)
    after = call("b", writes("x"))
    scheduler.add([announced, after])
    assert announced.state is State.ANNOUNCED
    assert start_all(scheduler) == []
    scheduler.attach(announced, no_work)
    assert start_all(scheduler) == ["a"]
    other = call("c", PURE, work=None)
    scheduler.add([other])
    assert scheduler.cancel(other, "never came") == [other]
    with pytest.raises(ConfigurationError):
        scheduler.attach(other, no_work)


def test_an_exception_that_cannot_be_printed_is_still_an_outcome() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    scheduler = Scheduler(limit=1)
    first, second = call("a", PURE), call("b", PURE)
    third = call("c", PURE, first)
    scheduler.add([first, second, third])
    assert start_all(scheduler) == ["a"]
    scheduler.finish(first, error=Unprintable())
    assert first.state is State.FAILED
    assert third.state is State.CANCELLED
    assert scheduler.running == 0
    assert start_all(scheduler) == ["b"]


def test_a_failure_without_words_says_so_and_not_none() -> None:
    scheduler = Scheduler()
    first = call("a")
    scheduler.add([first])
    scheduler.pop_ready()
    scheduler.finish(first, reason="")
    assert first.state is State.FAILED
    assert first.reason != "None"


def test_calls_cancelled_while_the_limit_was_reached_are_not_kept_for_ever() -> None:
    scheduler = Scheduler(limit=1)
    running, *queued = [call(f"c{i}", PURE) for i in range(20)]
    scheduler.add([running, *queued])
    assert scheduler.pop_ready() is running
    for waiting in queued:
        scheduler.cancel(waiting, "no")
    scheduler.finish(running)
    assert scheduler.pop_ready() is None
    assert scheduler._ready == []


def test_with_cancel_a_failure_reaches_calls_behind_one_that_was_cancelled_before_they_came() -> None:
    """The record of `b` supersedes that of `a` in the tree, so `c` hangs on `b` alone; it still comes after `a`."""
    scheduler = Scheduler(on_order_failure="cancel")
    first, second, third = call("a", writes("x")), call("b", writes("x")), call("c", writes("x"))
    scheduler.add([first, second])
    assert scheduler.pop_ready() is first
    scheduler.cancel(second, "not wanted")
    scheduler.add([third])
    assert scheduler.finish(first, error=ValueError("boom")) == [third]
    assert third.state is State.CANCELLED
    assert third.root_cause() is first


def test_with_cancel_a_call_that_only_comes_after_one_cancelled_before_it_came_is_left_alone() -> None:
    """`c` reads beside `a`, so it does not come after it; it waits only because `b`, cancelled, holds its place."""
    scheduler = Scheduler(on_order_failure="cancel")
    running, first, second = call("0", writes("x")), call("a", reads("x/1")), call("b", BARRIER)
    third = call("c", reads("x/2"))
    scheduler.add([running, first, second])
    assert scheduler.pop_ready() is running
    assert scheduler.cancel(second, "not wanted") == [second]
    scheduler.add([third])
    assert scheduler.cancel(first, "not wanted") == [first]
    scheduler.finish(running)
    assert start_all(scheduler) == ["c"]


def test_with_cancel_a_call_behind_one_cancelled_before_is_reached_from_every_cause() -> None:
    """`d` comes after `b`, which is lost with `a`; its only edge leads to `s`, which is reached from `a` first."""
    scheduler = Scheduler(on_order_failure="cancel")
    first = call("a", writes("x"))
    second = call("b", Access(reads=(("x",),), writes=(("y",),)))
    stopped, last = call("s", BARRIER), call("d", reads("y"))
    scheduler.add([first, second, stopped])
    assert scheduler.pop_ready() is first
    scheduler.cancel(stopped, "not wanted")
    scheduler.add([last])
    assert scheduler.finish(first, error=ValueError("boom")) == [second, last]
    assert last.cause is second
    assert last.root_cause() is first


def test_with_cancel_the_cause_of_each_is_the_nearest_and_the_root_the_failure() -> None:
    scheduler = Scheduler(on_order_failure="cancel")
    first = call("a", writes("x"))
    second = call("b", Access(reads=(("x",),), writes=(("y",),)))
    third = call("c", reads("y"))
    data = call("d", PURE, third)
    free = call("e", writes("z"))
    both = call("f", reads("x"), first)
    scheduler.add([first, second, third, data, free, both])
    assert start_all(scheduler) == ["a", "e"]
    cancelled = scheduler.finish(first, error=ValueError("boom"))
    assert {c.id for c in cancelled} == {"b", "c", "d", "f"}
    assert [c.cause for c in (second, third, data, both)] == [first, second, third, first]
    assert {c.root_cause().id for c in cancelled} == {"a"}
    assert "comes after a" in str(second.reason)
    assert "needs the result of a" in str(both.reason)
    assert free.state is State.RUNNING


def test_outcomes_are_asked_of_the_future() -> None:
    scheduler = Scheduler()
    good, bad, gone = call("g", PURE), call("b", PURE), call("c", PURE)
    scheduler.add([good, bad, gone])
    with pytest.raises(FutureNotFinished, match="waiting"):
        good.result()
    start_all(scheduler)
    with pytest.raises(FutureNotFinished, match="running"):
        good.result()
    scheduler.finish(good, value=None)
    scheduler.finish(bad, error=KeyError("k"))
    scheduler.finish(gone, reason="told to", cancelled=True)
    assert good.result() is None
    with pytest.raises(FutureFailed, match="'k'") as failed:
        bad.result()
    assert isinstance(failed.value.__cause__, KeyError)
    with pytest.raises(FutureCancelled, match="told to"):
        gone.result()
    assert [c.id for c in scheduler.calls()] == ["g", "b", "c"]
    scheduler.forget(good)
    assert scheduler.get("g") is None
    assert len(scheduler) == 2


# Any sequence of events against the definition ----------------------------------------------------------------


@dataclass
class Definition:
    """The rules, written down plainly and slowly."""

    policy: Literal["continue", "cancel"]
    calls: list[Future] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    causes: dict[int, int | None] = field(default_factory=dict)

    def before(self, index: int) -> list[int]:
        return [i for i in range(index) if conflicts(self.calls[i].access, self.calls[index].access)]

    def ended(self) -> list[bool]:
        """Settled, and everything that it had to wait for has ended as well."""
        result: list[bool] = []
        for index in range(len(self.calls)):
            result.append(self.states[index].settled and all(result[i] for i in self.before(index)))
        return result

    def startable(self) -> list[int]:
        ended = self.ended()
        return [
            i
            for i, state in enumerate(self.states)
            if state is State.WAITING
            and all(ended[j] for j in self.before(i))
            and all(self.states[need.index] is State.SUCCEEDED for need in self.calls[i].needs)
        ]

    def lost(self, index: int, state: State) -> set[int]:
        """End a call badly; returns those that are cancelled because of it."""
        self.states[index] = state
        taken: set[int] = set()
        stack = [index]
        while stack:
            current = stack.pop()
            for later in range(current + 1, len(self.calls)):
                if self.states[later] not in (State.ANNOUNCED, State.WAITING):
                    continue
                by_data = any(need.index == current for need in self.calls[later].needs)
                by_order = self.policy == "cancel" and current in self.before(later)
                if by_data or by_order:
                    self.states[later] = State.CANCELLED
                    self.causes[later] = index
                    taken.add(later)
                    stack.append(later)
        return taken

    def root(self, index: int) -> int:
        while (cause := self.causes.get(index)) is not None:
            index = cause
        return index


def check(scheduler: Scheduler, rules: Definition) -> None:
    assert [c.state for c in rules.calls] == rules.states
    assert [c.passed for c in rules.calls] == rules.ended()
    assert scheduler.running == rules.states.count(State.RUNNING)
    if scheduler.limit is not None:
        assert scheduler.running <= scheduler.limit
    for c in rules.calls:
        assert c.root_cause().index == rules.root(c.index)
        if c.state is State.CANCELLED:
            assert c.reason
    unsettled = [s for s in rules.states if not s.settled]
    if unsettled and not scheduler.running and State.ANNOUNCED not in rules.states:
        assert rules.startable(), "a deadlock"


def start_one(scheduler: Scheduler, rules: Definition) -> bool:
    startable = rules.startable()
    free = scheduler.limit is None or scheduler.running < scheduler.limit
    expected = min(startable, key=lambda i: scheduler.order(rules.calls[i])) if startable and free else None
    started = scheduler.pop_ready()
    assert (None if started is None else started.index) == expected
    if started is None:
        return False
    rules.states[started.index] = State.RUNNING
    return True


def pick_access(random: Random) -> Access:
    def some(most: int) -> tuple[Path, ...]:
        return tuple(
            tuple(random.choice(ALPHABET) for _ in range(random.choice((0, 1, 1, 2, 2, 3))))
            for _ in range(random.randint(0, most))
        )

    kind = random.random()
    if kind < 0.1:
        return BARRIER
    if kind < 0.2:
        return PURE
    return Access(reads=some(2), writes=some(2))


@settings(max_examples=700)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 16),
    policy=st.sampled_from(["continue", "cancel"]),
    limit=st.sampled_from([None, 1, 2, 3]),
    order=st.sampled_from([program_order, longest_first]),
)
def test_whatever_happens_in_whatever_order_the_scheduler_keeps_its_definition(
    seed: int,
    steps: int,
    policy: Literal["continue", "cancel"],
    limit: int | None,
    order: Any,
) -> None:
    random = Random(seed)
    scheduler = Scheduler(limit=limit, on_order_failure=policy, order=order)
    rules = Definition(policy)

    def add() -> None:
        batch = []
        for _ in range(random.randint(1, 3)):
            index = len(rules.calls)
            announced = random.random() < 0.2
            new = call(
                f"c{index}",
                pick_access(random),
                *random.choices(rules.calls, k=random.choice((0, 0, 1, 2)) if rules.calls else 0),
                work=None if announced else no_work,
                estimate=random.choice([None, 1.0, 2.0, 3.0]),
            )
            new.index = index
            batch.append(new)
            rules.calls.append(new)
            rules.states.append(State.ANNOUNCED if announced else State.WAITING)
        gone = []
        for new in batch:
            for need in new.needs:
                if rules.states[need.index] in (State.FAILED, State.CANCELLED):
                    rules.states[new.index] = State.CANCELLED
                    rules.causes[new.index] = need.index
                    gone.append(new.index)
                    break
        note(f"add {[(c.id, c.access, c.state.value, [n.id for n in c.needs]) for c in batch]}, lost {gone}")
        assert [c.index for c in scheduler.add(batch)] == gone

    def finish(index: int) -> None:
        outcome = random.choice(["value", "value", "error", "reason", "cancelled"])
        note(f"finish {index}: {outcome}")
        if outcome == "value":
            rules.states[index] = State.SUCCEEDED
            assert scheduler.finish(rules.calls[index], value=index) == []
            return
        taken = rules.lost(index, State.CANCELLED if outcome == "cancelled" else State.FAILED)
        given_: dict[str, Any] = {
            "error": {"error": ValueError("boom")},
            "reason": {"reason": "it said no"},
            "cancelled": {"reason": "stopped", "cancelled": True},
        }[outcome]
        lost = scheduler.finish(rules.calls[index], **given_)
        assert sorted(c.index for c in lost) == sorted(taken)

    def of(*states: State) -> list[int]:
        return [i for i, state in enumerate(rules.states) if state in states]

    def attach(index: int) -> None:
        note(f"attach {index}")
        rules.states[index] = State.WAITING
        scheduler.attach(rules.calls[index], no_work)

    for _ in range(steps):
        action = random.choice(["add", "add", "start", "start", "finish", "finish", "cancel", "attach", "forget"])
        if action == "add" or not rules.calls:
            add()
        elif action == "start":
            note("start")
            start_one(scheduler, rules)
        elif action == "finish" and (running := of(State.RUNNING)):
            finish(random.choice(running))
        elif action == "cancel" and (waiting := of(State.ANNOUNCED, State.WAITING)):
            index = random.choice(waiting)
            note(f"cancel {index}")
            taken = {index} | rules.lost(index, State.CANCELLED)
            assert {c.index for c in scheduler.cancel(rules.calls[index], "no")} == taken
        elif action == "attach" and (announced := of(State.ANNOUNCED)):
            attach(random.choice(announced))
        elif action == "forget" and (settled := [i for i, s in enumerate(rules.states) if s.settled]):
            scheduler.forget(rules.calls[random.choice(settled)])
        check(scheduler, rules)

    for index in of(State.ANNOUNCED):
        attach(index)
    while not all(state.settled for state in rules.states):
        while start_one(scheduler, rules):
            check(scheduler, rules)
        check(scheduler, rules)
        finish(random.choice(of(State.RUNNING)))
    check(scheduler, rules)
    assert all(c.passed for c in rules.calls)
    assert len(scheduler._tree) == 0
    assert scheduler.pop_ready() is None
    assert scheduler._ready == []
    for c in rules.calls:
        assert (c.marks, c.order_dependents, c.data_dependents, c.work, c.context) == ([], [], [], None, None)


# Any program, any annotation that covers it, any completion order ----------------------------------------------


def _cells() -> list[Path]:
    cells: list[Path] = [()]
    layer: list[Path] = [()]
    for _ in range(2):
        layer = [(*path, name) for path in layer for name in ALPHABET]
        cells += layer
    return cells


CELLS = _cells()


@dataclass(frozen=True)
class Operation:
    """A call of a program: what it really reads and writes, and when it fails."""

    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    inputs: tuple[int, ...]
    fails: int
    """0: never; 1: always; 2: depending on what it saw; an odd one leaves half of its writes behind."""

    def see(self, state: dict[Path, Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        return (*inputs, *(state[cell] for cell in CELLS if any(covers(path, cell) for path in self.reads)))

    def effect(self, number: int, seen: tuple[Any, ...], state: dict[Path, Any]) -> tuple[bool, int]:
        value = hash((number, seen))
        failed = self.fails == 1 or (self.fails == 2 and value % 2 == 0)
        cells = [cell for cell in CELLS if any(covers(path, cell) for path in self.writes)]
        for cell in cells[: len(cells) // 2] if failed else cells:
            state[cell] = hash((value, cell))
        return failed, value


def sequentially(program: Sequence[Operation]) -> tuple[list[Any], dict[Path, Any]]:
    state: dict[Path, Any] = dict.fromkeys(CELLS, 0)
    results: list[Any] = []
    for number, operation in enumerate(program):
        if any(not isinstance(results[i], int) for i in operation.inputs):
            results.append("cancelled")
            continue
        seen = operation.see(state, [results[i] for i in operation.inputs])
        failed, value = operation.effect(number, seen, state)
        results.append("failed" if failed else value)
    return results, state


def pick_program(random: Random, size: int) -> list[tuple[Operation, Access]]:
    def some() -> tuple[Path, ...]:
        return tuple(
            tuple(random.choice(ALPHABET) for _ in range(random.choice((0, 1, 1, 2, 2))))
            for _ in range(random.choice((0, 1, 1, 2)))
        )

    def covering(given_: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path[: random.randint(0, len(path))] if random.random() < 0.5 else path for path in given_)

    program: list[tuple[Operation, Access]] = []
    for number in range(size):
        operation = Operation(
            reads=some(),
            writes=some(),
            inputs=tuple(random.choices(range(number), k=random.choice((0, 0, 1, 2)))) if number else (),
            fails=random.choice([0, 0, 0, 1, 2]),
        )
        declared = Access(reads=covering(operation.reads), writes=covering(operation.writes))
        # A write covers a read of the same path.
        kept = tuple(path for path in declared.reads if not any(covers(w, path) for w in declared.writes))
        access = random.choice(
            [
                Access(reads=operation.reads, writes=operation.writes),
                declared,
                Access(reads=kept, writes=declared.writes),
                BARRIER,
            ]
        )
        program.append((operation, access))
    return program


@settings(max_examples=700)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 9),
    limit=st.sampled_from([None, 1, 2]),
    order=st.sampled_from([program_order, longest_first]),
)
def test_any_program_under_any_covering_annotation_does_what_running_it_call_by_call_does(
    seed: int, size: int, limit: int | None, order: Any
) -> None:
    """Each call looks when it starts and writes when it finishes, so any overlap that matters would show."""
    random = Random(seed)
    program = pick_program(random, size)
    expected, final = sequentially([operation for operation, _ in program])
    scheduler = Scheduler(limit=limit, order=order)
    state: dict[Path, Any] = dict.fromkeys(CELLS, 0)
    calls: list[Future] = []
    running: dict[int, tuple[Any, ...]] = {}
    unattached: list[Future] = []

    def start() -> bool:
        started = scheduler.pop_ready()
        if started is None:
            return False
        running[started.index] = program[started.index][0].see(state, [n.result() for n in started.needs])
        return True

    while len(calls) < size or running or unattached:
        choices = ["start", *["add"] * (len(calls) < size), *["attach"] * bool(unattached), *["finish"] * bool(running)]
        action = random.choice(choices)
        if action == "add":
            operation, access = program[len(calls)]
            new = call(
                f"c{len(calls)}",
                access,
                *(calls[i] for i in operation.inputs),
                work=no_work if random.random() < 0.7 else None,
                estimate=random.choice([1.0, 2.0]),
            )
            calls.append(new)
            scheduler.add([new])
            if new.work is None:
                unattached.append(new)
        elif action == "attach":
            new = unattached.pop(random.randrange(len(unattached)))
            if not new.settled:
                scheduler.attach(new, no_work)
        elif action == "finish":
            number = random.choice(sorted(running))
            failed, value = program[number][0].effect(number, running.pop(number), state)
            scheduler.finish(calls[number], **({"error": ValueError("boom")} if failed else {"value": value}))
        else:
            start()
        if not running and len(calls) == size and not unattached:
            while start():
                pass
    outcomes = {State.FAILED: "failed", State.CANCELLED: "cancelled"}
    assert [outcomes.get(c.state, c.value) for c in calls] == expected
    assert all(c.settled and c.passed for c in calls)
    assert state == final
    assert len(scheduler._tree) == 0


def test_nothing_else_than_ordering_makes_that_test_pass() -> None:
    """The control: with annotations that hide the footprint, the same kind of program does go wrong."""
    program = [
        Operation(reads=(), writes=(("a",),), inputs=(), fails=0),
        Operation(reads=(("a",),), writes=(), inputs=(), fails=0),
    ]
    expected, _ = sequentially(program)
    scheduler = Scheduler()
    state: dict[Path, Any] = dict.fromkeys(CELLS, 0)
    scheduler.add([call("a", PURE), call("b", PURE)])
    seen = {}
    while (started := scheduler.pop_ready()) is not None:
        seen[started.index] = program[started.index].see(state, [])
    assert [program[i].effect(i, seen[i], state)[1] for i in (0, 1)] != expected


def test_independent_calls_overlap_and_longest_goes_first_when_slots_are_scarce() -> None:
    scheduler = Scheduler(limit=2, order=longest_first)
    scheduler.add(
        [
            call("short", writes("a"), estimate=1.0),
            call("none", writes("b")),
            call("long", writes("c"), estimate=9.0),
            call("long too", writes("d"), estimate=9.0),
        ]
    )
    assert start_all(scheduler) == ["long", "long too"]
    scheduler.finish(scheduler.calls()[3])
    assert start_all(scheduler) == ["short"]
    scheduler.finish(scheduler.calls()[2])
    assert start_all(scheduler) == ["none"]
