"""The simulated machine, on jobs whose time is known."""

import math

import pytest
from dpexec.viz.measured.machine import Job, makespan
from hypothesis import given, settings
from hypothesis import strategies as st


def test_a_chain_adds_up_with_its_delays():
    assert makespan([Job(1.0), Job(2.0, (0,), 0.5), Job(3.0, (1,))]) == 6.5


def test_jobs_share_cores():
    jobs = [Job(2.0)] * 4
    assert makespan(jobs) == 2.0
    assert makespan(jobs, cores=2) == 4.0
    assert makespan([Job(1.0), Job(3.0)], cores=1) == 4.0  # half speed until 2, then full
    assert makespan([Job(1.0), Job(3.0, (), 1.5)], cores=1) == 4.5


def test_threads_keep_jobs_waiting():
    jobs = [Job(2.0)] * 4
    assert makespan(jobs, threads=[0.0]) == 8.0
    assert makespan(jobs, cores=1, threads=[0.0] * 4) == 8.0
    assert makespan(jobs, threads=[0.0] * 3) == 4.0
    assert makespan(jobs, threads=[0.0, 5.0]) == 7.0  # from 5 on there are two


def test_delays_on_a_thread_follow_one_another():
    jobs = [Job(2.0, (), 1.0)] * 3
    assert makespan(jobs) == 3.0
    assert makespan(jobs, threads=[0.0]) == 9.0


def test_the_link_does_one_transfer_after_another_and_takes_no_core():
    jobs = [Job(5.0), Job(2.0, (), 0.0, True), Job(2.0, (), 0.0, True)]
    assert makespan(jobs, cores=1) == 5.0
    assert makespan(jobs[1:], cores=1) == 4.0


def test_nothing_to_do_takes_no_time():
    assert makespan([]) == 0.0
    assert makespan([Job(0.0), Job(0.0, (0,))]) == 0.0


@st.composite
def jobs_and_longest(draw):
    jobs, ends = [], []
    for number in range(draw(st.integers(1, 12))):
        earlier = st.integers(0, number - 1)
        after = tuple(draw(st.sets(earlier, max_size=3))) if number else ()
        job = Job(float(draw(st.integers(0, 9))), after, float(draw(st.integers(0, 3))))
        ends.append(max((ends[s] for s in after), default=0.0) + job.delay + job.seconds)
        jobs.append(job)
    return jobs, max(ends)


@settings(deadline=None)
@given(jobs_and_longest(), st.integers(1, 3))
def test_bounds_hold(made, cores):
    jobs, longest = made
    assert makespan(jobs) == pytest.approx(longest)
    work = sum(job.seconds for job in jobs)
    shared = makespan(jobs, cores=cores)
    assert max(longest, work / cores) - 1e-9 <= shared
    assert shared <= work / cores + longest + 1e-9
    assert makespan(jobs, cores=math.inf, threads=[0.0]) >= work - 1e-9
