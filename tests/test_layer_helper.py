"""LayerHelper and ParamAttr, used in layers that users write."""

import sys

import numpy as np
import pytest

import dpexec as fluid
from dpexec.layer_helper import LayerHelper


def x(name="x", dtype="float32"):
    return fluid.data(name, [None, 4], dtype)


def test_own_layer():
    """What a user's layer looks like in fluid."""

    def doubled(input, param_attr=None, bias_attr=None, act=None, name=None):
        helper = LayerHelper("doubled", **locals())
        weight = helper.create_parameter(helper.param_attr, [4, 4], helper.input_dtype())
        out = helper.create_variable_for_type_inference(helper.input_dtype())
        helper.append_op(
            type="mul", inputs={"X": [input], "Y": [weight]}, outputs={"Out": [out]}, attrs={}
        )
        return helper.append_activation(helper.append_bias_op(out))

    out = doubled(x(), act="relu")
    block = fluid.default_main_program().global_block()
    assert [op.type for op in block.ops] == ["mul", "elementwise_add", "relu"]
    assert [p.name for p in block.all_parameters()] == ["doubled_0.w_0", "doubled_0.b_0"]
    assert (out.name, out.shape) == ("doubled_0.tmp_2", (-1, 4))


def test_name_is_the_prefix_of_all_names():
    fluid.layers.fc(x(), 2, name="mine")
    assert "mine.w_0" in fluid.default_main_program().global_block().vars


@pytest.mark.parametrize("off", ["param_attr", "bias_attr"])
def test_attribute_switched_off(off):
    helper = LayerHelper("layer", **{off: False})
    assert getattr(helper, off) is False
    assert helper.create_parameter(getattr(helper, off), [2], "float32") is None


def test_one_attribute_serves_several_inputs_and_each_has_its_own_name():
    attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(2.0))
    fluid.layers.fc([x(), x("y")], 2, param_attr=attr, bias_attr=False)
    weights = fluid.default_main_program().all_parameters()
    assert [w.name for w in weights] == ["fc_0.w_0", "fc_0.w_1"]
    assert attr.name is None


def test_shapes_of_a_shared_parameter_must_agree():
    fluid.layers.fc(x(), 2, param_attr="w")
    with pytest.raises(ValueError, match="previous shape"):
        fluid.layers.fc(x(), 3, param_attr="w")


def test_input_takes_exactly_one():
    with pytest.raises(ValueError, match="takes one variable, not 2"):
        LayerHelper("layer", input=[x(), x("y")]).input()
    with pytest.raises(ValueError, match="one data type"):
        LayerHelper("layer", input=[x(), x("z", "float64")]).input_dtype()
    with pytest.raises(TypeError, match="'x' of layer"):
        LayerHelper("layer", x=3).input("x")


def test_global_variable_is_made_once():
    helper = LayerHelper("layer")
    first, new = helper.create_or_get_global_variable("v", dtype="int64", shape=[1])
    again, old = helper.create_or_get_global_variable("v", dtype="int64", shape=[1])
    assert (new, old) == (True, False)
    assert first is again


def test_get_parameter_and_is_instance():
    helper = LayerHelper("layer", size=3)
    fluid.layers.fc(x(), 2, param_attr="w")
    assert helper.get_parameter("w").shape == (4, 2)
    with pytest.raises(ValueError, match="x is a variable"):
        helper.get_parameter("x")
    with pytest.raises(TypeError, match="'size' of layer must be str"):
        helper.is_instance("size", str)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ("w", "name", "w"),
        (None, "name", None),
        (True, "trainable", True),
        (fluid.initializer.Constant(1.0), "learning_rate", 1.0),
        (fluid.regularizer.L2Decay(0.1), "name", None),
    ],
)
def test_what_stands_for_a_parameter_attribute(given, field, value):
    attr = fluid.ParamAttr._to_attr(given)
    assert getattr(attr, field) == value
    assert (given in (attr.initializer, attr.regularizer)) == (type(given) not in (str, bool))


def test_attributes_reach_the_parameter():
    decay = fluid.regularizer.L1Decay(0.1)
    attr = fluid.ParamAttr("w", None, 0.5, decay, trainable=False, do_model_average=False)
    weight = fluid.layers.create_parameter([2, 2], "float32", attr=attr)
    assert weight.optimize_attr == {"learning_rate": 0.5}
    assert str(weight.regularizer) == str(decay)
    assert (weight.trainable, weight.do_model_average) == (False, False)


@pytest.mark.parametrize("dim", [None, 0, 1, 2, 3])
def test_normalised_weights_start_as_given_and_keep_their_direction(dim):
    values = np.random.default_rng(3).normal(size=(4, 3, 2, 2)).astype("float32")
    given = fluid.initializer.NumpyArrayInitializer(values)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        attr = fluid.WeightNormParamAttr(dim, "w", given)
        weight = LayerHelper("any").create_parameter(attr, values.shape, "float32")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        made = exe.run(main, fetch_list=[weight])[0]
        np.testing.assert_allclose(made, values, rtol=1e-5)
        g = fluid.global_scope().find_var("w_g").get_tensor()
        g.set(np.array(g) * 2, fluid.CPUPlace())
        doubled = exe.run(main, fetch_list=[weight])[0]
    np.testing.assert_allclose(doubled, 2 * values, rtol=1e-5)
    axes = tuple(axis for axis in range(4) if axis != dim)
    assert g.shape() == [n if axis == dim else 1 for axis, n in enumerate(values.shape)]
    norm = np.sqrt((values**2).sum(axis=axes, keepdims=True))
    np.testing.assert_allclose(np.array(g), 2 * norm, rtol=1e-5)


def test_a_weight_without_that_dimension_cannot_be_normalised_along_it():
    with pytest.raises(TypeError, match="dim of WeightNormParamAttr must be an integer"):
        fluid.layers.fc(
            fluid.data("a", [None, 4]), 3, param_attr=fluid.WeightNormParamAttr(dim="a")
        )
    with pytest.raises(ValueError, match="dim of WeightNormParamAttr is 2, but w has rank 2"):
        LayerHelper("any").create_parameter(fluid.WeightNormParamAttr(2, "w"), [3, 4], "float32")


@pytest.mark.parametrize("data", [fluid.data, fluid.layers.data])
def test_a_cell_that_adds_its_layers_to_those_of_its_first_run_is_told(data, monkeypatch):
    def cell():
        image, label = data("image", [None, 4]), data("label", [None, 1])
        return fluid.layers.fc(image, 2), label

    cell()
    cell()  # in a script that is the program that was meant
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.warns(UserWarning, match="image is declared again") as said:
        cell()
    assert [warning.filename for warning in said] == [__file__]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        cell()
