"""Operator definitions: the one declaration from which everything about an operator follows.

An op file declares its slots, its attributes (the keyword arguments of its kernel), its shape and
type inference (``infer``), the kernel, its gradient and sample inputs. The registry that these
files fill is here, in a lower layer, because building a program needs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from dpexec.engine.core.dtypes import AttrType, VarType
from dpexec.engine.core.errors import MissingKernelError, see, similar
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir.library import Library, declaring_module
from dpexec.engine.ir.opfacts import INHERITED, OpFacts, Passing, RoundValues, Sample, SampleRng
from dpexec.engine.ir.roles import GRAD_SUFFIX
from dpexec.engine.ir.signature import (
    RUNTIME_ARGUMENTS,
    GradContext,
    GradOp,
    Kernel,
    Slot,
    attributes_of,
    default_grad_op,
    double_grad_op,
    inferred_specs,
    keyword_defaults,
    parse_slots,
    passes_on,
    require_defaults,
    required_attributes,
    same_place,
    settled,
    with_defaults,
    without_sequences,
)
from dpexec.engine.ir.spec import InvalidOp, Spec, dims_match, merge_dim, require, same_as

__all__ = [
    "GradContext",
    "GradOp",
    "InvalidOp",
    "OpDef",
    "Passing",
    "RoundValues",
    "Sample",
    "SampleRng",
    "Slot",
    "Spec",
    "dims_match",
    "find",
    "get",
    "merge_dim",
    "op",
    "passes_on",
    "registered",
    "require",
    "same_as",
    "types_where",
]

GradMaker = Callable[[GradContext], list[GradOp]]
Infer = Callable[..., Any]


@dataclass
class OpDef(OpFacts):
    """Everything that dpexec knows about an operator type: the arguments of :func:`op`, its maker.

    Example:
        >>> from dpexec.extend import op, same_as
        >>> @op("twice_of", inputs="X", infer=same_as("X"), attrs={"axis": 0})
        ... def twice_of(xp, x):
        ...     return 2 * x
        >>> twice_of.type, twice_of.inputs[0].name, twice_of.attrs
        ('twice_of', 'X', {'axis': 0})
    """

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    kernel: Kernel
    infer: Infer | None
    attrs: dict[str, Any]
    fixed: Mapping[str, str] = field(default_factory=dict)
    samples: Callable[[SampleRng], list[Sample]] | None = None
    make_grad: GradMaker | None = None
    make_undo: GradMaker | None = None
    kernel_arguments: frozenset[str] = frozenset()
    infer_arguments: frozenset[str] = frozenset()
    required: Mapping[str, AttrType | None] = field(default_factory=dict)
    module: str = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel: gradients and tests use the op by its name."""
        return self.kernel(*args, **kwargs)

    @property
    def doc(self) -> str:
        """The documentation of the kernel."""
        return inspect.getdoc(self.kernel) or ""

    @property
    def is_random(self) -> bool:
        """Whether the kernel draws random numbers."""
        return "rng" in self.kernel_arguments

    def kernel_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the kernel that come from attributes."""
        return self._keywords(self.kernel_arguments - RUNTIME_ARGUMENTS, attrs)

    def _keywords(self, names: frozenset[str], attrs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: attrs.get(attr, self.attrs.get(attr)) for name, attr in attributes_of(names)}

    def infer_specs(
        self, inputs: Mapping[str, list[Spec]], attrs: Mapping[str, Any]
    ) -> dict[str, Iterable[Spec | None]]:
        """Check the inputs and derive the outputs.

        Args:
            inputs: specs per slot; absent or empty slots must be optional.
            attrs: attributes; missing ones take their defaults.

        Returns:
            Specs per output slot; None for an output that this call does not make. If ``infer``
            returns one spec for a slot of many variables, the slot gets an endless iterator of it.

        Raises:
            InvalidOp: a rule of the operator is broken.
        """
        if self.infer is None:
            return {}
        require_defaults(self.fixed, self.attrs, attrs, self.required)
        args = [self._argument(slot, inputs.get(slot.name) or []) for slot in self.inputs]
        try:
            made = self.infer(*args, **self._keywords(self.infer_arguments, attrs))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidOp(f"inputs or attributes do not fit: {error}") from error
        made = inferred_specs(made, self.outputs)
        if not self.tells_numbers:  # a rule may return the spec of an input, numbers and all
            made = [s.replace() if isinstance(s, Spec) and s.numbers else s for s in made]
        return {
            slot.name: [spec] if not slot.many else repeat(spec) if isinstance(spec, Spec) else spec
            for slot, spec in zip(self.outputs, made, strict=True)
        }

    def _argument(self, slot: Slot, specs: list[Spec]) -> Any:
        given = specs or slot.optional or slot.name.endswith(LOD_SUFFIX)
        require(given, f"input {slot.name} is missing")  # offsets come when it is compiled
        require(slot.many or len(specs) <= 1, f"input {slot.name} takes one variable")
        for spec in specs:
            if spec.kind == VarType.SELECTED_ROWS:
                require(
                    slot.name in self.sparse,
                    f"input {slot.name} must be a LoDTensor, but it is a sparse gradient "
                    f"(SelectedRows), which {self.type} does not take",
                )
        if slot.name.endswith(LOD_SUFFIX) and not slot.many and specs and not specs[0].rank:
            owner = slot.name.removesuffix(LOD_SUFFIX)
            require(slot.optional, f"input {owner} holds no sequences, but they are needed here")
            return None
        return specs if slot.many else specs[0] if specs else None

    def grad(
        self,
        *inputs: str,
        outputs: str | None = None,
        infer: Infer | None = None,
        dense: bool = False,
        **options: Any,
    ) -> Callable[[Kernel], OpDef]:
        """Declare ``<type>_grad`` with the decorated kernel and make it this op's gradient.

        Args:
            inputs: slots of the gradient op: this op's inputs, outputs, or ``<output>@GRAD``; a
                string may hold several, separated by spaces.
            outputs: its outputs; by default the gradient of every input.
            infer: by default the gradient of slot S is like S, or else like the first input, with
                the sequences of the gradient of the first output.
            dense: whether the gradient of S is declared without sequences, as in Paddle.
            options: as for :func:`op`.
        """
        if outputs is None:
            outputs = " ".join(
                slot.name + GRAD_SUFFIX + ("[]" if slot.many else "")
                for slot in self.inputs
                if not slot.name.endswith(LOD_SUFFIX)
            )
        slots = " ".join(inputs)
        infer = infer or self._infer_gradient(slots, outputs, dense)
        shared = {name: getattr(self, name) for name in INHERITED}
        declare = self._gradient(slots, outputs, infer, default_grad_op, shared | options)

        def decorate(kernel: Kernel) -> OpDef:
            definition = declare(kernel)
            definition.forward = self
            return definition

        return decorate

    def double_grad(
        self, *inputs: str, outputs: str, infer: Infer, **options: Any
    ) -> Callable[[Kernel], OpDef]:
        """Declare the gradient of this gradient operator with the decorated kernel.

        Paddle names the slots after the forward operator's. ``DX`` is the gradient of X that this
        operator reads or writes; ``DDX`` is the gradient of that gradient. As outputs, both ``DX``
        and ``X@GRAD`` are the gradient of X itself.

        Args:
            inputs: slots of ``<type>_grad``, as for :meth:`grad`.
            outputs: its outputs.
            infer: its shapes and types.
            options: as for :func:`op`.
        """
        return self._gradient(" ".join(inputs), outputs, infer, double_grad_op, options)

    def _gradient(
        self,
        inputs: str,
        outputs: str,
        infer: Infer,
        make: Callable[[GradContext, Sequence[str], Sequence[str]], GradOp],
        options: dict[str, Any],
    ) -> Callable[[Kernel], OpDef]:
        """Declare ``<type>_grad``; ``make`` fills its slots by their names."""
        options.setdefault("attrs", dict(self.attrs))
        declare = op(f"{self.type}_grad", inputs=inputs, outputs=outputs, infer=infer, **options)

        def decorate(kernel: Kernel) -> OpDef:
            definition = declare(kernel)
            slots = [slot.name for slot in definition.inputs]
            outs = [slot.name for slot in definition.outputs]
            self.make_grad = lambda context: [make(context, slots, outs)]
            return definition

        return decorate

    def _infer_gradient(self, inputs: str, outputs: str, dense: bool) -> Infer:
        """The ``infer`` of a gradient operator that declares none, see :meth:`grad`."""
        names = [slot.name for slot in parse_slots(inputs)]
        made = [slot.name.removesuffix(GRAD_SUFFIX) for slot in parse_slots(outputs)]
        flow_name = self.outputs[0].name + GRAD_SUFFIX

        def infer(*specs: Any, **_: Any) -> Any:
            by_name = dict(zip(names, specs, strict=True))
            like = map(by_name.get, made)
            first = next((s for s in specs if isinstance(s, Spec)), None)
            flow = by_name.get(flow_name)
            if first is not None and isinstance(flow, Spec):
                first = first.replace(lod_level=flow.lod_level)
            found = tuple(first if spec is None else spec for spec in like)
            return tuple(map(without_sequences, found)) if dense else found

        return infer

    def grad_is(self, forward: OpDef) -> None:
        """Declare this gradient operator's own gradient: the linear operator ``forward``."""
        (slot, *others), (out,) = forward.inputs, forward.outputs

        def maker(context: GradContext) -> list[GradOp]:
            inputs = {s.name: context.op.inputs.get(s.name, []) for s in others}
            inputs[slot.name] = context.output_grads[slot.name + GRAD_SUFFIX]
            outputs = {out.name: context.input_grads[out.name + GRAD_SUFFIX]}
            return [GradOp(forward.type, inputs, outputs, context.op.plain_attrs())]

        self.make_grad = maker

    def grad_maker(self, maker: GradMaker) -> GradMaker:
        """Make the decorated function this op's gradient maker."""
        self.make_grad = maker
        return maker

    def undone_by(self, maker: GradMaker) -> GradMaker:
        """Let the backward pass undo this operator, whether or not gradients flow through it.

        For example, loop counters count down again, so that gradients find each round's values.

        Args:
            maker: makes the operators that undo it.
        """
        self.make_undo = maker
        return maker


_registry: dict[str, OpDef] = {}
library = Library()  # of the types that nobody asked for yet


def op(
    type: str,
    *,
    inputs: str | Sequence[str],
    infer: Infer | None,
    outputs: str | Sequence[str] = "Out",
    attrs: Mapping[str, Any] | None = None,
    fixed: Mapping[str, str] | None = None,
    samples: Callable[[SampleRng], list[Sample]] | None = None,
    **facts: Any,
) -> Callable[[Kernel], OpDef]:
    """Declare an operator by decorating its kernel, ``kernel(xp, *inputs, **attributes)``.

    Args:
        type: name of the operator type.
        inputs: slot names in the order of the kernel's arguments; ``X[]`` takes a list of
            variables, ``Bias?`` may be absent.
        infer: derives output specs; it has the kernel's signature without ``xp``, and takes
            :class:`Spec` instead of arrays. None keeps the declared shapes and types.
        outputs: slot names in the order of the kernel's results.
        attrs: attributes that the kernel does not use, with their defaults.
        fixed: attributes among ``attrs`` of which other values than the default are refused, each
            with the attribute without which its value does not matter, or ``""``.
        samples: makes valid calls of the operator, with which tests try it.
        facts: the fields of :class:`~dpexec.engine.ir.opfacts.OpFacts`.

    Returns:
        A decorator of the kernel, whose ``xp`` is NumPy or CuPy; it makes an :class:`OpDef`.

    Raises:
        TypeError: there is no such fact.
        ValueError: a fact has an invalid value, ``same_as`` names no input, or the type is declared
            twice. The same declaration may run again, as in a notebook: later programs use the new
            one.

    Example:
        >>> from dpexec.extend import op, same_as
        >>> @op("cube_of", inputs="X", infer=same_as("X"))  # a layer adds it to programs
        ... def cube_of(xp, x):
        ...     return x**3
        >>> @cube_of.grad("X", "Out@GRAD")  # reads these, gives X@GRAD
        ... def cube_of_grad(xp, x, d_out):
        ...     return d_out * 3 * x**2
    """

    def decorate(kernel: Kernel) -> OpDef:
        module = declaring_module()
        other = library.other(type, module, _registry)
        if other is not None and not same_place(other.kernel, kernel):
            raise ValueError(f"operator {type} is declared twice")
        keywords = keyword_defaults(kernel)
        infer_keywords = keyword_defaults(infer) if infer else {}
        defaults = with_defaults(attrs or {}, infer_keywords, keywords)
        definition = OpDef(
            type=type,
            inputs=parse_slots(inputs),
            outputs=parse_slots(outputs),
            kernel=kernel,
            infer=settled(infer, type, inputs),
            attrs=defaults,
            fixed=dict(fixed or {}),
            samples=samples,
            kernel_arguments=frozenset(keywords),
            infer_arguments=frozenset(infer_keywords) - RUNTIME_ARGUMENTS,
            required=required_attributes(defaults, kernel, infer),
            module=module,
            **facts,
        )
        _registry[type] = definition
        return definition

    return decorate


def find(type: str) -> OpDef | None:
    """The definition of an operator type, or None."""
    definition = _registry.get(type)
    if definition is None or library.loads:
        library.load(type, _registry)
        definition = _registry.get(type)
    return definition


def get(type: str) -> OpDef:
    """The definition of an operator type.

    Raises:
        MissingKernelError: dpexec does not know it.
    """
    definition = find(type)
    if definition is None:
        error = MissingKernelError(f'Operator "{type}" has not been registered.')
        error.add_note(f"{len(_registry)} operator types have{similar(type, _registry)}")
        raise see("an-operator-that-is-not-registered", error)
    return definition


def registered() -> dict[str, OpDef]:
    """All definitions by type, sorted; their files are imported."""
    library.load_all()
    return dict(sorted(_registry.items()))


def types_where(says: Callable[[OpDef], Any]) -> list[str]:
    """The operator types whose definition satisfies a condition, sorted."""
    return [type for type, definition in registered().items() if says(definition)]
