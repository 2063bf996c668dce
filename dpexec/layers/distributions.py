"""Probability distributions, as layers: samples, entropies, densities, divergences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.comparisons import less_than
from dpexec.layers.constants import fill_constant_batch_size_like, ones, zeros
from dpexec.layers.elementwise import elementwise_pow
from dpexec.layers.manipulation import reshape
from dpexec.layers.manipulation import shape as shape_of
from dpexec.layers.ops import made
from dpexec.layers.products import matmul
from dpexec.layers.random import gaussian_random, uniform_random, uniform_random_batch_size_like
from dpexec.layers.ranges import diag
from dpexec.layers.reductions import reduce_max, reduce_prod, reduce_sum
from dpexec.layers.tensor import assign, cast, create_tensor

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

_exp: Callable[..., Variable] = made["exp"]
_log: Callable[..., Variable] = made["log"]
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _are_variables(*values: Any) -> bool:
    """Whether all values are variables.

    Raises:
        ValueError: some values are variables and some are not.
    """
    found = [isinstance(value, Variable) for value in values]
    if any(found) and not all(found):
        raise ValueError("if one argument is a Variable, all arguments must be Variables")
    return all(found)


def _constants(*values: Any) -> list[Variable]:
    """Numbers as float32 constants of one common shape."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, "float32")) for v in values))
    made = []
    for array in arrays:
        out = create_tensor("float32")
        assign(np.ascontiguousarray(array), out)
        made.append(out)
    return made


def _check_sample(shape: Any, seed: Any) -> None:
    check_type(shape, "shape", list, "sample")
    check_type(seed, "seed", int, "sample")


class Distribution:
    """Base class of distributions.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     first = fluid.layers.distributions.Normal([0.0], [1.0])
        ...     second = fluid.layers.distributions.Normal([1.0], [1.0])
        ...     apart = first.kl_divergence(second)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[apart])
        [array([0.5], dtype=float32)]
    """

    def sample(self, *args: Any, **kwargs: Any) -> Variable:
        """Random samples."""
        raise NotImplementedError(f"{type(self).__name__} has no sample")

    def entropy(self) -> Variable:
        """The entropy."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def kl_divergence(self, other: Any) -> Variable:
        """The divergence from another distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no kl_divergence")

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")


class _TwoParameters(Distribution):
    """A distribution with two parameters: numbers, arrays, lists, or variables."""

    def _take(self, first: Any, second: Any, names: tuple[str, str]) -> tuple[Variable, Variable]:
        for value, name in zip((first, second), names, strict=True):
            check_type(value, name, (float, np.ndarray, Variable, list), type(self).__name__)
        self._scalar = isinstance(first, float) and isinstance(second, float)
        self._given = _are_variables(first, second)
        if not self._given:
            first, second = _constants(first, second)
        return first, second


class Uniform(_TwoParameters):
    """Uniform numbers in ``[low, high)``.

    In the original, samples for constant bounds are drawn from ``2 * low - high`` on.

    Args:
        low: lower end; float, array, list or variable.
        high: upper end, of the same type as ``low``.

    Source: ``fluid.layers.Uniform``.

    Raises:
        TypeError: ``low`` or ``high`` has a type that is not listed.

    See Also:
        :class:`Normal`: normal numbers.
        :class:`Categorical`: one of several.
        :class:`MultivariateNormalDiag`: normal vectors.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     entropy = fluid.layers.Uniform([0.0], [2.0]).entropy()
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[entropy])[0].round(4)
        array([0.6931], dtype=float32)
    """

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = self._take(low, high, ("low", "high"))

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Random numbers.

        Args:
            shape: leading dimensions, in front of the shape of the bounds.
            seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
                even if the program has a ``random_seed``.
        """
        _check_sample(shape, seed)
        batch = list((self.low + self.high).shape)
        whole = shape + batch
        if self._given:
            zero = fill_constant_batch_size_like(
                self.low + self.high, batch + shape, self.low.dtype, 0.0
            )
            drawn = uniform_random_batch_size_like(
                zero, list(zero.shape), min=0.0, max=1.0, seed=seed
            )
            return reshape(drawn * (zero + self.high - self.low) + self.low, whole)
        drawn = uniform_random(whole, min=0.0, max=1.0, seed=seed)
        out = drawn * (zeros(whole, self.low.dtype) + (self.high - self.low)) + self.low
        return reshape(out, shape) if self._scalar else out

    def log_prob(self, value: Variable) -> Variable:
        """Logarithm of the density at ``value``; minus infinity outside the bounds."""
        check_variable_and_dtype(value, "value", SINGLE_DOUBLE, "log_prob")
        above, below = less_than(self.low, value), less_than(value, self.high)
        inside = cast(above, value.dtype) * cast(below, value.dtype)
        return _log(inside) - _log(self.high - self.low)

    def entropy(self) -> Variable:
        """``log(high - low)``."""
        return _log(self.high - self.low)


class Normal(_TwoParameters):
    """Normal numbers.

    Args:
        loc: mean; float, array, list or variable.
        scale: standard deviation, of the same type as ``loc``.

    Source: ``fluid.layers.Normal``.

    Raises:
        TypeError: ``loc`` or ``scale`` has a type that is not listed.

    See Also:
        :class:`Uniform`: equally likely numbers.
        :class:`Categorical`: one of several.
        :class:`MultivariateNormalDiag`: normal vectors.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     entropy = fluid.layers.Normal([0.0], [1.0]).entropy()
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[entropy])[0].round(4)
        array([1.4189], dtype=float32)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._take(loc, scale, ("loc", "scale"))

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Random numbers.

        Args:
            shape: leading dimensions, in front of the shape of the parameters.
            seed: any number but 0 gives the same values in every run; 0 draws new ones each time,
                even if the program has a ``random_seed``.
        """
        _check_sample(shape, seed)
        batch = list((self.loc + self.scale).shape)
        whole = shape + batch
        if self._given:
            zero = fill_constant_batch_size_like(
                self.loc + self.scale, batch + shape, self.loc.dtype, 0.0
            )
            drawn = gaussian_random(shape_of(zero), seed=seed)
            return reshape(drawn * (zero + self.scale) + self.loc, whole)
        drawn = gaussian_random(whole, seed=seed)
        out = drawn * (zeros(whole, self.loc.dtype) + self.scale) + self.loc
        return reshape(out, shape) if self._scalar else out

    def entropy(self) -> Variable:
        """``1/2 + log(2 * pi) / 2 + log(scale)``."""
        batch = list((self.loc + self.scale).shape)
        zero = fill_constant_batch_size_like(self.loc + self.scale, batch, self.loc.dtype, 0.0)
        return 0.5 + _HALF_LOG_TWO_PI + _log(self.scale + zero)

    def log_prob(self, value: Variable) -> Variable:
        """Logarithm of the density at ``value``."""
        check_variable_and_dtype(value, "value", SINGLE_DOUBLE, "log_prob")
        variance = self.scale * self.scale
        log_scale = _log(self.scale)
        square = (value - self.loc) * (value - self.loc)
        return -1.0 * square / (2.0 * variance) - log_scale - _HALF_LOG_TWO_PI

    def kl_divergence(self, other: Normal) -> Variable:
        """The Kullback-Leibler divergence from another normal distribution."""
        check_type(other, "other", Normal, "kl_divergence")
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        distance = (self.loc - other.loc) / other.scale
        distance = distance * distance
        return 0.5 * (ratio + distance - 1.0 - _log(ratio))


class Categorical(Distribution):
    """Classes with probabilities ``softmax(logits)``.

    Args:
        logits: ``(..., classes)``; array, list or variable.

    Source: ``fluid.layers.Categorical``.

    Raises:
        TypeError: ``logits`` has a type that is not listed.

    See Also:
        :class:`Uniform`: equally likely numbers.
        :class:`Normal`: normal numbers.
        :class:`MultivariateNormalDiag`: normal vectors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     even = fluid.layers.Categorical(fluid.layers.assign(np.array([0, 0], "float32")))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[even.entropy()])
        [array([0.6931472], dtype=float32)]
    """

    def __init__(self, logits: Any) -> None:
        check_type(logits, "logits", (np.ndarray, Variable, list), "Categorical")
        self.logits = logits if _are_variables(logits) else _constants(logits)[0]

    def _centred(self) -> Variable:
        return self.logits - reduce_max(self.logits, dim=-1, keep_dim=True)

    def kl_divergence(self, other: Categorical) -> Variable:
        """The Kullback-Leibler divergence from another distribution, ``(..., 1)``."""
        check_type(other, "other", Categorical, "kl_divergence")
        logits, others = self._centred(), other._centred()
        weights, other_weights = _exp(logits), _exp(others)
        total = reduce_sum(weights, dim=-1, keep_dim=True)
        other_total = reduce_sum(other_weights, dim=-1, keep_dim=True)
        probability = weights / total
        difference = logits - _log(total) - others + _log(other_total)
        return reduce_sum(probability * difference, dim=-1, keep_dim=True)

    def entropy(self) -> Variable:
        """``-sum(p * log(p))``, ``(..., 1)``."""
        logits = self._centred()
        weights = _exp(logits)
        total = reduce_sum(weights, dim=-1, keep_dim=True)
        probability = weights / total
        return -1.0 * reduce_sum(probability * (logits - _log(total)), dim=-1, keep_dim=True)


class MultivariateNormalDiag(Distribution):
    """Normal vectors whose elements are independent.

    Args:
        loc: means ``(k,)``; array, list or variable.
        scale: the covariance matrix ``(k, k)``, zero outside its diagonal; of the same type as
            ``loc``.

    Source: ``fluid.layers.MultivariateNormalDiag``.

    Raises:
        TypeError: ``loc`` or ``scale`` has a type that is not listed.

    See Also:
        :class:`Uniform`: equally likely numbers.
        :class:`Normal`: normal numbers.
        :class:`Categorical`: one of several.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     centre = fluid.layers.assign(np.array([0, 0], "float32"))
        ...     spread = fluid.layers.assign(np.array([[1, 0], [0, 2]], "float32"))
        ...     normal = fluid.layers.MultivariateNormalDiag(centre, spread)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[normal.entropy()])[0].round(4)
        array([3.1845], dtype=float32)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        kinds = (np.ndarray, Variable, list)
        check_type(loc, "loc", kinds, "MultivariateNormalDiag")
        check_type(scale, "scale", kinds, "MultivariateNormalDiag")
        given = _are_variables(loc, scale)
        taken: list[Variable] = [loc, scale] if given else _constants(loc, scale)
        self.loc, self.scale = taken

    def _ones_and_diagonal(self, shape: Sequence[int]) -> tuple[Variable, Variable]:
        every = ones(list(shape), self.loc.dtype)
        return every, diag(ones([shape[0]], self.loc.dtype))

    def _determinant(self, matrix: Variable) -> Variable:
        every, diagonal = self._ones_and_diagonal(matrix.shape)
        return reduce_prod(matrix + every - diagonal)

    def _inverse(self, matrix: Variable) -> Variable:
        every, diagonal = self._ones_and_diagonal(matrix.shape)
        return elementwise_pow(matrix, every - 2 * diagonal)

    def entropy(self) -> Variable:
        """``(k * (1 + log(2 * pi)) + log(det(scale))) / 2``."""
        size = self.scale.shape[0] * (1.0 + math.log(2 * math.pi))
        return 0.5 * (size + _log(self._determinant(self.scale)))

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """The Kullback-Leibler divergence from another distribution."""
        check_type(other, "other", MultivariateNormalDiag, "kl_divergence")
        trace = reduce_sum(self._inverse(other.scale) * self.scale)
        scaled = matmul(other.loc - self.loc, self._inverse(other.scale))
        distance = matmul(scaled, other.loc - self.loc)
        determinants = _log(self._determinant(other.scale)) - _log(self._determinant(self.scale))
        return 0.5 * (trace + distance - self.scale.shape[0] + determinants)
