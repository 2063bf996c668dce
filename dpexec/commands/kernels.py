"""``dpexec kernels``: compile the kernels of first steps ahead of time."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.commands import CommandError, count
from dpexec.engine import kernels
from dpexec.engine.core.places import available_cpus

__all__ = ["NOTES", "add_options", "build"]

NOTES = """\
The code goes to the cache of compiled code, for this machine's family of processors. With --pack it
is also written into the package, from where a wheel takes it: a file for each family and version of
Python. DPEXEC_PROCESSOR chooses another family that this processor supports.

examples:
  dpexec kernels
  dpexec kernels --pack
  DPEXEC_PROCESSOR=x86-64-v3 dpexec kernels --pack
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--pack", action="store_true", help="also write the code into the package")
    parser.add_argument(
        "--processes", type=count, default=available_cpus(), metavar="N", help="number of processes"
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)  # I/N: of a process that compiles


def build(options: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        CommandError: numba is missing, or code cannot be kept.
    """
    if not kernels.available():
        raise CommandError("kernels need numba: pip install 'dpexec[fast]'")
    from dpexec.engine.kernels import ahead, code_store, compiling
    from dpexec.engine.kernels.loading import family

    if code_store.folder() is None:
        raise CommandError("there is no folder to keep code in; set NUMBA_CACHE_DIR")
    if options.part:
        part, parts = map(int, options.part.split("/"))
        for kernel in ahead.known()[part::parts]:
            ahead.prepare(kernel)
        return 0
    began = time.monotonic()
    _compile_in_processes(options.processes)
    for kernel in ahead.known():
        ahead.prepare(kernel)
    for net in _NETS:
        _train(net)
    names = sorted(compiling.used)
    took = time.monotonic() - began
    print(f"{len(names)} kernels for {family().name} in {took:.0f} s, in {code_store.folder()}")
    if options.pack:
        kept = {name: code_store.found(name, family().name) for name in names}
        path = code_store.pack_path(family().name)
        code_store.write_pack(path, {name: code for name, code in kept.items() if code})
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _compile_in_processes(number: int) -> None:
    command = [sys.executable, "-m", "dpexec", "kernels", "--part"]
    started = [subprocess.Popen([*command, f"{part}/{number}"]) for part in range(number)]
    ended = [process.wait() for process in started]
    if any(ended):
        raise CommandError("a process that compiles kernels failed; see above")


# ---- small nets: what their operators put together is compiled by training them

_Net = Callable[[Any], tuple[Any, dict[str, Any]]]
_rng = np.random.default_rng(0)


def _train(net: _Net) -> None:
    """Make some steps on two replicas, with variables of its own."""
    import dpexec as fluid

    main, startup = fluid.Program(), fluid.Program()
    guards = fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope())
    with guards[0], guards[1], fluid.unique_name.guard():
        loss, feed = net(fluid)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for replicas in (1, 2):
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, places=fluid.cpu_places(replicas)
            )
            for _ in range(2):
                exe.run(program, feed=feed, fetch_list=[loss])


def _classified(fluid: Any, features: Any, classes: int = 10) -> tuple[Any, dict[str, Any]]:
    label = fluid.data("label", [None, 1], "int64")
    found = fluid.layers.fc(features, classes, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(found, label))
    return loss, {"label": _rng.integers(0, classes, (8, 1))}


def _perceptron(optimizer: Callable[[Any], Any], sparse: bool) -> _Net:
    def net(fluid: Any) -> tuple[Any, dict[str, Any]]:
        x = fluid.data("x", [None, 16], "float32")
        words = fluid.data("words", [None, 1], "int64")
        rows = fluid.embedding(words, (50, 16), is_sparse=sparse)
        rows = fluid.layers.reshape(rows, [-1, 16])
        hidden = fluid.layers.fc([x, rows], 16, act="relu")
        hidden = fluid.layers.dropout(fluid.layers.fc(hidden, 16, act="tanh"), 0.1)
        loss, feed = _classified(fluid, fluid.layers.fc(hidden, 16, act="sigmoid"))
        optimizer(fluid).minimize(loss)
        feed["x"] = _rng.random((8, 16), dtype=np.float32)
        return loss, feed | {"words": _rng.integers(0, 50, (8, 1))}

    return net


def _images(fluid: Any) -> tuple[Any, dict[str, Any]]:
    layers = fluid.layers
    x = fluid.data("x", [None, 3, 16, 16], "float32")
    first = layers.batch_norm(layers.conv2d(x, 8, 3, 1, 1, bias_attr=False), act="relu")
    again = layers.batch_norm(layers.conv2d(first, 8, 3, 1, 1, bias_attr=False))
    joined = layers.elementwise_add(first, again, act="relu")
    pooled = layers.pool2d(layers.conv2d(joined, 8, 3, act="relu"), 2, "max", 2)
    pooled = layers.pool2d(pooled, pool_type="avg", global_pooling=True)
    loss, feed = _classified(fluid, pooled)
    decay = fluid.regularizer.L2Decay(1e-4)
    fluid.optimizer.Momentum(0.1, 0.9, regularization=decay).minimize(loss)
    return loss, feed | {"x": _rng.random((8, 3, 16, 16), dtype=np.float32)}


def _texts(fluid: Any, part: Callable[[Any, Any], Any]) -> tuple[Any, dict[str, Any]]:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    features = part(fluid.layers, fluid.layers.embedding(words, (50, 16)))
    loss, feed = _classified(fluid, features)
    fluid.optimizer.Adam(0.01).minimize(loss)
    lengths = [3, 1, 4, 2, 5, 1, 2, 3]
    ids = _rng.integers(0, 50, (sum(lengths), 1))
    return loss, feed | {"words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())}


def _lstm(layers: Any, x: Any) -> Any:
    hidden, _ = layers.dynamic_lstm(layers.fc(x, 64), 64)
    return layers.sequence_pool(hidden, "max")


def _gru(layers: Any, x: Any) -> Any:
    return layers.sequence_last_step(layers.dynamic_gru(layers.fc(x, 48), 16))


def _windows(layers: Any, x: Any) -> Any:
    return layers.sequence_pool(layers.sequence_conv(x, 16, act="tanh"), "average")


def _rounds(layers: Any, x: Any) -> Any:
    loop = layers.DynamicRNN()
    with loop.block():
        word, memory = loop.step_input(x), loop.memory(shape=[16], value=0.0)
        hidden = layers.fc([word, memory], 16, act="tanh")
        loop.update_memory(memory, hidden)
        loop.output(hidden)
    return layers.sequence_last_step(loop())


def _attention(fluid: Any) -> tuple[Any, dict[str, Any]]:
    layers = fluid.layers
    x = fluid.data("x", [None, 4, 16], "float32")
    query, key, value = (layers.fc(x, 16, num_flatten_dims=2) for _ in range(3))
    scores = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=0.25))
    found = layers.layer_norm(x + layers.matmul(scores, value), begin_norm_axis=2)
    inner = layers.fc(found, 32, num_flatten_dims=2, act="gelu")
    inner = layers.fc(inner, 16, num_flatten_dims=2)
    found = layers.layer_norm(found + inner, begin_norm_axis=2)
    loss, feed = _classified(fluid, layers.reduce_mean(found, 1))
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.optimizer.Adam(0.01, grad_clip=clip).minimize(loss)
    return loss, feed | {"x": _rng.random((8, 4, 16), dtype=np.float32)}


_SPARSE = ["SGD", "Momentum", "Adagrad", "Adam", "RMSProp"]
_DENSE = ["Ftrl", "Adamax", "Adadelta", "DecayedAdagrad", "LarsMomentum", "Lamb"]
_MORE = {"Momentum": {"momentum": 0.9}, "LarsMomentum": {"momentum": 0.9}}


def _optimizer(name: str) -> Callable[[Any], Any]:
    return lambda fluid: getattr(fluid.optimizer, name)(learning_rate=0.1, **_MORE.get(name, {}))


_NETS: list[_Net] = [
    *(_perceptron(_optimizer(name), name in _SPARSE) for name in _SPARSE + _DENSE),
    _images,
    *(lambda fluid, part=part: _texts(fluid, part) for part in (_lstm, _gru, _windows, _rounds)),
    _attention,
]
