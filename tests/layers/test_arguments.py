"""Wrong arguments of layers raise fluid's errors, which name the argument."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers


def x(*shape, dtype="float32", name="x"):
    return fluid.data(name, list(shape) or [None, 4], dtype)


def ids():
    return x(None, 1, dtype="int64", name="ids")


def image():
    return x(None, 4, 8, 8)


TYPE_ERRORS = {
    "fc of an array": (lambda: layers.fc(np.ones((2, 4)), 3), "'input'"),
    "fc of a list with a number": (lambda: layers.fc([x(), 3], 3), "'input'"),
    "fc of integers": (lambda: layers.fc(ids(), 3), "'input'"),
    "fc with a number as param_attr": (lambda: layers.fc(x(), 3, param_attr=3), "parameter attr"),
    "fc with a function as act": (lambda: layers.fc(x(), 3, act=layers.relu), "'act'"),
    "data named by a number": (lambda: layers.data(3, [4]), "'name'"),
    "data of a number as shape": (lambda: layers.data("x", 4), "'shape'"),
    "fluid.data of a number as shape": (lambda: fluid.data("x", 4), "'shape'"),
    "embedding of floats": (lambda: layers.embedding(x(), [10, 3]), "'input'"),
    "embedding of int table": (
        lambda: layers.embedding(ids(), [10, 3], dtype="int64"),
        "'dtype'",
    ),
    "decoding from a number": (
        lambda: layers.GreedyEmbeddingHelper(lambda ids: x(), 0, end_token=1),
        "'start_tokens'",
    ),
    "mean of a number": (lambda: layers.mean(3.0), "'x'"),
    "mean of integers": (lambda: layers.mean(ids()), "'x'"),
    "relu of integers": (lambda: layers.relu(ids()), "'x'"),
    "elementwise_add of a number": (lambda: layers.elementwise_add(x(), 1.0), "'y'"),
    "cross_entropy of integers": (lambda: layers.cross_entropy(ids(), ids()), "'input'"),
    "square_error_cost of integers": (lambda: layers.square_error_cost(x(), ids()), "'label'"),
    "reduce_sum of bools": (
        lambda: layers.reduce_sum(layers.less_than(x(), x())),
        "'input'",
    ),
    "reduce_all of floats": (lambda: layers.reduce_all(x()), "'input'"),
    "logical_and of floats": (lambda: layers.logical_and(x(), x()), "'x'"),
    "less_than of a number": (lambda: layers.less_than(x(), 3), "'y'"),
    "transpose with a tuple": (lambda: layers.transpose(x(), (1, 0)), "'perm'"),
    "reshape with a number": (lambda: layers.reshape(x(), 4), "'shape'"),
    "squeeze with a number": (lambda: layers.squeeze(x(), 1), "'axes'"),
    "split in halves": (lambda: layers.split(x(), 0.5), "'num_or_sections'"),
    "concat of arrays": (lambda: layers.concat([np.ones(3)]), "input[0]"),
    "cast to text": (lambda: layers.cast(3, "int32"), "'x'"),
    "assign of a list": (lambda: layers.assign([1, 2]), "'input'"),
    "assign of float64": (lambda: layers.assign(np.ones(3)), "float64"),
    "fill_constant of int8": (lambda: layers.fill_constant([1], "int8", 1), "'dtype'"),
    "clip_by_norm with an integer": (lambda: layers.clip_by_norm(x(), 1), "'max_norm'"),
    "dropout of integers": (lambda: layers.dropout(ids(), 0.5), "'x'"),
    "pool2d with cudnn by number": (
        lambda: layers.pool2d(image(), 2, use_cudnn=1),
        "'use_cudnn'",
    ),
    "create_parameter of strings": (
        lambda: layers.create_parameter(["4"], "float32"),
        "item of shape",
    ),
    "create_parameter of integers": (
        lambda: layers.create_parameter([4], "int64"),
        "default initializer",
    ),
    "dense gradient taken as rows": (
        lambda: layers.get_tensor_from_selected_rows(x()),
        "SelectedRows",
    ),
    "ParamAttr with a rate as text": (
        lambda: fluid.ParamAttr(learning_rate="0.1"),
        "'learning_rate'",
    ),
}

VALUE_ERRORS = {
    "two data types in fc": (
        lambda: layers.fc([x(), x(None, 4, dtype="float64", name="y")], 3),
        "one data type",
    ),
    "two attributes for three inputs": (
        lambda: layers.fc([x(), x(), x()], 3, param_attr=[None, None]),
        "param_attr",
    ),
    "an empty name": (lambda: fluid.ParamAttr(name=""), "name"),
    "unknown channels": (lambda: layers.conv2d(x(None, -1, 8, 8), 3, 3), "channels"),
    "groups that do not divide": (lambda: layers.conv2d(image(), 3, 3, groups=3), "groups"),
    "three numbers as stride": (
        lambda: layers.conv2d(image(), 3, 3, stride=[1, 2, 3]),
        "'stride'",
    ),
    "padding by a wrong word": (lambda: layers.conv2d(image(), 3, 3, padding="ALL"), "'padding'"),
    "padding of channels": (
        lambda: layers.conv2d(image(), 3, 3, padding=[[0, 0], [1, 1], [0, 0], [0, 0]]),
        "channels",
    ),
    "a wrong layout": (lambda: layers.conv2d(image(), 3, 3, data_format="CHWN"), "data_format"),
    "pooling by median": (lambda: layers.pool2d(image(), 2, "median"), "'pool_type'"),
    "pooling of no size": (lambda: layers.pool2d(image()), "pool_size"),
    "positions of means": (
        lambda: layers.adaptive_pool2d(image(), 2, "avg", require_index=True),
        "avg",
    ),
    "transposed convolution of no size": (
        lambda: layers.conv2d_transpose(image(), 3),
        "filter_size",
    ),
    "a permutation of three of two": (lambda: layers.transpose(x(), [0, 1, 2]), "perm"),
    "flatten beyond the rank": (lambda: layers.flatten(x(), axis=3), "axis"),
    "unstack of the batch": (lambda: layers.unstack(x()), "num"),
    "smoothing by two": (lambda: layers.label_smooth(x(), epsilon=2.0), "epsilon"),
    "prelu per row": (lambda: layers.prelu(image(), "row"), "'mode'"),
    "slice with a number": (lambda: layers.slice(x(), [0], 1, [2]), "starts"),
    "a dtype that tensors lack": (lambda: layers.cast(x(), "complex64"), "complex64"),
    "a large array": (lambda: layers.assign(np.zeros(2**20 + 1, "float32")), "2**20"),
}

ASSERTIONS = {
    "filters switched off": lambda: layers.conv2d(image(), 3, 3, param_attr=False),
    "shift of batch norm switched off": lambda: layers.batch_norm(image(), bias_attr=False),
    "scale of layer norm switched off": lambda: layers.layer_norm(x(), param_attr=False),
    "split into one": lambda: layers.split(x(), 1),
}


@pytest.mark.parametrize("case", TYPE_ERRORS)
def test_wrong_type(case):
    call, named = TYPE_ERRORS[case]
    with pytest.raises(TypeError) as caught:
        call()
    assert named in str(caught.value)


@pytest.mark.parametrize("case", VALUE_ERRORS)
def test_wrong_value(case):
    call, named = VALUE_ERRORS[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is checked below
        call()
    assert named in str(caught.value)


@pytest.mark.parametrize("case", ASSERTIONS)
def test_wrong_combination(case):
    with pytest.raises(AssertionError):
        ASSERTIONS[case]()


def test_wrong_shapes_name_operator_variables_shapes_and_line():
    with pytest.raises(fluid.core.EnforceNotMet) as caught:
        layers.elementwise_add(x(None, 3), x(None, 4, name="y"))
    message = str(caught.value)
    for part in ("elementwise_add", "x", "y", "[-1, 3]", "[-1, 4]", "test_arguments.py"):
        assert part in message


def test_permutation_that_repeats_is_refused_by_the_operator():
    with pytest.raises(fluid.core.EnforceNotMet, match="every dimension"):
        layers.transpose(x(), [0, 0])


def test_unknown_activation_names_the_nearest():
    with pytest.raises(fluid.core.EnforceNotMet, match=r"(?s)relux.*similar: relu"):
        layers.fc(x(), 3, act="relux")


def test_missing_layer_names_the_nearest():
    with pytest.raises(AttributeError, match=r"layers.in_no_fluid is not supported"):
        layers.in_no_fluid(x())
    with pytest.raises(AttributeError, match="similar: reshape"):
        layers.reshapes(x(), [4])


def test_attributes_without_effect_warn():
    with pytest.warns(UserWarning, match="param_attr of layer_norm"):
        layers.layer_norm(x(), scale=False, param_attr=fluid.ParamAttr())
    with pytest.warns(UserWarning, match="bias_attr of layer_norm"):
        layers.layer_norm(x(), shift=False, bias_attr=fluid.ParamAttr())


@pytest.mark.parametrize("size", [np.int64(2), [np.int64(2), 2], np.array([2, 2])])
def test_sizes_may_be_integers_of_numpy(size):
    pooled = layers.pool2d(image(), size, pool_stride=size)
    assert pooled.shape == (-1, 4, 4, 4)
    assert all(type(number) is int for number in pooled.op.attr("ksize"))


@pytest.mark.parametrize("layer", [fluid.embedding, layers.embedding])
def test_sizes_of_tables_are_integers(layer):
    ids = fluid.data("ids", [None, 1], "int64")
    assert layer(ids, np.array([3, 4])).shape[-1] == 4
    for size in (3, "34", ["3", 4], [3.5, 4], {3, 4}, np.array(3), np.array([3.0, 4.0])):
        with pytest.raises(TypeError, match=r"size of embedding must be integers \[rows, width\]"):
            layer(ids, size)


def test_numbers_of_float32_keep_their_fractions_as_attributes():
    x = layers.assign(np.array([-2.0, 1.0], "float32"))
    steps = layers.leaky_relu(x, np.float32(0.25)), layers.clip(x, np.float32(-0.5), 0.5)
    found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(steps))
    np.testing.assert_array_equal(found, [[-0.5, 1.0], [-0.5, 0.5]])  # Paddle: 0 for -0.5


def test_fractions_are_not_rounded_for_float64():
    x = layers.cast(layers.assign(np.array([-2.0, 1.0], "float32")), "float64")
    steps = layers.leaky_relu(x, 0.1), layers.scale(x, 0.1)
    found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(steps))
    np.testing.assert_array_equal(found, [[-0.2, 1.0], [-0.2, 0.1]])  # Paddle: -0.200000003


def test_activations_with_negative_arguments_take_one_branch():
    x = layers.assign(np.array([-0.25, 0.25, 2.0], "float32"))
    steps = layers.elu(x, -2.0), layers.softshrink(x, -0.5), layers.hard_shrink(x, -0.5)
    found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(steps))
    np.testing.assert_allclose(found[0], [-2 * np.expm1(-0.25), 0.25, 2.0], 1e-6)
    np.testing.assert_array_equal(found[1], [0.25, 0.75, 2.5])  # Paddle: [-0.5, 0.5, 2.5]
    np.testing.assert_array_equal(found[2], [-0.25, 0.25, 2.0])  # Paddle: [-0.5, 0.5, 2.0]


def test_one_hot_refuses_several_columns():
    numbers = layers.data("numbers", [1], dtype="int64")  # which does not restrict the feed
    out = layers.one_hot(numbers, 9)
    feed = {"numbers": np.array([[1, 2], [3, 4]])}
    with pytest.raises(fluid.core.EnforceNotMet, match=r"X int64\[2, 2\] must be 1") as error:
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    assert "out = layers.one_hot(numbers, 9)" in str(error.value)


@pytest.mark.parametrize("whole", [True, False])
def test_first_size_of_crop_may_be_all_rows(whole):
    x = fluid.data("x", [None, 3])
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.arange(12, dtype="float32").reshape(4, 3)}
    if whole:
        out = layers.crop(x, [-1, 2], [0, 1])
        assert out.shape == (-1, 2)
        np.testing.assert_array_equal(exe.run(feed=feed, fetch_list=[out])[0], feed["x"][:, 1:])
        return
    with pytest.raises(fluid.core.EnforceNotMet, match=r"\[2, -1\]: only the first number may be"):
        layers.crop(x, [2, -1])


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: layers.dynamic_lstm(x(None, 12), 16), r"must have 4 \* 4 columns.*size=16"),
        (lambda: layers.dynamic_lstmp(x(None, 12), 16, 3), r"must have 4 \* 4 columns.*size=16"),
        (lambda: layers.dynamic_gru(x(None, 12), 8), r"must have 24 columns.*size=24"),
    ],
)
def test_recurrent_layers_say_how_wide_their_input_must_be(layer, message):
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        layer()
