"""Samples of how long threads waited for a processor."""

import mmap
import sys
import threading
import time

import pytest

import dpexec as fluid
from dpexec.engine.trace.processors import Samples, WorkerSamples
from tests.engine.run.nets import batches, classifier, train

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")


def working(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@linux
def test_samples_count_the_work_of_all_threads_from_the_first_sample_on():
    working(0.02)
    samples = Samples()
    ended, sampled = threading.Barrier(2), threading.Barrier(2)

    def beside():
        working(0.02)
        ended.wait()
        sampled.wait()

    samples.take(1_000_000_000)
    threading.Thread(target=beside).start()
    samples.take(2_000_000_000)
    working(0.02)
    ended.wait()
    samples.take(3_000_000_000)
    sampled.wait()
    assert samples.between(1.5, 2.5) == []  # one row tells nothing
    first, *_, last = samples.between(0.0, 5.0)
    assert first == [1.0, 0.0, 0.0] and last[0] == 3.0
    assert 0.02 <= last[1] < 10 and last[2] >= 0
    assert samples.due >= 3_005_000_000


@linux
@pytest.mark.parametrize("native", [True, False])
def test_traces_hold_the_samples_between_their_steps(native):
    run = train(classifier(), batches(3), devices=2, native_kernels=native, trace=True)
    trace = run.compiled.trace
    start, stop = trace.span
    rows = trace.meta.get("processors", [])  # steps of a short run may end before the second
    assert all(start <= row[0] <= stop for row in rows)
    assert rows == sorted(rows)
    assert isinstance(fluid.ExecutionStrategy().trace, bool)


@linux
def test_samples_tell_the_memory_of_the_process():
    samples = Samples()
    samples.take(1_000_000_000)
    with mmap.mmap(-1, 32 << 20) as kept:  # malloc may give what the process has
        kept.write(b"x" * len(kept))
        samples.take(2_000_000_000)
    (begin, before), (end, after) = samples.resident(0.0, 5.0)
    assert (begin, end) == (1.0, 2.0)
    assert 16 < after - before < 256
    assert samples.resident(1.5, 5.0) == [[end, after]]


def test_samples_of_workers_add_up_and_a_new_process_begins_at_zero():
    samples = WorkerSamples()
    samples.add(1_000_000_000, {"a": (0, 5_000_000_000), "b": (0, 7_000_000_000)})
    samples.add(2_000_000_000, {"a": (1_000_000_000, 7_000_000_000), "b": (0, 8_000_000_000)})
    samples.add(3_000_000_000, {"a": (2_000_000_000, 7_000_000_000), "b": (0, 0)})  # killed
    samples.add(4_000_000_000, {"b": (0, 500_000_000)})
    assert samples.between(0.0, 5.0) == [[1, 0, 0], [2, 1, 3], [3, 2, 3], [4, 2, 3.5]]
    samples = WorkerSamples()
    for now, sums in ((1_000_000_400, (0, 0)), (1_999_999_600, (1_000_000_000, 0))):
        samples.add(now, {"a": sums})
    first, last = samples.between(1.0000003, 1.9999997)  # both are rounded to what is outside
    assert (first[0], last[0]) == (1.0000003, 1.9999997)
    samples = WorkerSamples()  # not Linux
    for second in (1, 2):
        samples.add(second * 1_000_000_000, {"a": (0, 0)})
    assert samples.between(0.0, 5.0) == []
