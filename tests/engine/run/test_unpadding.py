"""``sequence_unpad``: steps stay machine code if the lengths are fed."""

import dask.array as da
import distributed
import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet

layers = fluid.layers
LENGTHS = ([3, 1, 4, 2], [2, 2, 1, 4], [4, 0, 3, 1], [1, 1, 1], [4, 4, 2, 3])
"""Of the batches, out of 4."""


class Training:
    """Trains a net on sequences that are padded, or that are fed as they are."""

    def __init__(self, way, devices=2, scheduler=None):
        self.way = way
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            words = self.words = layers.embedding(self._ids(), [20, 5], padding_idx=0)
            if way != "sequences":
                words = self.words = layers.sequence_unpad(words, self._lengths())
            states = layers.dynamic_gru(layers.fc(words, 9), 3)
            pooled = layers.sequence_pool(layers.sequence_reverse(states), "average")
            self.loss = layers.mean(layers.square(layers.fc(pooled, 2)))
            fluid.optimizer.Adam(0.1).minimize(self.loss)
        run = fluid.ExecutionStrategy()
        run.scheduler = scheduler
        self.program = fluid.CompiledProgram(main).with_data_parallel(
            self.loss.name, exec_strategy=run, places=[fluid.CPUPlace()] * devices
        )
        self.scope, self.exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup, scope=self.scope)

    def _ids(self):
        if self.way == "sequences":
            return fluid.data("x", [None, 1], "int64", lod_level=1)
        return layers.unsqueeze(fluid.data("x", [None, 4], "int64"), [2])

    def _lengths(self):
        lengths = fluid.data("n", [None], "int64")
        return layers.scale(lengths, 1.0) if self.way == "computed" else lengths

    def run(self, feed, fetch=None, **how):
        return self.exe.run(self.program, feed, [fetch or self.loss], scope=self.scope, **how)[0]

    def batches(self, wrap=np.asarray):
        rng = np.random.RandomState(5)
        for lengths in LENGTHS * 2:
            ids = rng.randint(1, 20, (len(lengths), 4)) * (np.arange(4) < np.c_[lengths])
            if self.way == "sequences":
                flat = np.concatenate([row[:n] for row, n in zip(ids, lengths, strict=True)])
                yield {"x": fluid.create_lod_tensor(flat[:, None], [lengths], fluid.CPUPlace())}
            else:
                yield {"x": wrap(ids), "n": wrap(np.array(lengths))}

    def losses(self):
        return np.concatenate([self.run(batch) for batch in self.batches()])


def test_padded_sequences_train_as_sequences():
    expected = Training("sequences").losses()
    for way in ("padded", "computed"):
        np.testing.assert_allclose(Training(way).losses(), expected, rtol=1e-4, err_msg=way)


def test_steps_are_code_if_lengths_are_fed():
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    training = Training("padded")
    training.losses()
    assert any(training.program._engine.runner.code.by_binding.values())


def test_fetched_rows_show_their_sequences():
    training = Training("padded")
    batch = next(training.batches())
    found = training.run(batch, training.words, return_numpy=False)
    assert found.recursive_sequence_lengths() == [[3, 1, 4, 2]]
    assert found.shape() == [10, 5]


def test_wrong_lengths_are_refused():
    training = Training("padded")
    x = np.ones((2, 4), "int64")
    with pytest.raises(EnforceNotMet, match=r"'n' has the lengths .* cannot be negative"):
        training.run({"x": x, "n": np.array([1, -1])})
    for _ in range(3):  # at first operator by operator, then in code
        with pytest.raises(EnforceNotMet, match=r"Length is \[5\], but X has 4 rows"):
            training.run({"x": x, "n": np.array([1, 5])})
    with pytest.raises(EnforceNotMet, match="input variable n is not initialized: feed it"):
        training.run({"x": x})
    with pytest.raises(ValueError, match=r"this program is fed x, n\n"):
        training.run({"x": x, "y": x})


def test_all_sequences_may_be_empty():
    training = Training("padded", devices=1)
    x = np.ones((2, 4), "int64")
    losses = [training.run({"x": x, "n": np.array([0, 0])}) for _ in range(2)]
    assert np.isfinite(losses).all()


def test_dask_collections_on_a_cluster_train_alike():
    expected = Training("padded").losses()
    with distributed.Client(processes=False, n_workers=2, dashboard_address=":0") as client:
        training = Training("padded", scheduler=client)
        batches = training.batches(lambda array: da.from_array(array, chunks=-1))
        found = np.concatenate([training.run(batch) for batch in batches])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
