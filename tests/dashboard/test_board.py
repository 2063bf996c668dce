"""Boards, which merge the reports of several processes."""

import time

import pytest

from dpexec.dashboard.board import Board, Series
from tests.dashboard.reports import BOXES, full_board, report, sample


def test_curve_keeps_its_ends_and_never_grows_beyond_its_limit():
    series = Series(10)
    for x in range(1000):
        series.add(x, -x)
        assert len(series.points) <= 10
    xs = [x for x, _ in series.points]
    assert xs[0] == 0 and xs[-1] == 999 and xs == sorted(xs)


def test_rates_are_those_between_two_reports():
    board = Board()
    board.apply(report(10, 100.0))
    board.apply(report(30, 104.0))
    board.apply(report(30, 105.0))  # nothing ran: no point
    board.apply(report(40, 106.0))
    assert board.steps_a_second.points == [(4.0, 5.0), (6.0, 10.0)]
    assert board.samples_a_second.points == [(4.0, 160.0), (6.0, 320.0)]
    assert board.bytes_a_second.points[0] == (4.0, 20 * 4096 / 4)


def test_batch_of_another_size_leaves_what_is_known_of_the_same_tasks():
    board = full_board()
    known = dict(board.durations)
    larger = [{**box, "bytes": 2 * box["bytes"]} for box in BOXES]
    board.apply(report(9, 109.0, graph=larger))
    assert known and board.durations == known and board.boxes == larger
    board.apply(report(10, 110.0, graph=BOXES[:1]))
    assert not board.durations


def test_what_a_step_takes_forgets_that_the_first_ones_were_slow():
    board = Board()
    board.apply(report(2, 100.0) | {"seconds": 30.0})  # kernels were made
    assert board.step_seconds == 15.0
    board.apply(report(12, 101.0) | {"seconds": 31.0})
    board.apply(report(12, 102.0) | {"seconds": 31.0})
    assert board.step_seconds == 0.1
    assert (board.steps, board.seconds) == (12, 31.0)


def test_report_of_another_run_starts_afresh():
    board = full_board()
    board.apply(report(3, 500.0, run="b"))
    assert (board.steps, board.boxes, board.loss.points, board.sample) == (3, [], [], None)


def test_slow_is_what_takes_much_longer_than_its_median():
    board = full_board()
    slowdowns = [board.slowdown(box) for box in board.boxes]
    assert slowdowns[1] == pytest.approx(3.0)
    assert slowdowns[:1] + slowdowns[2:] == [None] * 4
    board.take_sample(sample(9))
    assert board.slowdown(board.boxes[1]) is None


def test_short_tasks_are_never_called_slow():
    board = Board()
    board.apply(report(1, 1.0, graph=BOXES))
    for took in (1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 9e-4):
        rows = [[None, "", "task", "all_reduce-2", "all_reduce-2", 0.0, took]]
        board.take_sample({"step": 1, "seconds": 1.0, "slices": rows, "left_out": 0})
    assert board.slowdown(BOXES[2]) is None


def test_states_while_a_long_step_runs():
    board = full_board()
    first, other, reduce, update, _ = board.boxes
    board.current = {"step": 9, "since": 1.0, "done": [first["keys"][0]], "running": None}
    assert [board.state(b) for b in (first, other, reduce, update)] == [
        *("done", "running", "waiting", "waiting")
    ]
    board.current["done"].append(other["keys"][0])
    assert [board.state(b) for b in (reduce, update)] == ["running", "waiting"]


def test_states_that_the_scheduler_tells():
    board = full_board()
    keys = [box["keys"][0] for box in board.boxes]
    board.current = {"step": 9, "since": 1.0, "done": keys[:1], "running": keys[2:3]}
    states = [board.state(box) for box in board.boxes]
    assert states == ["done", "waiting", "running", "waiting", "waiting"]


def test_idle_is_who_has_not_stepped_for_seconds():
    board = Board()
    board.apply(report(1, time.time()))
    assert not board.is_idle
    board.last_step -= 10
    assert board.is_idle
    board.current = {"step": 2, "since": 10.0, "done": None, "running": None}
    assert not board.is_idle
