"""Matrix products of oneDNN, with and without rounded operands, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from tests.engine.run.nets import assert_same_bits, batches, classifier, train

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine import kernels
from dpexec.engine.kernels import onednn, products, tables
from dpexec.engine.kernels.lowering import Code, Sized, Value

ROUNDING = 2.0**-8  # relative, of a number in bfloat16
NEEDS_ONEDNN = pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")
NEEDS_HALVES = pytest.mark.skipif(onednn.lacks_halves() != "", reason=onednn.lacks_halves())


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """Code is in use."""
    monkeypatch.setattr(kernels, "available", lambda: True)


@pytest.fixture
def client():
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as c:
        yield c


def run(code, arrays):
    """Run calls on arrays: one for each value; the others get memory of their own."""
    words, table, kept = [], [], []
    for kernel, arguments in code.calls:
        row = []
        for item in arguments:
            if isinstance(item, Value):
                array = arrays.setdefault(item, np.empty(item.shape, item.dtype))
                row.append(array.ctypes.data)
            elif isinstance(item, float):
                row.append(int(np.float64(item).view(np.int64)))
            elif isinstance(item, Sized):
                kept.append(item.at(0))
                row.append(int(kept[-1]))
            else:
                row.append(int(item))
        words.append(np.array(row, np.int64))
        table.append((kernel.address, words[-1].ctypes.data))
    rows = np.array(table, np.int64)
    return tables.run(rows.ctypes.data, 0, len(table)) == len(table)


def product(sizes, flips, alpha=1.0, times=1, apart=(True, True, True), halves=False):
    """A product in code and by NumPy in float64, and the product of the sizes of its operands."""
    m, n, k = sizes
    rng = np.random.default_rng(0)
    shapes = [(k, m) if flips[0] else (m, k), (n, k) if flips[1] else (k, n), (m, n)]
    a, b, out = (
        rng.normal(size=(times if many else 1, *shape)).astype("float32")
        for shape, many in zip(shapes, apart, strict=True)
    )
    code = Code(halves=halves)
    values = {Value(array.shape, array.dtype): array for array in (a, b, out)}
    products.matrix_product(code, *values, sizes, flips, alpha, times, apart)
    assert run(code, values)
    left, right = (
        array.astype("float64").swapaxes(1, 2) if flip else array.astype("float64")
        for array, flip in zip((a, b), flips, strict=True)
    )
    expected, size = alpha * left @ right, abs(alpha) * abs(left) @ abs(right)
    if not apart[2]:
        expected, size = (total.sum(0, keepdims=True) for total in (expected, size))
    return out, expected, size


CASES = [
    ((5, 7, 3), {}),
    ((5, 1, 40), {}),
    ((5, 7, 3), {"alpha": -0.125}),
    ((4, 6, 8), {"times": 3}),
    ((4, 1, 8), {"times": 3, "alpha": 2.0}),
    ((4, 6, 8), {"times": 3, "apart": (False, True, True)}),
    ((4, 1, 8), {"times": 3, "apart": (True, False, True)}),
    ((4, 6, 8), {"times": 3, "apart": (True, True, False)}),
    ((4, 6, 8), {"times": 1, "apart": (True, True, False)}),
    ((64, 512, 16), {}),
]


@pytest.mark.parametrize("flips", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize(("sizes", "options"), CASES)
@pytest.mark.parametrize("library", [True, False])
def test_product(sizes, flips, options, library, monkeypatch):
    if not library:
        monkeypatch.setattr(onednn, "available", lambda: False)
    out, expected, size = product(sizes, flips, **options)
    np.testing.assert_array_less(abs(out - expected), 1e-6 * size)


@NEEDS_ONEDNN
@pytest.mark.parametrize("sizes", [(512, 1024, 40), (40, 512, 2048), (1024, 40, 24)])
@pytest.mark.parametrize("flips", [(a, b) for a in (False, True) for b in (False, True)])
def test_spread_operands_give_the_same_bits(sizes, flips, monkeypatch):
    results = []
    for copies in (True, False):
        monkeypatch.setattr(onednn, "copies_operands", lambda copies=copies: copies)
        results.append(product(sizes, flips)[0].tobytes())
    assert results[0] == results[1]


@NEEDS_HALVES
@pytest.mark.parametrize("flips", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_product_of_rounded_operands(sizes, flips, options):
    out, expected, size = product(sizes, flips, halves=True, **options)
    np.testing.assert_array_less(abs(out - expected), 2.01 * ROUNDING * size)


@NEEDS_ONEDNN
@pytest.mark.parametrize("flip", [False, True])
def test_a_product_of_long_rows_needs_no_primitive(flip, monkeypatch):
    monkeypatch.setattr(onednn, "product", None)
    out, expected, size = product((33, 130, 2100), (flip, True), alpha=0.5)
    np.testing.assert_array_less(abs(out - expected), 1e-6 * size)


@NEEDS_HALVES
def test_an_operand_is_rounded_once_until_it_changes():
    code = Code(halves=True)
    x, w, out = (Value((4, 4), np.dtype("float32")) for _ in range(3))
    for _ in range(2):
        products.matrix_product(code, x, w, out, (4, 4, 4))
    assert len(code.calls) == 4
    code.changed(w)
    products.matrix_product(code, x, w, out, (4, 4, 4))
    assert len(code.calls) == 6


# ---- BuildStrategy.product_precision


def digits():
    """A small net that reads handwritten digits, and its batches."""
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 64])
        y = fluid.data("y", [None, 1], "int64")
        h = fluid.layers.fc(fluid.layers.fc(x, 64, act="relu"), 32, act="tanh")
        found = fluid.layers.fc(h, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(found, y))
        right = fluid.layers.accuracy(found, y)
        test = main.clone(for_test=True)
        fluid.optimizer.Adam(0.01).minimize(loss)
    feeds = [
        {"x": images[i : i + 256], "y": labels[i : i + 256, None].astype("int64")}
        for i in range(0, 1792, 256)
    ]
    return main, startup, loss, test, right, feeds


def accuracy(precision):
    """Of the test set, and the loss of the last step, after training on two devices."""
    main, startup, loss, test, right, feeds = digits()
    build = fluid.BuildStrategy()
    build.product_precision = precision
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build, places=fluid.cpu_places(2)
        )
        for _ in range(12):
            for feed in feeds[:5]:
                (value,) = exe.run(compiled, feed=feed, fetch_list=[loss])
        got = [exe.run(test, feed=feed, fetch_list=[right])[0] for feed in feeds[5:]]
    return np.mean(got), np.mean(value)


@NEEDS_HALVES
def test_training_with_rounded_operands_is_as_accurate():
    single, loss = accuracy("float32")
    half, half_loss = accuracy("bfloat16")
    assert single > 0.9
    assert abs(single - half) < 0.01
    assert half_loss != loss  # it did compute in another precision
    assert abs(half_loss - loss) < 0.02


@NEEDS_HALVES
def test_rounded_operands_on_a_cluster_give_the_same_bits(client):
    options = {"product_precision": "bfloat16"}
    local = train(classifier(), batches(3), 2, **options)
    assert_same_bits(local, train(classifier(), batches(3), 2, scheduler=client, **options))
    plain = train(classifier(), batches(3), 2)
    assert not np.array_equal(local.losses, plain.losses)
    np.testing.assert_allclose(local.losses, plain.losses, rtol=0.02)


def test_precision_has_three_names():
    with pytest.raises(ValueError, match="'float32' or 'bfloat16' or 'tf32', but received"):
        fluid.BuildStrategy().product_precision = "float16"


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(onednn, "available", lambda: False)
    with pytest.raises(RuntimeError, match=r"product_precision.*oneDNN is not installed"):
        accuracy("bfloat16")


@NEEDS_ONEDNN
def test_missing_instructions_are_named(monkeypatch):
    monkeypatch.setattr(onednn, "_HALVES_IN_HARDWARE", 1 << 30)
    with pytest.raises(RuntimeError, match=r"product_precision.*AVX512_BF16 or AMX_BF16"):
        accuracy("bfloat16")


def test_rounding_needs_code(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    with pytest.raises(RuntimeError, match=r"product_precision.*dpexec\[fast\]"):
        accuracy("bfloat16")


# ---- biases


@NEEDS_ONEDNN
@pytest.mark.parametrize("halves", [False, pytest.param(True, marks=NEEDS_HALVES)])
@pytest.mark.parametrize(
    ("sizes", "times"), [((32, 200, 784), 1), ((5, 7, 300), 1), ((4, 6, 8), 3)]
)
def test_a_bias_is_added_with_the_same_bits(sizes, times, halves):
    m, n, k = sizes
    rng = np.random.default_rng(0)
    shapes = [(times, m, k), (times, k, n), (n,)]
    x, w, b = (rng.normal(size=shape).astype("float32") for shape in shapes)
    results = []
    for added in (False, True):
        code, out = Code(halves=halves), np.empty((times, m, n), "float32")
        values = {Value(array.shape, array.dtype): array for array in (x, w, out, b)}
        *operands, bias = values
        code.bias = bias if added else None
        assert products.matrix_product(code, *operands, sizes, times=times)
        assert run(code, values)
        results.append(out)
    assert np.array_equal(results[0] + b, results[1])


def linear(axis=-1, shared=False):
    """A net of one layer, square, whose product may have another reader."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [6, 6])
        weight, bias = (
            fluid.layers.create_parameter(shape, "float32", f"p{len(shape)}",
                default_initializer=fluid.initializer.Uniform(-1.0, 1.0))
            for shape in ([6, 6], [6])
        )  # fmt: skip
        total = fluid.layers.mul(x, weight)
        out = fluid.layers.elementwise_add(total, bias, axis=axis, act="relu")
        if shared:
            out = fluid.layers.elementwise_mul(out, total)
        loss = fluid.layers.mean(out)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss, total


@NEEDS_ONEDNN
@pytest.mark.parametrize(
    ("options", "together"), [({}, True), ({"axis": 0}, False), ({"shared": True}, False)]
)
def test_products_with_a_bias_train_as_on_numpy(options, together, monkeypatch):
    biases, multiply = [], products.matrix_product

    def spy(code, *rest, **options):
        made = multiply(code, *rest, **options)
        biases.append(made and code.bias is not None)
        return made

    monkeypatch.setattr(products, "matrix_product", spy)
    found = []
    for native_kernels, fetch_product in ((True, False), (True, True), (False, True)):
        main, startup, loss, total = linear(**options)
        build = fluid.BuildStrategy()
        build.native_kernels = native_kernels
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            compiled = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, build, places=fluid.cpu_places(1)
            )
            x = np.random.default_rng(0).normal(size=(6, 6)).astype("float32")
            fetch = [loss, total] if fetch_product else [loss]
            values = [exe.run(compiled, feed={"x": x}, fetch_list=fetch) for _ in range(4)]
            found.append(values)
        if native_kernels:
            assert any(biases) == (together and not fetch_product)
            biases.clear()
    fused, fetched, plain = found
    assert np.array_equal([v[0] for v in fused], [v[0] for v in fetched])
    for mine, numpys in zip(fetched, plain, strict=True):
        np.testing.assert_allclose(mine[0], numpys[0], rtol=1e-5)
        np.testing.assert_allclose(mine[1], numpys[1], rtol=1e-5, atol=1e-6)
