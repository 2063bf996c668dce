"""Predictors bring filters into the layout of their convolutions once, and notice other ones."""

import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.kernels import available, onednn

pytestmark = pytest.mark.skipif(
    not (available() and onednn.available()), reason="filters lie otherwise without oneDNN"
)


@pytest.fixture
def folder(tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3, 12, 12])
        for name in ("first", "second"):
            x = layers.conv2d(x, 24, 3, padding=1, act="relu", bias_attr=False, param_attr=name)
        out = layers.reduce_mean(x, dim=[2, 3])
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
    return str(tmp_path)


class Both:
    """A predictor, and the executor, which brings filters there at every run."""

    def __init__(self, folder):
        config = fluid.core.AnalysisConfig(folder)
        config.switch_use_feed_fetch_ops(False)
        self.predictor = fluid.core.create_paddle_predictor(config)
        self.scope, self.exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.program, _, self.fetches = fluid.io.load_inference_model(folder, self.exe)

    def predict(self, x):
        self.predictor.get_input_tensor("x").copy_from_cpu(x)
        self.predictor.zero_copy_run()
        return self.predictor.get_output_tensor(self.fetches[0].name).copy_to_cpu()

    def check(self, x):
        with fluid.scope_guard(self.scope):
            wanted = self.exe.run(self.program, feed={"x": x}, fetch_list=self.fetches)[0]
        np.testing.assert_array_equal(self.predict(x), wanted)
        return wanted

    def set(self, name, values):
        for scope in (self.predictor.scope(), self.scope):
            scope.find_var(name).get_tensor().set(values, fluid.CPUPlace())


def images(rows, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 3, 12, 12)).astype("float32")


def turns(monkeypatch):
    """The reorders that code asks for, with whether they are made once."""
    from dpexec.engine.kernels import onednn_calls

    found, emit = [], onednn_calls.emit

    def noted(code, arguments, primitive, rows=None, once=()):
        found.append(bool(once))
        emit(code, arguments, primitive, rows, once)

    monkeypatch.setattr(onednn_calls, "emit", noted)
    return found


def test_requests_of_all_sizes_get_what_the_executor_gives(folder, monkeypatch):
    asked, both = turns(monkeypatch), Both(folder)
    both.predict(images(2))
    assert any(asked), "no filters were packed"
    for rows in (2, 2, 5, 5, 3, 2, 7):
        both.check(images(rows, rows))


def test_other_filters_are_noticed(folder):
    both, rng = Both(folder), np.random.default_rng(3)
    before = [both.check(images(rows)) for rows in (2, 2, 5, 2)]
    for _ in range(6):  # arrays that come and go may get addresses of earlier ones
        both.set("second", rng.normal(size=(24, 24, 3, 3)).astype("float32"))
        after = [both.check(images(rows)) for rows in (2, 5, 2)]
        assert not np.array_equal(after[0], before[0])
        before = after


def test_clones_use_the_copies_of_the_first(folder):
    both = Both(folder)
    wanted = both.check(images(4))
    scope = both.predictor.scope()
    kept = [scope.find_var(name).packed for name in ("first", "second")]
    before = [[found for _, found in known] for of in kept for known in of.values()]
    assert any(before), "no filters were packed"
    clones = [both.predictor.clone() for _ in range(6)]
    begin, found = threading.Barrier(len(clones)), {}

    def work(clone):
        clone.get_input_tensor("x").copy_from_cpu(images(4))
        begin.wait()
        clone.zero_copy_run()
        found[clone] = clone.get_output_tensor(both.fetches[0].name).copy_to_cpu()

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(clone,)) for clone in clones]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for clone in clones:
            np.testing.assert_array_equal(found[clone], wanted)
        assert [[found for _, found in known] for of in kept for known in of.values()] == before
        both.set("second", np.random.default_rng(3).normal(size=(24, 24, 3, 3)).astype("float32"))
        wanted = both.exe.run(both.program, {"x": images(4)}, both.fetches, scope=both.scope)[
            0
        ]  # all clones find that there are other filters, and one of them brings these


def test_programs_that_train_keep_nothing(folder):
    both = Both(folder)
    both.check(images(4))
    assert not both.program._predictor_threads
    assert not both.scope.find_var("second").packed


def test_weights_whose_rows_push_each_other_out_of_caches_give_the_same_bits(tmp_path, monkeypatch):
    from dpexec.engine.kernels import fully_connected

    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 24])
        out = layers.fc(layers.fc(x, 512, act="relu"), 1024)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
    results = []
    for copies in (True, False):
        monkeypatch.setattr(onednn, "copies_operands", lambda copies=copies: copies)
        fully_connected._turning.cache_clear()
        both = Both(str(tmp_path))
        x = np.random.default_rng(0).normal(size=(80, 24)).astype("float32")
        results.append([both.check(x[:rows]) for rows in (80, 1, 2, 32, 33)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
