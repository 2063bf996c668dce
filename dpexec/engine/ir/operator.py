"""Operators of a program."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.dtypes import AttrType, VarType
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.ir import fed_types, opdef, roles
from dpexec.engine.ir.attributes import attribute_type, copied, stored
from dpexec.engine.ir.callsite import CallSite, user_callsite
from dpexec.engine.ir.undo import note
from dpexec.engine.ir.views import OperatorView

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.variable import Variable

__all__ = ["CALLSTACK", "Operator", "op_error"]

CALLSTACK = "op_callstack"
"""The attribute with the call stack that made an operator."""

_ORIGIN = (roles.ROLE, roles.NAME_SCOPE, roles.DEVICE)


class Operator:
    """One step of a block: a type, named lists of inputs and outputs, attributes.

    Args:
        block: the block it belongs to.
        type: operator type; "" until it is known.
        inputs, outputs: variable names per slot.
        attrs: values of attributes by name.
        callsite: the user's line; found on the call stack if None.
        fill_defaults: whether missing attributes show with their defaults; not for gradients.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        ...     y = fluid.layers.scale(fluid.data("x", [None, 4]), scale=2.0)
        >>> y.op.type, y.op.input("X"), y.op.output("Out"), y.op.attr("scale")
        ('scale', ['x'], ['scale_0.tmp_0'], 2.0)
    """

    def __init__(
        self,
        block: Block,
        type: str,
        inputs: Mapping[str, list[str]],
        outputs: Mapping[str, list[str]],
        attrs: Mapping[str, Any],
        callsite: CallSite | None = None,
        fill_defaults: bool = True,
    ) -> None:
        self.block = block
        self.type = type
        self.inputs: dict[str, list[str]] = {slot: list(names) for slot, names in inputs.items()}
        self.outputs: dict[str, list[str]] = {slot: list(names) for slot, names in outputs.items()}
        self.callsite = callsite or user_callsite()
        self.attrs: dict[str, Any] = dict(attrs)
        if type:
            known = opdef.get(type)
            try:
                self.attrs = stored(attrs, known, fill_defaults)
            except EnforceNotMet as error:
                raise op_error(self, str(error), {}) from None

    def twin(self, block: Block) -> Operator:
        """A copy in ``block``, maybe of another program; its bodies keep their block numbers."""
        made = copy.copy(self)
        made.block = block
        made.inputs = {slot: list(names) for slot, names in self.inputs.items()}
        made.outputs = {slot: list(names) for slot, names in self.outputs.items()}
        made.attrs = {name: copied(value, block.program) for name, value in self.attrs.items()}
        return made

    @property
    def desc(self) -> OperatorView:
        """The operator as tools of fluid see it."""
        return OperatorView(self)

    @property
    def definition(self) -> opdef.OpDef:
        """What dpexec knows of this operator type."""
        return opdef.get(self.type)

    @property
    def input_names(self) -> list[str]:
        """Names of the input slots, in alphabetical order as in Paddle."""
        return sorted(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """Names of the output slots, in alphabetical order as in Paddle."""
        return sorted(self.outputs)

    def input(self, name: str) -> list[str]:
        """Variables in an input slot, which may be empty.

        Raises:
            EnforceNotMet: there is no such slot.
        """
        return self._slot("input", name)

    def output(self, name: str) -> list[str]:
        """Variables in an output slot, which may be empty.

        Raises:
            EnforceNotMet: there is no such slot.
        """
        return self._slot("output", name)

    def _slot(self, kind: str, name: str) -> list[str]:
        given: dict[str, list[str]] = getattr(self, f"{kind}s")
        known = opdef.find(self.type)
        declared = [slot.name for slot in getattr(known, f"{kind}s", ())]
        if name not in given and name not in declared:
            names = list(dict.fromkeys((*given, *declared)))
            raise EnforceNotMet(f"operator {self.type} has no {kind} {name}, only {names}")
        return list(given.get(name, []))

    @property
    def input_arg_names(self) -> list[str]:
        """All variables read, in the order of `input_names`."""
        return [name for slot in self.input_names for name in self.inputs[slot]]

    @property
    def output_arg_names(self) -> list[str]:
        """All variables written, in the order of `output_names`."""
        return [name for slot in self.output_names for name in self.outputs[slot]]

    @property
    def bodies(self) -> list[Block]:
        """The blocks that the operator runs: its attribute ``sub_block``, if it has one."""
        return [self.attrs["sub_block"]] if "sub_block" in self.attrs else []

    def with_inner(self) -> Iterator[Operator]:
        """The operator and, recursively, all operators of its bodies."""
        yield self
        for body in self.bodies:
            for op in body.ops:
                yield from op.with_inner()

    @property
    def needs(self) -> list[str]:
        """Variables that must have a value: all inputs, and those bodies read before writing."""
        return self._with_bodies([n for names in self.inputs.values() for n in names], 0)

    @property
    def reads(self) -> list[str]:
        """Variables it depends on: its needs, and outputs whose old value it may keep or add to."""
        added_to = self.writes if "sub_block" in self.attrs else self.continued
        return list(dict.fromkeys([*self.needs, *added_to])) if added_to else self.needs

    @property
    def continued(self) -> list[str]:
        """The variable that the kernel adds to: its first output, if it reads the old value."""
        known = opdef.find(self.type)  # programs for other engines are pruned and saved, too
        if known is None or "before" not in known.kernel_arguments:
            return []
        return self.outputs.get(known.outputs[0].name, [])

    @property
    def writes(self) -> list[str]:
        """All outputs, the main slot first, and what its bodies write in blocks around them."""
        return self._with_bodies([n for names in self.outputs.values() for n in names], 1)

    def _with_bodies(self, names: list[str], which: int) -> list[str]:
        """Names, and those around that bodies read before writing (0) or that they write (1)."""
        if "sub_block" not in self.attrs:  # as nearly always
            return names
        found = dict.fromkeys(self._variables(names))  # gradients that nothing makes are no more
        found.update((n, None) for body in self.bodies for n in body._outer_names()[which])
        return list(found)

    @property
    def attr_names(self) -> list[str]:
        """Names of the attributes."""
        return list(self._shown_attrs())

    def _shown_attrs(self) -> dict[str, Any]:
        """The attributes as fluid shows them: always with parameters and the user's line."""
        line = [] if self.callsite is None else [f"  {self.callsite}\n"]
        return {roles.ROLE_VAR: [], CALLSTACK: line, **self.attrs}

    def has_attr(self, name: str) -> bool:
        """Whether there is an attribute of this name."""
        return name in self._shown_attrs()

    def attr(self, name: str) -> Any:
        """The value of an attribute.

        Raises:
            EnforceNotMet: there is no such attribute.
        """
        shown = self._shown_attrs()
        if name not in shown:
            raise EnforceNotMet(
                f"Attribute {name} is not found in operator {self.type}; it has {list(shown)}"
            )
        return list(shown[name]) if isinstance(shown[name], tuple) else shown[name]

    def _block_attr(self, name: str) -> Block:
        block: Block = self.attr(name)
        return block

    def _block_attr_id(self, name: str) -> int:
        return self._block_attr(name).idx

    def _blocks_attr(self, name: str) -> list[Block]:
        return list(self.attr(name))

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return [block.idx for block in self.attr(name)]

    def attr_type(self, name: str) -> AttrType:
        """The type of the attribute of this name."""
        return attribute_type(self.attr(name), name, self.type)

    def all_attrs(self) -> dict[str, Any]:
        """A copy of the attributes."""
        return {name: self.attr(name) for name in self._shown_attrs()}

    def plain_attrs(self) -> dict[str, Any]:
        """The attributes without roles: what a gradient operator inherits."""
        apart = (*_ORIGIN, roles.ROLE_VAR)
        return {name: value for name, value in self.attrs.items() if name not in apart}

    def origin_attrs(self) -> dict[str, Any]:
        """Role, name scope and device, which an operator inherits from the one it is made for."""
        return {name: self.attrs[name] for name in _ORIGIN if name in self.attrs}

    def _rename_input(self, old_name: str, new_name: str) -> None:
        self._rename(self.inputs, old_name, new_name)

    def _rename_output(self, old_name: str, new_name: str) -> None:
        self._rename(self.outputs, old_name, new_name)

    def _rename(self, slots: dict[str, list[str]], old: str, new: str) -> None:
        self._changes()
        for slot, names in slots.items():
            slots[slot] = [new if name == old else name for name in names]

    def _set_attr(self, name: str, value: Any) -> None:
        self._changes()
        self.attrs[name] = value

    def _remove_attr(self, name: str) -> None:
        self._changes()
        self.attrs.pop(name, None)

    def _changes(self) -> None:
        now = {"inputs": self.inputs, "outputs": self.outputs, "attrs": self.attrs}
        note(self.__dict__.update, {name: dict(value) for name, value in now.items()})
        self.block.program._changed()

    @property
    def role(self) -> int:
        """The op role, a bit set of :mod:`dpexec.engine.ir.roles`."""
        return int(self.attrs.get(roles.ROLE, roles.FORWARD))

    @property
    def role_var(self) -> list[str]:
        """``[param, grad, ...]``: parameters that this op updates or finishes the gradients of."""
        return list(self.attrs.get(roles.ROLE_VAR, []))

    @property
    def idx(self) -> int:
        """Position in the block.

        Raises:
            ValueError: the operator was removed from its block.
        """
        for position, other in enumerate(self.block.ops):
            if other is self:
                return position
        raise ValueError(f"operator {self.type} is not in its block any more")

    def _why_unknown(self, name: str) -> str:
        if self.block._find_var_recursive(name) is not None:
            return f"variable {name} has no value"
        return (
            f"variable {name} is not in this program; if it is in another one, add the operator "
            "there: with fluid.program_guard(...)"
        )

    def input_specs(self) -> dict[str, opdef.Spec]:
        """The declared specs of the inputs, by name."""
        return {name: var.spec for name, var in self._variables(self.input_arg_names).items()}

    def infer_outputs(self, spec_of: Mapping[str, opdef.Spec]) -> dict[str, opdef.Spec]:
        """Derive shape and type of every output from those of the inputs.

        Args:
            spec_of: specs by variable name.

        Raises:
            EnforceNotMet: the inputs break a rule; names operator, variables, shapes, user's line.
        """
        definition = self.definition
        if definition.infer is None:
            return {name: v.spec for name, v in self._variables(self.output_arg_names).items()}
        try:
            inputs = {
                slot.name: [
                    spec_of[name]
                    for name in roles.present(self.inputs.get(slot.name, []))
                    if name in spec_of or not definition.lazy
                ]
                for slot in definition.inputs
            }
        except KeyError as error:
            raise op_error(self, self._why_unknown(error.args[0]), spec_of) from None
        try:
            made = definition.infer_specs(inputs, self.attrs)
        except opdef.InvalidOp as error:
            raise op_error(self, str(error), spec_of) from error.__cause__
        kind = {"kind": VarType.SELECTED_ROWS} if self.fills_rows else {}
        return {
            name: spec.replace(**kind) if kind else spec
            for slot, specs in made.items()
            for name, spec in zip(self.outputs.get(slot, []), specs, strict=False)
            if spec is not None and name and name != roles.EMPTY
        }

    @property
    def fills_rows(self) -> bool:
        """Whether it can fill SelectedRows and its output is declared as SelectedRows."""
        able = "as_rows" in self.definition.kernel_arguments
        found = self._variables(self.output_arg_names if able else [])
        return any(var.type == VarType.SELECTED_ROWS for var in found.values())

    def infer_shape(self) -> None:
        """Derive shapes and types of the output variables of the program.

        Raises:
            EnforceNotMet: the inputs break a rule of the operator.
        """
        self._check_slots()
        specs = fed_types.with_fed_types(self, self.input_specs(), self.infer_outputs)
        for name, var in self._variables(self.output_arg_names).items():
            if name in specs and not (var.persistable and var.shape):
                var.set_spec(specs[name], self.definition.rows_stay is not None)

    def _check_slots(self) -> None:
        for kind, declared, given in (
            ("input", self.definition.inputs, self.inputs),
            ("output", self.definition.outputs, self.outputs),
        ):
            known = [slot.name for slot in declared]
            for name in given:
                if given[name] and name not in known:
                    problem = f"there is no {kind} {name}, only {', '.join(known) or 'none'}"
                    raise op_error(self, problem, {})

    def _variables(self, names: list[str]) -> dict[str, Variable]:
        found = ((name, self.block._find_var_recursive(name)) for name in names)
        return {name: var for name, var in found if var is not None}

    def to_string(self, throw_on_error: bool = True) -> str:
        """The operator in protobuf text form; ``throw_on_error`` has no effect."""
        from dpexec.engine.ir.printer import operator_text

        return operator_text(self)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__


def op_error(
    op: Operator,
    problem: str,
    specs: Mapping[str, Any],
    device: str = "",
    section: str = "inputs-or-attributes-that-do-not-fit",
) -> EnforceNotMet:
    """An error that names the operator, its variables and the user's line that made it.

    Args:
        op: any operator.
        problem: what is wrong.
        specs: known specs of its variables, by name.
        device: where it ran; "" if it did not run.
        section: the section of the error catalogue.
    """
    lines = [f"operator {op.type}{' on ' + device if device else ''}: {problem}"]
    for kind, slots in (("input", op.inputs), ("output", op.outputs)):
        for slot, name in ((slot, name) for slot, names in slots.items() for name in names):
            spec = specs.get(name, "no value" if kind == "input" else None)
            if spec is not None:
                lines.append(f"  {kind} {slot}({name}): {spec}")
    made = [f"  made by {op.callsite}"] if op.callsite else []
    error = EnforceNotMet("\n".join([*lines, *made, f"  [operator < {op.type} > error]"]))
    error.operator, error.line = op.type, op.callsite.place if op.callsite else None
    return see(section, error)
