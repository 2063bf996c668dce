"""Initializers: the operators they build (their numbers are compared in tests/parity)."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import initializer as init
from dpexec.core import VarDesc
from dpexec.initializer.base import fans


def made(initializer, shape=(6, 4), dtype="float32"):
    attr = fluid.ParamAttr(initializer=initializer)
    fluid.layers.create_parameter(list(shape), dtype, attr=attr)
    return fluid.default_startup_program().global_block().ops


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (1, 1)), ((7,), (7, 7)), ((6, 4), (6, 4)), ((8, 3, 5, 5), (75, 200))],
)
def test_fans(shape, expected):
    assert fans(shape) == expected


def test_operators_are_put_in_front():
    fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    ops = fluid.default_startup_program().global_block().ops
    assert [op.output("Out") for op in ops] == [["fc_0.b_0"], ["fc_0.w_0"]]


def test_seed_is_that_of_the_program_unless_given():
    fluid.default_startup_program().random_seed = 7
    assert made(init.Normal())[0].attr("seed") == 7
    assert made(init.Normal(seed=3))[0].attr("seed") == 3


def test_seed_of_one_program_does_not_stay_with_the_initializer():
    shared = init.Uniform()
    fluid.default_startup_program().random_seed = 7
    made(shared)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert made(shared)[0].attr("seed") == 0


def test_xavier_and_msra_take_given_fans():
    uniform = made(init.Xavier(fan_in=2, fan_out=4))[0]
    assert uniform.attr("max") == pytest.approx(1.0)
    assert uniform.attr("min") == pytest.approx(-1.0)
    normal = made(init.MSRA(uniform=False, fan_in=8))[0]
    assert normal.attr("std") == pytest.approx(0.5)


def test_half_precision_is_filled_in_single_and_cast():
    ops = made(init.Constant(2.0), dtype="float16")
    assert [op.type for op in ops] == ["fill_constant", "cast"]
    assert ops[0].attr("dtype") == VarDesc.VarType.FP32
    assert ops[1].attr("out_dtype") == VarDesc.VarType.FP16


def test_shared_parameter_is_initialised_once():
    attr = fluid.ParamAttr(name="table")
    for _ in range(2):
        fluid.layers.create_parameter([4, 2], "float32", attr=attr)
    assert len(fluid.default_startup_program().global_block().ops) == 1


def test_bilinear_filters_are_all_alike():
    weight = np.reshape(made(init.Bilinear(), (2, 3, 4, 4))[0].attr("fp32_values"), (6, 4, 4))
    np.testing.assert_array_equal(weight, np.broadcast_to(weight[0], (6, 4, 4)))
    assert weight.max() < 1


@pytest.mark.parametrize(
    ("initializer", "shape", "dtype", "error", "text"),
    [
        (init.Uniform(), (4,), "int64", TypeError, "'var' in Uniform"),
        (init.Xavier(), (4,), "int32", TypeError, "Xavier"),
        (init.Bilinear(), (4, 4), "float32", ValueError, "four dimensions"),
        (init.Bilinear(), (1, 1, 4, 3), "float32", ValueError, "last two equal"),
        (init.Bilinear(), (1, 1, 4, 4), "float64", ValueError, "float32"),
        (init.NumpyArrayInitializer(np.ones(4)), (4,), "float64", ValueError, "float32 and int32"),
    ],
)
def test_what_cannot_be_filled(initializer, shape, dtype, error, text):
    with pytest.raises(error, match=text):
        made(initializer, shape, dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda: init.Uniform(low=1.0, high=0.0),
        lambda: init.Uniform(diag_num=2),
        lambda: init.Constant(None),
        lambda: init.Xavier(uniform=None),
        lambda: init.NumpyArrayInitializer([1.0]),
    ],
)
def test_wrong_arguments(make):
    with pytest.raises(AssertionError):
        make()
