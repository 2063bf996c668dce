"""Attributes are converted to the declared type or refused, as in Paddle."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet


def attribute(op_type, name, value):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [3, 4])
        out = main.global_block().create_var(name="out", dtype="float32")
        op = main.global_block().append_op(op_type, {"X": x}, {"Out": out}, {name: value})
    return op.attr(name)


@pytest.mark.parametrize(
    ("op_type", "name", "value", "stored"),
    [
        ("softmax", "axis", np.int64(1), 1),
        ("softmax", "axis", True, 1),
        ("softmax", "axis", np.array([1]), 1),
        ("scale", "scale", 3, 3.0),
        ("scale", "scale", np.float32(1.5), 1.5),
        ("reduce_sum", "keep_dim", 1, True),
        ("reduce_sum", "dim", (1,), [1]),
        ("reduce_sum", "dim", np.array([0, 1]), [0, 1]),
        ("transpose2", "axis", range(2), [0, 1]),
        ("dropout", "dropout_implementation", b"upscale_in_train", "upscale_in_train"),
    ],
)
def test_values_become_the_declared_type(op_type, name, value, stored):
    found = attribute(op_type, name, value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("op_type", "name", "value"),
    [
        ("softmax", "axis", 1.0),
        ("softmax", "axis", 2**40),
        ("softmax", "axis", "1"),
        ("softmax", "axis", [1]),
        ("scale", "scale", "2"),
        ("scale", "scale", [2.0]),
        ("reduce_sum", "keep_dim", "yes"),
        ("reduce_sum", "dim", 1),
        ("reduce_sum", "dim", [1.0]),
        ("dropout", "dropout_implementation", 3),
    ],
)
def test_other_types_are_refused(op_type, name, value):
    with pytest.raises(EnforceNotMet, match=rf"{op_type}: attribute {name} must be"):
        attribute(op_type, name, value)


@pytest.mark.parametrize("value", [object(), {1}, {"a": 1}, [None], [object()]])
def test_what_no_attribute_can_be_is_a_type_error(value):
    with pytest.raises(TypeError, match="attribute axis of operator softmax"):
        attribute("softmax", "axis", value)


def test_an_attribute_without_default_is_required():
    block = fluid.Program().global_block()
    with pytest.raises(EnforceNotMet, match="attribute class_num is required"):
        block.append_op("yolo_box", {}, {}, {})


X = np.arange(12, dtype="float32").reshape(3, 4)


def made(type, attrs, fed=X):
    """An operator with some attributes, and what it makes."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        inputs, feed = {}, {}
        if fed is not None:
            inputs, feed = {"X": fluid.data("x", fed.shape, fed.dtype.name)}, {"x": fed}
        out = block.create_var(name="out")
        block.append_op(type=type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    (found,) = fluid.Executor().run(main, feed=feed, fetch_list=[out])
    copy = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    return {name: copy.global_block().ops[-1].attr(name) for name in attrs}, np.asarray(found)


@pytest.mark.parametrize(
    "value", [np.float32(2.5), np.array(2.5), np.array([2.5], "float32"), np.float64(2.5)], ids=repr
)
def test_one_number(value):
    attrs, out = made("scale", {"scale": value})
    assert attrs == {"scale": 2.5}
    np.testing.assert_array_equal(out, X * np.float32(2.5))


@pytest.mark.parametrize("value", [np.int64(4), np.array(4), np.array([4], "int32")], ids=repr)
def test_one_integer(value):
    attrs, out = made("one_hot", {"depth": value}, np.array([[1], [3]]))
    assert attrs == {"depth": 4} and type(attrs["depth"]) is int
    assert out.argmax(axis=1).tolist() == [1, 3]


@pytest.mark.parametrize("value", [np.bool_(True), np.array(True), np.array([True])], ids=repr)
def test_one_truth(value):
    attrs, out = made("reduce_sum", {"reduce_all": value})
    assert attrs == {"reduce_all": True} and out == 66


@pytest.mark.parametrize(
    "value",
    [np.array([0, 1]), (0, 1), [np.int64(0), np.int32(1)], np.array([0, 1], "int16")],
    ids=repr,
)
def test_several_integers(value):
    attrs, out = made("reduce_sum", {"dim": value})
    assert attrs == {"dim": [0, 1]} and out == 66


@pytest.mark.parametrize(
    ("dtype", "name", "value"),
    [
        (5, "fp32_values", np.array([1.5], "float16")),
        (5, "fp32_values", np.array([1, 2])),
        (3, "int64_values", np.array([2**40, 1])),
        (0, "bool_values", np.array([True, False])),
    ],
)
def test_several_values(dtype, name, value):
    attrs, out = made("assign_value", {"shape": [len(value)], "dtype": dtype, name: value}, None)
    assert list(attrs[name]) == out.tolist() == value.tolist()


def test_layers_take_numbers_in_arrays():
    one = np.array([2.5], "float32")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        kept = fluid.layers.create_global_var([2], one, "float32", persistable=True)
        whole = fluid.layers.create_global_var([1], np.array([[3]]), "int64", persistable=True)
        filled = fluid.layers.fill_constant([2], "int64", np.array([2**53 + 1]))
        scaled = fluid.layers.scale(kept, one, bias=np.array([1.0]))
        with pytest.raises(TypeError, match=r"one number is expected, not an array of shape \[2\]"):
            fluid.layers.create_global_var([2], np.ones(2), "float32")
    exe = fluid.Executor()
    exe.run(startup)
    found = exe.run(main, fetch_list=[kept, whole, filled, scaled])
    assert [value.tolist() for value in found] == [
        [2.5, 2.5], [3], [2**53 + 1] * 2, [7.25, 7.25]
    ]  # fmt: skip
