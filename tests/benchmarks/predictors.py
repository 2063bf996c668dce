"""``python -m tests.benchmarks.predictors``: a predictor beside onnxruntime on the same model.

Each net is saved as an inference model, read by a predictor (``zero_copy_run``), exported and read
by onnxruntime. Both predict the same batch in turns, in a process that has as many cores and
threads as the line says. Printed are milliseconds of a request, median and 99th percentile of each;
the median of the ratios of neighbouring requests, which noise of the machine hardly changes;
processor time of a request, and its ratio, which other processes change least. The last columns are
the net as ``contrib.slim`` freezes it, computed with integers: processor time of a request, and how
many times faster that is than the net of real numbers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec import layers
from dpexec.contrib.slim.quantization import QuantizationFreezePass, QuantizationTransformPass
from dpexec.framework import IrGraph
from dpexec.onnx import export
from tests.benchmarks.driver import alone

Feed = dict[str, np.ndarray[Any, Any]]


def _conv(x: Any, filters: int, size: int, stride: int = 1, groups: int = 1, act: Any = "relu"):
    x = layers.conv2d(
        x, filters, size, stride, (size - 1) // 2, groups=groups, bias_attr=False
    )  # fmt: skip
    return layers.batch_norm(x, act=act)


def lenet() -> Any:
    """Two convolutions on 28 x 28 pixels."""
    x = fluid.data("x", [None, 1, 28, 28])
    for filters in (20, 50):
        x = fluid.nets.simple_img_conv_pool(x, filters, 5, 2, 2, act="relu")
    return layers.fc(layers.fc(x, 500, act="relu"), 10, act="softmax")


def resnet18() -> Any:
    """ResNet-18 on 112 x 112 pixels."""
    x = _conv(fluid.data("x", [None, 3, 112, 112]), 64, 7, 2)
    x = layers.pool2d(x, 3, "max", 2, 1)
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
                          (512, 1)):  # fmt: skip
        y = _conv(_conv(x, width, 3, stride), width, 3, act=None)
        same = stride == 1 and x.shape[1] == width
        x = layers.elementwise_add(
            x if same else _conv(x, width, 1, stride, act=None), y, act="relu"
        )
    return layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 1000, act="softmax")


def resnet50() -> Any:
    """ResNet-50 on 224 x 224 pixels."""
    x = _conv(fluid.data("x", [None, 3, 224, 224]), 64, 7, 2)
    x = layers.pool2d(x, 3, "max", 2, 1)
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = _conv(_conv(x, width, 1), width, 3, stride)
            short = x if block else _conv(x, 4 * width, 1, stride, act=None)
            x = layers.elementwise_add(short, _conv(y, 4 * width, 1, act=None), act="relu")
    return layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 1000, act="softmax")


def mobilenet() -> Any:
    """MobileNet of half width on 112 x 112 pixels."""
    x = _conv(fluid.data("x", [None, 3, 112, 112]), 16, 3, 2)
    for width, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1),
                          (256, 1), (512, 2), (512, 1)):  # fmt: skip
        x = _conv(_conv(x, x.shape[1], 3, stride, groups=x.shape[1]), width, 1)
    return layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 1000, act="softmax")


def bert() -> Any:
    """An encoder of 6 layers, 256 wide, on 32 tokens."""
    words = fluid.data("x", [None, 32], "int64")
    x = layers.layer_norm(fluid.embedding(words, [1000, 256]), begin_norm_axis=2)
    for _ in range(6):
        heads = [
            layers.transpose(
                layers.reshape(layers.fc(x, 256, num_flatten_dims=2), [0, 0, 4, 64]), [0, 2, 1, 3]
            )
            for _ in range(3)
        ]
        share = layers.softmax(layers.matmul(heads[0], heads[1], transpose_y=True, alpha=0.125))
        y = layers.transpose(layers.matmul(share, heads[2]), [0, 2, 1, 3])
        y = layers.fc(layers.reshape(y, [0, 0, 256]), 256, num_flatten_dims=2)
        x = layers.layer_norm(x + y, begin_norm_axis=2)
        y = layers.fc(x, 1024, num_flatten_dims=2, act="gelu")
        x = layers.layer_norm(x + layers.fc(y, 256, num_flatten_dims=2), begin_norm_axis=2)
    return layers.fc(layers.reduce_mean(x, 1), 2, act="softmax")


def lstm() -> Any:
    """A classifier of texts of 32 words, LSTM of 128 cells."""
    x = fluid.embedding(fluid.data("x", [None, 32], "int64"), [1000, 64])
    images = layers.unsqueeze(layers.transpose(x, [0, 2, 1]), [3])
    rows = layers.im2sequence(images, filter_size=1, stride=1)
    hidden, _ = layers.dynamic_lstm(layers.fc(rows, 512), 512, use_peepholes=False)
    return layers.fc(layers.sequence_last_step(hidden), 2, act="softmax")


def wide_deep() -> Any:
    """26 columns of categories and 13 numbers."""
    ids, x = fluid.data("ids", [None, 26], "int64"), fluid.data("x", [None, 13])
    deep = layers.reshape(fluid.embedding(ids, [1000, 16]), [0, 26 * 16])
    deep = layers.concat([deep, x], axis=1)
    for width in (256, 128, 64):
        deep = layers.fc(deep, width, act="relu")
    wide = layers.reduce_sum(fluid.embedding(ids, [1000, 1]), dim=1)
    return layers.sigmoid(wide + layers.fc(deep, 1))


NETS: dict[str, Callable[[], Any]] = {
    net.__name__: net for net in (lenet, resnet18, resnet50, mobilenet, bert, lstm, wide_deep)
}


def _feed(program: Any, names: list[str], rows: int) -> Feed:
    rng, found = np.random.default_rng(0), {}
    for name in names:
        var = program.global_block().var(name)
        shape = [rows, *var.shape[1:]]
        real = var.dtype == fluid.core.VarDesc.VarType.FP32
        found[name] = (
            rng.standard_normal(shape, dtype=np.float32) if real else rng.integers(0, 1000, shape)
        )
    return found


def _frozen(folder: str, main: Any, found: Any, feed: Feed, exe: Any) -> None:
    """Save a net as ``contrib.slim`` freezes it, with the scales of one batch."""
    scope = fluid.global_scope()
    graph = IrGraph(fluid.core.Graph(main.clone(for_test=True).desc), for_test=True)
    how = {"activation_quantize_type": "moving_average_abs_max"}
    how |= {"weight_quantize_type": "channel_wise_abs_max"}
    graph = QuantizationTransformPass(scope, exe.place, **how).apply(graph)
    rounded = [
        op for op in graph.to_program().global_block().ops
        if op.type == "fake_quantize_moving_average_abs_max"
    ]  # fmt: skip
    names = list(dict.fromkeys(op.inputs["X"][0] for op in rounded))
    values = exe.run(main, feed=feed, fetch_list=names, return_numpy=False)  # some in sequences
    for name, value in zip(names, values, strict=True):
        scale = np.array([np.abs(np.array(value)).max()], np.float32)
        scope.find_var(f"{name}.scale").get_tensor().set(scale, exe.place)
    freeze = QuantizationFreezePass(scope, exe.place, weight_quantize_type="channel_wise_abs_max")
    program = freeze.apply(graph).to_program()
    target = program.global_block().var(found.name)
    fluid.io.save_inference_model(folder, list(feed), [target], exe, program)


def _request(folder: str, feed: Feed, threads: int, integers: bool = False) -> Callable[[], Any]:
    """A request to a predictor of dpexec."""
    config = fluid.core.AnalysisConfig(folder)
    config.switch_use_feed_fetch_ops(False)
    config.set_cpu_math_library_num_threads(threads)
    if integers:
        config.enable_mkldnn()
    predictor = fluid.core.create_paddle_predictor(config)
    out = predictor.get_output_tensor(predictor.get_output_names()[0])

    def request() -> Any:
        for each, array in feed.items():
            predictor.get_input_tensor(each).copy_from_cpu(array)
        predictor.zero_copy_run()
        return out.copy_to_cpu()

    return request


def predictors_of(name: str, rows: int, threads: int) -> list[Callable[[], Any]]:
    """What predicts a batch with dpexec, with onnxruntime, and with dpexec's integers."""
    import onnxruntime

    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    main.random_seed = startup.random_seed = 1
    with tempfile.TemporaryDirectory() as folder, fluid.scope_guard(fluid.Scope()):
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            found = NETS[name]()
        exe.run(startup)
        inputs = [v.name for v in main.list_vars() if v.is_data]
        feed = _feed(main, inputs, rows)
        test = main.clone(for_test=True)
        fluid.io.save_inference_model(folder, inputs, [found], exe, main)
        export(folder, os.path.join(folder, "net.onnx"))
        ours = _request(folder, feed, threads)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(os.path.join(folder, "net.onnx"), options)
        small = os.path.join(folder, "small")
        _frozen(small, test, found, feed, exe)
        integers = _request(small, feed, threads, integers=True)

    def theirs() -> Any:
        return session.run(None, feed)[0]

    np.testing.assert_allclose(ours(), theirs(), rtol=1e-3, atol=1e-5)
    return [ours, theirs, integers]


def _measure(name: str, rows: int, threads: int, seconds: float, line: Any) -> None:
    """In a process of its own: send the line of the table."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    sides = predictors_of(name, rows, threads)
    for predict in sides * 5:
        predict()
    wall: list[list[float]] = [[] for _ in sides]
    work: list[list[float]] = [[] for _ in sides]
    order, rng = np.arange(len(sides)), np.random.default_rng(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(wall[0]) < 10:
        rng.shuffle(order)  # who comes behind whom finds other weights in the caches
        for side in order:
            used, start = time.process_time(), time.perf_counter()
            sides[side]()
            wall[side].append((time.perf_counter() - start) * 1e3)
            work[side].append((time.process_time() - used) * 1e3)
    times, used_times = np.array(wall), np.array(work)
    facts = [
        *np.median(times[:2], 1), *np.percentile(times[:2], 99, 1),
        np.median(times[0] / times[1]), *np.median(used_times[:2], 1),
        np.median(used_times[0] / used_times[1]), np.median(used_times[2]),
        np.median(used_times[0] / used_times[2]),
    ]  # fmt: skip
    line.send(f"{name:10}{rows:6}{threads:8}" + "".join(f"{fact:10.2f}" for fact in facts))


def _apart(*given: Any) -> str:
    """A line of the table, measured in a new process with so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(given[2])
    context = multiprocessing.get_context("spawn")
    line, far = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(*given, far))
    process.start()
    far.close()
    try:
        return str(line.recv())
    except EOFError:
        return f"{given[0]:10}{given[1]:6}{given[2]:8}  failed"
    finally:
        process.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", default=list(NETS), help=", ".join(NETS))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64], help="of a request")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each line")
    options = parser.parse_args()
    heads = (
        "ms", "ort ms", "99%", "ort 99%", "ratio", "work", "ort work", "ratio", "int8 work",
        "float/int8",
    )  # fmt: skip
    print(f"{'net':10}{'rows':>6}{'threads':>8}" + "".join(f"{head:>10}" for head in heads))
    with alone():
        for name in options.nets:
            for rows in options.rows:
                for threads in options.threads:
                    print(_apart(name, rows, threads, options.seconds), flush=True)


if __name__ == "__main__":
    sys.exit(main())
