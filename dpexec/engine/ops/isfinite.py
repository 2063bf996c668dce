"""``isfinite``, ``isinf`` and ``isnan``: one truth value for all elements together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, Spec, op

_CASES = (
    np.array([1.0, 2.0]),
    np.array([1.0, np.inf]),
    np.array([np.nan, 1.0]),
    np.array([-np.inf, np.nan]),
)


def _infer(x: Spec) -> Spec:
    return Spec((1,), VarType.BOOL)


def _samples(*answers: bool) -> Any:
    return lambda r: [
        Sample({"X": x}, expected={"Out": np.array([answer])})
        for x, answer in zip(_CASES, answers, strict=True)
    ]


def _values(x: Any) -> Any:
    return x.value if isinstance(x, SelectedRows) else x


_verdict = partial(op, inputs="X", infer=_infer, sparse=("X",), no_grad=True)


@_verdict("isfinite", samples=_samples(True, False, False, False))
def isfinite(xp: Any, x: Any) -> Any:
    """Whether no element is infinite or nan, of shape (1,). Source: Paddle op ``isfinite``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, np.inf], "float32"))
        ...     out = fluid.layers.isfinite(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([False])]
    """
    return xp.isfinite(_values(x)).all().reshape(1)


@_verdict("isinf", samples=_samples(False, True, False, True))
def isinf(xp: Any, x: Any) -> Any:
    """Whether an element is infinite, of shape (1,). Source: Paddle op ``isinf``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, np.nan], "float32"))
        ...     out = fluid.layers.has_inf(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([False])]
    """
    return xp.isinf(_values(x)).any().reshape(1)


@_verdict("isnan", samples=_samples(False, False, True, True))
def isnan(xp: Any, x: Any) -> Any:
    """Whether an element is nan, of shape (1,). Source: Paddle op ``isnan``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, np.nan], "float32"))
        ...     out = fluid.layers.has_nan(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ True])]
    """
    return xp.isnan(_values(x)).any().reshape(1)
