"""What is said of memory that grows from step to step."""

from dataclasses import replace

import pytest

from dpexec import viz
from dpexec.engine.trace.events import Allocation
from tests.viz.traces import straggling

STEPS = 12


def run(resident=(), sizes=(), name="a0w"):
    """Steps of 10 seconds, with samples of memory in MiB and the size of a variable in each."""
    made = straggling(STEPS)
    meta = {**made.meta, "resident": [[10.0 * k + 5, mib] for k, mib in enumerate(resident)]}
    rows = [
        Allocation(10.0 * step + 1 + 7 * is_free, 0, name, size * (-1) ** is_free, "temporary")
        for step, size in enumerate(sizes)
        for is_free in (0, 1)
    ]
    return replace(made, meta=meta, memory=tuple(rows))


def said(made):
    return " ".join(str(viz.analyse(made)).split())


def test_a_process_that_keeps_what_it_fetched_is_told():
    made = run([100.0 + 10 * k for k in range(STEPS)])
    sentence = "The memory of the process grew from 100 MiB to 210 MiB in 12 steps, 9.17 MiB a step"
    assert sentence in said(made)
    assert "No value of the program grows" in said(made)


@pytest.mark.parametrize(
    "resident",
    [
        [100.0 + 0.1 * k for k in range(STEPS)],  # little
        [100.0] * 6 + [150.0] * 6,  # once
        [100.0 + 50 * (k % 2) for k in range(STEPS)],  # and back
        [100.0, 150.0],  # too few samples
    ],
)
def test_memory_that_stays_or_moves_once_is_no_growth(resident):
    assert "grew" not in said(run(resident))


def test_a_variable_that_is_larger_in_every_step_is_named():
    made = run([100.0 + 10 * k for k in range(STEPS)], [1024 * (k + 1) for k in range(STEPS)])
    assert "From step to step, a0w from 1.00 KiB to 12.0 KiB grows." in said(made)
    assert "No value" not in said(made)
    assert viz.memory(made).payload()["notes"][-1].endswith("grows.")
    lengths = [1024 * (1 + k % 5) for k in range(STEPS)]  # batches of other lengths are no leak
    assert "grows" not in said(run(sizes=lengths))
