"""The workloads as fluid programs, on dpexec or on PaddlePaddle 1.8.

Modes: ``parallel`` (ParallelExecutor), ``single`` (Executor with its program cache), and on dpexec
alone ``cluster`` (a worker for each replica) and ``trainers`` (a process for each). Options are
fields of BuildStrategy and ExecutionStrategy. Written for Python 3.7, which Paddle 1.8 needs.
"""

from __future__ import annotations

import importlib
import os
import platform

import families
import harness
import loops
import numpy as np
import sequences
import spread
import workloads

request = harness.Request()
MEET = request.options.pop("meet", None)
fluid = importlib.import_module(request.options.pop("package"))
request.imported = harness.now()


class Layers:
    """Layers whose parameters have the names and sizes of the workload.

    Args:
        shapes: shapes of the parameters by name.
    """

    def __init__(self, shapes):
        self.shapes = shapes

    def _named(self, name):
        return fluid.ParamAttr(name=name) if name in self.shapes else False

    def linear(self, x, name, act=None):
        return fluid.layers.fc(
            input=x,
            size=self.shapes[name + ".w"][1],
            num_flatten_dims=len(x.shape) - 1 if len(x.shape) == 3 else 1,
            act=act,
            param_attr=self._named(name + ".w"),
            bias_attr=self._named(name + ".b"),
        )

    def conv(self, x, name, stride=1, padding=0, act=None):
        outputs, _, size, _ = self.shapes[name + ".w"]
        return fluid.layers.conv2d(
            x,
            outputs,
            size,
            stride=stride,
            padding=padding,
            act=act,
            param_attr=self._named(name + ".w"),
            bias_attr=self._named(name + ".b"),
        )

    def batch_norm(self, x, name, act=None):
        return fluid.layers.batch_norm(
            x, act=act, param_attr=self._named(name + ".g"), bias_attr=self._named(name + ".b")
        )

    def layer_norm(self, x, name):
        return fluid.layers.layer_norm(
            x,
            begin_norm_axis=2,
            param_attr=self._named(name + ".g"),
            bias_attr=self._named(name + ".b"),
        )

    def max_pool(self, x):
        return fluid.layers.pool2d(x, 2, "max", 2)

    def global_mean(self, x):
        return fluid.layers.pool2d(x, 8, "avg", 1)

    def flatten(self, x):
        return x  # fc does it

    def mean(self, x):
        return fluid.layers.mean(x)

    def add(self, x, y, act=None):
        return fluid.layers.elementwise_add(x, y, act=act)

    def add_rows(self, x, name):
        rows = fluid.layers.create_parameter(
            list(self.shapes[name]), "float32", name=name, attr=self._named(name)
        )
        return fluid.layers.elementwise_add(x, rows, axis=1)

    def scale(self, x, factor):
        return fluid.layers.scale(x, factor)

    def join(self, x, y):
        return fluid.layers.concat([x, y], axis=1)

    def words(self, ids, name):
        sparse = request.spec["net"] in workloads.SPARSE
        return fluid.embedding(
            ids, self.shapes[name], is_sparse=sparse, param_attr=self._named(name)
        )

    def sum_of_words(self, ids, name):
        return fluid.layers.reduce_sum(self.words(ids, name), dim=1)

    def side_by_side(self, ids, name):
        """One lookup for each word of the context, as word2vec programs have it."""
        found = []
        for i in range(ids.shape[1]):
            word = fluid.layers.slice(ids, axes=[1], starts=[i], ends=[i + 1])
            found.append(
                fluid.layers.embedding(
                    word, self.shapes[name], is_sparse=True, param_attr=self._named(name)
                )
            )
        return fluid.layers.concat(found, axis=1)

    def attention(self, q, k, v, heads):
        length, width = q.shape[1:]

        def split(x):
            x = fluid.layers.reshape(x, [0, length, heads, width // heads])
            return fluid.layers.transpose(x, [0, 2, 1, 3])

        scores = fluid.layers.matmul(
            split(q), split(k), transpose_y=True, alpha=(width // heads) ** -0.5
        )
        mixed = fluid.layers.matmul(fluid.layers.softmax(scores), split(v))
        mixed = fluid.layers.transpose(mixed, [0, 2, 1, 3])
        return fluid.layers.reshape(mixed, [0, length, width])

    def class_loss(self, x, name, label):
        found = self.linear(x, name, "softmax")
        return fluid.layers.mean(fluid.layers.cross_entropy(found, label))

    def word_loss(self, x, name, label):
        logits = fluid.layers.reshape(self.linear(x, name), [-1, self.shapes[name + ".w"][1]])
        label = fluid.layers.reshape(label, [-1, 1])
        return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))

    def click_loss(self, logits, label):
        return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(logits, label))


def declare(batch):
    """The inputs, like the arrays of a batch but for its size."""
    return {
        name: fluid.data(name, [None, *array.shape[1:]], str(array.dtype))
        for name, array in batch.items()
    }


def optimizer():
    rate = request.spec["rate"]
    if request.spec.get("schedule"):
        steps = fluid.layers.piecewise_decay([1000, 2000], [rate, rate / 2, rate / 10])
        rate = fluid.layers.linear_lr_warmup(steps, 100, 0.0, rate)
    if request.spec["optimizer"] == "adam":
        return fluid.optimizer.Adam(rate)
    if request.spec["optimizer"] == "momentum":
        return fluid.optimizer.Momentum(rate, workloads.MOMENTUM)
    return fluid.optimizer.SGD(rate)


def strategies():
    """BuildStrategy and ExecutionStrategy with the options that were asked for."""
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    for field, text in request.options.items():
        owner = build if hasattr(build, field) else execution
        value = getattr(owner, field)  # an unknown field is an error here
        if field == "reduce_strategy":
            value = getattr(fluid.BuildStrategy.ReduceStrategy, text)
        elif value is None or isinstance(value, bool):
            value = {"True": True, "False": False}[text]
        else:
            value = type(value)(text)
        setattr(owner, field, value)
    return build, execution


def executor_of(program, loss_name):
    """Trains in parallel, in the way that the mode names."""
    build, execution = strategies()
    if request.on_gpu:
        build.product_precision = request.precision
    if request.mode == "trainers":
        build.trainers_endpoints = spread.endpoints(MEET, request.rank, request.replicas)
        build.num_trainers, build.trainer_id = request.replicas, request.rank
    executor = fluid.ParallelExecutor(
        use_cuda=request.on_gpu,
        loss_name=loss_name,
        main_program=program,
        build_strategy=build,
        exec_strategy=execution,
    )
    replicas = 1 if request.mode == "trainers" else request.replicas
    assert executor.device_count == replicas, executor.device_count
    return executor


def fluid_program():
    """The module that has the net as a fluid program; None for those that all peers train."""
    modules = sequences, loops, families
    return next((module for module in modules if request.spec["net"] in module.NETS), None)


def data_and_parameters():
    """Batches, and the initial values of parameters that no seed gives."""
    if fluid_program():
        return fluid_program().batches(fluid, request.spec), {}
    data = workloads.batches(request.spec)
    for batch in data:
        if batch["y"].ndim == 1:
            batch["y"] = batch["y"].reshape(-1, 1)
    return data, workloads.parameters(request.spec)


def loss_of(batch, initial):
    """The mean loss of a batch."""
    if fluid_program():
        return fluid_program().loss(fluid, request.spec)
    layers = Layers({name: array.shape for name, array in initial.items()})
    return workloads.loss(layers, request.spec, declare(batch))


def results(program, number):
    """The names of the first results of a program's operators."""
    ops = program.global_block().ops
    names = dict.fromkeys(name for op in ops for name in op.output_arg_names)
    return list(names)[:number]


def main():
    data, initial = data_and_parameters()
    trains = request.spec["optimizer"] is not None
    program, startup = fluid.Program(), fluid.Program()
    program.random_seed = startup.random_seed = 1
    with fluid.program_guard(program, startup):
        loss = loss_of(data[0], initial)
        if trains:
            optimizer().minimize(loss)
    place = fluid.CUDAPlace(0) if request.on_gpu else fluid.CPUPlace()
    client = spread.cluster(request.replicas) if request.mode == "cluster" else None
    exe = fluid.Executor(place)
    exe.run(startup)
    for name, array in initial.items():
        fluid.global_scope().find_var(name).get_tensor().set(array, place)
    about = {"operators": len(program.global_block().ops)}
    about["versions"] = {"python": platform.python_version(), "numpy": np.__version__}
    about["versions"][fluid.__name__] = getattr(fluid, "__version__", "1.8")

    if request.mode == "trainers":
        data = [
            {name: spread.part(fluid, x, request.rank, request.replicas) for name, x in one.items()}
            for one in data
        ]
    if request.mode != "single":
        executor = executor_of(program, loss.name if trains else None)
        wanted = [loss.name, *results(program, request.spec.get("fetched", 1) - 1)]

        def step(batch):
            value = executor.run(wanted, feed=batch)[0]
            return np.mean(value)

    else:

        def step(batch):
            (value,) = exe.run(program, feed=batch, fetch_list=[loss], use_program_cache=True)
            return value[0]

    def describe():
        if request.on_gpu:
            properties = importlib.import_module("cupy").cuda.runtime.getDeviceProperties(0)
            about["gpu"] = properties["name"].decode()
        if request.mode != "single" and fluid.__name__ == "dpexec":
            about["dask_tasks"] = len(executor.plan.tasks) + 1  # one fetches
        return about

    harness.serve(request, step, data, about=describe)
    if client:
        client.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # Paddle's threads would keep the process from ending
