"""Helping threads are used where they are measured to be faster."""

import threading

from dask._task_spec import Task, TaskRef

from dpexec.engine.threads.helping import Helping
from dpexec.engine.threads.prepared import PreparedGraph, Threads


def ways(helping, helped, alone, runs):
    """Which way each of some runs went, if they take so long."""
    went = []
    for _ in range(runs):
        went.append(helping.wanted)
        helping.note(helped if helping.wanted else alone)
    return went


def test_small_steps_run_alone_where_that_is_faster():
    went = ways(Helping(), helped=3e-3, alone=2e-3, runs=1000)
    assert all(went[:16])
    assert sum(went[16:]) < 50


def test_threads_help_where_that_is_faster():
    went = ways(Helping(), helped=2e-3, alone=3e-3, runs=1000)
    assert went.count(False) < 50


def test_equal_ways_do_not_take_turns():
    assert ways(Helping(), 1e-3, 0.95e-3, 1000).count(False) < 50


def test_a_way_that_became_slower_is_left():
    helping = Helping()
    ways(helping, 3e-3, 2e-3, 100)
    went = ways(helping, 3e-3, 5e-3, 300)
    assert all(went[-10:])


def test_long_steps_are_never_tried_alone():
    assert all(ways(Helping(), 0.1, 0.01, 200))


def independent_tasks(work):
    graph = {("t", i): Task(("t", i), work) for i in range(4)}
    graph["end"] = Task("end", lambda *_: None, *map(TaskRef, list(graph)))
    return PreparedGraph(graph, "end")


def test_a_graph_that_is_faster_alone_runs_on_the_calling_thread():
    used = set()
    prepared, threads = independent_tasks(lambda: used.add(threading.get_ident())), Threads(1)
    prepared.helping.wanted = False
    prepared.run(threads)
    assert used == {threading.get_ident()}


def test_without_helpers_nothing_is_left_for_them():
    threads = Threads(0)
    independent_tasks(int).run(threads)
    assert threads.idle
