"""Embeddings and sparse gradients in machine code, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from tests.engine.run.nets import (
    AllReduce,
    Net,
    Reduce,
    assert_same_bits,
    train,
    word_batches,
    words,
)

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine import kernels
from dpexec.engine.kernels import implementations, tables
from dpexec.engine.kernels.lowering import Code, Sparse, Value
from dpexec.engine.kernels.sparse import merged

OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adam": lambda: fluid.optimizer.Adam(0.1),
    "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
}


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """Code is in use."""
    monkeypatch.setattr(kernels, "available", lambda: True)


def run(code, arrays):
    """Run calls on arrays: one for each value; the others get memory of their own."""
    words, table = [], []
    for kernel, arguments in code.calls:
        row = []
        for item in arguments:
            if isinstance(item, Value):
                array = arrays.setdefault(item, np.empty(item.shape, item.dtype))
                row.append(array.ctypes.data)
            else:
                row.append(int(item))
        words.append(np.array(row, np.int64))
        table.append((kernel.address, words[-1].ctypes.data))
    rows = np.array(table, np.int64)
    return tables.run(rows.ctypes.data, 0, len(table)) == len(table)


def brought(rows, height):
    """Arrays of a sparse value of the code for SelectedRows."""
    sparse = Sparse.like(rows.shape, rows.dtype, len(rows.row_array) + 2)
    sparse.height = height
    kinds = (rows.row_array, rows.value, np.array([len(rows.row_array)]))
    return sparse, dict(zip(sparse.parts, kinds, strict=True))


@pytest.mark.parametrize("number", [200, 3000])
@pytest.mark.parametrize("height", [1, 7, 2048, 5_000_000])
def test_rows_are_merged_in_the_order_of_appearance(height, number):
    rng = np.random.default_rng(height)
    rows = rng.integers(max(0, height - 30), height, number)
    grad = SelectedRows(rows, height, rng.normal(size=(number, 3)).astype("float32"))
    code = Code()
    sparse, arrays = brought(grad, height)
    out = merged(code, sparse)
    assert run(code, arrays)
    expected: dict[int, np.ndarray] = {}
    for row, value in zip(rows, grad.value, strict=True):
        expected[row] = expected[row] + value if row in expected else value
    count = int(arrays[out.count][0])
    assert arrays[out.rows][:count].tolist() == sorted(expected)
    np.testing.assert_array_equal(
        arrays[out.value][:count], [expected[r] for r in sorted(expected)]
    )


@pytest.mark.parametrize("row", [-1, 7])
@pytest.mark.parametrize("type", ["merge_selected_rows", "sgd"])
def test_wrong_rows_are_refused_before_anything_changes(type, row):
    grad = SelectedRows(np.array([2, row]), 7, np.ones((2, 3), "float32"))
    code = Code()
    sparse, arrays = brought(grad, 7)
    param, rate = Value((7, 3), np.dtype("float32")), Value((1,), np.dtype("float32"))
    arrays |= {param: np.ones((7, 3), "float32"), rate: np.ones(1, "float32")}
    lower = implementations.find(type, "code", sparse=True)
    if type == "sgd":
        lower(code, [param, rate, sparse], [param], {})
    else:
        lower(code, [sparse], [Sparse.like((7, 3), "float32", 2)], {})
    assert not run(code, arrays)
    assert np.all(arrays[param] == 1)


@pytest.mark.parametrize(
    "rows", [([1, 1, 4], [], [8, 0]), ([1, 4], [], [8, 0]), ([5, 5],), ([5, 2],), ([], [])], ids=str
)
def test_sums_have_the_rows_of_all_merged_if_one_comes_twice(rows):
    parts = [
        SelectedRows(np.array(found, np.int64), 9, np.full((len(found), 2), len(found), "float32"))
        for found in rows
    ]
    code, arrays = Code(), {}
    values = []
    for part in parts:
        sparse, found = brought(part, 9)
        values.append(sparse)
        arrays |= found
    out = Sparse.like((9, 2), "float32", 12)
    implementations.find("sum", "code", sparse=True)(code, [values], [out], {})
    assert run(code, arrays)
    expected = opdef.get("sum")(np, parts)
    count = arrays[out.count][0]
    assert arrays[out.rows][:count].tolist() == expected.rows()
    np.testing.assert_array_equal(arrays[out.value][:count], expected.value)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_has_the_same_bits_however_it_is_run(optimizer):
    net, feeds = words(OPTIMIZERS[optimizer]()), word_batches(4, rows=11)
    first = train(net, feeds, 3)
    for options in (
        {"mode": Reduce},
        {"num_threads": 7},
        {"task_granularity": "op"},
        {"mode": Reduce, "task_granularity": "op"},
    ):
        assert_same_bits(first, train(net, feeds, 3, **options))


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_gives_what_it_gives_on_numpy(optimizer, mode):
    net, feeds = words(OPTIMIZERS[optimizer]()), word_batches(4)
    code = train(net, feeds, 2, mode)
    plain = train(net, feeds, 2, mode, native_kernels=False)
    np.testing.assert_allclose(code.losses, plain.losses, rtol=1e-5)
    for name, value in plain.state.items():
        np.testing.assert_allclose(code.state[name], value, atol=2e-5, err_msg=name)


def padded(sparse):
    """Two lookups in one table, of ids that come twice, with padding."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4], "int64")
        y = fluid.data("y", [None, 1], "int64")
        parts = [
            fluid.embedding(x, [12, 5], is_sparse=sparse, padding_idx=2, param_attr="table"),
            fluid.embedding(x, [12, 5], is_sparse=sparse, param_attr="table"),
        ]
        both = fluid.layers.concat(parts, axis=1)
        prediction = fluid.layers.fc(both, 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, main, prediction)


def test_tables_that_are_read_twice_learn_alike_sparse_and_dense():
    feeds = word_batches(4)
    sparse, dense = train(padded(True), feeds, 2), train(padded(False), feeds, 2)
    for name, value in dense.state.items():
        np.testing.assert_allclose(sparse.state[name], value, atol=1e-6, err_msg=name)


def wide_and_deep():
    """Sums over the slots of a deep and a wide table, beside features that need no gradient."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4], "int64")
        y = fluid.data("y", [None, 1], "int64")
        features = fluid.layers.cast(x, "float32")
        deep, wide = (
            fluid.layers.reduce_sum(fluid.embedding(x, [12, width], is_sparse=True), dim=1)
            for width in (5, 1)
        )
        hidden = fluid.layers.fc(fluid.layers.concat([features, deep], axis=1), 7, act="relu")
        score = fluid.layers.sums([fluid.layers.fc(hidden, 1), wide])
        target = fluid.layers.cast(y, "float32") / 3.0
        costs = fluid.layers.sigmoid_cross_entropy_with_logits(score, target)
        loss = fluid.layers.mean(costs)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, main, score)


def test_wide_and_deep_gives_what_it_gives_on_numpy():
    net, feeds = wide_and_deep(), word_batches(4)
    code, plain = train(net, feeds, 2), train(net, feeds, 2, native_kernels=False)
    np.testing.assert_allclose(code.losses, plain.losses, rtol=1e-5)
    for name, value in plain.state.items():
        np.testing.assert_allclose(code.state[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("wrong", [-1, 12])
def test_ids_out_of_range_are_named(wrong):
    feeds = word_batches(1)
    feeds[0]["x"][3, 1] = wrong
    with pytest.raises(EnforceNotMet, match=rf"lookup_table_v2[\s\S]*but got {wrong}"):
        train(words(), feeds, 2)
