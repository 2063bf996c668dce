"""Reports of several programs that run in turn: who takes the time, and what would help."""

from dataclasses import replace

import pytest

from dpexec import viz
from tests.viz.traces import event, straggling, task, trace, two_replicas


def between(seconds, offset):
    """Three steps of 10 seconds, one every `seconds`."""
    made = straggling(3)
    late = {step: step * (seconds - 10.0) + offset for step in range(3)}
    moved = [
        replace(one, start=one.start + late[one.step], stop=one.stop + late[one.step])
        for one in made.events
    ]
    return replace(made, events=tuple(moved))


def test_shares_of_programs_and_of_the_time_between_their_steps_add_up():
    short = [
        task("forward_backward_dev0-0", 0, at, at + 4, 0, step)
        for step, at in enumerate((12.0, 32.0, 52.0))
    ]
    short = [
        *short,
        *(event("mul", "op", 0, one.key, one.start, one.stop, 0, 0, one.step) for one in short),
    ]
    programs = {"D": between(20.0, 0.0), "G": trace(short, two_replicas())}
    page = viz.report(programs)
    first = page.views[0]
    # 3 steps of 10 seconds, 3 of 4, and between them 2, 4, 2, 4 and 2 seconds
    assert (first.seconds, first.between) == ({"D": 30.0, "G": 12.0}, 14.0)
    assert first.sentences[0] == "D: 54% of the time, 3 steps, median 10.0 s."
    assert first.sentences[1] == "G: 21% of the time, 3 steps, median 4.00 s."
    assert first.sentences[2].startswith("Between steps: 25% of the time")
    assert ("G", "mul", pytest.approx(6 / 56)) in first.gains  # 4 to 2 seconds, three times
    assert "mul of G, twice as fast, makes all of it 11% shorter." in str(first)
    assert [view.title.partition(" · ")[0] for view in page.views] == ["In turn", "D", "G"]
    assert [view["type"] for view in page.payload()["views"]] == ["text", "run", "run"]
    assert "54% of the time" in page.svg


def test_several_programs_may_have_no_names_and_must_have_steps():
    page = viz.report([straggling(2), straggling(2)])
    assert [view.title.partition(" · ")[0] for view in page.views[1:]] == ["program 1", "program 2"]
    failed = [event("Failure", "failure", None, "Failure", 0, 1), task("forward_dev0-0", 0, 0, 1)]
    with pytest.raises(ValueError, match="program 2 completed no step"):
        viz.report([straggling(2), trace(failed)])
