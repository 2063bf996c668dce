"""The workloads in PyTorch.

Modes: ``eager``, ``compile``, ``graphs`` (the whole step as one CUDA graph), and ``ddp``, one
process per replica, which share gradients by gloo. OMP_NUM_THREADS says how many threads a process
has.
"""

from __future__ import annotations

import os
import platform

import harness
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import workloads

request = harness.Request()
SPARSE = request.spec["net"] in workloads.SPARSE and request.mode not in ("compile", "graphs")
DEVICE = "cuda" if request.on_gpu else "cpu"
PRECISIONS = {"float32": "highest", "tf32": "high", "bfloat16": "high"}  # bfloat16 by autocast
TABLES = ("emb", "wide")
IMAGES = request.spec["net"] in ("lenet", "resnet")


def layout(name, array):
    """PyTorch's layout of an initial parameter."""
    is_matrix = name.endswith(".w") and array.ndim == 2
    value = torch.from_numpy(np.ascontiguousarray(array.T if is_matrix else array))
    if array.ndim == 4:
        value = value.to(memory_format=torch.channels_last)
    return torch.nn.Parameter(value.to(DEVICE))


class Net(torch.nn.Module):
    """A workload's loss; its layers are methods.

    Args:
        initial: parameters by name.
    """

    def __init__(self, initial):
        super().__init__()
        self.named = {}
        for name, array in initial.items():
            value = layout(name, array)
            if name in TABLES:  # a module tells DDP that the gradient is sparse
                table = torch.nn.Embedding(*value.shape, sparse=SPARSE, _weight=value)
                self.add_module(name, table)
                value = table.weight
            else:
                self.register_parameter(name.replace(".", "_"), value)
            self.named[name] = value
        self.statistics = {}
        for name, array in initial.items():
            if IMAGES and name.endswith(".g"):
                mean = torch.zeros(array.shape, device=DEVICE)
                self.statistics[name[:-2]] = (mean, torch.ones_like(mean))

    def forward(self, batch):
        return workloads.loss(self, request.spec, batch)

    def linear(self, x, name, act=None):
        return _activate(F.linear(x, self.named[name + ".w"], self.named.get(name + ".b")), act)

    def conv(self, x, name, stride=1, padding=0, act=None):
        bias = self.named.get(name + ".b")
        return _activate(F.conv2d(x, self.named[name + ".w"], bias, stride, padding), act)

    def batch_norm(self, x, name, act=None):
        mean, variance = self.statistics[name]
        scale, shift = self.named[name + ".g"], self.named[name + ".b"]
        return _activate(F.batch_norm(x, mean, variance, scale, shift, training=True), act)

    def layer_norm(self, x, name):
        scale, shift = self.named[name + ".g"], self.named[name + ".b"]
        return F.layer_norm(x, x.shape[-1:], scale, shift, workloads.EPSILON)

    def max_pool(self, x):
        return F.max_pool2d(x, 2)

    def global_mean(self, x):
        return F.avg_pool2d(x, 8).flatten(1)

    def flatten(self, x):
        return x.flatten(1)

    def add(self, x, y, act=None):
        return _activate(x + y, act)

    def add_rows(self, x, name):
        return x + self.named[name]

    def scale(self, x, factor):
        return x * factor

    def join(self, x, y):
        return torch.cat([x, y], 1)

    def words(self, ids, name):
        return F.embedding(ids, self.named[name], sparse=SPARSE)

    def sum_of_words(self, ids, name):
        return self.words(ids, name).sum(1)

    def side_by_side(self, ids, name):
        return self.words(ids, name).flatten(1)

    def attention(self, q, k, v, heads):
        size, length, width = q.shape

        def split(x):
            return x.view(size, length, heads, width // heads).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(split(q), split(k), split(v))
        return mixed.transpose(1, 2).reshape(size, length, width)

    def class_loss(self, x, name, label):
        return F.cross_entropy(self.linear(x, name), label)

    def word_loss(self, x, name, label):
        return F.cross_entropy(self.linear(x, name).flatten(0, 1), label.flatten())

    def click_loss(self, logits, label):
        return F.binary_cross_entropy_with_logits(logits, label)


def _activate(x, act):
    return {None: lambda x: x, "relu": F.relu, "sigmoid": torch.sigmoid}[act](x)


def optimizers(net):
    """The optimizer, and one for tables with sparse gradients, which a fused one cannot update."""
    rate, rule = request.spec["rate"], request.spec["optimizer"]
    tables = [net.named[name] for name in TABLES if SPARSE and name in net.named]
    dense = [p for p in net.parameters() if all(p is not table for table in tables)]
    if rule == "adam":
        return [torch.optim.Adam(dense, rate, fused=True, capturable=request.mode == "graphs")]
    momentum = workloads.MOMENTUM if rule == "momentum" else 0.0
    made = [torch.optim.SGD(dense, rate, momentum=momentum, fused=True)]
    return made + ([torch.optim.SGD(tables, rate)] if tables else [])


def share(array):
    """This process's part of a batch."""
    if request.mode != "ddp":
        return array
    size = len(array) // request.replicas
    return array[request.rank * size :][:size].copy()


class Graph:
    """A step that is captured when it is called for the fourth time, and launched from then on.

    Args:
        train: the step, of tensors that stay where they are.
    """

    def __init__(self, train):
        self._train, self._calls = train, 0
        self._side = torch.cuda.Stream()
        self._batch = self._graph = self._loss = None

    def __call__(self, batch):
        if self._batch is None:
            self._batch = {name: value.clone() for name, value in batch.items()}
        for name, value in batch.items():
            self._batch[name].copy_(value)
        self._calls += 1
        if self._calls < 4:  # what is made at the first calls must not be captured
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                self._loss = self._train(self._batch)
            torch.cuda.current_stream().wait_stream(self._side)
            return self._loss
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._loss = self._train(self._batch)
        self._graph.replay()
        return self._loss


def main():
    torch.set_float32_matmul_precision(PRECISIONS[request.precision])
    torch.backends.cudnn.allow_tf32 = request.precision != "float32"
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    net = Net(workloads.parameters(request.spec))
    made, model, wait = optimizers(net), net, None
    if request.mode == "compile":
        model = torch.compile(net)
    elif request.mode == "ddp":
        store = "file://" + request.options["meet"]
        dist.init_process_group("gloo", store, rank=request.rank, world_size=request.replicas)
        model = torch.nn.parallel.DistributedDataParallel(
            net, gradient_as_bucket_view=not SPARSE, broadcast_buffers=False
        )
        wait = dist.barrier
    batches = workloads.batches(request.spec)
    data = [{name: share(array) for name, array in batch.items()} for batch in batches]

    def train(tensors):
        for optimizer in made:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=request.precision == "bfloat16"):
            loss = model(tensors)
        loss.backward()
        for optimizer in made:
            optimizer.step()
        return loss.detach()

    if request.mode == "graphs":
        train = Graph(train)

    def step(batch):
        tensors = {name: torch.from_numpy(array).to(DEVICE) for name, array in batch.items()}
        if IMAGES:
            tensors["x"] = tensors["x"].contiguous(memory_format=torch.channels_last)
        return train(tensors).item()

    def describe():
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        return {"versions": versions, "kernel_threads": torch.get_num_threads()}

    harness.serve(request, step, data, wait, describe)
    if request.mode == "ddp":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
