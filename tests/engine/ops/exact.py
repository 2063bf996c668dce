"""What operators compute element by element, in longer numbers and by formulas of their own.

Every formula takes its operands as ``longdouble`` (64 bits of mantissa) and numbers of the
operator's attributes, and gives the result; or the result and how large the largest of the terms
is that cancel in it.
"""

import numpy as np

L = np.longdouble
PI = L("3.14159265358979323846264338327950288")


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1, small) / (1 + small)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sech2(x):
    e = np.exp(-2 * np.abs(x))
    return 4 * e / (1 + e) ** 2


def tanh(x):
    return np.sign(x) * -np.expm1(-2 * np.abs(x)) / (1 + np.exp(-2 * np.abs(x)))


def tanh_shrink(x):
    z, series = np.minimum(x * x, 1), L(0)
    for k in range(12, 0, -1):
        series = series * z + 2 * k / L(np.prod([L(i) for i in range(1, 2 * k + 2)]))
    return np.where(np.abs(x) < 1, series * z * x / np.cosh(np.minimum(np.abs(x), 1)), x - tanh(x))


def density(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * PI)


def _below(v):
    a = min(abs(v), L(150))
    if a < 3:
        z = a / np.sqrt(L(2))
        term = total = z
        for k in range(1, 60):
            term = -term * z * z / k
            total += term / (2 * k + 1)
        tail = (1 - 2 / np.sqrt(PI) * total) / 2
    else:
        fraction = L(0)
        for k in range(200, 0, -1):
            fraction = k / (a + fraction)
        tail = np.exp(-a * a / 2) / (a + fraction) / np.sqrt(2 * PI)
    return 1 - tail if v > 0 else tail


normal = np.vectorize(_below, otypes=[L])


def erf(x):
    near, total, term = np.minimum(np.abs(x), 1), 0, 1
    for k in range(40):
        total, term = total + term / (2 * k + 1), -term * near * near / (k + 1)
    far = 1 - 2 * normal(-np.abs(x) * np.sqrt(L(2)))
    return np.sign(x) * np.where(np.abs(x) < 1, 2 / np.sqrt(PI) * near * total, far)


def gelu_inner(x):
    return 2 * np.sqrt(2 / PI) * x * (1 + L("0.044715") * x * x)


def sums(*terms):
    """A sum, and the largest of its terms."""
    return sum(terms), np.max(np.abs(terms), axis=0)


def swish_grad(x, dy, beta):
    s = sigmoid(beta * x)
    total, most = sums(s, s * beta * x * sigmoid(-beta * x))
    return dy * total, abs(dy) * most


def gelu_grad(x, dy, approximate):
    if not approximate:
        total, most = sums(normal(x), x * density(x))
        return dy * total, abs(dy) * most
    s, inner = sigmoid(gelu_inner(x)), gelu_inner(x)
    slope = 2 * np.sqrt(2 / PI) * x * (1 + 3 * L("0.044715") * x * x)
    total, most = sums(s, s * sigmoid(-inner) * slope)
    return dy * total, abs(dy) * most


def limited(x, threshold):
    """What ``mish`` takes for ``log(1 + exp(x))``."""
    middle = np.where(x < -threshold, np.exp(np.minimum(x, 0)), softplus(x))
    return np.where(x > threshold, x, middle)


def mish_grad(x, dy, threshold):
    inner = limited(x, threshold)
    t, s = tanh(inner), sech2(inner) * -np.expm1(-inner)
    total, most = sums(t, x * s)
    return dy * total, abs(dy) * most


def crossing(x, label):
    """``log(1 + exp(x)) - x * label`` with its terms."""
    total = np.maximum(x, 0) - x * label + np.log1p(np.exp(-np.abs(x)))
    return total, where(between(label, 0, 1), np.abs(x), 0)


def apart(x, label, dy):
    """``(sigmoid(x) - label) * dy``."""
    total, most = sums((1 - label) * sigmoid(x), -label * sigmoid(-x))
    return total * dy, most * abs(dy)


def hard_swish(x, threshold, scale, offset):
    whole = x * np.clip(x + offset, 0, threshold) / scale
    return whole, where(np.abs(x) < offset + 1, np.abs(x), 0)


def hard_swish_grad(x, dy, threshold, scale, offset):
    rising = where(x + offset > 0, 2 * x + offset, 0)
    slope = where(x + offset < threshold, rising, threshold) / scale
    return dy * slope, where(np.abs(x) < offset + 1, np.abs(dy), 0)


def selu_grad(y, dy, alpha, scale):
    low = scale * alpha
    return dy * where(y > 0, scale, y + low), where(y > 0, 0, np.abs(dy) * low)


def elu(x, alpha):
    return where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def elu_grad(x, dy, alpha):
    return dy * where(x > 0, 1, alpha * np.exp(np.minimum(x, 0)))


def between(x, low, high):
    return (x > low) & (x < high)


where = np.where
UNARY = {
    "relu": (lambda x: np.maximum(x, 0), lambda y, dy: where(y > 0, dy, 0)),
    "leaky_relu": (
        lambda x, alpha: where(x > 0, x, x * alpha),
        lambda y, dy, alpha: where(y > 0, dy, dy * alpha),
    ),
    "relu6": (
        lambda x, threshold: np.clip(x, 0, threshold),
        lambda y, dy, threshold: where(between(y, 0, threshold), dy, 0),
    ),
    "brelu": (
        lambda x, t_min, t_max: np.clip(x, t_min, t_max),
        lambda x, dy, t_min, t_max: where(between(x, t_min, t_max), dy, 0),
    ),
    "thresholded_relu": (
        lambda x, threshold: where(x > threshold, x, 0),
        lambda x, dy, threshold: where(x > threshold, dy, 0),
    ),
    "sigmoid": (sigmoid, lambda y, dy: dy * y * (1 - y)),
    "tanh": (tanh, lambda y, dy: dy * (1 - y) * (1 + y)),
    "exp": (np.exp, lambda y, dy: dy * y),
    "log": (np.log, lambda x, dy: dy / x),
    "log1p": (np.log1p, lambda x, dy: dy / (1 + x)),
    "sqrt": (np.sqrt, lambda y, dy: dy / (2 * y)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda y, dy: -dy * y**3 / 2),
    "reciprocal": (lambda x: 1 / x, lambda y, dy: -dy * y * y),
    "square": (lambda x: x * x, lambda x, dy: 2 * x * dy),
    "abs": (np.abs, lambda x, dy: dy * np.sign(x)),
    "swish": (lambda x, beta: x * sigmoid(beta * x), swish_grad),
    "softsign": (lambda x: x / (1 + np.abs(x)), lambda x, dy: dy / (1 + np.abs(x)) ** 2),
    "stanh": (
        lambda x, scale_a, scale_b: tanh(x * scale_a) * scale_b,
        lambda x, dy, scale_a, scale_b: dy * sech2(x * scale_a) * scale_a * scale_b,
    ),
    "hard_sigmoid": (
        lambda x, slope, offset: (
            np.clip(x * slope + offset, 0, 1), where(np.abs(x * slope) < 2, 1, 0),
        ),
        lambda y, dy, slope: where(between(y, 0, 1), dy * slope, 0),
    ),
    "hard_swish": (hard_swish, hard_swish_grad),
    "elu": (elu, elu_grad),
    "selu": (lambda x, alpha, scale: scale * elu(x, alpha), selu_grad),
    "softplus": (softplus, lambda x, dy: dy * sigmoid(x)),
    "logsigmoid": (lambda x: -softplus(-x), lambda x, dy: dy * sigmoid(-x)),
    "soft_relu": (
        lambda x, threshold: softplus(np.clip(x, -threshold, threshold)),
        lambda y, dy, threshold: where(y < threshold, dy * -np.expm1(-y), 0),
    ),
    "hard_shrink": (
        lambda x, threshold: where(np.abs(x) > threshold, x, 0),
        lambda x, dy, threshold: where(np.abs(x) > threshold, dy, 0),
    ),
    "softshrink": (
        lambda x, lambda_: x - np.clip(x, -lambda_, lambda_),
        lambda x, dy, lambda_: where(np.abs(x) > lambda_, dy, 0),
    ),
    "tanh_shrink": (tanh_shrink, lambda x, dy: dy * tanh(x) ** 2),
    "gelu": (
        lambda x, approximate: x * (sigmoid(gelu_inner(x)) if approximate else normal(x)),
        gelu_grad,
    ),
    "erf": (erf, lambda x, dy: dy * 2 / np.sqrt(PI) * np.exp(-x * x)),
    "mish": (lambda x, threshold: x * tanh(limited(x, threshold)), mish_grad),
}  # fmt: skip
"""By operator with one operand: the result, and the gradient from what that reads and ``dy``."""


def huber(x, y, delta):
    r = np.abs(y - x)
    return np.minimum(r, delta) * (r - np.minimum(r, delta) / 2), np.maximum(
        np.abs(x), np.abs(y)
    ) * np.minimum(r, delta)


def log_loss(p, y, epsilon):
    total, most = sums(-y * np.log(p + epsilon), (y - 1) * np.log1p(epsilon - p))
    return total, np.maximum(
        most, where(p > 0.2, 1, 0)
    )  # as much as p + epsilon and 1 - p + epsilon lose


def log_loss_grad(p, y, dy, epsilon):
    total, most = sums((1 - y) / (1 - p + epsilon), -y / (p + epsilon))
    return dy * total, np.abs(dy) * most


def kldiv(x, target):
    total, most = sums(np.log(where(target > 0, target, 1)), -x)
    return where(target > 0, target * total, 0), np.abs(target) * most


def teacher(x, label):
    click = where((label >= -1) & (label < 0) | (label >= 1), 1, 0)
    score = where(label >= 1, label - 1, label)
    one, other = crossing(x, click), crossing(x, score)
    return one[0] + where(label >= 0, other[0], 0), np.maximum(one[1], other[1])


def choice(x, y, dy, first):
    return where(first(x, y), dy, 0), where(first(x, y), 0, dy)


OPERANDS = {
    "elementwise_add": (("X", "Y"), {}, lambda x, y: x + y),
    "elementwise_sub": (("X", "Y"), {}, lambda x, y: x - y),
    "elementwise_mul": (("X", "Y"), {}, lambda x, y: x * y),
    "elementwise_div": (("X", "Y"), {}, lambda x, y: x / y),
    "elementwise_max": (("X", "Y"), {}, np.maximum),
    "elementwise_min": (("X", "Y"), {}, np.minimum),
    "sigmoid_cross_entropy_with_logits": (("X", "Label"), {}, crossing),
    "rank_loss": (("Left", "Label"), {}, crossing),
    "teacher_student_sigmoid_loss": (("X", "Label"), {}, teacher),
    "log_loss": (("Predicted", "Labels"), {"epsilon": 1e-4}, log_loss),
    "kldiv_loss": (("X", "Target"), {"reduction": "none"}, kldiv),
    "huber_loss": (("X", "Y"), {"delta": 1.5}, huber),
    "bce_loss": (
        ("X", "Label"), {}, lambda x, y: sums(-y * np.log(x), (y - 1) * np.log1p(-x)),
    ),
}  # fmt: skip
"""By operator with two: their slots, attributes, and the result."""
GRADIENTS = {
    "sigmoid_cross_entropy_with_logits": apart,
    "rank_loss": apart,
    "log_loss": log_loss_grad,
}
"""By such an operator: the gradient of the first one."""
