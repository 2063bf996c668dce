"""Several threads work on one request of a predictor, and give the bits of one."""

import multiprocessing

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.kernels import available, divided, onednn, onednn_threads
from dpexec.engine.kernels.onednn_epilogues import Epilogue
from dpexec.inference import model

pytestmark = pytest.mark.skipif(
    not (available() and onednn.available()), reason="only oneDNN has threads of its own"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "available_cpus", lambda: 3)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 16, 24, 24])
        y = layers.conv2d(x, 48, 3, padding=1, act="relu", bias_attr=False)
        y = layers.conv2d(y, 48, 1, groups=3, bias_attr=False)
        y = layers.fc(layers.pool2d(y, 2, "avg", 2), 700, act="relu")
        y = layers.softmax(layers.matmul(y, y, transpose_y=True))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [y], exe, main)
    return str(tmp_path)


def predictor(folder, threads):
    config = fluid.core.AnalysisConfig(folder)
    config.set_cpu_math_library_num_threads(threads)
    return fluid.core.create_paddle_predictor(config)


def predicted(predictor, rows, scale=1.0):
    x = np.random.default_rng(rows).normal(size=(rows, 16, 24, 24)) * scale
    x = x.astype("float32")
    return predictor.run([fluid.core.PaddleTensor(x)])[0].as_ndarray()


def taken(monkeypatch):
    """How many threads work on what is asked for, once code is made."""
    found, whole = [], onednn_threads.with_threads

    def noted(*arguments):
        made = whole(*arguments)
        found.append(made.threads)
        return made

    for module in ("convolution_primitives", "products"):
        monkeypatch.setattr(f"dpexec.engine.kernels.{module}.with_threads", noted)
    return found


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """A net whose work is mostly what kernels do that threads divide by rows."""
    monkeypatch.setattr(model, "available_cpus", lambda: 3)
    monkeypatch.setattr(divided, "WORTH_WAKING", divided.LEAST)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [None, 8], "int64")
        x = layers.layer_norm(fluid.embedding(ids, [50, 192]), begin_norm_axis=2)
        heads = layers.transpose(layers.reshape(x, [0, 0, 4, 48]), [0, 2, 1, 3])
        share = layers.softmax(layers.matmul(heads, heads, transpose_y=True))
        y = layers.transpose(layers.matmul(share, heads), [0, 2, 1, 3])
        x = x + layers.gelu(layers.fc(layers.reshape(y, [0, 0, 192]), 192, num_flatten_dims=2))
        tiny = layers.scale(layers.tanh(layers.scale(x, 1e-30)), 1e-10)  # 0 in place of denormals
        few = layers.fc(layers.scale(x, 1e-38), 192, num_flatten_dims=2)
        x = layers.softmax(x)
        y = layers.concat([x, layers.reduce_max(x, 2, keep_dim=True)], 2)
        out = layers.reduce_mean(layers.square(y), 2) * layers.reduce_sum(y, 2)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["ids"], [out, y, tiny, few], exe, main)
    return str(tmp_path)


def encoded(predictor, rows, largest=50):
    ids = np.random.default_rng(rows).integers(0, largest, (rows, 8))
    return [found.as_ndarray() for found in predictor.run([fluid.core.PaddleTensor(ids)])]


@pytest.mark.parametrize("threads", [2, 3])
def test_rows_divided_among_threads_have_the_bits_of_one(encoder, threads):
    one, several = predictor(encoder, 1), predictor(encoder, threads)
    for rows in (1, 7, 40, 7):
        for mine, theirs in zip(encoded(one, rows), encoded(several, rows), strict=True):
            np.testing.assert_array_equal(theirs, mine)
    with pytest.raises(fluid.errors.EnforceNotMet, match="lookup_table_v2"):
        encoded(several, 40, largest=51)
    np.testing.assert_array_equal(encoded(several, 40)[0], encoded(one, 40)[0])


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_gives_the_bits_of_one(folder, monkeypatch, threads):
    one, several = predictor(folder, 1), predictor(folder, threads)
    for rows in (1, 6, 6, 3, 40):
        np.testing.assert_array_equal(predicted(several, rows), predicted(one, rows))
    used = taken(monkeypatch)
    other = several.clone()
    np.testing.assert_array_equal(predicted(other, 5), predicted(one, 5))
    assert threads in used


@pytest.mark.parametrize("scale", [1e-38, 1e-41])
def test_any_number_of_threads_keeps_denormal_numbers_in_products(folder, scale):
    one, *others = (predictor(folder, threads) for threads in (1, 2, 3))
    for rows in (40, 3):
        for several in others:
            np.testing.assert_array_equal(
                predicted(several, rows, scale), predicted(one, rows, scale)
            )


@pytest.mark.parametrize("layer", [("conv2d", 48, 3), ("fc", 600)])
def test_results_that_are_denormal_are_those_of_one_thread(tmp_path, monkeypatch, layer):
    monkeypatch.setattr(model, "available_cpus", lambda: 2)
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x, (name, *sizes) = fluid.data("x", [None, 16, 24, 24]), layer
        y = getattr(layers, name)(x, *sizes, bias_attr=False)
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [y], exe, main)
    one, two = (predicted(predictor(str(tmp_path), n), 8, 1e-38) for n in (1, 2))
    np.testing.assert_array_equal(two, one)
    assert np.count_nonzero((one != 0) & (abs(one) < 1e-38)) > one.size / 8


def test_rows_of_products_are_divided_if_that_gives_the_same_bits():
    def product(rows, factor=1.0):
        ends = [onednn.described(shape, [0, 1]) for shape in ([rows, 64], [64, 64], [rows, 64])]
        return onednn.product(*ends, None, Epilogue(factor=factor))

    one, work = product(768), 768 * 64**2
    together, parts = onednn_threads.by_rows(one, 3, 768, product, work)
    rows = [part.layout(onednn.SRC).nbytes // 256 for part in parts]
    assert sum(rows) == 768 and rows == [256, 256, 256] and 256 % together in (0, 16)
    assert not onednn_threads.by_rows(one, 2, 768, lambda rows: product(rows, 0.5), work)[1]
    assert not onednn_threads.by_rows(product(8), 2, 8, product, 8 * 64**2)[1]  # too little work


def test_what_would_give_other_bits_is_left_to_one_thread():
    # High and narrow: rows are divided, not sums, whatever the processor.
    ends = [onednn.described(shape, [0, 1]) for shape in ([768, 64], [64, 64], [768, 64])]
    one, work = onednn.product(*ends), 768 * 64**2
    halved = None, Epilogue(factor=0.5), 2
    made = onednn_threads.with_threads(one, 2, work, lambda: onednn.product(*ends, *halved))
    assert made is one
    made = onednn_threads.with_threads(one, 3, work, lambda: onednn.product(*ends, threads=3))
    assert made.threads == 3
    assert onednn_threads.with_threads(one, 3, work, lambda: None) is made  # tried once


def test_short_work_is_not_divided():
    ends = [onednn.described([8, 8], [0, 1]) for _ in range(3)]
    one = onednn.product(*ends)
    assert onednn_threads.with_threads(one, 2, 8**3, lambda: None) is one
    assert onednn_threads.product_threads((8, 8, 8), (False, False), 2) == 1


def test_numbers_of_threads_are_whole_numbers_from_one():
    for config in (fluid.core.AnalysisConfig(), fluid.core.NativeConfig()):
        for wrong in (0, -1, 1.5):
            with pytest.raises(ValueError, match="1 thread or more"):
                config.set_cpu_math_library_num_threads(wrong)
        assert config.cpu_math_library_num_threads() == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_predicts_with_one_thread(folder):
    several = predictor(folder, 2)
    wanted = predicted(several, 6)

    def child():
        np.testing.assert_array_equal(predicted(several, 6), wanted)
        assert several.program()._predictor_threads == 1

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(120)
    assert process.exitcode == 0
