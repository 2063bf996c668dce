"""Several replicas train like one; state, scopes, memory and tasks are as documented."""

import gc
import tracemalloc

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    persistables,
    strategies,
    train,
    word_batches,
    words,
)

MODES = [AllReduce, Reduce]


def weighted_losses(run, rows, devices):
    """The loss of the whole batch from the devices' means."""
    sizes = [len(part) for part in np.array_split(np.arange(rows), min(rows, devices))]
    return [float(np.average(loss, weights=sizes)) for loss in run.losses]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 12])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_replicas_equal_one_device_on_the_same_batch(mode, rows, devices):
    net, feeds = classifier(fluid.optimizer.Adam(0.01), dropout=0.25), batches(5, rows)
    one, many = train(net, feeds, 1), train(net, feeds, devices, mode)
    np.testing.assert_allclose(
        weighted_losses(many, rows, devices), weighted_losses(one, rows, 1), rtol=1e-5
    )
    for name, value in one.state.items():
        np.testing.assert_allclose(many.state[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [2, 9])
def test_sparse_replicas_equal_one_device(mode, rows):
    net, feeds = words(), word_batches(5, rows)
    one, many = train(net, feeds, 1), train(net, feeds, 4, mode)
    for name, value in one.state.items():
        np.testing.assert_allclose(many.state[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "clip",
    [
        fluid.clip.GradientClipByGlobalNorm(0.05),
        fluid.clip.GradientClipByNorm(0.05),
        fluid.clip.GradientClipByValue(0.01),
    ],
    ids=lambda clip: type(clip).__name__,
)
@pytest.mark.parametrize("make", [classifier, words], ids=["dense", "sparse"])
def test_reduce_mode_works_with_every_clip(clip, make):
    """The original fails here with the global norm and with sparse gradients."""
    net = make(fluid.optimizer.SGD(0.5, grad_clip=clip))
    feeds = batches(4) if make is classifier else word_batches(4)
    assert_same_bits(train(net, feeds, 3, AllReduce), train(net, feeds, 3, Reduce))


@pytest.mark.parametrize("mode", MODES)
def test_step_counter_advances_once_a_step(mode):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        rate = fluid.layers.exponential_decay(0.1, 2, 0.5)
        fluid.optimizer.SGD(rate).minimize(loss)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        build, execution = strategies(mode)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build, execution, places=[fluid.CPUPlace()] * 3
        )
        seen = []
        for _ in range(3):
            feed = {"x": np.ones((2, 2), "float32")}  # one of three devices is idle
            seen.append(exe.run(compiled, feed=feed, fetch_list=[rate])[0])
    np.testing.assert_allclose(seen, [[0.1 * 0.5 ** (k / 2)] * 2 for k in range(3)], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_batch_norm_statistics_are_those_of_device_0(mode):
    net, feeds = classifier(batch_norm=True), batches(3)
    run = train(net, feeds, 3, mode)
    assert_same_bits(run, train(net, feeds, 3, mode, num_threads=2))
    assert not np.array_equal(run.state["batch_norm_0.w_1"], np.zeros(16))
    other = train(net, feeds, 3, AllReduce)
    assert np.array_equal(run.state["batch_norm_0.w_1"], other.state["batch_norm_0.w_1"])


def test_idle_device_keeps_its_statistics_of_before():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2, 2], "float32")
        fluid.layers.batch_norm(x, momentum=0.5, moving_mean_name="mean")
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    exe.run(compiled, feed={"x": np.full((1, 2, 2), 8, "float32")})
    ones = np.ones((2, 2, 2), "float32")
    (means,) = exe.run(compiled, feed={"x": ones}, fetch_list=["mean"])
    assert means.tolist() == [4.0 / 2 + 0.5] * 2 + [0.5] * 2


@pytest.mark.parametrize("mode", MODES)
def test_write_to_the_scope_reaches_all_devices(mode):
    net, feeds = classifier(), batches(2)
    run = train(net, feeds, 3, mode)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        weight = run.scope.find_var("fc_0.w_0").get_tensor()
        weight.set(np.full(weight.shape(), 0.125, "float32"), fluid.CPUPlace())
        seen = exe.run(run.compiled, feed=feeds[0], fetch_list=["fc_0.tmp_0"], return_merged=False)[
            0
        ]
    rows = np.array_split(feeds[0]["x"], 3)
    for got, x in zip(seen, rows, strict=True):
        np.testing.assert_allclose(got, x @ np.full((8, 16), 0.125, "float32"), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_startup_not_run_can_be_repaired(mode):
    net, feeds = classifier(), batches(1)
    build, execution = strategies(mode)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
        )
        with pytest.raises(fluid.core.EnforceNotMet, match=r"fc_0.w_0(.|\n)*[Rr]un the startup"):
            exe.run(compiled, feed=feeds[0], fetch_list=[net.loss])
        exe.run(net.startup)
        loss = exe.run(compiled, feed=feeds[0], fetch_list=[net.loss])[0]
    assert np.array_equal(loss, train(net, feeds, 2, mode).losses[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("devices", [1, 2])
def test_failed_step_changes_nothing(mode, devices):
    net, feeds = words(fluid.optimizer.Adam(0.1)), word_batches(3)
    bad = {"x": feeds[0]["x"].copy(), "y": feeds[0]["y"]}
    bad["x"][-1, 0] = 99
    expected = train(net, feeds, devices, mode)
    with fluid.scope_guard(fluid.Scope()):
        scope = fluid.global_scope()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        build, execution = strategies(mode)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
        )
        for feed, loss in zip(feeds, expected.losses, strict=True):
            before = persistables(net.main, scope)
            with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table_v2"):
                exe.run(compiled, feed=bad, fetch_list=[net.loss])
            after = persistables(net.main, scope)
            assert all(np.array_equal(before[name], after[name]) for name in before)
            assert np.array_equal(exe.run(compiled, feed=feed, fetch_list=[net.loss])[0], loss)


def stored_bytes(run):
    """Bytes of the distinct arrays that all device scopes hold."""
    arrays = {}
    for scope in run.compiled._engine.replicas.scopes:
        for name in scope.local_var_names():
            array = scope.find_var(name).get_tensor().array
            arrays[array.__array_interface__["data"][0]] = array.nbytes
    return sum(arrays.values())


def test_reduce_mode_holds_one_copy_of_parameters_and_moments():
    net, feeds = classifier(fluid.optimizer.Adam(0.01), sizes=(8, 64, 3)), batches(2)
    one = stored_bytes(train(net, feeds, 1))
    assert stored_bytes(train(net, feeds, 4, Reduce)) <= 1.1 * one
    assert 3.9 * one <= stored_bytes(train(net, feeds, 4, AllReduce)) <= 4.1 * one


def test_reduce_mode_leaves_no_second_copy_resident():
    """What stays besides the memory of code: one copy of the state, buffers of gradient sums."""
    net, feeds = classifier(fluid.optimizer.Adam(0.01), sizes=(300, 800, 3)), batches(3, 16, 300)
    train(net, feeds, 4, Reduce)  # what is imported and compiled once does not count
    gc.collect()
    tracemalloc.start()
    try:
        run = train(net, feeds, 4, Reduce)
        parameters = sum(v.nbytes for n, v in run.state.items() if n.startswith("fc_"))
        gradients = sum(v.nbytes for n, v in run.state.items() if n[4:] in (".w_0", ".b_0"))
        run.state.clear()
        gc.collect()
        resident = tracemalloc.get_traced_memory()[0] - run.compiled._engine.bindings.memory.nbytes
    finally:
        tracemalloc.stop()
    assert parameters > 2.9e6
    assert resident <= 1.1 * parameters + gradients + 1e6  # threads, graphs, code


@pytest.mark.parametrize("mode", MODES)
def test_step_has_few_tasks(mode):
    net = classifier(fluid.optimizer.Adam(0.01), sizes=(784, 200, 200, 10))
    run = train(net, batches(1, 64, 784, 10), 2, mode)
    (graph,) = run.compiled._engine.runner.order.graphs
    assert len(graph.tasks) <= 12


def test_large_gradients_start_aggregating_before_the_backward_pass_ends():
    net = classifier(sizes=(1200, 1200, 1200, 1200, 4))
    run = train(net, batches(1, 8, 1200, 4), 2)
    names = [task.key[0] for task in run.compiled.plan.tasks]
    first = names.index("all_reduce")
    assert any("backward" in name for name in names[first + 1 :])


@pytest.mark.parametrize("mode", MODES)
def test_fetches_come_as_the_original_returns_them(mode):
    net, feeds = classifier(), batches(2)
    run = train(net, feeds, 2, mode)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        loss, weight, merged = exe.run(
            run.compiled, feed=feeds[0], fetch_list=[net.loss, "fc_1.w_0", net.prediction]
        )
        assert loss.shape == (2,) and weight.shape == (32, 3) and merged.shape == (12, 3)
        assert np.array_equal(weight[:16], weight[16:])
        stored = np.array(run.scope.find_var("fc_1.w_0").get_tensor())
        assert np.array_equal(weight[:16], stored)
        parts = exe.run(
            run.compiled,
            feed=feeds[0],
            fetch_list=[net.prediction],
            return_merged=False,
            return_numpy=False,
        )[0]
    assert [part.shape() for part in parts] == [[6, 3], [6, 3]]


@pytest.mark.parametrize("how", [{}, {"task_granularity": "op"}], ids=str)
def test_reduce_mode_fetches_moments_of_their_owner_only(how):
    """Paddle 1.8.5 returns one copy of a moment, and two of a parameter or a gradient."""
    net = classifier(fluid.optimizer.Adam(0.01))
    names = ["fc_0.w_0", "fc_0.w_0@GRAD", "fc_0.w_0_moment1_0", "fc_1.w_0_moment1_0"]
    names += ["fc_0.w_0_beta1_pow_acc_0", "fc_1.w_0_beta1_pow_acc_0", "learning_rate_0"]
    feeds, found, few = batches(3), [], []
    for mode in MODES:
        run = train(net, feeds, 2, mode, fetched=names, **how)
        with fluid.scope_guard(run.scope):
            exe = fluid.Executor(fluid.CPUPlace())
            found.append(exe.run(run.compiled, feed=feeds[0], fetch_list=names))
            row = {name: value[:1] for name, value in feeds[0].items()}  # an owner has no sample
            few.append(exe.run(run.compiled, feed=row, fetch_list=names))
    assert [len(value) for value in found[0]] == [16, 16, 16, 32, 2, 2, 2]
    assert [len(value) for value in found[1]] == [16, 16, 8, 16, 1, 1, 2]
    for name, both, one in zip(names, *found, strict=True):
        if "@GRAD" not in name:  # of Reduce mode, those of the first device are its own
            assert np.array_equal(both[: len(one)], one), name
    assert all(np.array_equal(*values) for values in zip(*few, strict=True))


def test_gradient_scale_one_sums():
    scale = fluid.BuildStrategy.GradientScaleStrategy
    feeds = batches(3)
    mean = train(classifier(fluid.optimizer.SGD(0.1)), feeds, 2)
    total = train(
        classifier(fluid.optimizer.SGD(0.05)), feeds, 2, gradient_scale_strategy=scale.One
    )
    for name in ("fc_0.w_0", "fc_1.b_0"):
        np.testing.assert_allclose(total.state[name], mean.state[name], rtol=1e-5, atol=1e-7)


def test_customized_gradient_scale_is_fed():
    scale = fluid.BuildStrategy.GradientScaleStrategy
    net, plain = classifier(), batches(2)
    name = net.loss.name + "@GRAD"
    feeds = [{**feed, name: np.array([0.5, 0.5], "float32")} for feed in plain]
    customized = train(net, feeds, 2, gradient_scale_strategy=scale.Customized)
    assert_same_bits(customized, train(net, plain, 2))
    with pytest.raises(fluid.core.EnforceNotMet, match=name):
        train(net, plain, 2, gradient_scale_strategy=scale.Customized)


def test_strategy_cannot_change_after_the_first_run():
    run = train(classifier(), batches(1), 2)
    with pytest.raises(fluid.core.EnforceNotMet, match="fuse_all_reduce_ops"):
        run.compiled._build_strategy.fuse_all_reduce_ops = False


def test_tools_find_out_how_many_devices_a_program_runs_on():
    x = fluid.data("x", [None, 2])
    out, executor = fluid.layers.scale(x, 2.0), fluid.Executor(fluid.CPUPlace())
    several = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    alone = fluid.CompiledProgram(fluid.default_main_program())
    for program in (several, alone):
        executor.run(program, feed={"x": np.ones((2, 2), "float32")}, fetch_list=[out])
    assert [len(several._places), len(alone._places)] == [len(fluid.cpu_places()), 1]


def test_serialising_thread_count_is_said():
    with pytest.warns(UserWarning, match="num_threads = 1 runs the 2 replicas one after another"):
        train(classifier(), batches(1), 2, num_threads=1)


def test_erased_parameter_is_missed_before_anything_runs():
    net = classifier()
    (feed,) = batches(1)
    run = train(net, [feed], 2)
    run.scope.erase(["fc_1.w_0"])
    with pytest.raises(fluid.core.EnforceNotMet, match=r"fc_1\.w_0 has not been initialized"):
        fluid.Executor().run(run.compiled, feed, [net.loss], scope=run.scope)
    run.scope.var("fc_1.w_0").get_tensor().set(run.state["fc_1.w_0"])
    state = persistables(net.main, run.scope)
    for name, value in run.state.items():
        np.testing.assert_array_equal(state[name], value)
