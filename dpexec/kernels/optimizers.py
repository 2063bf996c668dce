"""Parameter updates in one pass over the parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.kernels.lowering import Code, Value, lowering
from dpexec.kernels.machine import count, floats, kernel, number

_ONE = np.float32(1)


@kernel
def _adam(p: int) -> int:
    n, param, grad, m, v = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3), floats(p, 4)
    rate, power1, power2 = floats(p, 5), floats(p, 6), floats(p, 7)
    b1, b2, epsilon = number(p, 8), number(p, 9), number(p, 10)
    c1, c2 = _ONE - b1, _ONE - b2
    step = rate[0] * np.sqrt(_ONE - power2[0]) / (_ONE - power1[0])
    for i in range(n):
        g = grad[i]
        mean = m[i] * b1 + g * c1
        square = v[i] * b2 + g * c2 * g
        m[i] = mean
        v[i] = square
        param[i] -= mean / (np.sqrt(square) + epsilon) * step
    power1[0] *= b1
    power2[0] *= b2
    return 0


@kernel
def _sgd(p: int) -> int:
    n, param, grad, rate = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    factor = rate[0]
    for i in range(n):
        param[i] -= factor * grad[i]
    return 0


@kernel
def _momentum(p: int) -> int:
    n, param, grad, velocity = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    rate, mu = floats(p, 4), number(p, 5)
    factor = rate[0]
    for i in range(n):
        v = velocity[i] * mu + grad[i]
        velocity[i] = v
        param[i] -= v * factor
    return 0


@kernel
def _nesterov(p: int) -> int:
    n, param, grad, velocity = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    rate, mu = floats(p, 4), number(p, 5)
    factor = rate[0]
    for i in range(n):
        g = grad[i]
        v = velocity[i] * mu + g
        velocity[i] = v
        param[i] -= (v * mu + g) * factor
    return 0


@lowering("adam")
def adam(
    code: Code,
    param: Value,
    grad: Value,
    rate: Value,
    m: Value,
    v: Value,
    power1: Value,
    power2: Value,
    beta1_tensor: Value | None,
    beta2_tensor: Value | None,
    *outputs: Value,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> Any:
    """One pass over parameter, gradient and both moments."""
    if beta1_tensor is not None or beta2_tensor is not None or param.dtype != "float32":
        return False
    factors = float(beta1), float(beta2), float(epsilon)
    code.emit(_adam, param.size, param, grad, m, v, rate, power1, power2, *factors)


@lowering("sgd")
def sgd(code: Code, param: Value, rate: Value, grad: Value, out: Value) -> Any:
    """One pass."""
    if param.dtype != "float32":
        return False
    code.emit(_sgd, param.size, param, grad, rate)


@lowering("momentum")
def momentum(
    code: Code,
    param: Value,
    grad: Value,
    velocity: Value,
    rate: Value,
    *outputs: Value,
    mu: float,
    use_nesterov: bool,
) -> Any:
    """One pass over parameter, gradient and velocity."""
    if param.dtype != "float32":
        return False
    update = _nesterov if use_nesterov else _momentum
    code.emit(update, param.size, param, grad, velocity, rate, float(mu))
