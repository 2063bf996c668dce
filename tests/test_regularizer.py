"""Weight decay: on which parameters, how much, and for sparse gradients."""

import numpy as np
import pytest

import dpexec as fluid

layers, regularizer = fluid.layers, fluid.regularizer


def decayed(param_attr, **options):
    """Parameter, gradient and decayed gradient after one ``minimize`` of sum(table[ids] ** 2)."""
    ids = fluid.data("ids", [None, 1], dtype="int64")
    rows = layers.embedding(ids, [6, 3], param_attr=param_attr, is_sparse=options.pop("sparse"))
    sgd = fluid.optimizer.SGD(1.0, **options)
    sgd.minimize(layers.reduce_sum(rows * rows))
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        before = np.array(scope.find_var("table").get_tensor())
        executor.run(feed={"ids": np.array([[4], [1], [4]], "int64")})
        after = np.array(scope.find_var("table").get_tensor())
    plain = np.zeros_like(before)
    for row in (4, 1, 4):
        plain[row] += 2 * before[row]
    return before, plain, before - after


@pytest.mark.parametrize("sparse", [False, True])
def test_l2_adds_the_parameter(sparse):
    table, plain, step = decayed("table", regularization=regularizer.L2Decay(0.25), sparse=sparse)
    np.testing.assert_allclose(step, plain + 0.25 * table, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_l1_adds_the_sign(sparse):
    table, plain, step = decayed("table", regularization=regularizer.L1Decay(0.25), sparse=sparse)
    np.testing.assert_allclose(step, plain + 0.25 * np.sign(table), rtol=1e-4, atol=1e-6)


def test_regularizer_of_a_parameter_comes_before_that_of_the_optimizer():
    attr = fluid.ParamAttr("table", regularizer=regularizer.L1Decay(0.5))
    common = regularizer.L2Decay(0.25)
    table, plain, step = decayed(attr, regularization=common, sparse=False)
    np.testing.assert_allclose(step, plain + 0.5 * np.sign(table), rtol=1e-4, atol=1e-6)


def test_sparse_gradient_becomes_dense_under_a_new_name():
    decayed("table", regularization=regularizer.L2Decay(0.25), sparse=True)
    block = fluid.default_main_program().global_block()
    made = block.var("table@GRAD@NEWGRAD@")
    assert made.type == fluid.core.VarDesc.VarType.LOD_TENSOR
    (sgd,) = [op for op in block.ops if op.type == "sgd"]
    assert sgd.input("Grad") == [made.name]


def test_parameter_without_gradient_does_not_decay():
    loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 3))
    (weight, grad), (bias, _) = fluid.optimizer.SGD(0.1).backward(loss)
    pairs = regularizer.append_regularization_ops(
        [(weight, grad), (bias, None)], regularizer.L2Decay(0.1)
    )
    assert pairs == [(weight, grad), (bias, None)]
    ops = fluid.default_main_program().global_block().ops
    assert [op.type for op in ops].count("scale") == 1


@pytest.mark.parametrize("kind", [regularizer.L1Decay, regularizer.L2Decay])
def test_coefficient_must_be_given(kind):
    with pytest.raises(AssertionError):
        kind(None)


def test_names_and_text_are_those_of_fluid():
    assert regularizer.L1Decay is regularizer.L1DecayRegularizer
    assert regularizer.L2Decay is regularizer.L2DecayRegularizer
    assert str(regularizer.L2Decay(0.5)) == "L2Decay, regularization_coeff=0.500000"
