"""A step that is told as a repetition of an earlier one means the same as one told in full."""

import numpy as np
import pytest

from dpexec.engine.cluster.gang_messages import (
    Batch,
    Outcome,
    OutcomesTold,
    OutcomesToTell,
    Rest,
    encode,
)
from dpexec.engine.cluster.messages import GangStep, Noted
from dpexec.engine.cluster.repeated_steps import ORDER, Remembered, StepForm, kind_of
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.lod import Lod

ENTROPY = 1 << 62
ROWS = ((4, 2), (9, 3))


def received(buffers):
    return memoryview(bytearray(b"".join(buffers)))


def values(scale):
    """What two devices are fed: arrays of any layout, none, numbers, and sequences."""
    return {
        2: {"x": np.arange(6 * scale, dtype="f4").reshape(-1, 3), "y": np.zeros((scale, 0), "i8")},
        3: {
            "x": np.arange(9 * scale, dtype="f4").reshape(3, -1).T,
            "y": np.array(scale > 1),
            "h": np.ones(scale, "f2"),
            "w@LOD": Lod([[0, 1, 2], list(range(0, 3 * scale, scale))]),
        },
    }


def shards(scale):
    inner = {1: (0, 4)}
    return {
        2: Shard(5 + scale, ENTROPY + scale, 4, 2 * scale, 0.1 * scale, inner, 0.5),
        3: Shard(5 + scale, ENTROPY + scale, 6, 3, 1 / 3, {}, 0.7),
    }


@pytest.fixture
def form():
    step = GangStep(8, ROWS, 10, {}, shards(1), frozenset())
    return StepForm(step, {**values(1), 7: {"x": "of another member"}})


def told(form, scale, batch=0, over=(), fed=None, rows=ROWS):
    given = list((fed or values(scale)).values())
    parts = [*shards(scale).values()]
    return form.tell((3, 10, 11, batch, over), rows, parts, given)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for device, arrays in expected.items():
        assert list(found[device]) == list(arrays)
        for name, value in arrays.items():
            if isinstance(value, Lod):
                assert found[device][name] == value
            else:
                np.testing.assert_array_equal(found[device][name], value)
                assert found[device][name].dtype == value.dtype


@pytest.mark.parametrize("scale", [1, 5])
def test_repeated_step_is_that_which_was_meant(form, scale):
    rows = ((40, 2), (2**40, 3))
    data = received(told(form, scale, rows=rows))
    assert kind_of(data) == (3, ORDER)
    order, over = form.order(data, {})
    (step,) = order.each()
    assert (order.base, order.first, order.last, step.number, step.binding) == (10, 11, 11, 11, 8)
    assert step.rows == rows and step.shards == shards(scale) and not over
    assert_same(step.values, values(scale))


def test_step_may_name_a_batch_that_came_ahead_and_those_that_are_over(form):
    data = received(told(form, 4, batch=6, over=[2, 5]))
    order, over = form.order(data, {6: Batch(6, values(4))})
    (step,) = order.each()
    assert [*over] == [2, 5] and len(data) < 512
    assert step.shards == shards(4)
    assert_same(step.values, values(4))


@pytest.mark.parametrize(
    ("device", "name", "value"),
    [
        (2, "x", np.ma.zeros((2, 3), "f4")),
        (2, "x", np.zeros((2, 3))),
        (2, "x", np.zeros((2, 3, 1), "f4")),
        (2, "z", np.zeros(1)),
        (3, "w@LOD", Lod([[0, 3]])),
        (3, "w@LOD", np.zeros(2, "i8")),
    ],
)
def test_what_has_another_form_is_told_in_full(form, device, name, value):
    fed = values(2)
    fed[device][name] = value
    assert told(form, 2, fed=fed) is None


def test_other_names_in_the_same_place_are_another_form(form):
    fed = values(2)
    fed[2] = {"y": fed[2]["y"], "x": fed[2]["x"]}
    assert told(form, 2, fed=fed) is None


def test_other_parts_of_devices_are_another_form(form):
    assert told(form, 2, rows=ROWS[:1]) is None
    assert told(form, 2, rows=((4,), (9, 3))) is None
    parts = [*shards(2).values()]
    assert form.tell((3, 10, 11, 0, ()), ROWS, parts[::-1], [*values(2).values()]) is None


@pytest.mark.parametrize("value", ["text", np.array([None]), np.ma.zeros(3)])
def test_only_plain_arrays_have_a_form(value):
    step = GangStep(8, (), 10, {}, {0: Shard()}, frozenset())
    with pytest.raises(TypeError, match="no plain array"):
        StepForm(step, {0: {"x": value}})


def test_the_oldest_that_is_remembered_goes_first():
    known = Remembered()
    numbers = [known.add(key, str(key)) for key in range(16)]
    assert numbers == [*range(1, 17)]
    assert known.add(0, "again") == 1  # it is the latest now
    assert known.add("new", "more") == 2 and known.get(1) is None
    assert known.get(0) == (1, "again") and known.get("new") == (2, "more")


# ---- outcomes


def test_outcomes_travel_without_a_pickle_from_the_second_one_on():
    told, heard = OutcomesToTell(), OutcomesTold()
    for binding, loss in ((4, 1.0), (4, 2.0), (5, 3.0), (4, 4.0)):
        rows = np.arange(3 * int(loss)).reshape(-1, 3)
        fetched = {0: {"loss": np.float32([loss]), "rows": rows}, 1: {"loss": np.array(loss)}}
        if binding == 5:
            del fetched[1]
        data = received(told.encode(Outcome(1, fetched, 77), binding))
        assert bool(kind_of(data)[1]) == (loss in (2.0, 4.0))
        found = heard.decode(data)
        assert (found.done, found.bytes_sent, found.error) == (1, 77, None)
        assert_same(found.fetched, fetched)
        found.fetched[0]["loss"][...] = 0  # it is the user's


def test_outcomes_of_another_form_are_pickled_and_remembered_anew():
    told, heard = OutcomesToTell(), OutcomesTold()
    for value in (np.ones(1), np.ones((1, 1)), Lod([[0, 1]]), {"no": "array"}, np.ones(1)):
        for _ in range(2):
            fetched = {0: {"a": value}, 1: {}}
            found = heard.decode(received(told.encode(Outcome(2, fetched), 4)))
            assert repr(found.fetched) == repr(fetched) and found.done == 2
    assert kind_of(received(told.encode(Outcome(2, {0: {"a": np.ones(1)}, 1: {}}), 4)))[1]


def test_errors_and_notes_are_pickled():
    told, heard = OutcomesToTell(), OutcomesTold()
    told.encode(Outcome(1, {0: {}}), 4)
    found = heard.decode(received(told.encode(Outcome(error=ValueError("no")), 4)))
    assert str(found.error) == "no"
    noted = Noted("worker", np.zeros(1), (), ())
    assert heard.decode(received(told.encode(Outcome(1, {0: {}}, noted=noted), 4))).noted
    assert isinstance(heard.decode(received(encode(Rest()))), Rest)
