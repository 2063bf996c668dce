"""Attributes are of the type that an operator declares, as in Paddle."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.errors import EnforceNotMet


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
