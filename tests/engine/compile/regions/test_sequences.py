"""Operators on sequences run as code of whole steps, for sequences of any lengths."""

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("numba", reason="kernels in machine code need numba")

layers = fluid.layers
LENGTHS = ([3, 5, 2, 4], [1, 1, 6, 2], [4, 0, 1, 7], [2, 3, 3, 3, 1], [9, 1])
"""Of the batches; a sequence has no words."""


def pooled(words):
    kinds = ("sum", "average", "sqrt", "max", "first", "last")
    return layers.concat([layers.sequence_pool(words, kind, pad_value=0.5) for kind in kinds], 1)


def convolved(words):
    scores = layers.sequence_softmax(layers.fc(words, 1))
    rows = layers.sequence_conv(words, 6, 3, act="tanh")
    alone = layers.sequence_conv(words, 6, 1, bias_attr=False)
    mixed = layers.elementwise_mul(layers.elementwise_add(rows, alone), scores, axis=0)
    return layers.sequence_pool(mixed, "sum")


def remembered(words):
    hidden, cells = layers.dynamic_lstm(layers.fc(words, 12), 12, is_reverse=True)
    more, _ = layers.dynamic_lstm(layers.fc(cells, 12), 12, use_peepholes=False)
    states = layers.dynamic_gru(layers.fc([hidden, more], 9), 3)
    last = layers.dynamic_gru(layers.fc(states, 9), 3, is_reverse=True, origin_mode=True)
    return layers.sequence_pool(last, "max")


def begun(words):
    first = layers.sequence_pool(words, "average")
    hidden, _ = layers.dynamic_lstm(
        layers.fc(words, 12), 12, layers.fc(first, 3), layers.fc(first, 3)
    )
    states = layers.dynamic_gru(layers.fc(hidden, 9), 3, h_0=layers.fc(first, 3))
    return layers.sequence_pool(states, "last")


def projected(words):
    first = layers.sequence_pool(words, "average")
    states = {"h_0": layers.fc(first, 2), "c_0": layers.fc(first, 3)}
    hidden, _ = layers.dynamic_lstmp(layers.fc(words, 12), 12, 2, **states)
    last, _ = layers.dynamic_lstmp(
        layers.fc(hidden, 12), 12, 4, use_peepholes=False, is_reverse=True,
        proj_activation="identity",
    )  # fmt: skip
    return layers.sequence_pool(last, "max")


def attended(words):
    mean = layers.sequence_expand(layers.sequence_pool(words, "average"), words)
    scores = layers.sequence_softmax(layers.fc([words, mean], 1, act="tanh", bias_attr=False))
    return layers.sequence_pool(layers.elementwise_mul(words, scores, axis=0), "sum")


def tagged(words):
    """A chain of tags over memories of unusual activations."""
    kinds = {"candidate_activation": "relu", "cell_activation": "sigmoid"}
    hidden, _ = layers.dynamic_lstm(layers.fc(words, 12), 12, gate_activation="tanh", **kinds)
    hidden, _ = layers.dynamic_lstmp(layers.fc(hidden, 12), 12, 2, **kinds)
    tags = layers.cast(layers.scale(layers.fc(hidden, 1), 0.0, 1.0), "int64")
    return layers.linear_chain_crf(layers.fc(hidden, 3), tags)


def rearranged(words):
    """Sequences whose offsets code makes."""
    mean = layers.sequence_expand_as(layers.sequence_pool(words, "average"), words)
    both = layers.sequence_concat([layers.fc(words, 4), layers.fc(mean, 4), layers.fc(words, 4)])
    ahead = layers.row_conv(both, 2)
    return layers.sequence_pool(layers.sequence_softmax(layers.sequence_reshape(ahead, 1)), "max")


def padded(words):
    """Sequences that come back from rows of one length."""
    rows, lengths = layers.sequence_pad(words, layers.fill_constant([1], "float32", 0.5), 9)
    rows = layers.fc(rows, 3, num_flatten_dims=2, act="tanh")
    return layers.sequence_pool(layers.sequence_unpad(rows, lengths), "sqrt")


def chosen(words):
    """Rows at positions, and as many ones as rows have elements."""
    rows = layers.sequence_pool(words, "sum")
    first, pairs = np.array([0, 0], "int64"), np.array([[0, 1], [0, 3]], "int64")
    found = layers.gather(rows, layers.assign(first), overwrite=False)
    few = layers.sequence_mask(layers.assign(first + 3), 5, "float32")
    left = layers.reduce_sum(layers.elementwise_mul(found, few), dim=1)
    right = layers.gather_nd(rows, layers.assign(pairs))
    sides = (layers.reshape(side, [-1, 1]) for side in (left, right))
    label = layers.assign(np.array([[1], [-1]], "float32"))
    return layers.margin_rank_loss(label, *sides, margin=0.5)


NETS = [
    pooled,
    convolved,
    remembered,
    begun,
    projected,
    attended,
    tagged,
    rearranged,
    padded,
    chosen,
]


class Training:
    """Trains a net on batches of other lengths."""

    def __init__(self, net, devices, native=True, **execution):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            words = layers.embedding(fluid.data("x", [None, 1], "int64", lod_level=1), [20, 5])
            self.loss = layers.mean(layers.square(net(words)))
            fluid.optimizer.Adam(0.1).minimize(self.loss)
        build, run = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        build.native_kernels = native
        for name, value in execution.items():
            setattr(run, name, value)
        self.program = fluid.CompiledProgram(main).with_data_parallel(
            self.loss.name, build, run, places=[fluid.CPUPlace()] * devices
        )
        self.startup, self.scope = startup, fluid.Scope()

    def losses(self):
        """Of two times all batches."""
        rng, found = np.random.RandomState(5), []
        with fluid.scope_guard(self.scope):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(self.startup)
            for lengths in LENGTHS * 2:
                ids = rng.randint(0, 20, (sum(lengths), 1)).astype("int64")
                x = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
                found.append(exe.run(self.program, {"x": x}, [self.loss])[0])
        return np.concatenate(found)

    @property
    def whole_steps(self):
        """The steps of code that were made."""
        engine = self.program._engine
        return [code for code in engine.runner.code.by_binding.values() if code is not None]


@pytest.mark.parametrize("net", NETS)
def test_steps_are_code_and_compute_what_operators_compute(net):
    training = Training(net, 2)
    expected = Training(net, 2, native=False).losses()
    np.testing.assert_allclose(training.losses(), expected, rtol=2e-4)
    assert training.whole_steps


@pytest.mark.parametrize("net", [convolved, remembered])
def test_schedulers_and_threads_change_no_bit(net):
    ways = [{}, {"num_threads": 2}, {"use_experimental_executor": False}, {"scheduler": "sync"}]
    found = [Training(net, 2, **way).losses() for way in ways]
    for losses in found[1:]:
        np.testing.assert_array_equal(losses, found[0])


@pytest.mark.parametrize("devices", [1, 2])
def test_offsets_that_code_makes_are_fetched(devices):
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [None, 2], lod_level=1)
        twice = layers.sequence_concat([x, layers.scale(x, 2.0)])
        wide = layers.sequence_reshape(twice, 1)
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * devices)
    exe, found = fluid.Executor(fluid.CPUPlace()), []
    for lengths in LENGTHS:
        rows = np.ones((sum(lengths), 2), "float32")
        fed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
        found.append(exe.run(program, fed, [twice, wide], return_numpy=False))
    assert program._engine.runner.code.by_binding
    for lengths, (both, narrow) in zip(LENGTHS, found, strict=True):
        assert both.recursive_sequence_lengths() == [[2 * n for n in lengths]]
        assert narrow.recursive_sequence_lengths() == [[4 * n for n in lengths]]
        assert np.array(both).sum() == 6 * sum(lengths)
