"""All passes together.

Training has the bits of training without them, and compile time stays linear.
"""

import cProfile
import pstats

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import PlanKey
from tests.engine.passes.test_fuse_images import feeds, images
from tests.engine.passes.test_switches import PASSES, regularized
from tests.engine.run.nets import AllReduce, Net, Reduce, train, word_batches, words
from tests.engine.run.nets import batches as rows

layers = fluid.layers
EVERY = (*PASSES, "fuse_softmax_with_cross_entropy")
WIDTH, LENGTH, HEADS = 8, 4, 2


def attention(x):
    """Self-attention with several heads, around it the input and a normalization."""

    def heads():
        made = layers.fc(x, WIDTH, num_flatten_dims=2)
        return layers.transpose(
            layers.reshape(made, [0, LENGTH, HEADS, WIDTH // HEADS]), [0, 2, 1, 3]
        )

    scores = layers.matmul(heads(), heads(), transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    mixed = layers.matmul(layers.softmax(scores), heads())
    mixed = layers.reshape(layers.transpose(mixed, [0, 2, 1, 3]), [0, LENGTH, WIDTH])
    mixed = layers.fc(mixed, WIDTH, num_flatten_dims=2)
    return layers.layer_norm(x + mixed, begin_norm_axis=2)


def transformer():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, LENGTH, WIDTH]), fluid.data("y", [None, 1], "int64")
        hidden = attention(x)
        wide = layers.fc(hidden, 2 * WIDTH, num_flatten_dims=2, act="gelu")
        hidden = layers.layer_norm(
            hidden + layers.fc(wide, WIDTH, num_flatten_dims=2), begin_norm_axis=2
        )
        prediction = layers.fc(layers.reduce_mean(hidden, dim=1), 3, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, y))
        clip = fluid.clip.GradientClipByGlobalNorm(1.0)
        fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip).minimize(loss)
    return Net(main, startup, loss, None, prediction)


def sequences():
    rng = np.random.RandomState(4)
    return [
        {
            "x": rng.randn(6, LENGTH, WIDTH).astype("float32"),
            "y": rng.randint(0, 3, (6, 1)).astype("int64"),
        }
        for _ in range(3)
    ]


NETS = {
    "dense": (regularized, lambda: rows(3)),
    "images": (lambda: images(True), feeds),
    "words": (lambda: words(fluid.optimizer.Adam(0.01)), lambda: word_batches(3)),
    "transformer": (transformer, sequences),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("mode", "devices"), [(AllReduce, 2), (Reduce, 2)])
@pytest.mark.parametrize("net", NETS)
def test_nets_train_as_without_passes(net, mode, devices, native):
    build, samples = NETS[net]
    plain, found = (
        train(build(), samples(), devices, mode, native_kernels=native, **dict.fromkeys(EVERY, on))
        for on in (False, True)
    )
    assert np.array_equal(plain.losses[0], found.losses[0])
    np.testing.assert_allclose(found.losses, plain.losses, rtol=1e-5)
    for name, value in plain.state.items():
        np.testing.assert_allclose(found.state[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def deep(count):
    """A net with many small layers: 30 operators for each."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = fluid.data("x", [None, 8])
        for _ in range(count):
            wide = layers.fc(hidden, 8, act="relu")
            hidden = hidden + layers.sigmoid(layers.fc(wide, 8)) * layers.tanh(wide)
        decay = fluid.regularizer.L2Decay(1e-4)
        fluid.optimizer.Adam(regularization=decay).minimize(layers.mean(hidden))
    return main


def work(program):
    """Number of Python's function calls that make graph and plan with every pass."""
    strategy = fluid.BuildStrategy()
    for name in EVERY:
        setattr(strategy, name, True)
    with cProfile.Profile() as profile:
        compilation = Compilation.of(program, [fluid.CPUPlace()] * 2, strategy, True)
        graph, _ = compilation.graph()
        compilation.plan(graph, PlanKey((), frozenset({"x"})))
    return pstats.Stats(profile).total_calls


def test_compiling_grows_with_the_program_and_no_faster():
    few, many = deep(25), deep(100)
    work(few)  # what is done once
    ratio = work(many) / work(few)
    size = len(many.global_block().ops) / len(few.global_block().ops)
    assert ratio < 1.5 * size, f"{size:.1f} times the operators, {ratio:.1f} times the calls"
