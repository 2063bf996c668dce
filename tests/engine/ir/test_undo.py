"""A call that fails leaves programs and optimizers as they were."""

import pickle

import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import undo
from tests.fixtures.wrong_calls import content

layers = fluid.layers


def refused(call, kind=EnforceNotMet):
    before = content(fluid)
    with pytest.raises(kind) as caught:
        call()
    assert content(fluid) == before
    return str(caught.value)


@pytest.fixture
def x():
    return fluid.data("x", [None, 4])


def test_operators_and_parameters_of_a_refused_layer_are_gone(x):
    refused(lambda: layers.fc(x, 3, act="nothing"))


def test_operators_of_networks_and_of_variables_are_gone(x):
    refused(lambda: fluid.nets.glu(x, 5))
    y = fluid.data("y", [7, 5], dtype="int64")
    refused(lambda: x + y)


def test_a_block_that_a_function_leaves_unfinished_is_gone(x):
    flag = layers.fill_constant([1], "bool", True)
    refused(lambda: layers.cond(flag, lambda: layers.relu(x), lambda: layers.fc(x, 3, act="no")))


def test_a_refused_call_inside_another_one_is_undone_alone(x):
    flag = layers.fill_constant([1], "bool", True)

    def body():
        refused(lambda: layers.fc(x, 3, act="nothing"))
        return layers.relu(x)

    layers.cond(flag, body, lambda: layers.relu(x))
    made = [[op.type for op in block.ops] for block in fluid.default_main_program().blocks]
    assert [types[:1] for types in made[1:]] == [["relu"], ["relu"]]


def test_a_written_variable_has_its_shape_and_type_again(x):
    out = layers.create_tensor("float64")
    before = out.shape, out.dtype

    @undo.whole
    def build():
        layers.assign(x, out)
        layers.fc(x, 3, act="nothing")

    refused(build)
    assert (out.shape, out.dtype) == before


def test_an_optimizer_that_failed_can_minimize_later(x):
    loss = layers.mean(layers.fc(x, 3))
    adam = fluid.optimizer.Adam(0.1, epsilon="small")
    refused(lambda: adam.minimize(loss))
    adam._attrs["epsilon"] = 1e-8
    adam._epsilon = 1e-8
    adam.minimize(loss)


def test_public_layers_can_be_pickled():
    assert pickle.loads(pickle.dumps(layers.relu)) is layers.relu


def test_what_is_no_variable_is_named(x):
    message = refused(lambda: layers.roi_pool(None, x), TypeError)
    assert "'input' in roi_pool" in message
    message = refused(lambda: layers.accuracy(x, 3), TypeError)
    assert "'Label' of operator accuracy" in message
