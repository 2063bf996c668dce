"""Optimizers: Paddle's operators, losses and parameters; refused calls."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import describe, training_pieces

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "training_pieces.json").read_text())["optimizers"]
optimizer, layers = fluid.optimizer, fluid.layers

FAMILIES = {
    "SGD": (0.1,),
    "Momentum": (0.1, 0.9),
    "LarsMomentum": (0.1, 0.9),
    "Adagrad": (0.1,),
    "DecayedAdagrad": (0.1,),
    "Adam": (0.1,),
    "Adamax": (0.1,),
    "Lamb": (0.1,),
    "RMSProp": (0.1,),
    "Adadelta": (0.1,),
    "Ftrl": (0.1,),
    "Dpsgd": (0.1,),
}


def network():
    hidden = layers.fc(fluid.data("x", [None, 4]), 3)
    return layers.mean(hidden)


def updates(program=None):
    ops = (program or fluid.default_main_program()).global_block().ops
    return [op for op in ops if op.role == 2]


# ---- programs and values


@pytest.mark.parametrize("name", training_pieces.OPTIMIZERS)
def test_program_is_the_recorded_one(name):
    main, startup, _ = training_pieces.minimize(name, fluid)
    built, recorded = describe.programs_record(main, startup), RECORDED[name]["programs"]
    for part in ("main", "startup"):
        assert built[part]["ops"] == recorded[part]["ops"]
        assert built[part]["vars"] == recorded[part]["vars"]


@pytest.mark.parametrize("name", training_pieces.OPTIMIZERS)
def test_training_gives_recorded_losses_and_parameters(name):
    losses, params = training_pieces.train(name, fluid)
    np.testing.assert_allclose(losses, RECORDED[name]["losses"], rtol=1e-5)
    assert sorted(params) == sorted(RECORDED[name]["params"])
    for param, value in RECORDED[name]["params"].items():
        np.testing.assert_allclose(params[param], value, rtol=1e-4, atol=1e-6, err_msg=param)


def test_ftrl_passes_l2_where_the_original_passes_l1_twice():
    optimizer.Ftrl(0.1, l1=0.2, l2=0.3).minimize(network())
    assert {(op.attr("l1"), op.attr("l2")) for op in updates()} == {(0.2, 0.3)}


# ---- minimize


@pytest.mark.parametrize("name", FAMILIES)
def test_long_name_is_the_same_class(name):
    assert getattr(optimizer, name) is getattr(optimizer, name + "Optimizer")


@pytest.mark.parametrize("name", FAMILIES)
def test_minimize_returns_updates_and_pairs(name):
    ops, pairs = getattr(optimizer, name)(*FAMILIES[name]).minimize(network())
    kinds = [op.type for op in ops]
    assert ops == updates()
    assert [(p.name, g.name) for p, g in pairs] == [
        ("fc_0.w_0", "fc_0.w_0@GRAD"),
        ("fc_0.b_0", "fc_0.b_0@GRAD"),
    ]
    extra = ["scale", "scale"] if name == "Adamax" else []
    assert kinds == [optimizer.__dict__[name].type] * 2 + extra
    assert [op.role_var[0] for op in ops[:2]] == ["fc_0.b_0", "fc_0.w_0"]  # sorted by name


def test_program_without_parameters_has_nothing_to_do():
    loss = layers.mean(fluid.data("x", [None, 4]))
    assert optimizer.Adam().minimize(loss) == ([], [])


def test_parameter_list_of_minimize_comes_before_that_of_the_constructor():
    sgd = optimizer.SGD(0.1, parameter_list=["fc_0.b_0"])
    _, pairs = sgd.minimize(network(), parameter_list=["fc_0.w_0"])
    assert [p.name for p, _ in pairs] == ["fc_0.w_0"]


def test_no_grad_set_keeps_a_parameter():
    _, pairs = optimizer.SGD(0.1).minimize(network(), no_grad_set={"fc_0.b_0"})
    assert [p.name for p, _ in pairs] == ["fc_0.w_0"]


def test_frozen_parameter_has_neither_gradient_nor_update():
    x = fluid.data("x", [None, 4])
    loss = layers.mean(layers.fc(x, 3, param_attr=fluid.ParamAttr("w", trainable=False)))
    optimizer.SGD(0.1).minimize(loss)
    assert not fluid.default_main_program().global_block().has_var("w@GRAD")
    assert [op.role_var[0] for op in updates()] == ["fc_0.b_0"]


def test_given_startup_program_gets_the_states():
    startup = fluid.Program()
    optimizer.Momentum(0.1, 0.9).minimize(network(), startup_program=startup)
    made = {name for op in startup.global_block().ops for name in op.output_arg_names}
    assert made == {"learning_rate_0", "fc_0.b_0_velocity_0", "fc_0.w_0_velocity_0"}


def test_states_are_listed():
    momentum = optimizer.Momentum(0.1, 0.9)
    momentum.minimize(network())
    names = ["fc_0.b_0_velocity_0", "fc_0.w_0_velocity_0"]
    assert momentum.get_opti_var_name_list() == names


def test_backward_and_apply_gradients_are_minimize():
    loss = network()
    sgd = optimizer.SGD(0.1)
    ops = sgd.apply_gradients(sgd.backward(loss))
    assert [op.type for op in ops] == ["sgd", "sgd"]
    assert ops == updates()


def test_changed_gradient_is_what_is_applied():
    sgd = optimizer.SGD(0.1)
    pairs = sgd.backward(network())
    with fluid.default_main_program()._optimized_guard(pairs[0]):
        changed = layers.scale(pairs[0][1], 2.0)
    (update,) = sgd.apply_gradients([(pairs[0][0], changed), (pairs[1][0], None)])
    assert update.input("Grad") == [changed.name]
    assert update.role_var == ["fc_0.w_0", changed.name]


def test_stateless_optimizer_minimizes_twice_with_one_rate():
    sgd, loss = optimizer.SGD(0.1), network()
    sgd.minimize(loss)
    _, pairs = sgd.minimize(loss)
    assert [g.name for _, g in pairs] == ["grad/grad/fc_0.w_0@GRAD", "grad/grad/fc_0.b_0@GRAD"]
    assert {op.input("LearningRate")[0] for op in updates()} == {"learning_rate_0"}


def test_optimizer_with_states_minimizes_once():
    momentum, loss = optimizer.Momentum(0.1, 0.9), network()
    momentum.minimize(loss)
    with pytest.raises(Exception, match=r"velocity already exists for parameter fc_0\.b_0"):
        momentum.minimize(loss)


# ---- learning rate


def test_factor_of_a_parameter_scales_the_rate():
    attr = fluid.ParamAttr(learning_rate=0.5)
    optimizer.SGD(0.1).minimize(
        layers.mean(layers.fc(fluid.data("x", [None, 4]), 3, param_attr=attr))
    )
    ops = fluid.default_main_program().global_block().ops
    (scale,) = [op for op in ops if op.type == "scale"]
    assert (scale.role, scale.attr("scale"), scale.role_var) == (18, 0.5, [])
    rates = {op.role_var[0]: op.input("LearningRate") for op in updates()}
    assert rates == {"fc_0.b_0": ["learning_rate_0"], "fc_0.w_0": scale.output("Out")}


def test_factor_of_a_parameter_may_be_a_variable():
    rate = layers.create_global_var([1], 0.3, "float32", True, name="own")
    loss = network()
    fluid.default_main_program().global_block().var("fc_0.w_0").optimize_attr = {
        "learning_rate": rate
    }
    optimizer.SGD(0.1).minimize(loss)
    rates = {op.role_var[0]: op.input("LearningRate") for op in updates()}
    assert rates == {"fc_0.b_0": ["learning_rate_0"], "fc_0.w_0": ["own"]}


def test_schedule_of_another_program_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        sgd = optimizer.SGD(layers.create_global_var([1], 0.3, "float32", True))
    with pytest.raises(TypeError, match="belongs to another program"):
        sgd.minimize(network())


# ---- refusals


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("rate", [1, "0.1", [0.1]])
def test_learning_rate_must_be_float_or_variable(name, rate):
    with pytest.raises(TypeError, match="learning rate should be float or Variable"):
        getattr(optimizer, name)(rate, *FAMILIES[name][1:])


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("SGD", AssertionError),
        ("Momentum", AssertionError),
        ("Adam", AssertionError),
        ("Adadelta", ValueError),
        ("RMSProp", TypeError),
        ("Ftrl", TypeError),
    ],
)
def test_learning_rate_must_be_given(name, error):
    with pytest.raises(error):
        getattr(optimizer, name)(None, *FAMILIES[name][1:])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: optimizer.Momentum(0.1, None), AssertionError),
        (lambda: optimizer.Adam(beta1=None), AssertionError),
        (lambda: optimizer.Adagrad(0.1, epsilon=None), AssertionError),
        (lambda: optimizer.RMSProp(0.1, rho=None), ValueError),
        (lambda: optimizer.Adadelta(0.1, rho=None), ValueError),
        (lambda: optimizer.SGD(0.1, grad_clip=0.5), TypeError),
        (lambda: optimizer.SGD(0.1).minimize("mean_0.tmp_0"), AssertionError),
    ],
)
def test_wrong_arguments_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_vector_loss_is_refused():
    with pytest.raises(AssertionError, match=r"loss\.shape should be"):
        optimizer.SGD(0.1).minimize(layers.fc(fluid.data("x", [None, 4]), 3))


@pytest.mark.parametrize("name", ["state_dict", "set_dict", "current_step_lr", "clear_gradients"])
def test_methods_of_the_dynamic_mode_say_so(name):
    with pytest.raises(AssertionError, match=f"SGDOptimizer.{name}"):
        getattr(optimizer.SGD(0.1), name)()
