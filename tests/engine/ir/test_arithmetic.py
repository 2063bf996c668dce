"""Python's operators on variables: the operators they add, their types and errors."""

import numpy as np
import pytest

import dpexec as fluid


def ops():
    return fluid.default_main_program().global_block().ops


def x(dtype="float32", shape=(None, 4), name="x"):
    return fluid.data(name, list(shape), dtype)


@pytest.mark.parametrize(
    ("expression", "scale", "bias"),
    [
        (lambda v: v + 2, 1.0, 2.0),
        (lambda v: 2 + v, 1.0, 2.0),
        (lambda v: v - 2, 1.0, -2.0),
        (lambda v: 2 - v, -1.0, 2.0),
        (lambda v: v * 2, 2.0, 0.0),
        (lambda v: 2.5 * v, 2.5, 0.0),
        (lambda v: v / 4, 0.25, 0.0),
        (lambda v: -v, -1.0, 0.0),
        (lambda v: v * np.float32(2), 2.0, 0.0),
        (lambda v: np.float64(2) * v, 2.0, 0.0),
        (lambda v: v + True, 1.0, 1.0),
    ],
)
def test_number_becomes_one_scale(expression, scale, bias):
    out = expression(x())
    assert [op.type for op in ops()] == ["scale"]
    assert (ops()[0].attr("scale"), ops()[0].attr("bias")) == (scale, bias)
    assert out.name == "tmp_0"
    assert out.shape == (-1, 4)


@pytest.mark.parametrize(
    ("expression", "types"),
    [
        (lambda v: v**2, ["fill_constant", "elementwise_pow"]),
        (lambda v: 2**v, ["fill_constant_batch_size_like", "elementwise_pow"]),
        (lambda v: 2 / v, ["fill_constant_batch_size_like", "elementwise_div"]),
        (lambda v: v % 2, ["fill_constant", "elementwise_mod"]),
        (lambda v: v < 2, ["fill_constant", "less_than"]),
        (lambda v: v <= 2, ["fill_constant", "less_equal"]),
        (lambda v: v > 2, ["fill_constant", "greater_than"]),
        (lambda v: v >= 2, ["fill_constant", "greater_equal"]),
        (lambda v: v == 2, ["fill_constant", "equal"]),
        (lambda v: v != 2, ["fill_constant", "not_equal"]),
    ],
)
def test_number_becomes_a_constant_where_scale_cannot_do_it(expression, types):
    out = expression(x())
    assert [op.type for op in ops()] == types
    assert out.shape == (-1, 4)


def test_constant_on_the_left_has_the_known_shape():
    _ = 2 / x(shape=(3, 4))
    assert ops()[0].type == "fill_constant"
    assert ops()[0].attr("shape") == [3, 4]


def test_right_operand_is_cast():
    out = x() + x("int64", name="y")
    assert [op.type for op in ops()] == ["cast", "elementwise_add"]
    assert out.dtype == fluid.core.VarDesc.VarType.FP32


def test_division_of_integers_stays_a_division():
    _ = x("int64") / 2
    assert [op.type for op in ops()] == ["fill_constant", "elementwise_div"]


def test_floor_division_of_integers():
    out = x("int64") // 2
    assert [op.type for op in ops()] == ["fill_constant", "elementwise_floordiv"]
    assert out.dtype == fluid.core.VarDesc.VarType.INT64


@pytest.mark.parametrize("calculate", [lambda v: v + 2.5, lambda v: v / 2.5, lambda v: 2.5**v])
def test_fraction_with_integers_is_refused(calculate):
    with pytest.raises(AssertionError, match=r"x holds integers, so 2.5"):
        calculate(x("int64"))


def test_integers_are_compared_with_fractions_as_numbers():
    number = x("int64", shape=(3,))
    found = [number < 0.5, number >= 0.5, number == 0.5, number != np.float32(1.5), number < 1.5]
    exe = fluid.Executor(fluid.CPUPlace())
    smaller, larger, equal, other, below = exe.run(feed={"x": np.arange(3)}, fetch_list=found)
    assert smaller.tolist() == [True, False, False]
    assert larger.tolist() == [False, True, True]
    assert not equal.any() and other.all()
    assert below.tolist() == [True, True, False]


def test_comparison_gives_bools_and_variables_stay_usable_as_keys():
    a, b = x(), x(name="y")
    assert (a < b).dtype == fluid.core.VarDesc.VarType.BOOL
    with pytest.warns(UserWarning, match="equal"):
        assert bool(a == b) is True  # an operator was built, as in fluid
    assert {a: 1, b: 2}[b] == 2


@pytest.mark.parametrize(
    "expression",
    [
        lambda v: v @ v,
        lambda v: len(v),
        lambda v: v + "1",
        lambda v: v + None,
        lambda v: v + np.ones(4),
        lambda v: v < [1],
        lambda v: list(v),
        lambda v: v["a"],
        lambda v: v[...],
    ],
)
def test_senseless_expressions_raise_type_errors(expression):
    with pytest.raises(TypeError):
        expression(x())
    assert ops() == []


def test_comparison_with_other_things_is_false_and_builds_nothing():
    assert x() not in ["x", None]
    assert ops() == []


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (5, 6)),
        (-1, (5, 6)),
        (np.int64(1), (5, 6)),
        (slice(1, 3), (2, 5, 6)),
        (slice(None), (4, 5, 6)),
        ((slice(None), 2), (4, 6)),
        ((slice(1, None), -1, slice(2, 5)), (3, 3)),
        ((0, 1, 2), (1,)),
        (slice(0, 4, 2), (2, 5, 6)),
        (slice(None, None, 2), (2, 5, 6)),
    ],
)
def test_index_gives_the_shape_of_numpy(index, shape):
    assert x(shape=(4, 5, 6))[index].shape == shape


def test_whole_slice_builds_nothing():
    v = x()
    assert v[:] is v


def test_index_by_variable():
    position = fluid.layers.fill_constant([1], "int32", 1)
    out = x(shape=(4, 5))[position]
    op = ops()[-1]
    assert op.type == "slice"
    assert op.input("StartsTensorList") == [position.name]
    assert op.attr("starts") == [-1]
    assert op.attr("infer_flags") == [-1]
    assert out.shape == (5,)


def test_slice_backwards_needs_both_ends():
    with pytest.raises(IndexError, match="both ends"):
        _ = x(shape=(4,))[3::-1]


def test_operators_follow_the_current_role_and_name_scope():
    v = x()
    with fluid.name_scope("part"):
        _ = v + 1
    assert ops()[0].attr("op_namescope") == "/part/"


def test_device_guard_is_noted_on_operators_and_on_their_gradients():
    v = fluid.layers.relu(x())
    with fluid.device_guard(None), fluid.device_guard("gpu"):
        w = v * 2.0
    fluid.gradients(w, v)
    noted = [(op.type, op.attr("op_device")) for op in ops() if op.attr("op_device")]
    assert noted == [("scale", "gpu")] * 2
    with pytest.raises(ValueError, match="received 'tpu'"), fluid.device_guard("tpu"):
        pass


def test_updates_and_states_note_the_device_of_the_first_operator_with_the_parameter():
    """As Paddle 1.8.5; the seed of the gradient has the device of the loss."""
    with fluid.device_guard("gpu"):
        hidden = fluid.layers.fc(x(), 2)
        loss = fluid.layers.mean(hidden + fluid.layers.relu(hidden))
    with fluid.device_guard("cpu"):
        fluid.optimizer.Adam(0.1).minimize(loss)
    noted = {(op.type, op.attr("op_role"), op.attr("op_device")) for op in ops()}
    assert {("fill_constant", 257, "gpu"), ("adam", 2, "gpu"), ("sum", 1, "")} < noted
    assert {device for _, role, device in noted if role == 0} == {"gpu"}
    states = fluid.default_startup_program().global_block().ops
    filled = {op.output_arg_names[0]: op.attr("op_device") for op in states}
    assert filled["fc_0.w_0_moment1_0"] == "gpu"
    assert filled["fc_0.b_0_beta2_pow_acc_0"] == "cpu"
    assert filled["learning_rate_0"] == "cpu"


def test_a_comparison_that_python_takes_as_true_is_said():
    v = x(shape=(1,))
    with pytest.warns(UserWarning, match="tmp_1, the result of greater_than, as true, always"):
        assert v > 0.5
    with pytest.warns(UserWarning, match=r"equal.*layers\.cond"):
        assert v in [x(shape=(1,), name="other")]


def test_whether_there_is_a_variable_may_be_asked():
    v = x()
    assert v and (v + 1)
    assert v in [v]


@pytest.mark.parametrize("operate", [lambda v, a: v * a, lambda v, a: a - v, lambda v, a: v < a])
def test_arrays_of_numpy_are_refused_by_name(operate):
    with pytest.raises(TypeError, match=r"of x got a NumPy array of shape \(3, 4\).*assign"):
        operate(x(name="x"), np.ones((3, 4), "float32"))
