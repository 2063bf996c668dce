"""The backward pass adds the operators that Paddle adds, and its gradients are right."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import MissingGradientError
from tests.fixtures import describe, training_pieces

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = json.loads((FIXTURES / "training_pieces.json").read_text())["backward"]
layers = fluid.layers


def data(name="x", shape=(None, 4)):
    var = fluid.data(name, list(shape))
    var.stop_gradient = False
    return var


def run(feed, fetch):
    executor = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetch)


def op_types():
    return [op.type for op in fluid.default_main_program().global_block().ops]


def values(rows=3, columns=4, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, columns)).astype("float32")


# ---- programs


def typed_variables(record):
    """Variables of the main program; the original leaves those that hold shapes without a type."""
    found = record["main"]["vars"].items()
    return {name: text for name, text in found if not name.endswith("_shape")}


@pytest.mark.parametrize("function", training_pieces.BACKWARD, ids=lambda f: f.__name__)
def test_backward_pass_is_the_recorded_one(function):
    main, startup, returned = training_pieces.backward(function, fluid)
    recorded = RECORDED[function.__name__]
    built = describe.programs_record(main, startup)
    # the original forgets the role of the error clip
    ops = [
        op.replace("{max=0.5 min=-0.5}", "{max=0.5 min=-0.5 op_role=1}")
        for op in recorded["programs"]["main"]["ops"]
    ]
    assert built["main"]["ops"] == ops
    assert typed_variables(built) == typed_variables(recorded["programs"])
    assert returned == recorded["returned"]


def test_gradient_operator_has_the_line_of_its_forward_operator():
    hidden = layers.fc(data(), 3)
    line = inspect.currentframe().f_lineno - 1
    fluid.backward.append_backward(layers.mean(hidden))
    ops = fluid.default_main_program().global_block().ops
    by_type = {op.type: op.callsite for op in ops}
    for kind in ("mul", "mul_grad", "elementwise_add_grad"):
        assert (by_type[kind].filename, by_type[kind].line) == (__file__, line)
    assert by_type["mean_grad"].line == by_type["fill_constant"].line == line + 2


def test_gradient_operators_lie_in_the_name_scope_of_their_forward_operator():
    with fluid.name_scope("outer"):
        hidden = layers.fc(data(), 3)
    fluid.backward.append_backward(layers.mean(hidden))
    ops = fluid.default_main_program().global_block().ops
    scopes = {op.type: op.attr("op_namescope") for op in ops}
    assert scopes["mul_grad"] == "/outer/"
    assert scopes["mean_grad"] == "/"


def test_frozen_parameter_is_not_returned():
    hidden = layers.fc(data(), 3, param_attr=fluid.ParamAttr(trainable=False), bias_attr="b")
    pairs = fluid.backward.append_backward(layers.mean(hidden))
    assert [(p.name, g.name) for p, g in pairs] == [("b", "b@GRAD")]


def test_clone_goes_on_with_the_names():
    loss = layers.mean(layers.fc(data(), 3, param_attr="w", bias_attr=False))
    fluid.backward.append_backward(loss)
    twin = fluid.default_main_program().clone()
    pairs = fluid.backward.append_backward(twin.global_block().var(loss.name))
    assert pairs[0][1].name == "grad/grad/w@GRAD"


def test_callbacks_see_every_gradient_operator():
    seen = []

    def callback(block, context):
        seen.append((context["__current_op_desc__"].type(), block.ops[-1].type))
        last = block.desc.op(block.desc.op_size() - 1)
        assert last.output_arg_names() == context["__current_op_desc__"].output_arg_names()
        assert context["w@GRAD"] == "w"

    loss = layers.mean(layers.fc(data(), 3, param_attr="w", bias_attr=False))
    fluid.backward.append_backward(loss, callbacks=[callback])
    assert seen == [("mean_grad", "mean_grad"), ("mul_grad", "mul_grad")]


# ---- numbers


def test_contributions_add_up():
    x = data()
    y = layers.elementwise_add(x * x * x, x)
    fluid.backward.append_backward(layers.reduce_sum(y))
    fed = values()
    (grad,) = run({"x": fed}, ["x@GRAD"])
    np.testing.assert_allclose(grad, 3 * fed**2 + 1, rtol=1e-6)


def test_unused_output_gets_a_gradient_of_zero():
    x = data()
    _, right = layers.split(x, 2, 1)
    fluid.backward.append_backward(layers.reduce_sum(right * right))
    fed = values()
    (grad,) = run({"x": fed}, ["x@GRAD"])
    np.testing.assert_allclose(grad, np.where(np.arange(4) < 2, 0, 2 * fed), rtol=1e-6)


def test_label_that_depends_on_a_parameter_stops_the_gradient():
    x = data()
    target = layers.scale(x, 0.5)
    prediction = layers.softmax(x)
    loss = layers.cross_entropy(prediction, layers.softmax(target), soft_label=True)
    fluid.backward.append_backward(layers.reduce_sum(loss))
    assert op_types().count("softmax_grad") == 1  # that of the prediction
    fed = values()
    (grad,) = run({"x": fed}, ["x@GRAD"])

    def softmax(a):
        e = np.exp(a - a.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(grad, softmax(fed) - softmax(fed * 0.5), atol=1e-6)


def test_value_that_is_overwritten_keeps_its_own_gradient():
    x = data()
    buffer = layers.scale(x, 2.0)
    first = layers.scale(buffer, 3.0)
    layers.assign(layers.scale(first, 5.0), buffer)
    loss = layers.reduce_sum(layers.elementwise_add(layers.scale(buffer, 7.0), first))
    fluid.backward.append_backward(loss)
    (grad,) = run({"x": values()}, ["x@GRAD"])
    np.testing.assert_allclose(grad, np.full((3, 4), 2.0 * 3 * (5 * 7 + 1)))


def test_step_in_place_chains():
    x = data("x", [1])
    counter = layers.scale(x, 2.0)
    before = layers.scale(counter, 3.0)
    block = fluid.default_main_program().global_block()
    block.append_op("scale", {"X": counter}, {"Out": counter}, {"scale": 7.0})
    loss = layers.elementwise_add(layers.scale(counter, 11.0), before)
    fluid.backward.append_backward(loss)
    (grad,) = run({"x": np.ones(1, "float32")}, ["x@GRAD"])
    np.testing.assert_allclose(grad, [2 * 7 * 11 + 2 * 3])


@pytest.mark.parametrize("in_place", [False, True])
def test_products_of_what_is_overwritten_later_have_derivatives(in_place):
    """The real Paddle multiplies by the new value in the gradient."""
    x = data()
    buffer = layers.scale(x, 2.0)
    if in_place:
        block = fluid.default_main_program().global_block()
        block.append_op("square", {"X": buffer}, {"Out": buffer})
    else:
        squares = layers.reduce_sum(layers.elementwise_mul(buffer, buffer))
        layers.assign(layers.scale(buffer, 3.0), buffer)
    loss = layers.reduce_sum(layers.square(buffer))
    if not in_place:
        loss = layers.elementwise_add(loss, squares)
    fluid.backward.append_backward(loss)
    (grad,) = run({"x": values()}, ["x@GRAD"])
    expected = 64 * values() ** 3 if in_place else 2 * (36 + 4) * values()
    np.testing.assert_allclose(grad, expected, rtol=1e-5)


# ---- gradients()


def test_gradients_start_from_ones_of_the_fed_shape():
    x = data()
    (grad,) = fluid.gradients(x * x, x)
    fed = values(rows=5)
    np.testing.assert_allclose(run({"x": fed}, [grad])[0], 2 * fed, rtol=1e-6)


def test_gradients_start_from_the_given_ones():
    x, start = data(), data("start")
    (grad,) = fluid.gradients([x * x], [x], [start])
    fed, begin = values(), values(seed=1)
    found = run({"x": fed, "start": begin}, [grad])[0]
    np.testing.assert_allclose(found, 2 * fed * begin, rtol=1e-6)


@pytest.mark.parametrize("given", [False, True])
def test_target_that_leads_to_another_target_counts_twice(given):
    x, start = data(), data("start")
    square = x * x
    both = [layers.scale(square, 3.0), square]
    grads = fluid.gradients(both, [x, square], [start, start] if given else None)
    fed, begin = values(), values(seed=1) if given else np.float32(1)
    feed = {"x": fed, "start": values(seed=1)}
    of_x, of_square = run(feed, grads)
    np.testing.assert_allclose(of_square, np.broadcast_to(4 * begin, (3, 4)), rtol=1e-6)
    np.testing.assert_allclose(of_x, 8 * fed * begin, rtol=1e-6)


def test_same_target_twice_counts_twice():
    x = data()
    y = layers.scale(x, 3.0)
    (grad,) = fluid.gradients([y, y], [x])
    np.testing.assert_allclose(run({"x": values()}, [grad])[0], np.full((3, 4), 6.0))


def test_input_that_is_the_target_has_the_given_gradient():
    x, start = data(), data("start")
    assert fluid.gradients([x], [x], [start]) == [start]


def test_input_that_no_target_depends_on_has_no_gradient():
    x, other = data(), data("other")
    y = layers.relu(x)
    assert [fluid.gradients(y, other), fluid.gradients([y], [other])] == [[], []]  # as in Paddle
    assert fluid.backward.calc_gradient(y, other) is None
    assert [grad and grad.name for grad in fluid.gradients(y, [other, x])] == [None, "x@GRAD"]


def test_calc_gradient_of_one_input_is_no_list():
    x = data()
    assert fluid.backward.calc_gradient(layers.relu(x), x).name == "x@GRAD"


# ---- refusals


def test_operator_without_gradient_is_named_with_its_line():
    x = data()
    (first,) = fluid.gradients(layers.stanh(x), x)
    with pytest.raises(
        MissingGradientError, match="operator stanh_grad: it has no gradient"
    ) as info:
        fluid.gradients(first, x)
    assert __file__ in str(info.value)


def test_operator_without_gradient_is_harmless_on_constants():
    x = data()
    constant = fluid.data("constant", [None, 4])
    constant.stop_gradient = False
    (through,) = fluid.gradients(layers.tanh(constant), constant)
    constant.stop_gradient = True
    out = layers.elementwise_mul(x, through)
    fluid.backward.append_backward(layers.reduce_sum(out))
    assert fluid.default_main_program().global_block().has_var("x@GRAD")


@pytest.mark.parametrize("shape", [(None, 1), (2,), ()])
def test_loss_of_an_optimizer_must_have_one_element(shape):
    loss = layers.relu(data("x", shape))
    with pytest.raises(AssertionError, match=r"loss\.shape should be"):
        fluid.optimizer.SGD(0.1).minimize(loss)
    assert op_types() == ["relu"]


@pytest.mark.parametrize("devices", [1, 2])
def test_backward_pass_of_many_losses_is_that_of_their_sum(devices):
    x = fluid.data("x", [None, 3])
    weight = layers.create_parameter([3], "float32", name="w")
    losses = layers.tanh(layers.reduce_sum(x * weight, dim=1))
    ((_, grad),) = fluid.backward.append_backward(losses)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        losses.name, places=fluid.cpu_places(devices)
    )
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.global_scope().find_var("w").get_tensor().set(np.full(3, 2, "float32"), fluid.CPUPlace())
    fed = np.arange(12, dtype="float32").reshape(4, 3) / 30
    found, *_ = executor.run(program, feed={"x": fed}, fetch_list=[grad])
    slopes = 1 - np.tanh(fed.sum(1) * 2) ** 2
    np.testing.assert_allclose(found[:3], slopes @ fed, rtol=1e-5)


def test_loss_must_be_computed():
    with pytest.raises(ValueError, match="x is not computed by any operator"):
        fluid.backward.append_backward(data("x", [1]))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"loss": "mean_0.tmp_0"}, TypeError),
        ({"parameter_list": "w"}, TypeError),
        ({"parameter_list": [3]}, TypeError),
        ({"no_grad_set": "w"}, TypeError),
        ({"no_grad_set": {3}}, TypeError),
        ({"callbacks": print}, TypeError),
        ({"callbacks": [3]}, ValueError),
    ],
)
def test_append_backward_refuses(arguments, error):
    loss = layers.mean(layers.fc(data(), 2))
    with pytest.raises(error):
        fluid.backward.append_backward(**{"loss": loss, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"targets": "y"}, TypeError),
        ({"inputs": ("x",)}, TypeError),
        ({"target_gradients": "t"}, TypeError),
        ({"targets": []}, ValueError),
        ({"target_gradients": [None, None]}, ValueError),
    ],
)
def test_gradients_refuses(arguments, error):
    x = data()
    with pytest.raises(error):
        fluid.gradients(**{"targets": layers.relu(x), "inputs": x, **arguments})


def test_gradients_refuses_a_start_of_another_shape():
    x = data()
    with pytest.raises(ValueError, match="shapes of target and grad are different"):
        fluid.gradients(layers.relu(x), x, data("start", [None, 3]))


@pytest.mark.parametrize(
    ("make", "reached"),
    [
        (lambda x: layers.dynamic_lstm(layers.fc(x, 12), 12)[1], False),
        (lambda x: layers.dynamic_lstm(layers.fc(x, 12), 12)[0], True),
        (lambda x: layers.dynamic_lstmp(layers.fc(x, 12), 12, 2)[1], False),
        (lambda x: softmax_beside_its_loss(layers.fc(x, 3))[1], False),
        (lambda x: sum(softmax_beside_its_loss(layers.fc(x, 3))), True),
    ],
)
def test_outputs_whose_gradients_nothing_reads_give_parameters_none(make, reached):
    """As recorded from Paddle 1.8.5: nothing, and no zeros, that would have parameters decay."""
    x = fluid.data("x", [None, 3], lod_level=1)
    regular = layers.fc(x, 1)
    loss = layers.mean(make(x)) + layers.mean(regular)
    optimizer = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.1))
    _, pairs = optimizer.minimize(loss)
    names = [param.name for param, _ in pairs]
    assert {"fc_0.w_0", "fc_0.b_0"} <= set(names)
    assert ("fc_1.w_0" in names) is reached


def softmax_beside_its_loss(x):
    label = layers.fill_constant_batch_size_like(x, [-1, 1], "int64", 1)
    return layers.softmax_with_cross_entropy(x, label, return_softmax=True)
