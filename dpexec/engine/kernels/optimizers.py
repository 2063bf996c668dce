"""Parameter updates in one pass over the parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import compiled, single
from dpexec.engine.kernels.lowering import Code, Constant, Lowering, Value, lowering
from dpexec.engine.kernels.machine import Count, Doubles, Floats, Integers, Kernel, Number, kernel
from dpexec.engine.ops.average_accumulates import MOST

_ZERO, _ONE = np.float32(0), np.float32(1)
_COUNTER = np.dtype(np.int64)


@kernel(each="param grad m v")
def _adam(
    n: Count, param: Floats, grad: Floats, m: Floats, v: Floats, rate: Floats, power1: Floats,
    power2: Floats, b1: Number, b2: Number, epsilon: Number,
) -> int:  # fmt: skip
    c1, c2 = _ONE - b1, _ONE - b2
    step = rate[0] * np.sqrt(_ONE - power2[0]) / (_ONE - power1[0])
    for i in range(n):
        g = grad[i]
        mean = m[i] * b1 + g * c1
        square = v[i] * b2 + g * c2 * g
        m[i] = mean
        v[i] = square
        param[i] -= mean / (np.sqrt(square) + epsilon) * step
    return 0


@kernel
def advance(power1: Floats, power2: Floats, b1: Number, b2: Number) -> int:
    """The powers of Adam's beta1 and beta2 for the next step."""
    power1[0] *= b1
    power2[0] *= b2
    return 0


@kernel(each="param grad")
def _sgd(n: Count, param: Floats, grad: Floats, rate: Floats) -> int:
    factor = rate[0]
    for i in range(n):
        param[i] -= factor * grad[i]
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
    code.emit(advance, power1, power2, *factors[:2])


@lowering("sgd")
def sgd(code: Code, param: Value, rate: Value, grad: Value, out: Value) -> Any:
    """One pass."""
    if param.dtype != "float32":
        return False
    code.emit(_sgd, param.size, param, grad, rate)


# ---- updates that are written as statements

UPDATES: dict[str, tuple[list[str], Callable[[dict[str, Any]], Sequence[Update]]]] = {}
"""By operator type, the names of its inputs, and a function from attributes to updates."""


class Update:
    """A kernel that updates arrays of one size, element by element.

    Args:
        name: of the kernel.
        arrays: names of the arrays; those in capitals are written.
        scalars: names of arrays of one element.
        factors: names of numbers.
        before: statements before the loop; ``a_<name>`` is an array, ``n`` the size.
        each: statements for an element, which use all names in small letters.
    """

    def __init__(
        self, name: str, arrays: str, scalars: str, factors: str, before: str, each: str
    ) -> None:
        self.name, self.before, self.each = name, before, each
        self.arrays, self.scalars = arrays.split(), scalars.split()
        names = arrays.lower().split()
        self.pointers = [*names, *scalars.split()]
        self.factors = factors.split()
        typed = ["n: Count", *(f"a_{array}: Floats" for array in self.pointers)]
        typed += [f"{factor}: Number" for factor in self.factors]
        head = [f"{scalar} = a_{scalar}[0]" for scalar in scalars.split()]
        head += before.split("; ") if before else []
        body = [f"{array} = a_{array}[i]" for array in names] + each.split("; ")
        body += [f"a_{a.lower()}[i] = {a.lower()}" for a in arrays.split() if a.isupper()]
        lines = [f"def {name}({', '.join(typed)}):", *(f"    {line}" for line in head)]
        lines += ["    for i in range(n):", *(f"        {line}" for line in body), "    return 0"]
        each = "" if "a_" in before else " ".join(f"a_{array}" for array in names)
        self.kernel: Kernel = compiled(name, "\n".join([*lines, ""]), each=each)

    def emit(self, code: Code, size: int, given: Mapping[str, Any]) -> None:
        """Emit a call with arrays and numbers by name."""
        arrays = [given[name] for name in self.pointers]
        code.emit(self.kernel, size, *arrays, *(float(given[name]) for name in self.factors))


def _update(
    type: str, slots: str, attributes: str, stages: Callable[[dict[str, Any]], Sequence[Update]]
) -> Lowering:
    """The lowering of an optimizer.

    Args:
        type: of the operator.
        slots: its inputs in order, by their names in kernels.
        attributes: names of its attributes.
        stages: gives, for the attributes, the kernels to call one after another; an empty sequence
            declines. ``work`` is memory of the size of the parameter for all of them.
    """
    names = slots.split()
    UPDATES[type] = names, stages

    @lowering(type, attrs=attributes.split())
    def lower(code: Code, *values: Value | None, **attrs: Any) -> Any:
        given: dict[str, Any] = dict(zip(names, values, strict=False))
        chosen = stages(attrs)
        if not chosen or not single(*values):
            return False
        given["work"] = code.scratch(given["param"].size)
        for stage in chosen:
            stage.emit(code, given["param"].size, {**given, **attrs})

    return lower


_MOMENTUM = "param grad velocity rate"
_HEAVY_BALL = Update(
    "momentum", "PARAM grad VELOCITY", "rate", "mu", "",
    "velocity = velocity * mu + grad; param = param - velocity * rate",
)  # fmt: skip
_NESTEROV = Update(
    "nesterov", "PARAM grad VELOCITY", "rate", "mu", "",
    "velocity = velocity * mu + grad; param = param - (velocity * mu + grad) * rate",
)  # fmt: skip
momentum = _update(
    "momentum", _MOMENTUM, "mu use_nesterov",
    lambda attrs: [_NESTEROV if attrs["use_nesterov"] else _HEAVY_BALL],
)  # fmt: skip

_LARS = Update(
    "lars_momentum", "PARAM grad VELOCITY", "rate", "mu lars_coeff lars_weight_decay",
    "p_norm = norm(a_param, n); g_norm = norm(a_grad, n); "
    "usable = p_norm > zero and g_norm > zero; "
    "share = lars_coeff * p_norm / (g_norm + lars_weight_decay * p_norm) if usable else one; "
    "local = rate * share",
    "velocity = velocity * mu + local * (grad + lars_weight_decay * param); "
    "param = param - velocity",
)  # fmt: skip
_update("lars_momentum", _MOMENTUM, "mu lars_coeff lars_weight_decay", lambda attrs: [_LARS])

_STEP = "param = param - grad * rate / (sqrt(moment) + epsilon)"
_ADAGRAD = Update(
    "adagrad", "PARAM grad MOMENT", "rate", "epsilon", "", f"moment = moment + grad * grad; {_STEP}"
)
_update("adagrad", "param grad moment rate", "epsilon", lambda attrs: [_ADAGRAD])

_DECAYED = Update(
    "decayed_adagrad", "PARAM grad MOMENT", "rate", "decay epsilon", "rest = one - decay",
    f"moment = moment * decay + grad * rest * grad; {_STEP}",
)  # fmt: skip
_update("decayed_adagrad", "param grad moment rate", "decay epsilon", lambda attrs: [_DECAYED])

_RMSPROP = "mean_square = mean_square * decay + grad * rest * grad; "
_RMSPROP_STEP = "moment = moment * momentum + grad / sqrt({}) * rate; param = param - moment"
_PLAIN = Update(
    "rmsprop", "PARAM MEAN_SQUARE grad MOMENT", "rate", "epsilon decay momentum",
    "rest = one - decay", _RMSPROP + _RMSPROP_STEP.format("mean_square + epsilon"),
)  # fmt: skip
_CENTERED = Update(
    "rmsprop_centered", "PARAM MEAN_SQUARE MEAN_GRAD grad MOMENT", "rate",
    "epsilon decay momentum", "rest = one - decay",
    f"{_RMSPROP}mean_grad = mean_grad * decay + grad * rest; "
    + _RMSPROP_STEP.format("mean_square - mean_grad * mean_grad + epsilon"),
)  # fmt: skip
_update(
    "rmsprop", "param mean_square mean_grad rate grad moment", "epsilon decay momentum centered",
    lambda attrs: [_CENTERED if attrs["centered"] else _PLAIN],
)  # fmt: skip

_ADAMAX = Update(
    "adamax", "PARAM grad MOMENT INF_NORM", "rate power", "beta1 beta2 epsilon",
    "rest = one - beta1; factor = rate / (one - power)",
    "moment = moment * beta1 + grad * rest; "
    "inf_norm = max(inf_norm * beta2 + epsilon, abs(grad)); "
    "param = param - moment / inf_norm * factor",
)  # fmt: skip
_update(
    "adamax",
    "param grad rate moment inf_norm power",
    "beta1 beta2 epsilon",
    lambda attrs: [_ADAMAX],
)

_ADADELTA = Update(
    "adadelta", "PARAM grad SQUARE_GRAD SQUARE_UPDATE", "", "rho epsilon", "rest = one - rho",
    "square_grad = square_grad * rho + rest * grad * grad; scale = square_grad + epsilon; "
    "step = (square_update + epsilon) / scale * grad * grad; "
    "square_update = square_update * rho + rest * step; "
    "param = param - sqrt((square_update + epsilon) / scale) * grad",
)  # fmt: skip
_update(
    "adadelta", "param grad square_grad square_update", "rho epsilon", lambda attrs: [_ADADELTA]
)

_FTRL = Update(
    "ftrl", "PARAM SQUARE LINEAR grad", "rate", "l1 l2", "",
    "old = sqrt(square); square = square + grad * grad; new = sqrt(square); "
    "rise = grad * grad / (new + old) if new > zero else zero; "
    "linear = linear + (grad - rise / rate * param); "
    "sign = one if linear > zero else (-one if linear < zero else zero); "
    "param = (l1 * sign - linear) / (new / rate + two * l2) if abs(linear) > l1 else zero",
)  # fmt: skip
_update(
    "ftrl", "param square linear grad rate", "l1 l2 lr_power",
    lambda attrs: [_FTRL] if attrs["lr_power"] == -0.5 else [],
)  # fmt: skip

_LAMB_UPDATE = Update(
    "lamb_update", "param grad MOMENT1 MOMENT2 WORK", "", "weight_decay beta1 beta2 epsilon",
    "rest1 = one - beta1; rest2 = one - beta2",
    "moment1 = moment1 * beta1 + grad * rest1; "
    "moment2 = moment2 * beta2 + grad * grad * rest2; "
    "work = moment1 / (sqrt(moment2) + epsilon) + weight_decay * param",
)  # fmt: skip
_LAMB_STEP = Update(
    "lamb_step", "PARAM work", "rate", "",
    "p_norm = norm(a_param, n); u_norm = norm(a_work, n); "
    "factor = rate * (p_norm / u_norm if p_norm > zero and u_norm > zero else one)",
    "param = param - work * factor",
)  # fmt: skip
_update(
    "lamb", "param grad rate moment1 moment2", "weight_decay beta1 beta2 epsilon",
    lambda attrs: [_LAMB_UPDATE, _LAMB_STEP],
)  # fmt: skip


# ---- averages of parameters


@kernel
def _accumulate(
    n: Count, param: Floats, sum_1: Floats, sum_2: Floats, sum_3: Floats, added: Integers,
    before: Integers, updates: Integers, longest: Count, share: Doubles, least: Count, most: Count,
) -> int:  # fmt: skip
    """Add a parameter to running sums; a full sum is added to the next one and begins anew.

    Arguments: size, parameter, three sums, number of additions, number of additions before, number
    of updates, number of updates after which the first sum is full, window as a share of the
    updates, its least and its largest size.
    """
    updates[0] += 1
    added[0] += 1
    for i in range(n):
        sum_1[i] += param[i]
    if updates[0] % longest == 0:
        for i in range(n):
            sum_2[i] += sum_1[i]
            sum_1[i] = _ZERO
    window = min(np.int64(updates[0] * share[0]), most)
    if added[0] >= least and added[0] >= window:
        for i in range(n):
            sum_3[i] = sum_1[i] + sum_2[i]
            sum_1[i] = _ZERO
            sum_2[i] = _ZERO
        before[0] = added[0]
        added[0] = 0
    return 0


@lowering("average_accumulates")
def average_accumulates(
    code: Code, param: Value, *states: Value, average_window: float, max_average_window: int,
    min_average_window: int,
) -> Any:  # fmt: skip
    """A pass over parameter and sums, and one more when a sum is full."""
    *sums, added, before, updates = states[:6]
    if not single(param, *sums) or {added.dtype, before.dtype, updates.dtype} != {_COUNTER}:
        return False
    limits = Constant(np.array([average_window])), min_average_window, max_average_window
    code.emit(_accumulate, param.size, param, *states[:6], MOST, *limits)
