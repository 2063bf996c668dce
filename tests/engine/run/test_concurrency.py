"""Several runs in one process at the same time."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import dpexec as fluid
from dpexec.engine.threads import kernel_threads
from tests.engine.run.nets import Run, assert_same_bits, batches, classifier, persistables, train


class Library:
    """What threadpoolctl shows of a BLAS library."""

    num_threads = 8

    def get_num_threads(self):
        return self.num_threads

    def set_num_threads(self, number):
        self.num_threads = number


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(kernel_threads, "_blas_libraries", lambda: [found])
    fresh = kernel_threads._KernelThreads()  # threads of other tests may still be in a run
    monkeypatch.setattr(kernel_threads, "_kernel_threads", fresh)
    return found


def test_overlapping_runs_keep_the_limit_until_the_last_ends(library):
    first, second = kernel_threads.one_kernel_thread(), kernel_threads.one_kernel_thread()
    first.__enter__()
    second.__enter__()
    assert library.num_threads == 1
    first.__exit__(None, None, None)
    assert library.num_threads == 1
    second.__exit__(None, None, None)
    assert library.num_threads == 8


def test_limit_holds_again_when_somebody_lifted_it_during_a_run(library):
    with kernel_threads.one_kernel_thread():
        library.set_num_threads(4)
        with kernel_threads.one_kernel_thread():
            assert library.num_threads == 1
        assert library.num_threads == 1


def test_limit_holds_for_runs_of_other_threads():
    """threadpoolctl 3.8 and later obey one thread, the first that sets a number."""
    libraries = kernel_threads._blas_libraries()

    def limited():
        with kernel_threads.one_kernel_thread():
            return [library.get_num_threads() for library in libraries]

    before = [library.get_num_threads() for library in libraries]
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for pool in (first, second, first):
            assert set(pool.submit(limited).result()) <= {1}
            assert [library.get_num_threads() for library in libraries] == before


def test_failed_run_lifts_the_limit(library):
    with pytest.raises(ZeroDivisionError), kernel_threads.one_kernel_thread():
        raise ZeroDivisionError
    assert library.num_threads == 8


def test_interrupts_of_a_run_that_begins_or_ends_lift_the_limit(library):
    """Python raises them wherever a function of the main thread is called, or returns."""
    for number in itertools.count():
        if not _interrupted(number):
            break
        with kernel_threads.one_kernel_thread():
            assert library.num_threads == 1
        assert library.num_threads == 8
    assert number > 5


def _interrupted(number):
    """Whether a run has so many places where an interrupt can come; it has come there."""
    left = [number]

    def interrupt(frame, event, arg):
        if frame.f_code.co_filename == kernel_threads.__file__:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with kernel_threads.one_kernel_thread():
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_executors_in_their_own_scopes_run_at_the_same_time(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    nets = [classifier(fluid.optimizer.Adam(0.01), seed=seed) for seed in (5, 6, 7)]
    feeds = batches(10)
    alone = [train(net, feeds, 2) for net in nets]
    start = threading.Barrier(len(nets))

    def run(net):
        scope = fluid.Scope()
        fluid.Executor().run(net.startup, scope=scope)
        executor = fluid.ParallelExecutor(False, net.loss.name, net.main, scope=scope)
        start.wait()
        losses = [executor.run([net.loss.name], feed=feed)[0] for feed in feeds]
        return Run(losses, persistables(net.main, scope), executor, scope)

    with ThreadPoolExecutor(len(nets)) as pool:
        together = list(pool.map(run, nets))
    for one, other in zip(alone, together, strict=True):
        assert_same_bits(one, other)
