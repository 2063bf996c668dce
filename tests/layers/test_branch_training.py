"""Optimizers in branches: fluid 1.8's multi-task example, compared with Paddle."""

import contextlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers, optimizer
from dpexec.initializer import NumpyArrayInitializer

RNG = np.random.RandomState(0)
FEEDS = [
    {
        "x": RNG.rand(6, 4).astype("float32"),
        "y": RNG.randint(0, 3, (6, 1)),
        "z": RNG.rand(6, 1).astype("float32"),
        "task": np.array([1 + i % 2], "int32"),
    }
    for i in range(4)
]


@contextlib.contextmanager
def new_program():
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with programs, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(autouse=True)
def programs():
    with new_program():
        yield


def weights(name, seed, *shape):
    values = np.random.RandomState(seed).randn(*shape).astype("float32")
    return fluid.ParamAttr(name, initializer=NumpyArrayInitializer(values))


def tasks(first, second, inside=True):
    """A condition, and two tasks that share a layer: classes, and numbers."""
    x, y = layers.data("x", [4]), layers.data("y", [1], dtype="int64")
    z, task = layers.data("z", [1]), layers.data("task", [1], False, "int32")
    hidden = layers.fc(x, 5, act="tanh", param_attr=weights("w0", 3, 4, 5))

    def classes():
        digit = layers.fc(hidden, 3, act="softmax", param_attr=weights("w1", 1, 5, 3))
        return layers.mean(layers.cross_entropy(digit, y))

    def numbers():
        number = layers.fc(hidden, 1, param_attr=weights("w2", 2, 5, 1))
        return layers.mean(layers.square_error_cost(number, z))

    def minimizing(make, loss, how):
        def branch():
            found = make() if loss is None else loss
            how().minimize(found)
            return found

        return branch

    outside = (None, None) if inside else (classes(), numbers())
    return task, (
        minimizing(classes, outside[0], first),
        minimizing(numbers, outside[1], second),
    )


def chosen(kind, task, branches):
    one = layers.fill_constant([1], "int32", 1)
    if kind == "cond":
        return layers.cond(layers.equal(task, one), *branches)
    if kind == "case":
        return layers.case([(layers.equal(task, one), branches[0])], branches[1])
    return layers.switch_case(task, {1: branches[0]}, branches[1])


def run(loss, devices=0, feeds=FEEDS):
    """The losses; and the sums of the weights in the end."""
    exe, program = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()
    exe.run(fluid.default_startup_program())
    if devices:
        places = fluid.cpu_places(devices)
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name, places=places)
    losses = [exe.run(program, feed=feed, fetch_list=[loss])[0].item() for feed in feeds]
    found = (fluid.global_scope().find_var(name) for name in ("w0", "w1", "w2"))
    return losses, [float(np.array(var.get_tensor()).sum()) for var in found if var is not None]


def sgd():
    return optimizer.SGD(0.1)


RECORDED = {
    "Adam": ([2.070496, 2.486156, 1.682862, 4.240385], [-2.79856, -1.22477, -2.47231]),
    "Momentum": ([2.070496, 4.704650, 1.717410, 5.043123], [-2.04206, -1.14214, -2.19935]),
    "Adagrad": ([2.070496, 2.486182, 1.898100, 2.907330], [-0.705366, -1.28452, -2.26569]),
    "Adamax": ([2.070496, 2.486145, 1.898098, 2.871796], [-0.285426, -1.36479, -2.28647]),
    "DecayedAdagrad": ([2.070496, 14.497218, 0.954661, 3.839947], [-5.78519, -1.85917, -1.6608]),
    "Adadelta": ([2.070496, 5.020378, 3.114195, 5.878617], [-1.63906, -1.15976, -2.74916]),
    "RMSProp": ([2.070496, 14.127274, 0.955350, 3.905200], [-5.93777, -1.89075, -1.631]),
    "Ftrl": ([2.070496, 2.486145, 1.898099, 1.445498], [-0.846006, -1.28452, -2.3259]),
    "Lamb": ([2.070496, 2.209606, 1.545346, 0.723291], [-1.61785, -1.27658, -1.91417]),
    "LarsMomentum": ([2.070496, 5.027858, 3.007523, 4.663587], [-1.80818, -1.14214, -2.76174]),
}
"""Losses and sums of weights in Paddle 1.8.5; both tasks have it, but beside Adam SGD."""

MOMENTUM = {"Momentum": {"momentum": 0.9}, "LarsMomentum": {"momentum": 0.9}}


@pytest.mark.parametrize("name", RECORDED)
def test_optimizers_train_the_task_of_a_batch(name):
    def make():
        return getattr(optimizer, name)(0.1, **MOMENTUM.get(name, {}))

    task, branches = tasks(make, sgd if name == "Adam" else make)
    losses, sums = run(chosen("cond", task, branches))
    np.testing.assert_allclose(losses, RECORDED[name][0], rtol=3e-6)
    np.testing.assert_allclose(sums, RECORDED[name][1], rtol=2e-5)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", ["cond", "case", "switch_case"])
@pytest.mark.parametrize("devices", [0, 1])
def test_branches_of_all_kinds_train(kind, inside, devices):
    task, branches = tasks(lambda: optimizer.Adam(0.1), sgd, inside)
    losses, sums = run(chosen(kind, task, branches), devices)
    np.testing.assert_allclose(losses, RECORDED["Adam"][0], rtol=1e-6)
    np.testing.assert_allclose(sums, RECORDED["Adam"][1], rtol=1e-5)


def test_operators_stand_where_paddle_has_them():
    task, branches = tasks(sgd, sgd)
    chosen("cond", task, branches)
    blocks = fluid.default_main_program().blocks
    assert [(b.parent_idx, b.forward_block_idx) for b in blocks] == [
        (-1, -1), (0, -1), (0, 1), (0, -1), (0, 3),
    ]  # fmt: skip
    assert [op.type for op in blocks[0].ops] == [
        "mul", "elementwise_add", "tanh", "fill_constant", "equal", "conditional_block",
        "conditional_block_grad", "logical_not", "conditional_block", "conditional_block_grad",
        "cast", "select_input",
    ]  # fmt: skip
    assert [op.type for op in blocks[4].ops] == [
        "fill_constant", "mean_grad", "square_grad", "elementwise_sub_grad",
        "elementwise_add_grad", "mul_grad", "tanh_grad", "elementwise_add_grad", "mul_grad",
        "sgd", "sgd", "sgd", "sgd",
    ]  # fmt: skip


def decay():
    return fluid.regularizer.L2Decay(0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizer.Momentum(0.1, 0.9, regularization=decay()),
        lambda: optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)),
        lambda: optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.01)),
        lambda: optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(0.01)),
        lambda: optimizer.SGD(layers.exponential_decay(0.1, 2, 0.5)),
        lambda: optimizer.SGD(layers.piecewise_decay([1, 2], [0.1, 0.2, 0.3])),
        lambda: optimizer.LookaheadOptimizer(optimizer.SGD(0.1), k=2),
        lambda: optimizer.Adam(0.1, lazy_mode=True),
        lambda: optimizer.DecayedAdagrad(0.1),
    ],
)
def test_a_branch_that_always_runs_is_no_branch(make):
    feeds = [{**feed, "task": FEEDS[0]["task"]} for feed in FEEDS * 2]
    losses = []
    for branch in (True, False):
        with new_program():
            task, branches = tasks(make, sgd)
            loss = chosen("cond", task, branches) if branch else branches[0]()
            losses.append(run(loss, feeds=feeds)[0])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_rows_of_tables_are_trained_in_branches(is_sparse):
    losses = []
    for branch in (True, False):
        with new_program():
            words = layers.data("words", [1], dtype="int64")
            table = weights("w0", 1, 7, 3)
            number = layers.embedding(words, [7, 3], is_sparse, param_attr=table)
            number = layers.fc(number, 1, param_attr=weights("w1", 2, 3, 1))
            loss = layers.mean(layers.square(number))
            yes = layers.fill_constant([1], "bool", True)
            train = _minimizing(loss)
            found = layers.cond(yes, train, lambda loss=loss: loss) if branch else train()
            feeds = [{"words": np.array([[1], [4], [1], [step]])} for step in range(4)]
            losses.append(run(found, feeds=feeds)[0])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def _minimizing(loss):
    def train():
        optimizer.Adam(0.1).minimize(loss)
        return loss

    return train


def test_a_failing_branch_changes_nothing():
    task, branches = tasks(sgd, sgd)
    loss = chosen("cond", task, branches)
    run(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    before = np.array(scope.find_var("w0").get_tensor())
    wrong = {**FEEDS[0], "y": np.full((6, 1), 9)}
    with pytest.raises(fluid.core.EnforceNotMet, match="cross_entropy"):
        exe.run(feed=wrong, fetch_list=[loss])
    np.testing.assert_array_equal(scope.find_var("w0").get_tensor(), before)


def test_devices_cannot_take_branches_of_their_own():
    task, branches = tasks(sgd, sgd)
    with pytest.raises(NotImplementedError, match="training on multi-places is not supported"):
        run(chosen("cond", task, branches), 2)


def test_a_clone_for_testing_does_not_train():
    task, branches = tasks(sgd, sgd)
    loss = chosen("cond", task, branches)
    test = fluid.default_main_program().clone(for_test=True)
    assert not [op for b in test.blocks for op in b.ops if "grad" in op.type or op.type == "sgd"]
    run(loss)
    before = np.array(fluid.global_scope().find_var("w0").get_tensor())
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(test, feed=FEEDS[0], fetch_list=[loss.name])[0].shape == (1,)
    np.testing.assert_array_equal(fluid.global_scope().find_var("w0").get_tensor(), before)


def test_a_pruned_run_trains():
    task, branches = tasks(sgd, sgd)
    loss = chosen("cond", task, branches)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    args = {"feed": FEEDS[0], "fetch_list": [loss], "use_prune": True}
    assert exe.run(**args)[0] > exe.run(**args)[0]


def test_a_block_of_a_program_takes_a_loss():
    program = fluid.default_main_program()
    x = layers.data("x", [4])
    block = program._create_block()
    loss = layers.mean(layers.fc(x, 1))
    updates, pairs = sgd().minimize(loss)
    program._rollback()
    assert [op.type for op in updates] == ["sgd", "sgd"]
    assert len(pairs) == 2
    beside = program.block(block.backward_block_idx)
    assert (beside.parent_idx, [op.type for op in beside.ops[-2:]]) == (0, ["sgd", "sgd"])
    assert not [op for op in block.ops if op.type.endswith("_grad")]


def test_loops_and_complete_blocks_take_none():
    x = layers.data("x", [4])
    step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    condition = layers.less_than(step, last)
    loop, losses = layers.While(condition), []

    def train():
        with loop.block():
            losses.append(layers.mean(layers.fc(x, 1)))
            layers.less_than(layers.increment(step), last, cond=condition)
            sgd().minimize(losses[0])

    with pytest.raises(NotImplementedError, match="minimized inside while"):
        train()
    losses.clear()
    with loop.block():
        losses.append(layers.mean(layers.fc(x, 1)))
        layers.less_than(layers.increment(step), last, cond=condition)
    with pytest.raises(NotImplementedError, match="block that is complete"):
        sgd().minimize(losses[0])
