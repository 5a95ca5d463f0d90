"""The state tree: what a new call is told to wait for, and that nothing stays behind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_flash.futures.future import Future
from langgraph_flash.futures.resources import BARRIER, PURE, Access, conflicts
from langgraph_flash.futures.tree import ResourceTree

paths = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)
accesses = st.one_of(
    st.just(BARRIER),
    st.just(PURE),
    st.builds(Access, reads=st.lists(paths, max_size=2).map(tuple), writes=st.lists(paths, max_size=2).map(tuple)),
)


def calls_of(*given: Access) -> list[Future]:
    calls = [Future(f"c{i}", "t", access=access) for i, access in enumerate(given)]
    for index, call in enumerate(calls):
        call.index = index
    return calls


def reachable(edges: dict[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        for earlier in edges[stack.pop()] - seen:
            seen.add(earlier)
            stack.append(earlier)
    return seen


def test_removing_a_call_whose_record_was_superseded_leaves_the_newer_record() -> None:
    tree = ResourceTree()
    first, second, third = calls_of(
        Access(writes=(("a", "b"),)), Access(writes=(("a",),)), Access(reads=(("a", "b", "c"),))
    )
    assert tree.add(first) == {}
    assert tree.add(second) == {0: first}
    tree.remove(first)
    assert tree.add(third) == {1: second}


def test_a_branch_cut_off_by_a_write_does_not_take_its_replacement_with_it() -> None:
    tree = ResourceTree()
    old, cutting, new, after = calls_of(
        Access(writes=(("a", "b"),)),
        Access(writes=(("a",),)),
        Access(writes=(("a", "b"),)),
        Access(reads=(("a", "b"),)),
    )
    tree.add(old)
    tree.add(cutting)
    tree.add(new)
    tree.remove(old)
    tree.remove(cutting)
    assert tree.add(after) == {2: new}
    tree.remove(new)
    tree.remove(after)
    assert len(tree) == 0


def test_a_call_never_waits_for_itself() -> None:
    tree = ResourceTree()
    path = ("a", "b")
    (call,) = calls_of(Access(reads=(path, ("a",), path), writes=(path, ("a",), (), path)))
    assert tree.add(call) == {}
    tree.remove(call)
    assert len(tree) == 0
    assert call.marks == []


@settings(max_examples=150)
@given(st.lists(accesses, max_size=9), st.data())
def test_waiting_for_what_the_tree_names_is_waiting_for_every_conflict_and_nothing_else(
    given_: list[Access], data: st.DataObject
) -> None:
    """Calls are removed in between, as soon as what they wait for is gone, in any order."""
    tree = ResourceTree()
    calls = calls_of(*given_)
    edges: dict[int, set[int]] = {}
    present: set[int] = set()
    for call in calls:
        met = tree.add(call)
        assert {index: calls[index] for index in met} == met
        edges[call.index] = set(met)
        expected = {i for i in present if conflicts(calls[i].access, call.access)}
        assert set(met) <= expected
        assert expected <= reachable(edges, call.index)
        present.add(call.index)
        removable = [i for i in sorted(present) if not edges[i] & present]
        for index in data.draw(st.sets(st.sampled_from(removable))):
            tree.remove(calls[index])
            present.discard(index)
    while present:
        removable = [i for i in sorted(present) if not edges[i] & present]
        index = data.draw(st.sampled_from(removable))
        tree.remove(calls[index])
        present.discard(index)
    assert len(tree) == 0
    assert not any(call.marks for call in calls)


def test_many_readers_and_then_a_writer_leave_one_record() -> None:
    tree = ResourceTree()
    calls = calls_of(*[Access(reads=((str(i % 7), str(i)),)) for i in range(200)], Access(writes=((),)))
    for call in calls[:-1]:
        assert tree.add(call) == {}
    assert len(tree.add(calls[-1])) == 200
    assert len(tree) == 0
    (late,) = calls_of(Access(reads=(("3", "3"),)))
    late.index = 999
    assert tree.add(late) == {200: calls[-1]}
    for call in [*calls, late]:
        tree.remove(call)
    assert len(tree) == 0
