"""Variables of ``layers.data`` take the type of what is fed, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.core import EnforceNotMet
from dpexec.engine.ir.operator import Operator

X = np.arange(6, dtype="float32").reshape(3, 2)
NUMBERS = np.array([[1], [2], [0]])
data = layers.data


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def run(out, feeds, devices=0, native=True):
    """What a variable is with each of some feeds."""
    strategy, exe = fluid.BuildStrategy(), fluid.Executor(fluid.CPUPlace())
    strategy.native_kernels = native
    program = fluid.CompiledProgram(fluid.default_main_program(), strategy)
    if devices:
        program = program.with_data_parallel(places=fluid.cpu_places(devices))
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return [exe.run(program, feed=feed, fetch_list=[out])[0] for feed in feeds]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64", "uint8", "float32"])
@pytest.mark.parametrize("devices", [0, 2])
def test_a_variable_takes_the_type_that_is_fed(dtype, devices):
    out = layers.scale(data("x", [2]), 2.0)
    fed = (X[:2].astype(dtype), X.astype(dtype), X.astype(dtype), X[:2])
    found = run(out, [{"x": x} for x in fed], devices)
    assert [str(array.dtype) for array in found] == [dtype] * 3 + ["float32"]
    np.testing.assert_array_equal(found[1], X * 2)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x, i: layers.gather(x, i), X[[1, 2, 0]]),
        (lambda x, i: layers.gather_nd(x, i), X[[1, 2, 0]]),
        (lambda x, i: layers.gather(x, layers.reshape(i, [-1])), X[[1, 2, 0]]),
        (lambda x, i: layers.gather(x, i + i - i), X[[1, 2, 0]]),
        (lambda x, i: layers.scatter(x, layers.reshape(i, [-1]), x), X[[2, 0, 1]]),
        (lambda x, i: layers.sequence_mask(layers.reshape(i, [-1]), 2), [[1, 0], [1, 1], [0, 0]]),
        (lambda x, i: layers.cast(i, "float64"), NUMBERS),
        (lambda x, i: layers.reduce_sum(i), [3]),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_numbers_of_rows_may_be_declared_as_anything(make, expected, native):
    out = make(data("x", [2]), data("i", [-1, 1]))
    for found in run(out, [{"x": X, "i": NUMBERS}] * 3, native=native):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("native", [True, False])
def test_labels_may_be_declared_as_anything(native):
    digit = layers.softmax(data("x", [2]))
    label = data("label", [1])
    losses = layers.cross_entropy(digit, label)
    both = layers.softmax_with_cross_entropy(data("x", [2]), label)
    feed = {"x": X, "label": NUMBERS % 2}
    chosen = np.exp(X)[[0, 1, 2], [1, 0, 0]] / np.exp(X).sum(axis=1)
    for found in (*run(losses, [feed] * 2, native=native), *run(both, [feed] * 2, native=native)):
        np.testing.assert_allclose(found[:, 0], -np.log(chosen), rtol=1e-5)
    hits = layers.accuracy(digit, label)
    assert run(hits, [feed])[0] == np.float32(1 / 3)


def test_shapes_and_conditions_may_be_declared_as_anything():
    x = data("x", [2])
    shape = layers.reshape(x, [2, 3], actual_shape=data("shape", [2], False))
    found = run(shape, [{"x": X, "shape": np.array([2, 3], "int32")}])[0]
    np.testing.assert_array_equal(found, X.reshape(2, 3))
    places = layers.where(data("yes", [1]))
    yes = {"x": X, "shape": np.array([2, 3], "int32"), "yes": NUMBERS > 0}
    assert run(places, [yes])[0].tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("make", "fed", "operator"),
    [
        (lambda x, i: layers.gather(x, i), "float32", "gather: Index float32"),
        (lambda x, i: layers.tanh(i), "int64", "tanh: X int64"),
        (lambda x, i: layers.softmax(i), "int64", "softmax: X int64"),
        (lambda x, i: layers.relu(i), "int64", "relu: X int64"),
        (lambda x, i: layers.mean(i), "int64", "mean: X int64"),
        (lambda x, i: layers.topk(i, 1)[0], "int64", "top_k: X int64"),
        (lambda x, i: layers.dropout(i, 0.5), "int64", "dropout: X int64"),
        (lambda x, i: layers.elementwise_add(x, i), "int64", "elementwise_add: X and Y must"),
        (lambda x, i: layers.fc(i, 2), "float64", "mul: X and Y must have one data type"),
        (lambda x, i: layers.fc(i, 2), "int64", "mul: X int64"),
    ],
)
def test_what_an_operator_cannot_take_is_refused_when_it_runs(make, fed, operator):
    out = make(data("x", [2]), data("i", [1]))
    with pytest.raises(EnforceNotMet, match=operator) as error:
        run(out, [{"x": X, "i": NUMBERS.astype(fed)}])
    hint = f"'i' is declared as 'float32', but received '{fed}'.*array.astype\\('float32'\\)"
    assert fed == "float32" or error.match(hint)


@pytest.mark.parametrize(
    ("make", "fed", "message"),
    [
        (layers.sqrt, "int64", "operator sqrt: X int64"),
        (layers.sigmoid, "bool", "operator sigmoid: X bool"),
        (layers.mean, "uint8", "operator mean: X uint8"),
        (
            lambda i: layers.gather(i, layers.fill_constant([1], "int64", 0)),
            "int8",
            "gather: X int8",
        ),
        (lambda i: layers.cos_sim(i, i), "float64", "cos_sim: X float64.* but for float32"),
        (
            lambda i: layers.label_smooth(halves(), prior_dist=layers.reduce_sum(i, 0, True)),
            "float64",
            "X and PriorDist must have",
        ),
        (
            lambda i: layers.scale(halves(), layers.reduce_sum(i)),
            "int64",
            "X and ScaleTensor must have",
        ),
    ],
)
@pytest.mark.parametrize("devices", [0, 2])
def test_types_without_a_kernel_are_refused_before_anything_runs(make, fed, message, devices):
    count = layers.create_global_var([1], 0.0, "float32", persistable=True)
    layers.increment(count)
    out = make(data("i", [2]))
    with pytest.raises(EnforceNotMet, match=message) as error:
        run(out, [{"i": X[:2].astype(fed)}], devices)
    assert error.match("made by File .*test_fed_types.py")
    assert np.array(fluid.global_scope().find_var(count.name).get_tensor()) == [0]


def zero():
    return layers.fill_constant([1], "int64", 0)


def halves():
    return layers.fill_constant([2, 2], "float32", 0.5)


def test_operators_of_a_loop_have_kernels_for_what_is_fed():
    i, number = data("i", [2]), zero()
    last = layers.fill_constant([1], "int64", 2)
    found = layers.while_loop(
        lambda n, _: layers.less_than(n, last),
        lambda n, h: [layers.increment(n, 1, in_place=False), layers.sqrt(i)],
        [number, halves()],
    )
    with pytest.raises(EnforceNotMet, match="operator sqrt: X int64"):
        run(found[1], [{"i": NUMBERS.astype("int64").repeat(2, axis=1)}])


def test_types_that_nobody_feeds_are_refused_when_they_are_declared():
    x = data("x", [2])
    row = layers.fill_constant([1], "float32", 1)
    with pytest.raises(EnforceNotMet, match="gather: Index float32"):
        layers.gather(x, row)
    with pytest.raises(EnforceNotMet, match="gather: Index float32"):
        layers.gather(x, fluid.data("i", [None, 1]))
    with pytest.raises(EnforceNotMet, match="gather: Index float32"):
        layers.gather(x, layers.cast(data("j", [1], dtype="int64"), "float32"))


def test_an_error_of_shapes_is_told_as_declared():
    with pytest.raises(EnforceNotMet, match=r"Index float32\[-1, 2, 3\]"):
        layers.gather(data("x", [2]), data("i", [2, 3]))


def test_checked_and_persistable_variables_keep_their_types():
    out = layers.scale(fluid.data("x", [None, 2]), 2.0)
    with pytest.raises(ValueError, match="'x' must be 'float32', but received 'int64'"):
        run(out, [{"x": X.astype("int64")}])
    rate = layers.create_global_var([1], 0.5, "float32", persistable=True)
    total = rate + 1.0
    with pytest.raises(EnforceNotMet, match="must be 'float32', but received 'float64'"):
        run(total, [{"x": X, rate.name: np.array([0.25])}])


def test_a_wrong_shape_among_many_fed_inputs_is_said_at_once(monkeypatch):
    """With three of 20 types chosen anew at once, it took half a minute."""
    calls, infer = [], Operator.infer_outputs
    monkeypatch.setattr(
        Operator, "infer_outputs", lambda op, specs: calls.append(op) or infer(op, specs)
    )
    inputs = [data(f"x{i}", [4 if i else 5, 3]) for i in range(20)]
    with pytest.raises(EnforceNotMet, match="cannot be concatenated"):
        layers.concat(inputs, axis=2)
    assert len(calls) <= 1 + 20 * 6


def test_three_of_six_fed_inputs_may_have_other_types():
    words = [data(f"i{i}", [1]) for i in range(3)]
    numbers = [data(f"x{i}", [1], dtype="int64") for i in range(3)]
    block = fluid.default_main_program().global_block()
    joined = block.create_var(name="joined")
    block.append_op("concat", {"X": [*words, *numbers]}, {"Out": [joined]}, {"axis": 1})
    assert run(joined, [{f"{n}{i}": NUMBERS for n in "ix" for i in range(3)}])[0].dtype == "int64"
