"""Only the matrix products of a workload: no step can be faster.

Modes: ``numpy``, ``torch`` and ``dpexec`` say whose products; ``traffic`` and ``numpy traffic`` are
the other bound: a copy that reads and writes as much as the update of the parameters must.
Convolutions count as the products that im2col would give. All threads of NumPy or PyTorch work on
one product after another; with dpexec each replica multiplies its part of the batch. Which is
fastest depends on the processor: a bound is the fastest of them.
"""

from __future__ import annotations

import functools

import harness
import numpy as np
import workloads

request = harness.Request()
BY_NUMPY = request.mode.startswith("numpy")
if not (BY_NUMPY or request.mode == "dpexec"):
    import torch

    torch.set_float32_matmul_precision("highest" if request.precision == "float32" else "high")


def placed(array):
    """An array where the products are computed."""
    if BY_NUMPY:
        return array
    return torch.from_numpy(array).to("cuda" if request.on_gpu else "cpu")


def calls():
    """What a step calls."""
    if request.mode.endswith("traffic"):
        size = sum(value.size for value in workloads.parameters(request.spec).values())
        half = size * workloads.passes(request.spec) // 2
        source, target = (placed(np.ones(half, "float32")) for _ in range(2))
        return [lambda: np.copyto(target, source) if BY_NUMPY else target.copy_(source)]
    multiply = np.matmul if BY_NUMPY else torch.matmul
    made = []
    rng = np.random.RandomState(0)
    for m, k, n, times in workloads.products(request.spec):
        shapes = ((m, k), (k, n), (m, n))
        a, b, out = [placed(rng.rand(*shape).astype("float32")) for shape in shapes]
        if request.on_gpu and request.precision == "bfloat16":
            a, b, out = a.bfloat16(), b.bfloat16(), out.bfloat16()
        made += [functools.partial(multiply, a, b, out=out)] * times
    return made


def program():
    """The same products as a step of dpexec, whose replicas share the batch."""
    import dpexec as fluid

    part = {**request.spec, "batch": request.spec["batch"] // request.replicas}
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        block = main.global_block()
        for m, k, n, times in workloads.products(part):
            a, b = (
                fluid.layers.create_parameter([times, *shape], "float32")
                for shape in ((m, k), (k, n))
            )
            out = block.create_var(name=a.name + ".out", persistable=True)  # else nobody needs it
            block.append_op("matmul", inputs={"X": a, "Y": b}, outputs={"Out": out})
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    places = fluid.cpu_places(request.replicas)
    step = fluid.CompiledProgram(main).with_data_parallel(places=places)
    return functools.partial(exe.run, step)


def main():
    if request.mode == "dpexec":
        made = [program()]
    else:
        made = calls()

    def step(_):
        for call in made:
            call()
        return 0.0

    wait = torch.cuda.synchronize if request.on_gpu else None
    harness.serve(request, step, [None], wait)


if __name__ == "__main__":
    main()
