"""Variables that compiled programs share, and those that only one of them has."""

import numpy as np

import dpexec as fluid

DEVICES = [fluid.CPUPlace()] * 2


def parallel(program, loss, **options):
    compiled = fluid.CompiledProgram(program)
    return compiled.with_data_parallel(loss.name, places=DEVICES, **options)


def test_variables_that_the_other_program_lacks_are_updated_once():
    """Two devices of Paddle 1.8.5 update such a variable twice: its losses here are 2, 1, 0."""
    first, second, startup = fluid.Program(), fluid.Program(), fluid.Program()
    one = fluid.initializer.Constant(1.0)
    with fluid.unique_name.guard(), fluid.program_guard(first, startup):
        x = fluid.data("x", [None, 1], "float32")
        known = fluid.ParamAttr("known", initializer=one)
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=known, bias_attr=False))
        fluid.optimizer.SGD(0.0).minimize(loss)
    with fluid.unique_name.guard("second"), fluid.program_guard(second, startup):
        x = fluid.data("x", [None, 1], "float32")
        own = fluid.layers.create_parameter([1], "float32", "own", default_initializer=one)
        total = fluid.layers.fc(x, 1, param_attr=known, bias_attr=False) + own
        mean = fluid.layers.mean(total)
        fluid.optimizer.SGD(0.5, parameter_list=["own"]).minimize(mean)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((2, 1), "float32")}
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        compiled = parallel(first, loss)
        exe.run(compiled, feed=feed)
        other = parallel(second, mean, share_vars_from=compiled)
        found = [exe.run(other, feed=feed, fetch_list=[mean])[0].tolist() for _ in range(3)]
    assert found == [[2.0, 2.0], [1.5, 1.5], [1.0, 1.0]]
