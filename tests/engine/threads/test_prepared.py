"""The prepared scheduler, compared with dask's threaded scheduler."""

import gc
import random
import threading
import time
import weakref

import dask.threaded
import pytest
from dask._task_spec import Task, TaskRef
from dask.diagnostics import Profiler
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexec.engine.threads import prepared
from dpexec.engine.threads.prepared import PreparedGraph, Threads
from tests.waiting import started_since, until


def graph_of(edges, work):
    """Tasks that take the results of earlier ones, and one that takes those left over."""
    graph = {}
    for number, before in enumerate(edges):
        refs = [TaskRef(("t", index)) for index in before]
        graph["t", number] = Task(("t", number), work, number, *refs)
    used = {key for task in graph.values() for key in task.dependencies}
    ends = [TaskRef(key) for key in graph if key not in used]
    graph["end"] = Task("end", lambda *values: values, *ends)
    return graph


def random_edges(number, seed):
    choice = random.Random(seed)
    return [choice.sample(range(i), min(i, choice.randrange(4))) for i in range(number)]


@pytest.fixture(scope="module")
def threads():
    return Threads(3)


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(0, 2**16))
def test_results_are_those_of_dask(number, seed):
    graph = graph_of(random_edges(number, seed), lambda i, *before: i + sum(before))
    prepared, helpers = PreparedGraph(graph, "end"), Threads(2)
    assert [prepared.run(helpers) for _ in range(3)] == [dask.threaded.get(graph, "end")] * 3


def test_tasks_wait_for_what_they_need(threads):
    ended = []

    def work(number, *before):
        time.sleep(random.random() * 1e-3)
        assert set(edges[number]) <= set(ended)
        ended.append(number)

    edges = random_edges(60, 1)
    PreparedGraph(graph_of(edges, work), "end").run(threads)
    assert sorted(ended) == list(range(60))


def test_independent_tasks_run_at_the_same_time(threads):
    meet = threading.Barrier(4, timeout=20)
    graph = graph_of([[]] * 4 + [[0, 1, 2, 3]] + [[4]] * 4, lambda i, *_: i == 4 or meet.wait())
    PreparedGraph(graph, "end").run(threads)


def test_the_first_error_is_raised_after_running_tasks_ended(threads):
    started, ended = [], []

    def work(number, *_):
        started.append(number)
        if number == 2:
            raise KeyError("two")
        time.sleep(0.01)
        ended.append(number)

    prepared = PreparedGraph(graph_of([[], [], [], [2], [0, 1]], work), "end")
    for _ in range(20):
        started.clear(), ended.clear()
        with pytest.raises(KeyError, match="two"):
            prepared.run(threads)
        assert 3 not in started
        assert sorted(started) == sorted([*ended, 2])


def test_engines_share_threads_and_leave_nothing_with_them():
    owners = [Threads(3) for _ in range(4)]
    before = threading.enumerate()
    for threads in owners:
        graph = graph_of([[]] * 5, lambda i: time.sleep(0.002) or i)
        PreparedGraph(graph, "end").run(threads)
        until(lambda threads=threads: threads.idle)
    assert len(started_since(before)) <= 3 + 1  # one may not be free again yet
    left = [weakref.ref(threads) for threads in owners]
    del owners, threads

    def are_gone():
        gc.collect()  # a thread may still have to let go of what it called
        return not any(ref() for ref in left)

    until(are_gone)


class _Slow(Threads):
    """A thread whose thread does not get on behind its work, as on a busy machine."""

    release = threading.Event()

    def _help(self):
        super()._help()
        self.release.wait(5)


class _Nothing:
    def work(self):
        """Nothing is to be done."""


def test_a_thread_that_is_slow_to_end_is_asked_again_and_no_other_is_started(monkeypatch):
    monkeypatch.setattr(prepared, "_pool", prepared._Pool())
    threads, before = _Slow(1), threading.enumerate()
    threads.ask(_Nothing())
    until(lambda: threads.idle)
    threads.ask(_Nothing())
    found = started_since(before)
    threads.release.set()
    until(lambda: threads.idle)
    assert len(found) == 1


def test_no_more_threads_help_than_may():
    busy, most, lock = [], [], threading.Lock()

    def work(number):
        with lock:
            busy.append(number)
            most.append(len(busy))
        time.sleep(0.002)
        with lock:
            busy.remove(number)

    for _ in range(5):
        PreparedGraph(graph_of([[]] * 12, work), "end").run(Threads(2))
    assert max(most) <= 3


def test_dask_callbacks_see_the_tasks_of_a_run():
    import dpexec as fluid
    from tests.engine.run.nets import batches, classifier

    net = classifier(fluid.optimizer.SGD(0.1))
    program = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, places=fluid.cpu_places(2)
    )
    scope, exe, (feed,) = fluid.Scope(), fluid.Executor(fluid.CPUPlace()), batches(1)
    exe.run(net.startup, scope=scope)
    exe.run(program, feed, [net.loss], scope=scope)
    with Profiler() as profiler:
        exe.run(program, feed, [net.loss], scope=scope)
    assert len(profiler.results) == len(program.plan.tasks) + 1
