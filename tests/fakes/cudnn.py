"""``nvidia-cudnn-frontend`` without GPUs: graphs of one convolution, computed place by place."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.fakes.cublas import rounded, widened

__all__ = ["NAMES", "Cudnn"]

NAMES = json.loads((Path(__file__).parents[1] / "fixtures/cudnn_names.json").read_text())
"""What the real one takes; ``fixtures/record_cudnn.py`` asked it."""


_TYPES = {"float": "f4", "bfloat16": "u2"}


class NotSupportedError(RuntimeError):
    """``cudnn.cudnnGraphNotSupportedError``."""


class _Tensor:
    def __init__(self, dim=None, stride=None, data_type="float"):
        self.dim, self.stride, self.output, self.data_type = dim, stride, False, data_type

    def set_output(self, value):
        self.output = value
        return self

    def set_data_type(self, data_type):
        self.data_type = data_type
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self


class _Graph:
    def __init__(self, module, handle, io_data_type, intermediate_data_type, compute_data_type):
        assert io_data_type == intermediate_data_type == compute_data_type == "float"
        self._module, self._stage, self.barred = module, [], []

    def tensor(self, dim, stride, data_type):
        assert len(dim) == len(stride) == 4 and data_type in _TYPES
        return _Tensor(dim, stride, data_type)

    def conv_fprop(self, image, weight, **how):
        return self._one("conv_fprop", (image, weight), how)

    def conv_dgrad(self, loss, filter, **how):
        return self._one("conv_dgrad", (loss, filter), how)

    def conv_wgrad(self, image, loss, **how):
        return self._one("conv_wgrad", (image, loss), how)

    def _one(self, kind, operands, how):
        assert set(how) == {"pre_padding", "post_padding", "stride", "dilation"}
        assert set(how) < set(NAMES["operators"][kind])
        assert operands[0].data_type == operands[1].data_type
        self._kind, self._operands, self._how, self._out = kind, operands, how, _Tensor()
        return self._out

    def validate(self):
        assert self._out.output and self._out.dim and self._out.stride
        self._stage.append("valid")

    def build_operation_graph(self):
        self._stage.append("built")

    def create_execution_plans(self, heuristics):
        self._stage.append("planned")

    def deselect_numeric_notes(self, notes):
        assert self._stage[-1] == "planned", "a note is lost before there are plans"
        self.barred = notes

    def check_support(self):
        tensors = [*self._operands, self._out]
        if self._module.declines(*(tensor.data_type for tensor in tensors)):
            raise NotSupportedError("no plan")

    def build_plans(self):
        assert self._stage == ["valid", "built", "planned"]
        self._module.plans.append(self)

    def get_workspace_size(self):
        return 64

    def execute(self, tensor_dict, workspace, handle):
        machine = self._module.machine
        stream = machine.stream_at(handle.stream)
        assert stream is machine.stream() and handle.device == machine.current.device
        tensors = (*self._operands, self._out)
        found = [self._array_at(tensor_dict[tensor], tensor) for tensor in tensors]
        *reads, made = (memory for _, memory in found)
        hosts = [host for host, _ in found]
        assert type(workspace) is int  # of an array DLPack would let the null stream wait
        _, scratch = machine.array_at(workspace, self.get_workspace_size(), np.dtype("u1"))
        in_tensor_cores = "tensor cores" not in self.barred

        def convolve():
            values = [_values(host, in_tensor_cores) for host in hosts]
            _convolve(self._kind, values, **self._how)
            bits = values[2].view(np.uint32)
            hosts[2][...] = bits >> 16 if hosts[2].dtype == np.uint16 else values[2]

        machine.perform(self._kind, reads, [made, scratch], convolve)

    def _array_at(self, address, tensor):
        assert type(address) is int  # CuPy's arrays cannot be of bfloat16
        kind = np.dtype(_TYPES[tensor.data_type])
        size = 1 + sum((n - 1) * step for n, step in zip(tensor.dim, tensor.stride, strict=True))
        flat, memory = self._module.machine.array_at(address, size, kind)
        strides = [kind.itemsize * step for step in tensor.stride]
        return np.lib.stride_tricks.as_strided(flat, tensor.dim, strides), memory


def _values(host, in_tensor_cores):
    """What an operand counts as."""
    if host.dtype == np.uint16:
        return widened(host)
    return rounded(host, 13) if in_tensor_cores else host.copy()


def _convolve(kind, hosts, pre_padding, post_padding, stride, dilation):
    first, second, out = hosts
    image, weight, loss = {
        "conv_fprop": (first, second, out),
        "conv_dgrad": (out, second, first),
        "conv_wgrad": (first, out, second),
    }[kind]
    out[...] = 0
    sides = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
    padded = np.pad(image, sides)
    groups = image.shape[1] // weight.shape[1]
    inner = tuple(slice(a, a + n) for (a, _), n in zip(sides, image.shape, strict=True))
    for group, (i, j) in itertools.product(
        range(groups), itertools.product(*map(range, weight.shape[2:]))
    ):
        channels = slice(group * weight.shape[1], (group + 1) * weight.shape[1])
        count = weight.shape[0] // groups
        filters = slice(group * count, (group + 1) * count)
        rows, columns = (
            slice(k * gap, k * gap + step * (n - 1) + 1, step)
            for k, gap, step, n in zip((i, j), dilation, stride, loss.shape[2:], strict=True)
        )
        section = padded[:, channels, rows, columns]
        tap = weight[filters, :, i, j]
        if kind == "conv_fprop":
            loss[:, filters] += np.einsum("nchw,fc->nfhw", section, tap)
        elif kind == "conv_wgrad":
            tap += np.einsum("nchw,nfhw->fc", section, loss[:, filters])
        else:
            section[...] += np.einsum("nfhw,fc->nchw", loss[:, filters], tap)
    if kind == "conv_dgrad":
        out[...] = padded[inner]


class Cudnn:
    """The module.

    Args:
        machine: the GPUs.

    Attributes:
        plans: graphs that were built.
        declines: whether it has no plan for operands and a result of some types.
    """

    data_type = SimpleNamespace(FLOAT="float", BFLOAT16="bfloat16")
    heur_mode = SimpleNamespace(A="a", FALLBACK="fallback")
    numerical_note = SimpleNamespace(
        TENSOR_CORE="tensor cores",
        DOWN_CONVERT_INPUTS="rounded operands",
        REDUCED_PRECISION_REDUCTION="rounded sums",
        NONDETERMINISTIC="other bits",
    )
    cudnnGraphNotSupportedError = NotSupportedError

    def __init__(self, machine):
        self.machine, self.plans, self.declines = machine, [], lambda *types: False

    def pygraph(self, **options):
        return _Graph(self, **options)

    def backend_version(self):
        return 92000

    def create_handle(self):
        return SimpleNamespace(device=self.machine.current.device, stream=0)

    def set_stream(self, handle, stream):
        handle.stream = stream
