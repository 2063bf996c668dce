"""State of a replica after the last two steps."""

import numpy as np
import pytest

from dpexec.runtime.versions import StaleTaskError, Versions


def stepped(versions, step, value, overwrites=True):
    """Make a step that adds to ``w``, in place or not, and leaves ``c`` alone."""
    scratch = versions.scratch(["w"] if overwrites else [])
    made = scratch.get("w", versions.values["w"].copy())
    made += value
    versions.commit(step, {"w": made}, scratch)


def start():
    return Versions(0, {"w": np.zeros(3), "c": np.ones(2)})


@pytest.mark.parametrize("overwrites", [True, False])
def test_the_step_before_can_be_gone_back_to(overwrites):
    versions = start()
    for step in range(1, 5):
        stepped(versions, step, 1, overwrites)
    assert versions.steps == (4, 3)
    np.testing.assert_array_equal(versions.at(3)["w"], [3, 3, 3])
    versions.stand_at(3)
    assert versions.steps == (3,)
    stepped(versions, 7, 10, overwrites)
    np.testing.assert_array_equal(versions.values["w"], [13, 13, 13])
    np.testing.assert_array_equal(versions.at(3)["w"], [3, 3, 3])
    np.testing.assert_array_equal(versions.values["c"], [1, 1])


@pytest.mark.parametrize("overwrites", [True, False])
def test_two_arrays_take_turns(overwrites):
    versions, seen = start(), set()
    kept = []  # arrays that are alive have addresses of their own
    for step in range(1, 8):
        stepped(versions, step, 1, overwrites)
        kept.append(versions.values["w"])
        seen.add(id(versions.values["w"]))
    assert len(seen) == 2


def test_variable_that_is_not_written_is_not_overwritten_later():
    versions = start()
    versions.commit(1, {}, {})  # both versions have the same array now
    stepped(versions, 2, 1)
    np.testing.assert_array_equal(versions.at(1)["w"], [0, 0, 0])


def test_older_and_newer_steps_are_refused():
    versions = start()
    stepped(versions, 1, 1)
    stepped(versions, 2, 1)
    for step in (0, 3):
        with pytest.raises(StaleTaskError, match=f"after step 2, not after step {step}"):
            versions.stand_at(step)


def test_values_from_outside_are_copied_and_final():
    versions, value = start(), np.full(3, 5.0)
    stepped(versions, 1, 1)
    versions.set({"w": value})
    value[:] = 0
    np.testing.assert_array_equal(versions.values["w"], [5, 5, 5])
    assert versions.steps == (1,)
