"""Element types of fed variables, which only a run tells.

A variable of ``layers.data`` takes the type that is fed, as does one of ``block.create_var``. What
is declared is then a guess, also for what is computed from it: an index declared without a type is
float32. So when a program is built, an operator is refused for no type that a feed may change.
"""

from __future__ import annotations

import itertools
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
"""So many inputs get other types at once: labels, lengths and the like."""

_TYPE_ATTRS = frozenset({"dtype", "out_dtype"})


def with_fed_types(
    op: Operator, specs: Mapping[str, Spec], infer: Callable[[Mapping[str, Spec]], T]
) -> T:
    """What an operator makes of its inputs, if there are types for the fed ones that it takes.

    Args:
        op: the operator.
        specs: of its inputs, as declared.
        infer: applies the operator's rules to such specs.

    Raises:
        EnforceNotMet: it takes none; says what is wrong with those that are declared.
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
    """The specs with other types for fed inputs; those that change the fewest come first."""
    found = (op.block._find_var_recursive(name) for name in specs)
    fed = [var.name for var in found if var is not None and _is_fed(var)]
    for count in range(1, min(len(fed), _MOST) + 1):
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
