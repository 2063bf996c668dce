"""The matrix products of a workload and nothing else: no step can be faster than its products.

Modes: ``numpy`` and ``torch`` say whose products. Convolutions count as the products that im2col
would give. All threads of the library work on one product after another.
"""

from __future__ import annotations

import harness
import numpy as np
import workloads

request = harness.Request()


def prepare():
    """A function for each product, with how often it is needed."""
    made = []
    rng = np.random.RandomState(0)
    for m, k, n, times in workloads.products(request.spec):
        shapes = ((m, k), (k, n), (m, n))
        a, b, out = [rng.rand(*shape).astype("float32") for shape in shapes]
        if request.mode == "torch":
            a, b, out = [torch.from_numpy(x) for x in (a, b, out)]
        made.append((a, b, out, times))
    return made


if request.mode == "torch":
    import torch

    multiply = torch.matmul
else:
    multiply = np.matmul


def main():
    made = prepare()

    def step(_):
        for a, b, out, times in made:
            for _ in range(times):
                multiply(a, b, out=out)
        return 0.0

    harness.serve(request, step, [None])


if __name__ == "__main__":
    main()
