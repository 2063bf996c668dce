"""With ``FLAGS_check_nan_inf`` the first operator that makes an infinity or a NaN fails."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.flags import globals as flags
from tests.engine.run.nets import AllReduce, Reduce, persistables, strategies

GOOD = {"x": np.ones((4, 2), "float32")}
BAD = {"x": -np.ones((4, 2), "float32")}


@pytest.fixture
def checking():
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    yield
    fluid.set_flags({"FLAGS_check_nan_inf": False})


def net():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2])
        one = fluid.initializer.Constant(1.0)
        hidden = fluid.layers.fc(x, 2, param_attr=one)
        loss = fluid.layers.mean(fluid.layers.log(hidden))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


@pytest.fixture(params=[None, (1, AllReduce), (2, AllReduce), (2, Reduce)])
def trained(request):
    """A program after its startup, its loss and its scope."""
    main, startup, loss = net()
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = main
        if request.param is not None:
            devices, mode = request.param
            build, execution = strategies(mode)
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, build, execution, places=[fluid.CPUPlace()] * devices
            )
        yield exe, program, loss, lambda: persistables(main, scope)


def test_error_names_operator_variable_and_line(trained, checking):
    exe, program, loss, state = trained
    exe.run(program, feed=GOOD, fetch_list=[loss])
    before = state()
    with pytest.raises(fluid.core.EnforceNotMet) as caught:
        exe.run(program, feed=BAD, fetch_list=[loss])
    for part in ("log", "log_0.tmp_0", "nan", "FLAGS_check_nan_inf", "test_finite.py"):
        assert part in str(caught.value)
    after = state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    exe.run(program, feed=GOOD, fetch_list=[loss])
    assert any(not np.array_equal(value, before[name]) for name, value in state().items())


def test_runs_are_the_same_with_and_without_the_check(trained):
    exe, program, loss, state = trained
    start = state()
    losses = [exe.run(program, feed=GOOD, fetch_list=[loss])[0] for _ in range(2)]
    first = state()
    for name, value in start.items():
        fluid.global_scope().var(name).get_tensor().set(value)
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        checked = [exe.run(program, feed=GOOD, fetch_list=[loss])[0] for _ in range(2)]
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
    np.testing.assert_array_equal(checked, losses)
    for name, value in state().items():
        np.testing.assert_array_equal(value, first[name], err_msg=name)


def test_off_lets_them_pass(trained):
    exe, program, loss, _ = trained
    assert flags()["FLAGS_check_nan_inf"] is False
    (value,) = exe.run(program, feed=BAD, fetch_list=[loss])
    assert np.isnan(value).any()


def test_update_that_overflows_is_refused(checking):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
        fluid.optimizer.SGD(3e38).minimize(loss)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor()
        exe.run(startup)
        before = persistables(main, scope)
        with pytest.raises(fluid.core.EnforceNotMet, match=r"sgd[\s\S]*inf"):
            exe.run(main, feed={"x": np.full((1, 2), 9.0, "float32")}, fetch_list=[loss])
        after = persistables(main, scope)
    np.testing.assert_array_equal(after["fc_0.w_0"], before["fc_0.w_0"])


def test_operator_in_a_body_is_named(checking):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [1])
        kept = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
        zero = fluid.layers.fill_constant([1], "float32", 0.0)
        with fluid.layers.Switch() as switch, switch.case(fluid.layers.less_than(x, zero)):
            root = fluid.layers.sqrt(x)  # the line of the error
            fluid.layers.assign(root, kept)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(startup)
        exe.run(main, feed={"x": np.array([4.0], "float32")})
        with pytest.raises(fluid.core.EnforceNotMet, match=r"sqrt[\s\S]*the line of the error"):
            exe.run(main, feed={"x": np.array([-4.0], "float32")})
        assert np.array(fluid.global_scope().find_var("kept").get_tensor())[0] == 0
