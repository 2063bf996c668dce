"""Sparse embeddings in loops and branches train like dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.dtypes import VarType

layers = fluid.layers
FIRST = np.arange(40, dtype="float32").reshape(10, 4) / 40


def table(ids, is_sparse):
    start = fluid.initializer.NumpyArrayInitializer(FIRST)
    attr = fluid.ParamAttr(name="table", initializer=start)
    return fluid.embedding(ids, [10, 4], is_sparse=is_sparse, param_attr=attr)


def in_dynamic_rnn(words, is_sparse):
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        before = rnn.memory(shape=[4], value=0.5)
        now = layers.tanh(table(word, is_sparse) + before)
        rnn.update_memory(before, now)
        rnn.output(now)
    return layers.sequence_pool(rnn(), "sum")


def in_while(words, is_sparse):
    i = layers.fill_constant([1], "int64", 0)
    i.stop_gradient = True
    end = layers.fill_constant([1], "int64", 3)
    states = layers.array_write(layers.reduce_sum(table(words, is_sparse), dim=0), i)
    running = layers.less_than(i, end)
    loop = layers.While(running)
    with loop.block():
        now = layers.tanh(layers.array_read(states, i) + layers.reduce_sum(table(words, is_sparse)))
        layers.increment(i, 1)
        layers.array_write(now, i, states)
        layers.less_than(i, end, cond=running)
    return layers.array_read(states, end)


def in_branch(words, is_sparse):
    flag = layers.fill_constant([1], "bool", True)
    return layers.cond(
        flag, lambda: table(words, is_sparse), lambda: layers.scale(table(words, is_sparse), 2.0)
    )


def trained(make, is_sparse):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        loss = layers.mean(make(words, is_sparse))
        fluid.optimizer.Adam(0.1).minimize(loss)
    assert main.global_block().var("table@GRAD").type == VarType.LOD_TENSOR
    batch = fluid.create_lod_tensor([[1, 2, 3], [2, 5]], [[3, 2]], fluid.CPUPlace())
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(2):
            exe.run(main, feed={"words": batch}, fetch_list=[loss])
    return np.array(scope.find_var("table").get_tensor())


@pytest.mark.parametrize("make", [in_dynamic_rnn, in_while, in_branch])
def test_sparse_gradients_leave_blocks_as_dense_ones(make):
    dense = trained(make, False)
    assert not np.array_equal(dense[2], FIRST[2])
    np.testing.assert_allclose(trained(make, True), dense, rtol=1e-6)
