"""What the declaration of an operator and the signature of its kernel say: slots and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.engine.core.dtypes import AttrType
from dpexec.engine.ir.spec import require

__all__ = [
    "RUNTIME_ARGUMENTS",
    "Kernel",
    "Slot",
    "attribute_of",
    "keyword_defaults",
    "parse_slots",
    "passes_on",
    "require_defaults",
    "required_attributes",
]

Kernel = Callable[..., Any]

RUNTIME_ARGUMENTS = frozenset(
    {"as_rows", "backward", "before", "body", "calls", "differentiated"}
    | {"names", "needs", "rings", "rng", "share"}
)
"""Keyword arguments of kernels that are no attributes; a kernel gets those that it names.

``needs``: per output slot whether it is wanted, for ``[]`` slots a list. ``rng``: random numbers.
``rings``: the rings of trainers that were set up in the scope, by number.
``share``: of the batch on this device. ``names``: names of the variables by slot. ``calls``:
a counter that goes on from call to call. ``body``: runs the block of ``sub_block`` once and
returns what it wrote. ``before``: what the first output held, None for nothing: it is added to.
``as_rows``: whether the program declares the output as SelectedRows, which get the value without
row numbers. ``backward``: whether the operator belongs to a backward pass. ``differentiated``:
whether its body has gradients in the program.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A named input or output; ``many`` slots hold lists, ``optional`` ones may be empty."""

    name: str
    many: bool = False
    optional: bool = False


def parse_slots(text: str | Sequence[str]) -> tuple[Slot, ...]:
    """The slots that a declaration names.

    Args:
        text: their names, apart by spaces or in a list; ``X[]`` holds a list, ``Bias?`` may be
            empty.
    """
    words = text.split() if isinstance(text, str) else text
    return tuple(
        Slot(word.rstrip("?[]"), many="[]" in word, optional="?" in word) for word in words
    )


def passes_on(target: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """Say that what a kernel, or an ``infer``, takes as ``**attrs`` goes to another function.

    It takes the attributes that are keyword-only parameters there, too, with their defaults.

    Args:
        target: the other function.
    """

    def decorate(function: Kernel) -> Kernel:
        function.__dict__["passes_on_to"] = target
        return function

    return decorate


def keyword_defaults(function: Kernel) -> dict[str, Any]:
    """The keyword-only parameters of a kernel, or an ``infer``, with their defaults or None."""
    target = function.__dict__.get("passes_on_to")
    passed_on = {} if target is None else keyword_defaults(target)
    return passed_on | {
        name: None if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


_ANNOTATED = {
    "int": AttrType.INT,
    "float": AttrType.FLOAT,
    "bool": AttrType.BOOL,
    "str": AttrType.STRING,
    "Sequence[int]": AttrType.INTS,
    "Sequence[float]": AttrType.FLOATS,
    "Sequence[str]": AttrType.STRINGS,
    "Ints": AttrType.INTS,
    "Shape": AttrType.INTS,
}


def required_attributes(
    defaults: Mapping[str, Any], *functions: Kernel | None
) -> dict[str, AttrType | None]:
    """The attributes without defaults, with the types that annotations say; None for others.

    Args:
        defaults: of all attributes, None where there is none.
        functions: the kernel, and the ``infer`` that may be None.
    """
    return {
        attribute_of(name): _ANNOTATED.get(annotation)
        for function in functions
        if function is not None
        for name, annotation in _required_keywords(function).items()
        if name not in RUNTIME_ARGUMENTS and defaults[attribute_of(name)] is None
    }


def _required_keywords(function: Kernel) -> dict[str, str]:
    """The keyword-only parameters that have no default, with their annotations as written."""
    target = function.__dict__.get("passes_on_to")
    passed_on = {} if target is None else _required_keywords(target)
    return passed_on | {
        name: str(parameter.annotation)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }


def require_defaults(
    fixed: Mapping[str, str],
    defaults: Mapping[str, Any],
    attrs: Mapping[str, Any],
    required: Iterable[str] = (),
) -> None:
    """Refuse values of attributes that change results in Paddle and that no kernel reads.

    Args:
        fixed: their names, each with the attribute that must be set for that, or "".
        defaults: of all attributes.
        attrs: those of a call.
        required: names of those that have no default.

    Raises:
        InvalidOp: one of them has another value than its default, or one without is missing.
    """
    for name, switch in fixed.items():
        value, default = attrs.get(name, defaults[name]), defaults[name]
        matters = not switch or attrs.get(switch, defaults[switch])
        where = f" where {switch} is set" if switch else ""
        require(
            not matters or value == default,
            f"attribute {name} must be {default!r}{where}, but is {value!r}: dpexec does not "
            "compute with other values",
        )
    for name in required:
        require(attrs.get(name) is not None, f"attribute {name} is required")


def attribute_of(parameter: str) -> str:
    """The attribute behind a parameter; ``lambda_`` stands for ``lambda``, a word of Python."""
    return parameter.rstrip("_")
