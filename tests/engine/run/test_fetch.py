"""What ``run`` returns: arrays, numbers, merged results."""

import functools

import numpy as np
import pytest

import dpexec as fluid


@pytest.fixture
def mean():
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        yield fluid.layers.mean(fluid.data("x", [None, 2]))


def run(fetch, **options):
    feed = {"x": np.full((4, 2), 1.5, "float32")}
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[fetch], **options)[0]


def test_one_element_is_a_number_for_python(mean):
    loss = run(mean)
    assert (loss.shape, loss.dtype, isinstance(loss, np.ndarray)) == ((1,), "float32", True)
    assert (float(loss), int(loss), "%.2f" % loss) == (1.5, 1, "1.50")  # noqa: UP031
    assert f"{loss!r} {loss}" == "array([1.5], dtype=float32) [1.5]"
    assert [type(value) for value in (loss[0], loss.sum(), np.mean(loss))] == [np.float32] * 3
    total = 0.0
    total += loss
    assert float(total / 2) == 0.75


def test_rows_of_one_element_are_numbers(mean):
    column = fluid.layers.reduce_sum(fluid.data("x", [None, 2]), dim=1, keep_dim=True)
    assert [float(row) for row in run(column)] == [3.0] * 4


def test_several_elements_are_no_number(mean):
    with pytest.raises(TypeError, match="converted to Python scalars"):
        float(run(mean) + np.ones(2, "float32"))


def test_unmerged_losses_are_numbers_too(mean):
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    losses = run(mean, program=compiled, return_merged=False)
    assert [float(loss) for loss in losses] == [1.5, 1.5]


@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_returned_is_not_overwritten_by_later_runs(devices):
    with fluid.program_guard(fluid.Program()):
        twice = fluid.layers.scale(fluid.data("x", [None, 2]), 2.0)
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            places=[fluid.CPUPlace()] * devices
        )
        exe = fluid.Executor(fluid.CPUPlace())
        batches = [np.full((4, 2), number, "float32") for number in range(4)]
        found = [exe.run(compiled, feed={"x": x}, fetch_list=[twice])[0] for x in batches]
    assert all(np.array_equal(out, 2 * x) for out, x in zip(found, batches, strict=True))


def test_device_whose_gradient_another_one_sums_shows_its_own_in_every_step():
    """As in Paddle: in Reduce mode only the device that updates a parameter has its sum."""
    x = fluid.data("x", [None, 3])
    sums = [fluid.layers.fc(x, 1, param_attr=name, bias_attr=False) for name in ("w0", "w1")]
    loss = fluid.layers.mean(sums[0] + sums[1])
    fluid.optimizer.SGD(0.1).minimize(loss)
    how = fluid.BuildStrategy()
    how.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    program, places = fluid.default_main_program(), [fluid.CPUPlace()] * 2
    compiled = fluid.CompiledProgram(program).with_data_parallel(loss.name, how, places=places)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rng = np.random.default_rng(0)
    for _ in range(4):
        feed = rng.random((4, 3), "float32")
        own = [half.mean(0) / 2 for half in np.split(feed, 2)]  # scaled by the number of devices
        names = ["w0@GRAD", "w1@GRAD"]
        fetched = exe.run(compiled, feed={"x": feed}, fetch_list=names, return_merged=False)
        for name, found in zip(names, fetched, strict=True):
            sums = [np.allclose(value.ravel(), sum(own)) for value in found]
            assert sum(sums) == 1, name
            shows = sums.index(False)
            np.testing.assert_allclose(found[shows].ravel(), own[shows], rtol=1e-6)


def test_misspelled_name_is_told_what_was_meant(mean):
    with pytest.raises(
        fluid.core.EnforceNotMet, match=r"variable\(maen_0.tmp_0\).*; similar: mean"
    ):
        run("maen_0.tmp_0")


def test_values_of_several_devices_without_dimensions_cannot_be_merged():
    x = fluid.data("x", [None, 3])
    rank = fluid.layers.rank(x)
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((4, 3), "float32")}
    with pytest.raises(fluid.core.EnforceNotMet, match=r"has shapes \[\], \[\] on the devices"):
        exe.run(compiled, feed, [rank])
    assert exe.run(compiled, feed, [rank], return_merged=False)[0] == [2, 2]


@pytest.mark.parametrize("return_numpy", [True, False])
def test_widths_that_depend_on_values_and_differ_cannot_be_merged(return_numpy):
    mask = fluid.layers.sequence_mask(fluid.data("lengths", [None], "int64"))
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    call = functools.partial(
        fluid.Executor(fluid.CPUPlace()).run, compiled, {"lengths": np.arange(1, 5)}, [mask]
    )
    with pytest.raises(fluid.core.EnforceNotMet, match=r"has shapes \[2, 2\], \[2, 4\] on the dev"):
        call(return_numpy=return_numpy)
    assert [part.shape for part in call(return_merged=False)[0]] == [(2, 2), (2, 4)]


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("checked", [False, True])
def test_replicas_that_share_a_parameter_give_its_new_value(checked, devices):
    """Also where the update makes a new array instead of overwriting the shared one."""
    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr="w", bias_attr="b"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    strategy.enable_inplace = checked  # values that are checked are not overwritten before
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * devices
    )
    feed, flag = {"x": np.ones((6, 2), "float32")}, "FLAGS_check_nan_inf"
    fluid.set_flags({flag: checked})
    try:
        found = executor.run(compiled, feed, ["w", "b"], return_merged=False)
    finally:
        fluid.set_flags({flag: False})
    for name, values in zip("wb", found, strict=True):
        kept = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_array_equal(values, [kept] * devices)
