"""Tracks and nesting: nothing overlaps, nothing is lost."""

from itertools import pairwise

import pytest
from dpexec.viz.measured.nesting import TOLERANCE
from dpexec.viz.measured.schedule import Schedule
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.trace import Event, Trace, from_chrome, to_chrome
from tests.viz.traces import event, straggling, task, trace


@st.composite
def any_events(draw):
    """Events that nest, and some that overlap as no thread would have them."""
    events = []
    for number in range(draw(st.integers(1, 30))):
        start = draw(st.integers(0, 40))
        stop = start + draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["task", "op", "collective", "feed"]))
        device = draw(st.sampled_from([0, 1, None]))
        events.append(
            Event(
                f"e{number}", kind, device, "k", float(start), float(stop), draw(st.integers(0, 2))
            )
        )
    return Trace(tuple(sorted(events, key=lambda e: (e.start, -e.stop))))


@given(any_events())
def test_slices_of_a_track_nest_and_never_overlap(made):
    schedule = Schedule(made)
    assert sorted(piece.id for piece in schedule.slices) == list(range(len(made)))
    for track in range(len(schedule.tracks)):
        pieces = [piece for piece in schedule.slices if piece.track == track]
        for depth in {piece.depth for piece in pieces}:
            row = sorted((p for p in pieces if p.depth == depth), key=lambda p: p.event.start)
            for one, other in pairwise(row):
                assert one.event.stop <= other.event.start + TOLERANCE
        for piece in pieces:
            if piece.parent is not None:
                outer = schedule.by_id[piece.parent].event
                assert outer.start <= piece.event.start and piece.event.stop <= outer.stop
    outer = sum(piece.event.duration for piece in schedule.slices if piece.depth == 0)
    assert sum(piece.own for piece in schedule.slices) == pytest.approx(outer)


def test_operators_are_nested_in_their_task_even_after_a_round_trip_through_chrome():
    made = straggling(3, seconds=1.23456789e-4)
    for recorded in (made, from_chrome(to_chrome(made))):
        schedule = Schedule(recorded)
        assert {p.event.kind for p in schedule.slices if p.depth == 0} == {"task"}
        assert {p.event.kind for p in schedule.slices if p.depth == 1} == {"op", "collective"}
        names = [(track.group, track.name) for track in schedule.tracks]
        assert names == [
            ("device 0", "thread 0"),
            ("device 1", "thread 1"),
            ("all devices", "thread 0"),
        ]


def test_roles_come_from_the_graph_and_of_a_task_from_its_operators():
    schedule = Schedule(straggling())
    roles = {(p.event.name, schedule.role_of(p)) for p in schedule.slices}
    assert ("mul", "forward") in roles and ("mul_grad", "backward") in roles
    assert ("all_reduce", "collective") in roles and ("all_reduce-2", "collective") in roles
    assert ("optimizer_dev0-3", "optimize") in roles
    assert ("forward_backward_dev1-1", "backward") in roles


def test_without_a_graph_roles_come_from_names():
    made = trace(
        [
            event("relu_grad", "op", 0, "t", 0, 1),
            event("relu", "op", 0, "t", 1, 2),
            event("adam", "op", 0, "optimizer_dev0", 2, 3),
            event("batch", "feed", None, "feed", 3, 4),
        ]
    )
    schedule = Schedule(made)
    found = [schedule.role_of(p) for p in sorted(schedule.slices, key=lambda p: p.id)]
    assert found == ["backward", "forward", "optimize", "feed"]


def test_steps_are_chosen_by_number_and_the_typical_one_is_the_median():
    lengths = [4.0, 1.0, 3.0]
    made = trace([task("t", 0, 10.0 * n, 10.0 * n + s, step=n) for n, s in enumerate(lengths)])
    schedule = Schedule(made)
    assert [step.seconds for step in schedule.steps] == lengths
    assert schedule.typical.number == 2
    assert schedule.step(0).seconds == 4.0
    assert [step.number for step in Schedule(made, [0, 2]).steps] == [0, 2]
    with pytest.raises(ValueError, match=r"no step 7; it has 0, 1, 2"):
        Schedule(made, [7])
    with pytest.raises(ValueError, match=r"no step 9; it has 0, 1, 2"):
        schedule.step(9)


def test_steps_that_were_slower_at_first_are_not_typical():
    lengths = [9.0, 8.0, 1.0, 3.0, 2.0]
    made = trace([task("t", 0, 10.0 * n, 10.0 * n + s, step=n) for n, s in enumerate(lengths)])
    assert Schedule(made).typical.number == 4
    assert Schedule(made, range(5)).typical.number == 3


def test_an_empty_trace_says_so():
    with pytest.raises(ValueError, match="empty: nothing ran"):
        Schedule(Trace())


def test_what_takes_no_time_comes_before_what_starts_then():
    made = trace(
        [
            task("t", 0, 0.0, 3.0),
            event("long", "op", 0, "t", 0.0, 2.0),
            event("instant", "op", 0, "t", 0.0, 0.0),
            event("last", "op", 0, "t", 2.0, 3.0),
        ]
    )
    schedule = Schedule(made)
    names = [schedule.by_id[index].event.name for index in schedule.steps[0].slices]
    assert names == ["t", "instant", "long", "last"]
    assert [piece.depth for piece in schedule.slices] == [0, 1, 1, 1]


def test_an_operator_without_time_at_the_end_of_its_task_is_a_part_of_it():
    """Also if the next task begins at that moment; it waits for nothing of its own."""
    events = [
        task("forward_dev0-0", 0, 0, 5),
        event("mul", "op", 0, "forward_dev0-0", 0, 5, node=0),
        event("assign", "op", 0, "forward_dev0-0", 5, 5, node=1),
        task("optimizer_dev0-1", 0, 5, 8),
        event("fill_constant", "op", 0, "optimizer_dev0-1", 5, 5, node=2),
        event("sgd", "op", 0, "optimizer_dev0-1", 5, 8, node=3),
    ]
    schedule = Schedule(trace(events))
    found = {piece.event.name: piece for piece in schedule.slices}
    assert len(schedule.tracks) == 1
    for name, of in (("assign", "forward_dev0-0"), ("fill_constant", "optimizer_dev0-1")):
        assert found[name].depth == 1
        assert schedule.by_id[found[name].parent].event.name == of
