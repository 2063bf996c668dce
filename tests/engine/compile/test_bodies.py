"""Operators with blocks: their state, failures, devices and schedulers."""

import gc
import tracemalloc

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.clusters import workers
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, batches, train

layers = fluid.layers


@pytest.fixture(scope="module")
def client():
    with workers(2) as found:
        yield found.client


def scheduled(branch=False, seed=5):
    """A classifier whose rate comes from blocks, and part of whose layers do."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        y = fluid.data("y", [None, 1], "int64")
        hidden = layers.fc(x, 16, act="relu")
        if branch:
            some = layers.reduce_sum(x) > 0.0
            hidden = layers.cond(
                some,
                lambda: layers.dropout(layers.fc(hidden, 16, act="tanh"), 0.3),
                lambda: layers.fc(hidden, 16, act="sigmoid"),
            )
        prediction = layers.fc(hidden, 3, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, y))
        rate = layers.linear_lr_warmup(layers.piecewise_decay([2, 4], [0.3, 0.2, 0.1]), 3, 0.0, 0.3)
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    return Net(main, startup, loss, test, prediction)


# ---- every mode and scheduler computes the same


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_modes_give_the_same_bits(mode, devices):
    net, feeds = scheduled(branch=True), batches(6)
    assert_same_bits(train(net, feeds, devices, mode), train(net, feeds, devices, AllReduce))


def test_task_per_operator_gives_the_same_bits():
    net, feeds = scheduled(branch=True), batches(5)
    segments = train(net, feeds, 2)
    assert_same_bits(train(net, feeds, 2, task_granularity="op"), segments)
    assert_same_bits(train(net, feeds, 2, scheduler="sync"), segments)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_cluster_gives_the_same_bits(client, mode):
    net, feeds = scheduled(branch=True), batches(5)
    assert_same_bits(train(net, feeds, 2, mode, scheduler=client), train(net, feeds, 2, mode))


@pytest.mark.parametrize("branch", [False, True])
def test_idle_device_takes_part_in_schedules(branch):
    net, feeds = scheduled(branch), batches(5, rows=1)
    assert_same_bits(train(net, feeds, 2, Reduce), train(net, feeds, 2, AllReduce))


def test_python_functions_travel_to_workers(client):
    x = fluid.data("x", [None, 3], "float32")
    out = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="out", shape=[-1, 3], dtype="float32")
    )
    offset = 5.0
    layers.py_func(lambda value: np.array(value) + offset, x, out)
    strategy = fluid.ExecutionStrategy()
    strategy.scheduler = client
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        exec_strategy=strategy, places=fluid.cpu_places(2)
    )
    feed = {"x": np.ones((4, 3), "float32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(compiled, feed=feed, fetch_list=[out])
    assert np.array_equal(found, feed["x"] + offset)


def test_trace_has_the_operators_inside_of_blocks():
    run = train(scheduled(branch=True), batches(2), 2, trace=True)
    events = run.compiled.trace.events
    outer = [event for event in events if event.name.startswith("conditional_block")]
    for inner in (event for event in events if event.name == "assign"):
        assert any(
            block.device == inner.device and block.start <= inner.start <= inner.stop <= block.stop
            for block in outer
        )
    assert {"assign", "tanh", "tanh_grad"} <= {event.name for event in events}


# ---- conditions


def test_each_device_follows_its_own_condition():
    x = fluid.data("x", [None, 1], "float32")
    y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: x * 10.0, lambda: x - 1.0)
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.array([[1], [2], [-3], [-4]], "float32")}
    (found,) = exe.run(compiled, feed=feed, fetch_list=[y])
    assert found.ravel().tolist() == [10, 20, -4, -5]


def test_gradient_is_zero_on_devices_that_did_not_run_the_block():
    x = fluid.data("x", [None, 1], "float32")
    attr = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(2.0))

    def weighted():
        return layers.fc(x, 1, param_attr=attr, bias_attr=False)

    y = layers.cond(layers.reduce_sum(x) > 0.0, weighted, lambda: x * 1.0)
    loss = layers.mean(y)
    fluid.optimizer.SGD(1.0).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(2)
    )
    exe.run(compiled, feed={"x": np.array([[4], [-4]], "float32")}, fetch_list=[loss])
    w = np.array(fluid.global_scope().find_var("w").get_tensor())
    assert w.item() == 0.0  # 2 - 1.0 * (4 + 0) / 2


def test_branches_may_hold_other_sequences():
    x = fluid.data("x", [None, 1], lod_level=1)
    x.stop_gradient = False
    flag = fluid.data("flag", [1], "bool")
    out = layers.cond(flag, lambda: x * 2.0, lambda: layers.sequence_concat([x, x]))
    grad = fluid.gradients(layers.reduce_sum(out * out), x)
    column = np.array([[1], [2], [3]], "float32")
    feed = {"x": fluid.create_lod_tensor(column, [[2, 1]], fluid.CPUPlace())}
    run = fluid.Executor(fluid.CPUPlace()).run
    for value, expected, lod in (
        (True, [2, 4, 6], [[0, 2, 3]]),
        (False, [1, 2, 1, 2, 3, 3], [[0, 4, 6]]),
    ):
        feed["flag"] = np.array([value])
        found, d_x = run(feed=feed, fetch_list=[out, *grad], return_numpy=False)
        assert np.array(found).ravel().tolist() == expected and found.lod() == lod
        assert np.array(d_x).ravel().tolist() == ([8, 16, 24] if value else [4, 8, 12])


@pytest.mark.parametrize("value", [True, False])
def test_what_a_block_may_overwrite_has_its_gradient(value):
    x = fluid.data("x", [None, 2], "float32")
    x.stop_gradient = False
    flag = fluid.data("flag", [1], "bool")
    state = layers.scale(x, 3.0)
    with layers.Switch() as switch, switch.case(flag):
        layers.assign(layers.square(state), state)
    grad = fluid.gradients(layers.reduce_sum(state), x)
    feed = {"x": np.ones((1, 2), "float32"), "flag": np.array([value])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=grad)
    assert found.tolist() == ([[18, 18]] if value else [[3, 3]])


# ---- state


def counting(condition):
    """A persistable counter that grows by one where the condition holds."""
    counter = layers.create_global_var([1], 0.0, "float32", persistable=True, name="counter")
    with layers.Switch() as switch, switch.case(condition):
        layers.assign(counter + 1.0, counter)
    return counter


def stored(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor()).item()


def test_state_written_in_a_block_stays():
    flag = fluid.data("flag", [1], "bool")
    counting(flag)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = []
    for value in (True, False, True, False):
        exe.run(feed={"flag": np.array([value])})
        found.append(stored("counter"))
    assert found == [1, 1, 2, 2]


def test_failed_step_leaves_state_as_it_was():
    flag = fluid.data("flag", [1], "bool")
    ids = fluid.data("ids", [None, 1], "int64")
    counting(flag)
    with layers.Switch() as switch, switch.case(flag):
        fluid.embedding(ids, [4, 2])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"flag": np.array([True]), "ids": np.array([[9]])}
    with pytest.raises(fluid.core.EnforceNotMet):
        exe.run(feed=feed)
    assert stored("counter") == 0
    exe.run(feed={**feed, "flag": np.array([False])})
    exe.run(feed={**feed, "ids": np.array([[3]])})
    assert stored("counter") == 1


def test_updates_in_a_block_do_not_overwrite():
    """An optimizer operator in a block works on a copy: what comes after it may fail."""
    flag = fluid.data("flag", [1], "bool")
    ids = fluid.data("ids", [None, 1], "int64")
    w = layers.create_parameter(
        [2], "float32", "w", default_initializer=fluid.initializer.Constant(1.0)
    )
    with layers.Switch() as switch, switch.case(flag):
        grad = layers.fill_constant([2], "float32", 1.0)
        rate = layers.fill_constant([1], "float32", 0.25)
        fluid.default_main_program().current_block().append_op(
            "sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w}
        )
    fluid.embedding(ids, [4, 2])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    before = fluid.global_scope().find_var("w").get_tensor()
    with pytest.raises(fluid.core.EnforceNotMet):
        exe.run(feed={"flag": np.array([True]), "ids": np.array([[9]])})
    assert np.array_equal(np.array(before), [1, 1])
    exe.run(feed={"flag": np.array([True]), "ids": np.array([[0]])})
    exe.run(feed={"flag": np.array([False]), "ids": np.array([[0]])})
    assert np.array_equal(np.array(fluid.global_scope().find_var("w").get_tensor()), [0.75, 0.75])


def test_variables_of_a_block_are_gone_after_it():
    flag = fluid.data("flag", [1], "bool")
    with layers.Switch() as switch, switch.case(flag):
        local = layers.fill_constant([3], "float32", 1.0)
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(fluid.core.EnforceNotMet, match="Cannot find fetched variable"):
        exe.run(feed={"flag": np.array([True])}, fetch_list=[local])


def test_values_in_blocks_are_freed_without_the_garbage_collector():
    x = fluid.data("x", [None, 100], "float32")
    x.stop_gradient = False
    y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.tanh(x * 2.0), lambda: x * 1.0)
    fluid.backward.append_backward(layers.mean(y))
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((1000, 100), "float32")}
    for _ in range(2):  # then it is compiled
        exe.run(feed=feed)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        exe.run(feed=feed)
        assert tracemalloc.get_traced_memory()[0] < 0.5 * feed["x"].nbytes
    finally:
        tracemalloc.stop()
        gc.enable()


def test_variable_without_a_value_is_named():
    flag = fluid.data("flag", [1], "bool")
    out = layers.create_tensor("float32", name="made")
    with layers.Switch() as switch, switch.case(flag):
        layers.assign(layers.fill_constant([1], "float32", 3.0), out)
    doubled = layers.scale(out, 2.0)
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(feed={"flag": np.array([True])}, fetch_list=[doubled])[0] == 6
    with pytest.raises(fluid.core.EnforceNotMet, match=r"scale(.|\n)*variable made has no value"):
        exe.run(feed={"flag": np.array([False])}, fetch_list=[doubled])


# ---- before and in the run


def test_error_in_the_gradient_of_a_block_names_its_operator():
    x = fluid.data("x", [None, 3], "float32")
    x.stop_gradient = False
    body = fluid.default_main_program()

    def fail(*_):
        raise ArithmeticError("of the user")

    def passed():
        out = body.current_block().create_var(name="passed", shape=[-1, 3], dtype="float32")
        return layers.py_func(np.array, x, out, backward_func=fail)

    y = layers.cond(layers.reduce_sum(x) > 0.0, passed, lambda: x * 2.0)
    fluid.backward.append_backward(layers.mean(y))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(feed={"x": np.full((2, 3), -1, "float32")})
    with pytest.raises(fluid.core.EnforceNotMet, match=r"operator py_func(.|\n)*of the user"):
        exe.run(feed={"x": np.full((2, 3), 1, "float32")})


def test_error_in_a_block_names_operator_and_line():
    flag = fluid.data("flag", [1], "bool")
    ids = fluid.data("ids", [None, 1], "int64")
    with layers.Switch() as switch, switch.case(flag):
        fluid.embedding(ids, [4, 2])  # the line of the user
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(
        fluid.core.EnforceNotMet,
        match=r"operator lookup_table_v2 on device 0(.|\n)*line of the user",
    ) as caught:
        exe.run(feed={"flag": np.array([True]), "ids": np.array([[9]])})
    assert "conditional_block" not in str(caught.value)


def test_shapes_in_blocks_are_checked_before_the_run():
    x = fluid.data("x", [None, -1], "float32")
    flag = fluid.data("flag", [1], "bool")
    w = layers.create_parameter([3, 2], "float32", "w")
    with layers.Switch() as switch, switch.case(flag):
        layers.mul(x, w)  # needs three columns
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for value in (True, False):
        feed = {"flag": np.array([value]), "x": np.ones((2, 4), "float32")}
        with pytest.raises(fluid.core.EnforceNotMet, match=r"operator mul:(.|\n)*needs three col"):
            exe.run(feed=feed)
        exe.run(feed={**feed, "x": np.ones((2, 3), "float32")})


def test_parameters_read_in_a_block_must_have_been_initialised():
    flag = fluid.data("flag", [1], "bool")
    w = layers.create_parameter([3, 2], "float32", "w")
    with layers.Switch() as switch, switch.case(flag):
        layers.scale(w, 2.0)
    with pytest.raises(fluid.core.EnforceNotMet, match="Run the startup program"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"flag": np.array([False])})


def test_pruned_run_keeps_blocks_that_the_fetch_needs():
    x = fluid.data("x", [None, 3], "float32")
    flag = fluid.data("flag", [1], "bool")
    y = layers.cond(flag, lambda: layers.relu(x), lambda: x * 2.0)
    layers.cond(flag, lambda: layers.fc(x, 2), lambda: layers.fc(x, 2))  # not initialised
    feed = {"x": np.full((2, 3), -1, "float32"), "flag": np.array([False])}
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(feed=feed, fetch_list=[y], use_prune=True)
    assert (found == -2).all()


def test_inference_model_keeps_its_blocks(tmp_path):
    x = fluid.data("x", [None, 3], "float32")
    layers.cond(layers.reduce_sum(x) > 5.0, lambda: layers.fc(x, 4), lambda: layers.fc(x, 4))
    y = layers.cond(
        layers.reduce_sum(x) > 0.0,
        lambda: layers.dropout(layers.fc(x, 2), 0.5),
        lambda: layers.scale(layers.fc(x, 2), 2.0),
    )
    loss = layers.mean(y)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    test = fluid.default_main_program().clone(for_test=True)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [y], exe)
    feeds = [{"x": np.full((2, 3), value, "float32")} for value in (1, -1)]
    expected = [exe.run(test, feed=feed, fetch_list=[y])[0] for feed in feeds]
    with fluid.scope_guard(fluid.Scope()):
        program, names, targets = fluid.io.load_inference_model(str(tmp_path), exe)
        assert names == ["x"] and program.num_blocks == 3
        assert not any("fc_0" in var.name for var in program.list_vars())
        found = [exe.run(program, feed=feed, fetch_list=targets)[0] for feed in feeds]
    np.testing.assert_array_equal(found, expected)


def test_random_operators_in_blocks_differ_from_run_to_run_and_by_sample():
    x = fluid.data("x", [None, 64], "float32")
    fluid.default_main_program().random_seed = 3
    y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.dropout(x, 0.5), lambda: x * 1.0)
    one = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(1)
    )
    two = fluid.CompiledProgram(fluid.default_main_program().clone()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((4, 64), "float32")}
    first = exe.run(one, feed=feed, fetch_list=[y])[0]
    assert not np.array_equal(first, exe.run(one, feed=feed, fetch_list=[y])[0])
    with fluid.scope_guard(fluid.Scope()):
        assert np.array_equal(first, exe.run(two, feed=feed, fetch_list=[y])[0])
