"""Slots and attributes, read from declarations, kernels and gradient makers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.dtypes import AttrType
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir.roles import GRAD_SUFFIX
from dpexec.engine.ir.spec import SameAs, Spec, require

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator

__all__ = [
    "RUNTIME_ARGUMENTS",
    "GradContext",
    "GradOp",
    "Kernel",
    "Slot",
    "attribute_of",
    "attributes_of",
    "default_grad_op",
    "double_grad_op",
    "inferred_specs",
    "keyword_defaults",
    "keyword_only",
    "parse_slots",
    "passes_on",
    "require_defaults",
    "required_attributes",
    "same_place",
    "settled",
    "with_defaults",
    "without_sequences",
]

Kernel = Callable[..., Any]

RUNTIME_ARGUMENTS = frozenset(
    {"as_rows", "backward", "before", "body", "calls", "differentiated"}
    | {"names", "needs", "rings", "rng", "share"}
)
"""Keyword arguments of kernels that are not attributes; a kernel gets those in its signature.

``needs``: per output slot whether it is wanted, for ``[]`` slots a list. ``rng``: random numbers.
``rings``: the scope's communicators, by ring number. ``share``: this device's share of the batch.
``names``: names of the variables by slot. ``calls``: a counter that persists between calls.
``body``: runs the block of ``sub_block`` once and returns what it wrote. ``before``: the old value
of the first output, to which the kernel adds; None if it has none. ``as_rows``: whether the program
declares the output as SelectedRows; the value is then set without row numbers. ``backward``:
whether the operator belongs to a backward pass. ``differentiated``: whether the program has
gradients of the operator's body.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A named input or output; ``many`` slots hold lists, ``optional`` ones may be empty."""

    name: str
    many: bool = False
    optional: bool = False


def parse_slots(text: str | Sequence[str]) -> tuple[Slot, ...]:
    """Parse the slots of a declaration.

    Args:
        text: names separated by spaces, or a list of names; ``X[]`` holds a list of variables,
            ``Bias?`` may be empty.
    """
    words = text.split() if isinstance(text, str) else text
    return tuple(
        Slot(word.rstrip("?[]"), many="[]" in word, optional="?" in word) for word in words
    )


def settled(
    infer: Callable[..., Any] | None, type: str, inputs: str | Sequence[str]
) -> Callable[..., Any] | None:
    """The ``infer`` of an operator; that of ``same_as`` finds its input by name.

    Raises:
        ValueError: the operator has no such input.
    """
    if not isinstance(infer, SameAs):
        return infer
    return infer.among(type, [slot.name for slot in parse_slots(inputs)])


def inferred_specs(made: Any, outputs: Sequence[Slot]) -> tuple[Any, ...]:
    """What ``infer`` returned, with an item for each output.

    Raises:
        InvalidOp: it is not that.
    """
    items = made if isinstance(made, tuple) else (made,)
    fits = len(items) == len(outputs) and all(
        slot.many or item is None or isinstance(item, Spec)
        for slot, item in zip(outputs, items, strict=True)
    )
    if not fits:  # to describe values takes longer than to look at them
        names = ", ".join(slot.name for slot in outputs)
        require(False, f"infer must return a Spec for each output ({names}), but returned {made!r}")
    return items


def passes_on(target: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """Declare that a kernel or ``infer`` passes its ``**attrs`` on to another function.

    Its attributes then include the keyword-only parameters of ``target``, with their defaults.

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
    defaults = keyword_only(function).items()
    return passed_on | {n: None if default is _MISSING else default for n, default in defaults}


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
    """The attributes without defaults, with their annotated types; None without an annotation.

    Args:
        defaults: defaults of all attributes; None for an attribute without one.
        functions: the kernel and ``infer``, which may be None.
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
    required = [n for n, default in keyword_only(function).items() if default is _MISSING]
    told = inspect.signature(function).parameters if required else {}
    return passed_on | {name: str(told[name].annotation) for name in required}


_MISSING = inspect.Parameter.empty
_OTHERS = {"__signature__", "__wrapped__"}  # these replace a function's own signature


def keyword_only(function: Kernel) -> dict[str, Any]:
    """The keyword-only parameters with their defaults.

    Calling `inspect.signature` for all operators would take a tenth of `import dpexec`'s time.
    """
    if not isinstance(function, FunctionType) or _OTHERS & vars(function).keys():
        parameters = inspect.signature(function).parameters.values()
        return {it.name: it.default for it in parameters if it.kind is it.KEYWORD_ONLY}
    code, defaults = function.__code__, function.__kwdefaults__ or {}
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return {name: defaults.get(name, _MISSING) for name in names}


def require_defaults(
    fixed: Mapping[str, str],
    defaults: Mapping[str, Any],
    attrs: Mapping[str, Any],
    required: Iterable[str] = (),
) -> None:
    """Reject attribute values that change results in Paddle but that no kernel here reads.

    Args:
        fixed: names of such attributes, each with the attribute that makes it matter, or "".
        defaults: defaults of all attributes.
        attrs: attributes of the call.
        required: names of the attributes without default.

    Raises:
        InvalidOp: a fixed attribute differs from its default, or a required one is missing.
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
    """The attribute of a parameter; ``lambda_`` stands for ``lambda``, a Python keyword."""
    return parameter.rstrip("_")


@functools.cache
def attributes_of(parameters: frozenset[str]) -> list[tuple[str, str]]:
    """Parameters, sorted, with the attribute of each: operators share a few such sets."""
    return [(name, attribute_of(name)) for name in sorted(parameters)]


def same_place(kernel: Kernel, other: Kernel) -> bool:
    """Whether two functions are the same declaration, executed twice."""
    places = {(made.__module__, made.__qualname__) for made in (kernel, other)}
    return len(places) == 1 and "<locals>" not in kernel.__qualname__


@dataclass(frozen=True, slots=True)
class GradOp:
    """An operator that the backward pass is to append."""

    type: str
    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, list[str]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GradContext:
    """The forward operator and its gradient names, as a gradient maker gets them.

    Args:
        op: the forward operator.
        output_grads: per output slot the names of the gradients that flow in (``""`` for none).
        input_grads: per input slot the names of the gradients to make (``""`` for not wanted).
        no_grad: names of variables at which gradients stop.
        flowing: gradients that have a contribution so far.
    """

    op: Operator
    output_grads: Mapping[str, list[str]]
    input_grads: Mapping[str, list[str]]
    no_grad: Set[str] = frozenset()
    flowing: Set[str] = frozenset()

    def offsets(self, slot: str, owner: str) -> dict[str, list[str]]:
        """The gradient operator's slot for sequence offsets; filled in samples only.

        In users' programs, compilation adds it (:mod:`dpexec.engine.graph.lods`).

        Args:
            slot: the gradient operator's slot, ``X@LOD``.
            owner: the forward operator's slot whose sequences have these offsets.
        """
        known = {**self.op.inputs, **self.op.outputs}
        names = known.get(owner + LOD_SUFFIX, [])
        return {slot: list(names)} if names else {}


def default_grad_op(context: GradContext, slots: Sequence[str], outputs: Sequence[str]) -> GradOp:
    """``<type>_grad`` with ``slots`` filled from the forward op and its output gradients.

    Compilation adds the offsets of sequences (:mod:`dpexec.engine.graph.lods`).
    """
    forward = context.op
    inputs: dict[str, list[str]] = {}
    for slot in slots:
        owner = slot.removesuffix(LOD_SUFFIX).removesuffix(GRAD_SUFFIX)
        if slot.endswith(LOD_SUFFIX):
            inputs |= context.offsets(slot, owner)
        elif slot.endswith(GRAD_SUFFIX):
            inputs[slot] = list(context.output_grads.get(owner, []))
        else:
            given = forward.inputs if slot in forward.inputs else forward.outputs
            inputs[slot] = list(given.get(slot, []))
    made = {
        slot: list(context.input_grads.get(slot.removesuffix(GRAD_SUFFIX), [])) for slot in outputs
    }
    return GradOp(forward.type + "_grad", inputs, made, forward.plain_attrs())


def double_grad_op(context: GradContext, slots: Sequence[str], outputs: Sequence[str]) -> GradOp:
    """The gradient of a gradient operator, whose slots are named after the forward operator's.

    Args:
        context: the gradient operator, and the gradients of its inputs and outputs.
        slots: input slots. ``DX`` is the gradient of X that the operator reads or writes, ``DDX``
            the gradient of that gradient; other names are the operator's inputs and outputs.
        outputs: output slots. ``DDX`` is the gradient of ``DX``; ``DX`` and ``X@GRAD`` are the
            gradient of X itself.
    """
    gradient = context.op
    known = {**gradient.inputs, **gradient.outputs}

    def read(slot: str) -> list[str]:
        if slot.startswith("DD"):
            return list(context.output_grads.get(slot[2:] + GRAD_SUFFIX, []))
        return list(known.get(slot[1:] + GRAD_SUFFIX if slot.startswith("D") else slot, []))

    def made(slot: str) -> list[str]:
        if slot.startswith("DD"):
            return list(context.input_grads.get(slot[2:] + GRAD_SUFFIX, []))
        base = slot[1:] if slot.startswith("D") else slot.removesuffix(GRAD_SUFFIX)
        return list(context.input_grads.get(base, []))

    return GradOp(
        gradient.type + "_grad",
        {slot: read(slot) for slot in slots},
        {slot: made(slot) for slot in outputs},
        gradient.plain_attrs(),
    )


def with_defaults(attrs: Mapping[str, Any], *keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with their defaults: those given, and the keyword arguments that are attributes.

    Args:
        attrs: attributes with defaults.
        keywords: keyword arguments of functions, with defaults; the first that has a name counts.
    """
    defaults = dict(attrs)
    for found in keywords:
        for name, default in found.items():
            if name not in RUNTIME_ARGUMENTS:
                defaults.setdefault(attribute_of(name), default)
    return defaults


def without_sequences(found: Any) -> Any:
    """A spec, or the specs of a slot with many variables, without sequences."""
    if isinstance(found, list):
        return [spec.replace(lod_level=0) for spec in found]
    return found and found.replace(lod_level=0)
