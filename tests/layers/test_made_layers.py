"""Layers that are generated from declarations of operators."""

import inspect

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.ir import opdef
from dpexec.layers.build import is_unary, unary_layer


def x():
    return fluid.data("x", [None, 4])


@pytest.fixture
def new_operator(monkeypatch):
    """An operator as a contributor adds it: one file, no layer."""
    monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})

    @opdef.op("bend", inputs="X", outputs="Out", infer=opdef.same_as("X"), attrs={"fast": False})
    def bend(xp, x, *, knee=0.5, slope=2.0):
        """Bend ``x`` at ``knee``. Source: this test.

        Args:
            knee: where the slope changes.
        """
        return xp.where(x > knee, slope * x, x)

    @bend.grad("X", "Out@GRAD")
    def bend_grad(xp, x, d_out, *, knee=0.5, slope=2.0):
        return xp.where(x > knee, slope * d_out, d_out)

    return opdef.get("bend")


def test_new_operator_gets_a_layer(new_operator):
    assert is_unary(new_operator)
    layer = unary_layer(new_operator)
    assert str(inspect.signature(layer)).startswith("(x: ")
    assert list(inspect.signature(layer).parameters) == ["x", "knee", "slope", "name"]
    assert "Bend ``x``" in layer.__doc__
    assert "    knee: where the slope changes.\n    slope: an attribute" in layer.__doc__
    out = layer(x(), 1.5, name="bent")
    assert (out.name, out.shape) == ("bent.tmp_0", (-1, 4))
    assert {"knee": 1.5, "slope": 2.0, "fast": False}.items() <= out.op.attrs.items()


def test_none_means_the_default_of_the_operator(new_operator):
    assert unary_layer(new_operator)(x(), knee=None).op.attr("knee") == 0.5


def test_wrong_calls_show_the_signature(new_operator):
    layer = unary_layer(new_operator)
    with pytest.raises(TypeError, match=r"bend\(x: .*knee=0.5.*missing"):
        layer()
    with pytest.raises(TypeError, match="unexpected keyword argument 'elbow'"):
        layer(x(), elbow=3)


@pytest.mark.parametrize("op_type", ["elementwise_add", "dropout", "mean", "shape", "relu_grad"])
def test_other_operators_get_none(op_type):
    assert not is_unary(opdef.get(op_type))


def test_every_activation_of_fluid_is_there():
    names = (
        "sigmoid logsigmoid exp tanh atan tanh_shrink sqrt rsqrt abs ceil floor cos acos asin sin "
        "round reciprocal square softplus softsign softshrink hard_shrink cumsum thresholded_relu "
        "gelu erf relu relu6 elu selu leaky_relu brelu soft_relu stanh hard_sigmoid hard_swish "
        "swish log pow prelu maxout"
    )
    assert [name for name in names.split() if name not in layers.__all__] == []


def test_activation_by_name_and_as_a_layer_build_the_same():
    first = layers.fc(x(), 3, act="tanh").op
    second = layers.tanh(layers.fc(x(), 3)).op
    assert (first.type, first.plain_attrs()) == (second.type, second.plain_attrs())


def test_swish_has_no_beta_as_in_the_original():
    x = fluid.data("x", [3], "float32")
    with pytest.warns(UserWarning, match=r"x \* fluid.layers.sigmoid\(2.5 \* x\)"):
        out = fluid.layers.swish(x, beta=2.5)
    rows = np.array([-1.0, 0.5, 2.0], "float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": rows}, fetch_list=[out])
    np.testing.assert_allclose(found, rows / (1 + np.exp(-rows)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_some_take_integers(dtype):
    numbers = fluid.data("numbers", [None], dtype)
    made = [getattr(layers, name)(numbers) for name in ("abs", "exp", "square")]
    feed = {"numbers": np.array([-2, 0, 3], dtype)}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=made)
    assert [out.tolist() for out in found] == [[2, 0, 3], [0, 1, 20], [4, 0, 9]]
    assert {out.dtype.name for out in found} == {dtype}
    with pytest.raises(TypeError, match="sigmoid must be float16, float32, float64"):
        layers.sigmoid(numbers)
