"""``reduce_all`` and ``reduce_any``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops.reduce import (
    ATTRS,
    CASES,
    Dims,
    deviation,
    infer_reduced,
    of_rank_5,
    reduce,
)


def _infer_logical(
    x: Spec, *, dim: Dims = (0,), keep_dim: bool = False, reduce_all: bool = False
) -> Spec:
    require(x.dtype == VarType.BOOL, f"X {x} must hold booleans")
    numbers = x.replace(dtype=VarType.INT64)
    made = infer_reduced(numbers, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)
    return made.replace(dtype=VarType.BOOL)


def _logical_samples(known: bool) -> Callable[[SampleRng], list[Sample]]:
    def call(r: SampleRng) -> list[Sample]:
        flags = np.array([[True, False], [True, True]])
        x = r.normal((2, 3, 4)) > 0
        expected = {"Out": np.array([known])}
        return [
            *(Sample({"X": x}, attrs, deviates=deviation(attrs)) for attrs in CASES),
            Sample({"X": flags}, {"reduce_all": True}, expected=expected),
            of_rank_5(r.normal((2, 3, 2, 3, 2)) > 0, ("Out",)),
        ]

    return call


@op(
    "reduce_all",
    inputs="X",
    infer=_infer_logical,
    attrs=ATTRS,
    no_grad=True,
    samples=_logical_samples(False),
)
def reduce_all(
    xp: Any, x: Any, *, dim: Dims = (0,), keep_dim: bool = False, reduce_all: bool = False
) -> Any:
    """Whether all are true over the dimensions ``dim``. Source: Paddle op ``reduce_all``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[True, False], [True, True]]))
        ...     out = fluid.layers.reduce_all(x, dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([False,  True])]
    """
    return reduce(xp.all, x, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)


@op(
    "reduce_any",
    inputs="X",
    infer=_infer_logical,
    attrs=ATTRS,
    no_grad=True,
    samples=_logical_samples(True),
)
def reduce_any(
    xp: Any, x: Any, *, dim: Dims = (0,), keep_dim: bool = False, reduce_all: bool = False
) -> Any:
    """Whether any is true over the dimensions ``dim``. Source: Paddle op ``reduce_any``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[True, False], [True, True]]))
        ...     out = fluid.layers.reduce_any(x, dim=0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ True,  True])]
    """
    return reduce(xp.any, x, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all)
