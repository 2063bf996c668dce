"""Data types of fed variables, which are known only at run time.

Variables made by ``layers.data`` or ``block.create_var`` take the data type of the array that is
fed. Their declared types, and the types derived from them, are guesses: an index variable declared
without a type is float32. So while a program is built, an operator is not rejected for a data type
that the feed may still change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.spec import Spec

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.variable import Variable

__all__ = ["with_fed_types"]

T = TypeVar("T")

_TYPES = (VarType.INT64, VarType.INT32, VarType.BOOL, VarType.FP32, VarType.FP64, VarType.UINT8)
_MOST = 3
"""How many inputs may get other types at once: labels, lengths and the like."""
_MOST_TRIES = 5000
"""How many choices of types are tried at most for a number of inputs. If there are more, so many
inputs do not change at once: else the error of a wrong shape would come after seconds."""

_TYPE_ATTRS = frozenset({"dtype", "out_dtype"})


def with_fed_types(
    op: Operator, specs: Mapping[str, Spec], infer: Callable[[Mapping[str, Spec]], T]
) -> T:
    """Output specs of an operator, for the first data types of its fed inputs that it accepts.

    Args:
        op: the operator.
        specs: specs of its inputs, as declared.
        infer: derives output specs from input specs by the operator's rules.

    Raises:
        EnforceNotMet: it accepts no data types; the message is about the declared ones.
    """
    try:
        return infer(specs)
    except EnforceNotMet:
        for others in _other_types(op, specs):
            try:
                return infer(others)
            except EnforceNotMet:
                continue
        raise


def _other_types(op: Operator, specs: Mapping[str, Spec]) -> Iterator[Mapping[str, Spec]]:
    """Specs with other data types for fed inputs, in the order of how many inputs change."""
    found = (op.block._find_var_recursive(name) for name in specs)
    fed = [var.name for var in found if var is not None and _is_fed(var)]
    for count in range(1, min(len(fed), _MOST) + 1):
        if count > 1 and math.comb(len(fed), count) * len(_TYPES) ** count > _MOST_TRIES:
            return
        for names in itertools.combinations(fed, count):
            for types in itertools.product(_TYPES, repeat=count):
                changed = zip(names, types, strict=True)
                yield {**specs, **{n: specs[n].replace(dtype=dtype) for n, dtype in changed}}


def _is_fed(var: Variable) -> bool:
    """Whether the type of a variable depends on what is fed."""
    waiting, seen = [var], {var.name}
    for found in waiting:
        if found.op is None:
            if not (found.persistable or found.need_check_feed):
                return True
            continue
        if _TYPE_ATTRS & found.op.attrs.keys():
            continue
        for name in roles.present(found.op.input_arg_names):
            other = found.op.block._find_var_recursive(name)
            if other is not None and name not in seen:
                seen.add(name)
                waiting.append(other)
    return False
