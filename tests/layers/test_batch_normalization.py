"""``inplace_abn``, compared with ``batch_norm``."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers
X = np.random.default_rng(0).normal(size=(6, 3, 4, 4)).astype("float32")


def train(normalize, places, **strategy):
    """Losses of some steps, and the output of a test program after them."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3, 4, 4])
        out = normalize(layers.conv2d(x, 4, 3, param_attr=fluid.initializer.Constant(0.1)))
        out = normalize(layers.conv2d(out, 2, 2, param_attr=fluid.initializer.Constant(-0.2)))
        loss = layers.mean(layers.square(out))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.5).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    options = fluid.BuildStrategy()
    for field, value in strategy.items():
        setattr(options, field, value)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, options, places=[fluid.CPUPlace()] * places
    )
    with fluid.scope_guard(scope):
        exe.run(startup)
        losses = [exe.run(compiled, feed={"x": X}, fetch_list=[loss])[0] for _ in range(3)]
        return np.array(losses), exe.run(test, feed={"x": X}, fetch_list=[out])[0]


@pytest.mark.parametrize(("act", "places"), [(None, 1), ("leaky_relu", 2), ("elu", 1)])
def test_in_place_or_not_trains_alike(act, places):
    def plain(x):
        out = layers.batch_norm(x)
        return getattr(layers, act)(out, alpha=0.3) if act else out

    def in_place(x):
        return layers.inplace_abn(x, act=act, act_alpha=0.3)

    for found, expected in zip(train(in_place, places), train(plain, places), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_activations_that_have_no_inverse_are_refused():
    with fluid.program_guard(fluid.Program()), pytest.raises(ValueError, match="'leaky_relu'"):
        layers.inplace_abn(fluid.data("x", [None, 3, 4, 4]), act="relu")


def test_statistics_of_all_devices_are_refused():
    with pytest.raises(RuntimeError) as failed:
        train(layers.inplace_abn, 2, sync_batch_norm=True)
    assert "use batch_norm and an activation" in str(failed.value.__cause__)


def test_momentum_may_be_a_variable():
    momentum = layers.fill_constant([1], "float32", 0.25)
    layers.batch_norm(
        fluid.data("x", [None, 3, 4, 4]), momentum=momentum, moving_mean_name="moving"
    )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    (moved,) = exe.run(feed={"x": X}, fetch_list=["moving"])
    np.testing.assert_allclose(moved, 0.75 * X.mean((0, 2, 3)), 1e-5)  # Paddle: 0.1 times
