"""What is told of a step like one before is the same step as if all of it was told."""

import numpy as np

from dpexec.engine.cluster.gang_messages import Outcome, decode, encode
from dpexec.engine.cluster.messages import GangStep
from dpexec.engine.cluster.repeated_steps import Repeat, StepForm, encode_repeat
from dpexec.engine.compile.regions.env import Shard


def received(buffers):
    data = np.frombuffer(b"".join(buffers), "u1").copy()
    return decode(data.data)


def test_repeated_step_is_that_which_was_meant():
    shards = {2: Shard(5, 77, 4, 2, 0.5, {}, 0.5), 3: Shard(5, 77, 6, 3, 0.5, {}, 0.5)}
    values = {
        2: {"x": np.arange(6, dtype="f4").reshape(2, 3), "y": np.zeros((2, 0), "i8")},
        3: {"x": np.arange(9, dtype="f4").reshape(3, 3).T, "y": np.array(True)},
    }
    form = StepForm(GangStep(8, (), 10, {}, shards, frozenset()), values)
    new = {
        d: {n: np.asarray(a + 1, a.dtype) for n, a in found.items()} for d, found in values.items()
    }
    entropy = 1 << 62
    told = received(encode_repeat(1, 10, 11, Shard(6, entropy), list(new.values())))
    assert isinstance(told, Repeat) and told.form == 1
    order = form.order(told)
    (step,) = order.each()
    assert (order.base, order.first, order.last, step.number, step.binding) == (10, 11, 11, 11, 8)
    assert step.shards == {
        2: Shard(6, entropy, 4, 2, 0.5, {}, 0.5),
        3: Shard(6, entropy, 6, 3, 0.5, {}, 0.5),
    }
    for device, found in new.items():
        for name, array in found.items():
            np.testing.assert_array_equal(step.values[device][name], array)
            assert step.values[device][name].dtype == array.dtype


def test_what_is_no_plain_array_is_told_in_full():
    assert encode_repeat(1, 0, 1, Shard(), [{"x": np.ma.zeros(3)}]) is None


def test_outcomes_are_no_repeats():
    found = received(encode(Outcome(done=1, fetched={0: {"loss": np.ones(1)}})))
    assert isinstance(found, Outcome) and found.done == 1
