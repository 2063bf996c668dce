"""``fluid.contrib.mixed_precision``: Paddle's programs and loss scaling, losses near float32's."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify
from tests.engine.run.nets import AllReduce, Reduce, persistables, strategies
from tests.fixtures import amp_programs

layers = fluid.layers
amp = fluid.contrib.mixed_precision
RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "amp.json").read_text())


@pytest.mark.parametrize("name", amp_programs.PROGRAMS)
def test_program_is_the_recorded_one(name):
    assert amp_programs.record(name, fluid) == RECORDED["programs"][name]
    for program in amp_programs.build(name, fluid):
        verify(program)


@pytest.mark.parametrize("name", ["decorate", "AutoMixedPrecisionLists"])
def test_arguments_are_those_of_fluid(name):
    found = inspect.signature(getattr(amp, name)).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found]
    assert str(inspect.Signature(bare)) == RECORDED["arguments"][name]


@pytest.mark.parametrize("name", amp_programs.RUNS)
def test_factor_and_weights_are_the_recorded_ones(name):
    rows = np.array(amp_programs.train(fluid, *amp_programs.RUNS[name]))
    expected = np.array(RECORDED["runs"][name])
    np.testing.assert_array_equal(rows[:, :3], expected[:, :3])
    np.testing.assert_allclose(rows[:, 3:], expected[:, 3:], rtol=2e-6)


# ---- float16

MODES = [None, (1, AllReduce), (2, AllReduce), (2, Reduce)]


def classifier(half, optimizer, convolution=False):
    """Main and startup program, loss, prediction and the decorated optimizer."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1, 8, 8])
        y = fluid.data("y", [None, 1], "int64")
        hidden = x
        if convolution:
            hidden = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1), act="relu")
            hidden = layers.pool2d(hidden, 2, "max", 2)
        hidden = layers.fc(hidden, 16, act="relu")
        prediction = layers.fc(hidden, 3, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, y))
        made = amp.decorate(optimizer(), init_loss_scaling=128.0) if half else optimizer()
        made.minimize(loss)
    return main, startup, loss, prediction, made


def batches(steps, rows=12):
    """Three classes of images: a bright stripe in one of three places."""
    random = np.random.RandomState(3)
    found = []
    for _ in range(steps):
        y = random.randint(0, 3, (rows, 1))
        x = random.standard_normal((rows, 1, 8, 8)) * 0.3
        for row, place in enumerate(y[:, 0]):
            x[row, 0, 2 * place + 1] += 1.0
        found.append({"x": x.astype("float32"), "y": y.astype("int64")})
    return found


def train(net, feeds, where=None, fetch=()):
    """What was fetched (the loss first) at every step, and the state at the end."""
    main, startup, loss = net[:3]
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = main
        if where is not None:
            build, execution = strategies(where[1])
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, build, execution, places=[fluid.CPUPlace()] * where[0]
            )
        found = [exe.run(program, feed=feed, fetch_list=[loss, *fetch]) for feed in feeds]
    return found, persistables(main, scope)


def momentum():
    return fluid.optimizer.Momentum(0.05, 0.9)


def careful_adam():
    return fluid.optimizer.Adam(
        0.01,
        regularization=fluid.regularizer.L2Decay(1e-3),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0),
    )


@pytest.mark.parametrize("convolution", [False, True])
@pytest.mark.parametrize("optimizer", [momentum, careful_adam])
@pytest.mark.parametrize("where", MODES, ids=str)
def test_losses_are_near_those_of_float32(optimizer, convolution, where):
    feeds = batches(6)
    half, single = (
        [np.mean(step[0]) for step in train(classifier(h, optimizer, convolution), feeds, where)[0]]
        for h in (True, False)
    )
    np.testing.assert_allclose(half, single, rtol=2e-2, atol=2e-3)
    assert not np.array_equal(half, single), "nothing was computed in float16"


def test_states_are_single_and_products_half():
    net = classifier(True, careful_adam, convolution=True)
    block = net[0].global_block()
    made = {
        block.var(name).dtype
        for op in block.ops
        if op.type in ("conv2d", "mul", "mul_grad", "conv2d_grad")
        for name in op.output_arg_names
    }
    assert made == {fluid.core.VarDesc.VarType.FP16}
    product = next(op.output("Out")[0] for op in block.ops if op.type == "mul")
    fetched, state = train(net, batches(2), fetch=[product])
    assert fetched[0][1].dtype == np.float16
    assert {value.dtype.name for value in state.values()} == {"float32", "int32"}


def test_modes_give_the_same_bits():
    net = classifier(True, momentum)
    one, other = (train(net, batches(4), (2, mode)) for mode in (AllReduce, Reduce))
    np.testing.assert_array_equal(one[0], other[0])
    for name, value in one[1].items():
        np.testing.assert_array_equal(value, other[1][name], err_msg=name)


@pytest.mark.parametrize("where", MODES, ids=str)
def test_step_that_overflows_changes_the_factor_alone(where):
    net = classifier(True, lambda: fluid.optimizer.SGD(0.1))
    scaling = net[4].get_loss_scaling()
    good = batches(1)
    bad = [{**good[0], "x": good[0]["x"] * 1e5}] * 3
    _, before = train(net, good, where)
    fetched, after = train(net, [*good, *bad], where, fetch=[scaling])
    for name in ("fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"):
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    factors = [step[1][0] for step in fetched]
    np.testing.assert_allclose(after[scaling.name], [128.0 * 0.8], rtol=1e-6)
    assert factors[0] == 128.0


def test_training_converges():
    net = classifier(True, momentum)
    with fluid.program_guard(net[0], net[1]):
        label = net[0].global_block().var("y")
        accuracy = layers.accuracy(net[3], label)
    fetched, _ = train(net, batches(40), (2, AllReduce), fetch=[accuracy])
    assert np.mean([step[1] for step in fetched[-5:]]) > 0.95


def test_program_is_saved_and_loaded(tmp_path):
    net = classifier(True, careful_adam)
    main, startup, loss, prediction, _ = net
    assert str(fluid.Program.parse_from_string(main.desc.serialize_to_string())) == str(main)
    feeds = batches(3)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(startup)
        exe.run(main, feed=feeds[0])
        fluid.save(main, str(tmp_path / "state"))
        fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [prediction], exe, main)
        expected = [exe.run(main, feed=feed, fetch_list=[loss])[0] for feed in feeds[1:]]
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(startup)
        fluid.load(main, str(tmp_path / "state"), exe)
        found = [exe.run(main, feed=feed, fetch_list=[loss])[0] for feed in feeds[1:]]
    np.testing.assert_array_equal(found, expected)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        program, names, targets = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        assert "cast" in [op.type for op in program.global_block().ops]
        (rows,) = exe.run(program, feed={names[0]: feeds[0]["x"]}, fetch_list=targets)
    np.testing.assert_allclose(rows.sum(axis=1), np.ones(12), rtol=1e-5)


def test_halves_do_not_outlive_the_step():
    main, startup, *_ = classifier(True, momentum)
    names = {var.name for var in (*main.list_vars(), *startup.list_vars()) if var.persistable}
    assert not [name for name in names if "cast" in name]


def test_loader_whose_queue_is_in_no_program():
    """Paddle 1.8.5 cannot decorate such a program: the queue is no variable of its block."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
        loss = layers.mean(layers.fc(x, 2))
        amp.decorate(momentum()).minimize(loss)
    loader.set_batch_generator(lambda: iter([[np.ones((2, 4), "float32")]]), fluid.CPUPlace())
    exe = fluid.Executor()
    exe.run(startup)
    loader.start()
    (value,) = exe.run(main, fetch_list=[loss])
    weight = fluid.io.get_parameter_value(main.all_parameters()[0], exe)
    assert np.isfinite(value) and np.isfinite(weight).all()
    assert "mul" in [op.type for op in main.global_block().ops if "fp16" in str(op.inputs)]


# ---- lists


def test_lists_of_the_user_move_types():
    lists = amp.AutoMixedPrecisionLists({"softmax", "tanh"}, {"mul", "relu"}, {"x"})
    assert {"softmax", "tanh", "conv2d"} <= lists.white_list
    assert {"mul", "relu", "exp"} <= lists.black_list
    assert lists.white_list.isdisjoint(lists.black_list | lists.gray_list)
    assert lists.black_list.isdisjoint(lists.gray_list)
    assert amp.AutoMixedPrecisionLists().white_list == {"conv2d", "matmul", "mul"}


def test_type_in_both_lists_is_refused():
    with pytest.raises(ValueError, match="overlap custom black list: mul"):
        amp.AutoMixedPrecisionLists({"mul"}, {"mul", "relu"})


@pytest.mark.parametrize("added", [False, True], ids=["", "in NumPy"])
def test_bfloat16_is_refused_by_name(added):
    if added:
        pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match=r"bfloat16[\s\S]*float16"):
        fluid.data("x", [None, 2], "bfloat16")
