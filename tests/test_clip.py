"""Gradient clips: which gradients, in which order, and how far."""

import numpy as np
import pytest

import dpexec as fluid

clip, layers = fluid.clip, fluid.layers


def network():
    return layers.mean(layers.fc(fluid.data("x", [None, 4]), 3))


def kinds():
    ops = fluid.default_main_program().global_block().ops
    return [op.type for op in ops if op.role == 2]


def clipped_gradients(make, sparse=False):
    """Gradients of a table and of a bias before and after clipping."""
    ids = fluid.data("ids", [None, 1], dtype="int64")
    rows = layers.embedding(ids, [6, 3], is_sparse=sparse, param_attr="table")
    bias = layers.create_parameter([3], "float32", name="bias")
    loss = layers.reduce_sum(layers.elementwise_mul(rows, rows) + bias)
    pairs = sorted(fluid.backward.append_backward(loss), key=lambda pair: pair[0].name)
    clipped = make()(pairs)
    dense = []
    for _, grad in pairs + clipped:
        if grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS:
            grad = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad))
        dense.append(grad)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        feed = {"ids": np.array([[4], [1], [4]], "int64")}
        found = executor.run(feed=feed, fetch_list=dense)
    return found[:2], found[2:]


# ---- how far


@pytest.mark.parametrize("sparse", [False, True])
def test_global_norm_scales_all_by_one_factor(sparse):
    raw, clipped = clipped_gradients(lambda: clip.GradientClipByGlobalNorm(0.5), sparse)
    norm = np.sqrt(sum((grad.astype("float64") ** 2).sum() for grad in raw))
    assert norm > 0.5
    for before, after in zip(raw, clipped, strict=True):
        np.testing.assert_allclose(after, before * (0.5 / norm), rtol=1e-5)


def test_global_norm_leaves_small_gradients_alone():
    raw, clipped = clipped_gradients(lambda: clip.GradientClipByGlobalNorm(1e3))
    for before, after in zip(raw, clipped, strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("sparse", [False, True])
def test_norm_scales_each_by_its_own_factor(sparse):
    _, clipped = clipped_gradients(lambda: clip.GradientClipByNorm(0.25), sparse)
    for after in clipped:
        np.testing.assert_allclose(np.sqrt((after**2).sum()), 0.25, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_value_limits_every_element(sparse):
    raw, clipped = clipped_gradients(lambda: clip.GradientClipByValue(0.5, -0.25), sparse)
    for before, after in zip(raw, clipped, strict=True):
        np.testing.assert_allclose(after, np.clip(before, -0.25, 0.5))


# ---- which


def test_need_clip_chooses_parameters():
    only_bias = clip.GradientClipByNorm(0.1, need_clip=lambda param: "b" in param.name)
    fluid.optimizer.SGD(0.1, grad_clip=only_bias).minimize(network())
    assert kinds() == ["clip_by_norm", "sgd", "sgd"]


def test_gradients_of_none_are_left_out():
    sgd = fluid.optimizer.SGD(0.1)
    (weight, grad), (bias, _) = sgd.backward(network())
    found = clip.GradientClipByNorm(0.1)([(weight, grad), (bias, None)])
    assert [param.name for param, _ in found] == ["fc_0.w_0"]


def test_set_gradient_clip_clips_what_is_listed():
    loss = network()
    clip.set_gradient_clip(clip.GradientClipByNorm(0.1), param_list=["fc_0.b_0"])
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert kinds() == ["clip_by_norm", "sgd", "sgd"]
    ops = fluid.default_main_program().global_block().ops
    (op,) = [op for op in ops if op.type == "clip_by_norm"]
    assert op.input("X") == ["fc_0.b_0@GRAD"]


def test_set_gradient_clip_takes_parameters_of_another_program():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        network()
    weight = program.global_block().var("fc_0.w_0")
    given = clip.GradientClipByNorm(0.1)
    clip.set_gradient_clip(given, [weight], program)
    assert weight.gradient_clip_attr is given
    assert program.global_block().var("fc_0.b_0").gradient_clip_attr is None


def test_groups_are_scaled_separately():
    loss = network()
    for name, limit in (("fc_0.w_0", 0.5), ("fc_0.b_0", 0.25)):
        clip.set_gradient_clip(clip.GradientClipByGlobalNorm(limit, group_name=name), [name])
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert kinds().count("sqrt") == 2
    ops = fluid.default_main_program().global_block().ops
    factors = [op.input("Y")[0] for op in ops if op.type == "elementwise_mul"]
    assert len(set(factors)) == 2


def test_one_group_must_have_one_norm():
    loss = network()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.5), ["fc_0.w_0"])
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.4), ["fc_0.b_0"])
    with pytest.raises(ValueError, match="'clip_norm' of a same group should be the same"):
        fluid.optimizer.SGD(0.1).minimize(loss)


def test_grad_clip_comes_before_set_gradient_clip():
    loss = network()
    clip.set_gradient_clip(clip.GradientClipByNorm(0.1))
    sgd = fluid.optimizer.SGD(0.1, grad_clip=clip.GradientClipByValue(0.1))
    with pytest.warns(UserWarning, match="'set_gradient_clip' has no effect"):
        sgd.minimize(loss)
    assert kinds() == ["clip", "clip", "sgd", "sgd"]


def test_set_gradient_clip_after_minimize_is_said_to_be_late():
    fluid.optimizer.SGD(0.1).minimize(network())
    with pytest.warns(UserWarning, match="no effect on the 'minimize'"):
        clip.set_gradient_clip(clip.GradientClipByNorm(0.1))


def test_second_minimize_leaves_the_roles_of_the_first_alone():
    loss = network()
    for _ in range(2):
        grad_clip = clip.GradientClipByNorm(0.1)
        fluid.optimizer.SGD(0.1, grad_clip=grad_clip).minimize(loss)
    ops = fluid.default_main_program().global_block().ops
    for op in ops:
        if op.type == "clip_by_norm":
            assert op.role_var[1] == op.output("Out")[0]


# ---- errors inside the network


def test_error_clip_limits_the_gradient_of_a_variable():
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    hidden = layers.scale(x, 1.0)
    hidden.set_error_clip(clip.ErrorClipByValue(max=0.5, min=-0.25))
    sgd = fluid.optimizer.SGD(0.1)
    sgd.backward(layers.reduce_sum(hidden * hidden))
    fed = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    with fluid.scope_guard(fluid.Scope()):
        (grad,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=["x@GRAD"])
    np.testing.assert_allclose(grad, np.clip(2 * fed, -0.25, 0.5), rtol=1e-6)


def test_own_callbacks_replace_the_error_clip():
    hidden = layers.fc(fluid.data("x", [None, 4]), 3)
    hidden.set_error_clip(clip.ErrorClipByValue(0.5))
    fluid.optimizer.SGD(0.1).backward(layers.mean(hidden), callbacks=[])
    ops = fluid.default_main_program().global_block().ops
    assert "clip" not in [op.type for op in ops]


def test_error_clip_must_be_one():
    hidden = layers.fc(fluid.data("x", [None, 4]), 3)
    hidden.error_clip = 0.5
    with pytest.raises(TypeError, match="error_clip should be an instance"):
        fluid.optimizer.SGD(0.1).backward(layers.mean(hidden))


# ---- arguments


def test_default_minimum_is_minus_the_maximum():
    assert clip.GradientClipByValue(0.5).min == clip.ErrorClipByValue(0.5).min == -0.5


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: clip.GradientClipByValue(-1.0), AssertionError),
        (lambda: clip.GradientClipByNorm(0.1, need_clip="w"), TypeError),
        (lambda: clip.set_gradient_clip(0.1), TypeError),
        (lambda: clip.set_gradient_clip(clip.GradientClipByNorm(0.1), [3]), TypeError),
        (lambda: clip.set_gradient_clip(clip.GradientClipByNorm(0.1), ["nope"]), ValueError),
    ],
)
def test_wrong_arguments_are_refused(make, error):
    with pytest.raises(error):
        make()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (clip.GradientClipByValue(0.5), "Gradient Clip By Value, min = -0.500000, max=0.500000"),
        (clip.GradientClipByNorm(0.5), "Gradient Clip By Norm, clip_norm=0.500000"),
        (clip.GradientClipByGlobalNorm(0.5), "Gradient Clip By GlobalNorm, global_norm=0.500000"),
        (clip.ErrorClipByValue(0.5), "ByValue, min=-0.500000, max=0.500000"),
    ],
)
def test_text_form_is_that_of_fluid(given, text):
    assert str(given) == text


@pytest.mark.parametrize("name", [["a"], 3, None, b"a"])
def test_names_of_groups_are_strings(name):
    with pytest.raises(TypeError, match="group_name must be a string"):
        fluid.clip.GradientClipByGlobalNorm(1.0, name)


class Halved(clip.GradientClipBase):
    """A clip of a user, in fluid's way: for ``grad_clip`` and for ``set_gradient_clip``."""

    def _static_clip(self, params_grads):
        return [(param, grad * 0.5) for param, grad in params_grads]

    def _process_context(self, context, param, grad):
        context.setdefault("seen", []).append(param.name)

    def _create_operators(self, param, grad):
        return param, grad * 0.5


@pytest.mark.parametrize("by_optimizer", [True, False])
def test_clips_of_users(by_optimizer):
    one = fluid.initializer.Constant(1.0)
    w = fluid.layers.create_parameter([2], "float32", default_initializer=one)
    if not by_optimizer:
        clip.set_gradient_clip(Halved())
    optimizer = fluid.optimizer.SGD(1.0, grad_clip=Halved() if by_optimizer else None)
    optimizer.minimize(fluid.layers.reduce_sum(w))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    assert executor.run(fetch_list=[w])[0].tolist() == [0.5, 0.5]
