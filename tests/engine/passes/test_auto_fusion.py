"""Fusion of elementwise operators: which are fused, with the same bits."""

import json

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir import opdef
from dpexec.engine.passes import AutoFusion, PassManager
from tests.engine.passes.chains import CHAINS, WIDTH, chain, chain_batches
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, train

ON = {"enable_auto_fusion": True}


def rewritten(program, kept=()):
    manager = PassManager([], [AutoFusion()])
    return manager.rewrite(Operators(program, kept)), manager.records[0]


def groups(program, kept=()):
    """The types of the parts of every group."""
    operators, _ = rewritten(program, kept)
    found = (op for op in operators.ops if op.type == "fusion_group")
    return [[json.loads(part)["type"] for part in op.attr("parts")] for op in found]


def made(build):
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        build(fluid.data("x", [None, WIDTH], "float32"))
    return main


def test_chain_becomes_one_operator_in_both_directions():
    net = chain("gelu")
    _, record = rewritten(net.main)
    forward, *of_loss, backward = groups(net.main)
    assert len(forward) == 10 and forward.count("elementwise_mul") == 3 and "tanh" in forward
    assert {"tanh_grad", "sum", "elementwise_mul_grad"} <= set(backward)
    assert record.modified and len(record.removed) == sum(map(len, groups(net.main)))
    assert {text.split(" ->")[0] for text in record.added} == {"fusion_group"}
    assert len(record.added) == len(of_loss) + 2


def test_intermediate_values_are_gone_unless_they_are_kept():
    main = made(lambda x: fluid.layers.exp(fluid.layers.tanh(x * 2.0)))
    operators, _ = rewritten(main)
    (op,) = operators.ops
    assert op.input("Inputs") == ["x"] and op.output("Outs") == ["exp_0.tmp_0"]
    assert operators.removed == {"tmp_0", "tanh_0.tmp_0"}
    (op,) = rewritten(main, kept=["tanh_0.tmp_0"])[0].ops
    assert op.output("Outs") == ["tanh_0.tmp_0", "exp_0.tmp_0"]


def test_bias_and_activation_are_one_operator():
    main = made(lambda x: fluid.layers.fc(fluid.layers.fc(x, 4, act="tanh"), 4))
    assert groups(main) == [["elementwise_add", "tanh"]]


def test_shape_alone_is_no_reason_to_keep_a_value():
    operators, _ = rewritten(chain("gelu").main)
    backward = [op for op in operators.ops if op.type == "fusion_group"][-1]
    assert "fc_0.tmp_0" not in backward.input("Inputs")  # the product without bias
    assert backward.role_var == ["fc_0.b_0", "fc_0.b_0@GRAD"]


def test_group_ends_where_something_else_reads_it():
    def body(x):
        twice = fluid.layers.tanh(x * 2.0)
        product = fluid.layers.matmul(twice, twice, transpose_y=True)
        fluid.layers.exp(twice)
        fluid.layers.sqrt(fluid.layers.abs(product))

    assert groups(made(body)) == [["scale", "tanh"], ["abs", "sqrt"]]


def test_group_ends_before_its_input_changes():
    def body(x):
        counter = fluid.layers.fill_constant([1], "float32", 1.0)
        once = fluid.layers.tanh(fluid.layers.scale(counter, 2.0))
        fluid.layers.increment(counter)
        fluid.layers.exp(once)

    assert groups(made(body)) == [["scale", "tanh"]]


def test_integers_and_lonely_operators_stay():
    def body(x):
        number = fluid.data("n", [None, 1], "int64")
        fluid.layers.scale(fluid.layers.scale(number, 2.0), 2.0)
        fluid.layers.tanh(x)

    operators, record = rewritten(made(body))
    assert not record.modified and len(operators.ops) == 3


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("mode", "devices"), [(AllReduce, 1), (AllReduce, 2), (Reduce, 2)])
@pytest.mark.parametrize("name", CHAINS)
def test_bits_stay(name, mode, devices, native):
    options = {"native_kernels": native}
    found = [
        train(chain(name), chain_batches(2), devices, mode, **options, **on) for on in ({}, ON)
    ]
    assert_same_bits(*found)
    assert "fusion_group" in found[1].compiled._engine.graph.counts()["ops"]


def test_softmax_of_long_rows_is_part_of_the_kernel(monkeypatch):
    softmax = pytest.importorskip("dpexec.engine.kernels.softmax", reason="needs numba")
    rows = []
    plain = train(chain("attention"), chain_batches(2))
    for length in (10**9, 1):
        monkeypatch.setattr(softmax, "_LONG_ROW", length)
        found = train(chain("attention"), chain_batches(2), **ON)
        assert_same_bits(found, plain)
        (binding,) = found.compiled._engine.bindings.kept
        rows.append(sum(step.code.rows for steps in binding.steps for step in steps if step.code))
    assert rows[0] - rows[1] == 4  # what is before and behind it, forward and backward


@pytest.mark.parametrize("name", CHAINS)
def test_batches_of_other_sizes_share_the_code(name):
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    feeds = [feed for rows in (6, 7, 9, 12) for feed in chain_batches(1, rows)]
    found = [train(chain(name), feeds, 2, **on) for on in ({}, ON)]
    assert_same_bits(*found)
    assert all(run.compiled._engine.bindings.kept[-1].rows for run in found)


def test_fetch_of_a_value_that_was_fused_away():
    net, (feed,) = chain("norm"), chain_batches(1)
    values = []
    for options in ({}, ON):
        run = train(net, [feed], 2, **options)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(run.scope):
            fetched = ["sqrt_0.tmp_0", "sqrt_0.tmp_0@GRAD", net.loss]
            values.append(exe.run(run.compiled, feed=feed, fetch_list=fetched))
    for plain, fused in zip(*values, strict=True):
        assert np.array_equal(plain, fused)


def test_every_type_is_an_operator_with_a_kernel():
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    from dpexec.engine.kernels import implementations

    fusible = opdef.types_where(lambda definition: definition.fuses)
    found = {type for type in fusible if implementations.find(type, "code") is None}
    assert fusible and found == set()


def wild(seed):
    """A program of random operators on values of several shapes."""
    rng = np.random.RandomState(seed)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    one = ("tanh", "sigmoid", "square", "relu", "softsign", "softmax")
    two = ("elementwise_add", "elementwise_mul", "elementwise_sub", "elementwise_max")
    layers = fluid.layers
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, WIDTH], "float32")
        start = layers.fc(x, WIDTH)
        values = [start, layers.create_parameter([WIDTH], "float32"), layers.fc(x, 1)]
        for _ in range(12):
            a = values[rng.randint(len(values))]
            kind = rng.randint(4)
            if kind == 0:
                values.append(getattr(layers, one[rng.randint(len(one))])(a))
            elif kind == 1 and len(a.shape) == 2:
                values.append(layers.reduce_sum(a, dim=-1, keep_dim=True) * 0.1)
            else:
                b = values[rng.randint(len(values))]
                big, small = sorted((a, b), key=lambda v: (len(v.shape), v.shape[-1]))[::-1]
                values.append(getattr(layers, two[rng.randint(len(two))])(big, small))
        loss = layers.mean(layers.sums([layers.reduce_mean(value) for value in values[-4:]]))
        fluid.optimizer.SGD(0.01).minimize(loss)
    return Net(main, startup, loss, None, None)


@pytest.mark.parametrize("seed", range(3))
def test_bits_stay_for_random_programs(seed):
    assert_same_bits(*(train(wild(seed), chain_batches(2), 2, **on) for on in ({}, ON)))


@pytest.mark.parametrize("rows", [1, 2])
def test_results_that_are_operands_themselves_are_not_overwritten(rows):
    """With one row, the gradient of what is added to every row is the gradient of the sum."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    layers = fluid.layers
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = layers.scale(layers.tanh(layers.fc(fluid.data("x", [None, WIDTH]), WIDTH)), 2.0)
        moved = layers.elementwise_add(hidden, layers.create_parameter([WIDTH], "float32"))
        loss = layers.mean(layers.tanh(layers.fc(moved, 1)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    net = Net(main, startup, loss, None, None)
    assert_same_bits(*(train(net, chain_batches(3, rows), 1, **on) for on in ({}, ON)))
