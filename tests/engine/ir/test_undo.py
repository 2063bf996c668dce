"""A call that fails leaves programs and optimizers unchanged."""

import contextlib
import pickle

import numpy as np
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
    adam = fluid.optimizer.Adam(0.1)
    adam._attrs["epsilon"] = "small"
    refused(lambda: adam.minimize(loss))
    adam._attrs["epsilon"] = 1e-8
    adam.minimize(loss)


def test_public_layers_can_be_pickled():
    assert pickle.loads(pickle.dumps(layers.relu)) is layers.relu


def test_what_is_no_variable_is_named(x):
    message = refused(lambda: layers.roi_pool(None, x), TypeError)
    assert "'input' in roi_pool" in message
    message = refused(lambda: layers.accuracy(x, 3), TypeError)
    assert "'Label' of operator accuracy" in message


# ---- blocks that a ``with`` builds


def in_while(x):
    going = layers.fill_constant([1], "bool", True)
    return layers.While(going).block


def in_switch(x):
    flag = layers.fill_constant([1], "bool", True)

    @contextlib.contextmanager
    def block():
        with layers.Switch() as switch:
            with switch.case(flag):
                layers.relu(x)
            with switch.case(layers.logical_not(flag)):
                yield

    return block


def in_if_else(x):
    return layers.IfElse(fluid.data("flags", [None, 1], "bool")).true_block


def in_static_rnn(x):
    return layers.StaticRNN().step


def in_dynamic_rnn(x):
    return layers.DynamicRNN().block


def in_parallel_do(x):
    return layers.ParallelDo(fluid.cpu_places(2)).do


BLOCKS = [in_while, in_switch, in_if_else, in_static_rnn, in_dynamic_rnn, in_parallel_do]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_that_raises_leaves_no_trace(x, kind):
    block = kind(x)
    before = content(fluid), str(fluid.default_main_program())
    with pytest.raises(TypeError), block():
        layers.fc(layers.fc(x, 3), "3")
    assert (content(fluid), str(fluid.default_main_program())) == before
    assert fluid.default_main_program().current_block_idx == 0


def test_a_block_may_follow_one_that_raised(x):
    rnn = layers.StaticRNN()
    steps = fluid.data("steps", [5, None, 4])
    for width in ("3", 3):
        with contextlib.suppress(TypeError), rnn.step():
            step = rnn.step_input(steps)
            before = rnn.memory(shape=[-1, 3], batch_ref=step)
            now = layers.fc([step, before], width)
            rnn.update_memory(before, now)
            rnn.step_output(now)
    assert rnn().shape == (5, -1, 3)
    assert [op.type for op in fluid.default_main_program().global_block().ops] == [
        "fill_constant_batch_size_like",
        "recurrent",
    ]


def test_a_loop_after_one_that_raised_runs(x):
    i, n = (layers.fill_constant([1], "int64", value) for value in (0, 10))
    going = layers.less_than(i, n)
    loop = layers.While(going)
    with pytest.raises(ValueError, match="one data type"), loop.block():
        layers.concat([layers.increment(i, value=5), x])
    with loop.block():
        layers.increment(i, value=3)
        layers.less_than(i, n, cond=going)
    feed = {"x": np.zeros((1, 4), "float32")}
    assert fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[i]) == [12]


def test_what_was_built_before_a_block_stays(x):
    with pytest.raises(TypeError), fluid.program_guard(fluid.default_main_program()):
        layers.fc(layers.relu(x), "3")
    assert [op.type for op in fluid.default_main_program().global_block().ops] == ["relu"]


def arguments_that_do_not_fit():
    """Calls, the start of their messages, and what the errors refer to."""
    ids = "The type of 'size' in dynamic_lstm must be int, but received str ('3')"
    yield lambda x: layers.dynamic_lstm(x, "3"), TypeError, ids
    text = "The type of 'groups' in conv2d must be int or None, but received list ([2])"
    yield lambda x: layers.conv2d(x, 3, 3, groups=[2]), TypeError, text
    text = "The type of 'multi_rois' in collect_fpn_proposals must be a list of Variable"
    yield lambda x: layers.collect_fpn_proposals(None, [x], 2, 3, 10), TypeError, text
    text = "The type of 'min_level' in distribute_fpn_proposals must be int, but received float"
    yield lambda x: layers.distribute_fpn_proposals(x, 2.5, 5, 4, 224), TypeError, text
    text = "an argument leads to a division by 0: dynamic_lstm(input=x float32[-1, 2, 4], size=0)"
    yield lambda x: layers.dynamic_lstm(x, 0), ZeroDivisionError, text
    text = "an argument has too few dimensions or items: stack(x=[])"
    yield lambda x: layers.stack([]), IndexError, text
    text = "The type of 'model_path' in load must be str, but received NoneType (None)"
    yield lambda x: fluid.load(fluid.default_main_program(), None), TypeError, text


@pytest.mark.parametrize(("call", "kind", "message"), [*arguments_that_do_not_fit()])
def test_errors_of_python_name_the_argument_or_the_call(call, kind, message):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2, 4])
        with pytest.raises(kind) as error:
            call(x)
    assert str(error.value).startswith(message)


def test_errors_of_checks_keep_their_words_and_name_the_call():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2, 4])
        with pytest.raises(ValueError, match=r"^perm of transpose") as error:
            layers.transpose(x, [1, 0])
    assert error.value.__notes__ == ["The call was transpose(x=x float32[-1, 2, 4], perm=[1, 0])"]


def test_arguments_that_a_layer_lacks_are_followed_by_those_that_it_has(x):
    with pytest.raises(TypeError, match="unexpected keyword argument 'units'") as error:
        layers.fc(x, units=3)
    assert error.value.__notes__[0].startswith("The arguments are input, size, num_flatten_dims,")


def test_errors_of_functions_that_layers_call_are_left_alone(x):
    def body(i):
        return [()[0]]

    i = layers.fill_constant([1], "int64", 0)
    with pytest.raises(IndexError) as error:
        layers.while_loop(lambda i: layers.less_than(i, i), body, [i])
    assert str(error.value) == "tuple index out of range"


CONSTRUCTIONS = {
    "epsilon": lambda: fluid.optimizer.Adam(0.1, epsilon="small"),
    "parameter_list": lambda: fluid.optimizer.SGD(0.1, parameter_list="fc_0.w_0"),
    "regularization": lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=0.1),
    "activation": lambda: layers.GRUCell(4, activation="tanh"),
    "loc": lambda: fluid.initializer.Normal("0"),
    "clip_norm": lambda: fluid.clip.GradientClipByNorm([1.0]),
    "regularization_coeff": lambda: fluid.regularizer.L2Decay("0.1"),
}


@pytest.mark.parametrize("argument", CONSTRUCTIONS)
def test_constructors_refuse_wrong_types_at_once(argument):
    with pytest.raises(TypeError, match=f"^The type of '{argument}' in "):
        CONSTRUCTIONS[argument]()


@pytest.mark.parametrize(
    "number", [np.float32(0.1), np.int64(1), np.array([0.1]), True], ids=lambda n: type(n).__name__
)
def test_numbers_of_numpy_are_numbers(number):
    assert fluid.optimizer.Adam(0.1, epsilon=number)._attrs["epsilon"] == number


def test_a_function_may_be_a_regularizer():
    fluid.optimizer.SGD(0.1, regularization=lambda param, grad, block: grad)


def test_errors_that_say_where_to_look_are_left_alone():
    with fluid.program_guard(fluid.Program()), pytest.raises(TypeError) as error:
        fluid.layers.softmax(fluid.data("x", [2, 3], "int64"))
    assert len(error.value.__notes__) == 1


def test_a_size_that_is_no_number_is_named():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        with pytest.raises(TypeError, match=r"shape of variable .*w_0 must be an integer.*'3'"):
            fluid.layers.fc(x, "3")
