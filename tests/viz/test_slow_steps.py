"""What is said of steps that took unusually long, and of long times between steps."""

from dataclasses import replace

from dpexec import viz
from tests.viz.traces import straggling


def run(slow=None, gap=None):
    """Eight steps of 10 seconds; an operator takes 40 s in one of them, and 50 s pass before one.

    The operator is the gradient of device 1, which ends the backward pass.
    """
    events = []
    for one in straggling(8).events:
        late = 40.0 * (slow is not None and one.step > slow)
        late += 50.0 * (gap is not None and one.step >= gap) + 0.1 * one.step
        start, stop = one.start + late, one.stop + late
        if one.step == slow:
            within = one.start - 10.0 * one.step
            start += 40.0 * (within >= 6)
            stop += 40.0 * (one.stop - 10.0 * one.step >= 6)
        events.append(replace(one, start=start, stop=stop))
    return replace(straggling(8), events=tuple(sorted(events, key=lambda e: (e.start, -e.stop))))


def said(made, **chosen):
    return " ".join(str(viz.analyse(made, **chosen)).split())


def test_a_slow_step_is_compared_with_all_others_also_if_it_alone_is_asked_for():
    made = run(slow=5)
    sentence = "Step 5 took 50.0 s: 40.0 s more than the typical one for mul_grad"
    assert sentence in said(made) and "on device 1" in said(made)
    assert sentence in said(made, steps=[5])
    assert "more than the typical one" not in said(made, steps=[4])


def test_an_unusual_time_before_a_step_is_said():
    sentence = "Before step 6, the script or other programs took 50.1 s; before a step it is 100 ms"
    assert sentence in said(run(gap=6))
    assert "before a step it is" not in said(run())
    assert "before a step it is" not in said(run(gap=6), steps=[2, 6])  # they are not neighbours


def test_many_slow_steps_are_counted_with_their_rhythm():
    long = straggling(20, seconds=0.1)
    events = []
    for one in long.events:  # steps of a second; every fourth one takes 3 seconds
        late = 2.0 * (one.step // 4)
        slow = 2.0 * (one.step % 4 == 3)
        start = one.start + late + slow * (one.start - one.step >= 0.6)
        stop = one.stop + late + slow * (one.stop - one.step >= 0.6)
        events.append(replace(one, start=start, stop=stop))
    made = replace(long, events=tuple(sorted(events, key=lambda e: (e.start, -e.stop))))
    sentence = "In all, 5 of 20 steps took more than 2 times as long as the typical one"
    assert f"{sentence}, mostly one every 4 steps." in said(made)
    assert "In all" not in said(made, steps=range(8))  # both of them are explained


def test_shapes_for_which_steps_are_prepared_are_named():
    made = run(gap=3)
    spans = [[25.0, 70.0]]
    shapes = [[30.0, "a0", [8, 17]], [31.0, "x", [8, 19]], [32.0, "x", [8, 18]]]
    told = said(replace(made, meta={**made.meta, "preparing": spans, "shapes": shapes}))
    assert "are prepared for new shapes; all other figures are about the rest" in told
    assert "Before step 3, preparing it took 39.8 s: the shape of x was new, 8×19." in told
    assert "x had 2 new shapes, such as 8×19 and 8×18: batches of few different shapes" in told
    stays = said(
        replace(made, meta={**made.meta, "preparing": spans, "shapes": [[30.0, "w", [2]]]})
    )
    assert "w had 1 new shape: 2:" in stays
