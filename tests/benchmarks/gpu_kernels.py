"""``python -m tests.benchmarks.gpu_kernels``: dpexec's kernels against CuPy's operators and cuDNN.

For every shape the milliseconds of an operator as it is declared (several launches of CuPy), of the
kernel that dpexec uses, and of cuDNN, whose Python interface has batch norm, but neither pooling
nor softmax. Products are compared in all precisions, and with what rounding both operands to
bfloat16 in front would take. ``traffic`` is a copy that moves as many bytes as the operator must.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

import dpexec.engine.ops
from dpexec.engine.core.places import CUDAPlace, array_module, is_compiled_with_cuda, why_no_gpu
from dpexec.engine.ir import opdef
from dpexec.engine.kernels.gpu import convolutions
from dpexec.engine.kernels.gpu.bfloat16 import rounded
from dpexec.engine.kernels.gpu.products import PRECISIONS, products
from dpexec.engine.kernels.implementations import kernel_of

assert dpexec.engine.ops
Shapes: TypeAlias = "list[tuple[int, ...]]"
IMAGES: Shapes = [(256, 64, 56, 56), (256, 256, 14, 14), (256, 16, 32, 32), (32, 64, 8, 8)]
ROWS: Shapes = [(65536, 128), (4096, 1024), (64, 10), (4096, 30000)]
PRODUCTS: Shapes = [(4096, 1024, 4096), (4096, 4096, 1024), (4096, 1024, 8000), (64, 784, 200)]
POOLS = [(3, 2, 1), (2, 2, 0)]
CALLS, BLOCKS = 20, 7
Work = Callable[[], Any]
Cases = Iterator[tuple[str, dict[str, Work], int]]


def milliseconds(xp: Any, work: Work) -> float:
    """The median time of a call on the GPU, over blocks of calls."""
    for _ in range(3):
        work()
    found = []
    for _ in range(BLOCKS):
        start, end = xp.cuda.Event(), xp.cuda.Event()
        start.record()
        for _ in range(CALLS):
            work()
        end.record()
        end.synchronize()
        found.append(xp.cuda.get_elapsed_time(start, end) / CALLS)
    return statistics.median(found)


def both(xp: Any, type: str, *values: Any, **attrs: Any) -> dict[str, Work]:
    """An operator as it is declared, and as dpexec computes it."""
    definition = opdef.get(type)
    given = definition.kernel_attrs({**definition.attrs, **attrs})
    general, special = definition.kernel, kernel_of(type, definition.kernel, "gpu")
    return {
        "CuPy": lambda: general(xp, *values, **given),
        "dpexec": lambda: special(xp, *values, **given),
    }


def pools(xp: Any, images: Shapes) -> Cases:
    """Pooling and its gradients."""
    for shape in images:
        x = xp.asarray(np.random.default_rng(0).standard_normal(shape, "f4"))
        for kind in ("max", "avg"):
            for size, stride, pad in POOLS:
                attrs = {
                    "pooling_type": kind, "ksize": [size] * 2, "strides": [stride] * 2,
                    "paddings": [pad] * 2,
                }  # fmt: skip
                forward = both(xp, "pool2d", x, **attrs)
                out = forward["dpexec"]()
                name = f"{kind} pool {size}/{stride} {shape}"
                yield name, forward, x.nbytes + out.nbytes
                backward = both(xp, "pool2d_grad", x, out, out, **attrs)
                yield f"{name} gradient", backward, 2 * (x.nbytes + out.nbytes)


def norms(xp: Any, images: Shapes) -> Cases:
    """Batch norm in training, and its gradient; alone, with relu, and of channels last."""
    cudnn = convolutions.library()
    for shape in images:
        x = xp.asarray(np.random.default_rng(0).standard_normal(shape, "f4"))
        vectors = [xp.ones(shape[1], np.float32) for _ in range(4)]
        forward = both(xp, "batch_norm", x, *vectors)
        backward = both(xp, "batch_norm_grad", x, *vectors, None, None, x)
        if cudnn is not None:
            forward["cuDNN"] = cudnn_norm(xp, cudnn, x, vectors)
            backward["cuDNN"] = cudnn_norm_gradient(xp, cudnn, x, vectors[:3])
        yield f"batch norm {shape}", forward, 3 * x.nbytes
        yield f"batch norm {shape} gradient", backward, 5 * x.nbytes
        forward = both(xp, "fused_batch_norm_act", x, *vectors)
        backward = both(xp, "fused_batch_norm_act_grad", x, x, *vectors, x)
        yield f"batch norm, relu {shape}", forward, 3 * x.nbytes
        yield f"batch norm, relu {shape} gradient", backward, 7 * x.nbytes
        last = xp.ascontiguousarray(x.transpose(0, 2, 3, 1))
        forward = both(xp, "batch_norm", last, *vectors, data_layout="NHWC")
        yield f"batch norm {last.shape}, channels last", forward, 3 * x.nbytes


def softmaxes(xp: Any, rows: Shapes) -> Cases:
    """Softmax of rows, and its gradient; of columns; and with cross entropy."""
    for shape in rows:
        x = xp.asarray(np.random.default_rng(0).standard_normal(shape, "f4"))
        yield f"softmax {shape}", both(xp, "softmax", x), 2 * x.nbytes
        yield f"softmax {shape} gradient", both(xp, "softmax_grad", x, x), 3 * x.nbytes
        yield f"softmax {shape} of columns", both(xp, "softmax", x, axis=0), 2 * x.nbytes
        label = xp.zeros((shape[0], 1), np.int64)
        forward = both(xp, "softmax_with_cross_entropy", x, label)
        yield f"softmax {shape}, loss", forward, 2 * x.nbytes
        backward = both(xp, "softmax_with_cross_entropy_grad", x, label, forward["dpexec"]()[1])
        yield f"softmax {shape}, loss, gradient", backward, 2 * x.nbytes


def multiplications(xp: Any, shapes: Shapes) -> Cases:
    """Products of (rows, depth, columns) in all precisions; and with bias and relu."""
    rng = np.random.default_rng(0)
    for rows, depth, columns in shapes:
        x, y = (xp.asarray(rng.random(n, "f4")) for n in ((rows, depth), (depth, columns)))
        size = x.nbytes + y.nbytes + 4 * rows * columns
        works = {name: multiplied(products(xp, name), x, y) for name in PRECISIONS}
        works["rounded in front"] = rounded_in_front(xp, x, y)
        yield f"product {rows} x {depth} x {columns}", works, size
        bias = xp.ones(columns, np.float32)
        works = both(xp, "fused_gemm_epilogue", x, y, bias, activation="relu")
        yield f"product {rows} x {depth} x {columns}, bias, relu", works, size


def multiplied(xp: Any, x: Any, y: Any) -> Work:
    """A product."""
    return lambda: xp.matmul(x, y)


def rounded_in_front(xp: Any, x: Any, y: Any) -> Work:
    """A product of operands that two launches round to bfloat16, with a result in float32."""
    cublas, kinds = xp.cuda.cublas, xp.cuda.runtime
    (rows, depth), columns = x.shape, y.shape[1]
    factors = [np.array(factor, np.float32) for factor in (1, 0)]
    one, zero = (factor.ctypes.data for factor in factors)

    def work() -> None:
        a, b = rounded(xp, x), rounded(xp, y)
        out = xp.empty((rows, columns), np.float32)
        cublas.gemmStridedBatchedEx(
            xp.cuda.get_cublas_handle(), 0, 0, columns, rows, depth, one,
            b.data.ptr, kinds.CUDA_R_16BF, columns, 0, a.data.ptr, kinds.CUDA_R_16BF, depth, 0,
            zero, out.data.ptr, kinds.CUDA_R_32F, columns, 0, 1,
            cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip
        assert factors  # cuBLAS reads them when it is called

    return work


def cudnn_norm(xp: Any, cudnn: Any, x: Any, vectors: list[Any]) -> Work:
    """A graph of batch norm in training."""
    graph, (image, *channels) = _graph(xp, cudnn, [x, *vectors])
    names = ("scale", "bias", "in_running_mean", "in_running_var")
    factors = {
        name: graph.tensor_scalar(value, cudnn.data_type.FLOAT)
        for name, value in (("epsilon", 1e-5), ("momentum", 0.1))
    }
    made = graph.batchnorm(input=image, **dict(zip(names, channels, strict=True)), **factors)
    results = [xp.empty_like(x), *(xp.empty_like(vector) for vector in vectors)]
    return _built(xp, cudnn, graph, [image, *channels], [x, *vectors], made, results)


def cudnn_norm_gradient(xp: Any, cudnn: Any, x: Any, vectors: list[Any]) -> Work:
    """A graph of its gradient."""
    graph, (slope, image, *channels) = _graph(xp, cudnn, [x, x, *vectors])
    names = ("scale", "mean", "inv_variance")
    given = dict(zip(names, channels, strict=True))
    made = graph.batchnorm_backward(grad=slope, input=image, **given)
    results = [xp.empty_like(x), *(xp.empty_like(vector) for vector in vectors[:2])]
    return _built(xp, cudnn, graph, [slope, image, *channels], [x, x, *vectors], made, results)


def _graph(xp: Any, cudnn: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
    single = cudnn.data_type.FLOAT
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=xp.cuda.get_current_stream().ptr)
    kinds = dict.fromkeys(("io_data_type", "intermediate_data_type", "compute_data_type"), single)
    graph = cudnn.pygraph(handle=handle, **kinds)
    shapes = [a.shape if a.ndim > 1 else (1, a.size, 1, 1) for a in arrays]
    tensors = [
        graph.tensor(dim=list(shape), stride=_strides(shape), data_type=single) for shape in shapes
    ]
    return graph, tensors


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def _built(
    xp: Any, cudnn: Any, graph: Any, tensors: list[Any], arrays: list[Any], made: Any,
    results: list[Any],
) -> Work:  # fmt: skip
    for tensor in made:
        tensor.set_output(True).set_data_type(cudnn.data_type.FLOAT)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = xp.empty(max(graph.get_workspace_size(), 1), np.uint8)
    held = [*arrays, *results]
    given = {t: a.data.ptr for t, a in zip([*tensors, *made], held, strict=True)}

    def work() -> None:
        graph.execute(given, workspace.data.ptr)
        assert held  # cuDNN has their addresses

    return work


def row(xp: Any, name: str, works: dict[str, Work], size: int) -> str:
    """A line: times, and how fast the fastest is."""
    source = xp.zeros(size // 8, np.float32)
    target = xp.empty_like(source)
    times = {kind: milliseconds(xp, work) for kind, work in works.items()}
    fastest = min(times, key=lambda kind: times[kind])
    bound = milliseconds(xp, lambda: xp.copyto(target, source))
    shown = "  ".join(f"{kind} {ms:9.4f}" for kind, ms in times.items())
    return f"{name:44s} {shown}  traffic {bound:9.4f}  fastest: {fastest}"


def main(images: Shapes = IMAGES, rows: Shapes = ROWS, sizes: Shapes = PRODUCTS) -> int:
    """Measure and print.

    Args:
        images: shapes for pooling and batch norm.
        rows: shapes for softmax.
        sizes: rows, depths and columns of products.

    Returns:
        The exit code: 1 where there is no GPU.
    """
    if not is_compiled_with_cuda():
        print(why_no_gpu(), file=sys.stderr)
        return 1
    xp = array_module(CUDAPlace(0))
    kinds = pools(xp, images), norms(xp, images), softmaxes(xp, rows), multiplications(xp, sizes)
    for cases in kinds:
        for name, works, size in cases:
            print(row(xp, name, works, size), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
