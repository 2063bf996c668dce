"""Regions of machine code in the bodies of loops, for any number of rows."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels

pytestmark = pytest.mark.skipif(not kernels.available(), reason="numba is not installed")

layers = fluid.layers


@pytest.fixture
def made(monkeypatch):
    """Whether the numbers of rows were left open, of all code that is made."""
    from dpexec.engine.compile.regions import region

    found = []

    class Noted(region.RegionCode):
        def __init__(self, steps, specs, results, rows):
            super().__init__(steps, specs, results, rows)
            found.append(rows is not None)

    monkeypatch.setattr(region, "RegionCode", Noted)
    return found


@pytest.fixture(autouse=True)
def _seeded(fresh_programs):
    fluid.default_startup_program().random_seed = 3


def dynamic(hidden=6):
    """The gradient of what a DynamicRNN makes of sequences."""
    fluid.default_startup_program().random_seed = 3
    x = fluid.data("x", [None, 5], "float32", lod_level=1)
    x.stop_gradient = False
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(x)
        before = network.memory(shape=[hidden], value=0.1)
        after = layers.fc([word, before], hidden, act="tanh")
        network.update_memory(before, after)
        network.output(after)
    loss = layers.mean(network())
    return [loss, *fluid.gradients(loss, x)]


def sequences(*lengths):
    rows = np.random.default_rng(sum(lengths)).normal(size=(sum(lengths), 5))
    return {"x": fluid.create_lod_tensor(rows.astype("float32"), [[*lengths]], fluid.CPUPlace())}


def run(fetch, *feeds, native=True):
    """Results for every feed, by one executor."""
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    program = fluid.CompiledProgram(fluid.default_main_program(), strategy)
    found = (exe.run(program, feed, fetch, return_numpy=False) for feed in feeds)
    return [[np.array(tensor) for tensor in tensors] for tensors in found]


def test_one_code_serves_rounds_with_other_numbers_of_rows(made):
    fetch = dynamic()
    feed = sequences(*range(1, 15))
    (found,) = run(fetch, feed)
    assert all(made)
    assert len(made) < 8  # of 14 rounds, and their gradients
    (expected,) = run(fetch, feed, native=False)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_what_ran_before_changes_no_bits():
    fetch = dynamic()
    feeds = sequences(2, 1), sequences(9, 8, 8, 3, 1), sequences(4, 3, 3)
    for feed, later in zip(feeds, run(fetch, *feeds), strict=True):
        (alone,) = run(fetch, feed)
        for ours, theirs in zip(later, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def attention(hidden=6):
    """A decoder that looks at all words of its sequence in every round, and the gradient of x."""
    x = fluid.data("x", [None, 5], "float32", lod_level=1)
    x.stop_gradient = False
    first = layers.fc(layers.sequence_last_step(x), hidden, act="tanh")
    network = layers.DynamicRNN()
    with network.block():
        word, words = network.step_input(x), network.static_input(x)
        before = network.memory(init=first, need_reorder=True)
        state = layers.sequence_expand(layers.fc(before, 5), words)
        weights = layers.sequence_softmax(layers.fc(layers.tanh(words + state), 1))
        weighted = layers.elementwise_mul(words, layers.reshape(weights, [-1]), axis=0)
        seen = layers.sequence_pool(weighted, "sum")
        after, _, _ = layers.gru_unit(layers.fc([seen, word], 3 * hidden), before, 3 * hidden)
        network.update_memory(before, after)
        network.output(after)
    loss = layers.mean(network())
    return [loss, *fluid.gradients(loss, x)]


def test_offsets_of_sequences_are_values_of_code(made):
    fetch = attention()
    feeds = [sequences(*lengths) for lengths in ((3, 7, 5), (4, 6), (2, 2, 8, 1), (5, 6, 3))]
    first = run(fetch, feeds[0])
    assert all(made)
    before = len(made)
    results = run(fetch, *feeds)
    assert len(made) - before < 2 * before  # batches of other sizes share code
    for ours, theirs in zip(first[0], results[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for found, expected in zip(results, run(fetch, *feeds, native=False), strict=True):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_whole_rounds_of_a_decoder_are_one_stretch():
    from dpexec.engine.compile.regions.bodies import Plain
    from dpexec.engine.compile.regions.region import Region, regions_of

    attention()
    forward, backward = fluid.default_main_program().blocks[1:3]
    found = [
        [
            part
            for part in regions_of([Plain(op, print, ()) for op in block.ops], ())
            if isinstance(part, Region)
        ]
        for block in (forward, backward)
    ]
    assert [len(parts) for parts in found] == [1, 2]


def test_what_follows_a_dynamic_rnn_is_code(monkeypatch):
    from dpexec.engine.compile.regions import step as steps

    on_numpy, run_step = [], steps._run_step

    def noted(step, envs):
        if step.code is None:
            on_numpy.append(step.node.name)
        run_step(step, envs)

    monkeypatch.setattr(steps, "_run_step", noted)
    hidden, *_ = attention()[0].op.input_arg_names
    states = fluid.default_main_program().global_block().var(hidden)
    found = layers.fc(layers.sequence_pool(states, "max"), 3, act="softmax")
    feeds = [sequences(*lengths) for lengths in ((3, 7, 5), (4, 6), (2, 2, 8, 1))]
    results = run([found], *feeds)
    assert "while" in on_numpy
    assert not {"sequence_pool", "mul", "elementwise_add", "softmax"}.intersection(on_numpy)
    for (ours,), (theirs,) in zip(results, run([found], *feeds, native=False), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_steps_of_fixed_number(made):
    x = fluid.data("x", [5, None, 4])
    x.stop_gradient = False
    network = layers.StaticRNN()
    with network.step():
        word = network.step_input(x)
        before = network.memory(shape=[-1, 6], batch_ref=word)
        after = layers.fc([word, before], 6, act="tanh", param_attr=["w", "u"], bias_attr="b")
        network.update_memory(before, after)
        network.step_output(after)
    fluid.default_startup_program().random_seed = 3
    loss = layers.mean(network())
    fetch = [loss, *fluid.gradients(loss, x)]
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(5, rows, 4)).astype("float32")} for rows in (3, 7, 4)]
    results = run(fetch, *feeds)
    assert made == [True] * 4  # of a step and its gradients, for few rows and for more
    for found, expected in zip(results, run(fetch, *feeds, native=False), strict=True):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def looped(body, rounds=3, width=4):
    """The last value of what starts with a feed, and goes from round to round."""
    x = fluid.data("x", [None, width], "float32")
    number, end = (layers.fill_constant([1], "int64", value) for value in (0, rounds))
    _, out = layers.while_loop(
        lambda i, h: layers.less_than(i, end),
        lambda i, h: [layers.increment(i), body(h)],
        [number, layers.scale(x, 1.0)],
    )
    return [out]


def test_arrays_that_do_not_lie_in_order():
    fetch = looped(lambda h: layers.relu(layers.scale(layers.transpose(h, [1, 0]), 2.0)))
    x = np.random.default_rng(0).normal(size=(8, 8)).astype("float32")[::2, ::2]
    ((found,),) = run(fetch, {"x": x})
    np.testing.assert_array_equal(found, np.maximum(x.T, 0) * 8)


def test_what_no_code_takes_runs_between_pieces_of_code(made):
    def body(h):
        doubled = layers.scale(layers.relu(h), 2.0)
        exact = layers.cast(layers.scale(layers.cast(doubled, "float64"), 0.5), "float32")
        return layers.relu(layers.scale(exact, 3.0, bias=1.0))

    fetch = looped(body)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    ((found,),) = run(fetch, {"x": x})
    np.testing.assert_array_equal(found, 27 * x + 13)
    assert len(made) > 1


def test_refused_values_name_the_operator():
    ids = fluid.data("ids", [None, 1], "int64")
    fetch = looped(lambda h: layers.relu(layers.elementwise_mul(h, layers.embedding(ids, [5, 4]))))
    feed = {"x": np.ones((2, 4), "float32"), "ids": np.array([[1], [7]])}
    with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table"):
        run(fetch, feed)


def test_recorded_operators_have_their_own_times():
    fetch = dynamic()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    loss = fetch[0].name
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss, exec_strategy=execution, places=fluid.cpu_places(1)
    )
    feed = sequences(4, 3, 1)
    for _ in range(2):
        (found,) = exe.run(program, feed=feed, fetch_list=[loss])
    names = [event.name for event in program.trace.events]
    assert names.count("tanh") == names.count("tanh_grad") == 2 * 4
    ((expected, *_),) = run(fetch, feed)
    np.testing.assert_array_equal(found, expected)


def test_images_lie_as_their_shapes_say():
    def body(h):
        images = layers.reshape(h, [-1, 2, 6, 6])
        made = layers.conv2d(images, 2, 3, padding=1, act="relu", param_attr="w", bias_attr="b")
        return layers.reshape(layers.batch_norm(made, use_global_stats=True), [-1, 72])

    fluid.default_startup_program().random_seed = 3
    fetch = looped(body, width=72)
    x = np.random.default_rng(0).normal(size=(3, 72)).astype("float32")
    ((found,),) = run(fetch, {"x": x})
    ((expected,),) = run(fetch, {"x": x}, native=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
