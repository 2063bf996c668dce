"""Blocks: the variables and operators of a program, in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpexec.engine.arguments.converted import as_name, as_shape
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.errors import see, similar
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.undo import note, note_attributes
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.engine.ir.views import BlockView

if TYPE_CHECKING:
    from dpexec.engine.ir.program import Program

__all__ = ["Block"]


class Block:
    """A list of operators with their variables.

    Args:
        program: the program it belongs to.
        idx: its number there.
        parent_idx: number of the enclosing block, -1 for the global one.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     block = fluid.default_main_program().global_block()
        ...     x = fluid.data("x", [None, 4])
        ...     y = block.create_var(name="y", shape=[-1, 4], dtype="float32")
        ...     _ = block.append_op(type="relu", inputs={"X": x}, outputs={"Out": y})
        ...     sorted(block.vars), [op.type for op in block.ops]
        (['x', 'y'], ['relu'])
    """

    def __init__(self, program: Program, idx: int, parent_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = -1
        self.vars: OrderedDict[str, Variable] = OrderedDict()
        self.ops: list[Operator] = []

    @property
    def desc(self) -> BlockView:
        """The block as tools of fluid see it."""
        return BlockView(self)

    @property
    def backward_block_idx(self) -> int:
        """Number of the block with this block's gradients, -1 if there is none."""
        return next((b.idx for b in self.program.blocks if b.forward_block_idx == self.idx), -1)

    # ---- variables

    def has_var(self, name: str) -> bool:
        """Whether this block itself has such a variable."""
        return name in self.vars

    def var(self, name: str) -> Variable:
        """The variable of this block with this name.

        Raises:
            TypeError: ``name`` is not a string.
            ValueError: there is none.
        """
        if not isinstance(name, str):
            raise TypeError(f"var require string as parameter, but get {type(name)} instead.")
        if name not in self.vars:
            problem = f"var {name} not in this block{similar(name, self.vars)}"
            raise see("a-name-that-is-not-a-variable-of-the-program", ValueError(problem))
        return self.vars[name]

    def _find_var_recursive(self, name: str) -> Variable | None:
        waiting = [self]
        for block in waiting:
            if name in block.vars:
                return block.vars[name]
            around = (block.forward_block_idx, block.parent_idx)
            waiting += [self.program.blocks[index] for index in around if index >= 0]
        return None

    def _var_recursive(self, name: str) -> Variable:
        found = self._find_var_recursive(name)
        if found is None:
            raise ValueError(f"Var {name} is not found recursively")
        return found

    def create_var(self, *args: Any, **kwargs: Any) -> Variable:
        """Make a variable; arguments as for :class:`Variable`.

        Raises:
            ValueError: the name is taken by a variable of another shape or type.
        """
        initializer = kwargs.pop("initializer", None)
        name = kwargs.get("name")
        if name is not None:
            kwargs["name"] = name = as_name(name)
        if name is not None and name in self.vars:
            return _redeclared(self.vars[name], kwargs)
        var = Variable(self, *args, **kwargs)
        self._declare(var)
        if initializer is not None:
            initializer(var, self)
        return var

    def _declare(self, var: Variable) -> None:
        """Take in a new variable."""
        if var.name in self.vars:
            note(self.vars.__setitem__, var.name, self.vars[var.name])
        else:
            note(self._remove_var, var.name)
        self.vars[var.name] = var
        self.program._changed()

    def _sync_with_cpp(self) -> None:
        """Make executors compile the program again; there is no C++ copy to update here."""
        self.program._changed()

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Copy the declaration of a variable of another program, as code that merges programs does.

        Args:
            var: the variable to copy; a parameter becomes a plain variable.
            force_persistable: make the copy persistable, unless it holds no tensor.
        """
        plain = var.type in (VarType.STEP_SCOPES, VarType.RAW)
        return self.create_var(
            name=var.name,
            type=var.type,
            shape=var.shape,
            dtype=var.dtype,
            lod_level=var.lod_level,
            persistable=var.persistable or (force_persistable and not plain),
            is_data=var.is_data,
            need_check_feed=var.need_check_feed,
        )

    def create_parameter(self, *args: Any, **kwargs: Any) -> Parameter:
        """Make a parameter in the global block; arguments as for :class:`Parameter`.

        If a parameter of that name and shape exists, it is returned: the weights are shared, and
        trained as the last one of their declarations says.

        Raises:
            ValueError: the name is taken by something of another shape or type.
        """
        block = self.program.global_block()
        initializer = kwargs.pop("initializer", None)
        name = kwargs.get("name")
        initialized = False
        if name is not None and name in block.vars:
            param = _redeclared(block.vars[name], {**kwargs, "persistable": True})
            if not isinstance(param, Parameter):
                raise AssertionError(f"{name} is a variable, not a parameter")
            param.set_training(**{k: v for k, v in kwargs.items() if k in _TRAINING})
            initialized = any(name in op.output_arg_names for op in block.ops)
        else:
            param = Parameter(block, *args, **kwargs)
            param.stop_gradient = False
            block._declare(param)
        if initializer is not None and not initialized:
            initializer(param, self)
        return param

    def iter_parameters(self) -> Iterator[Parameter]:
        """The parameters in the order of their creation."""
        return (var for var in self.vars.values() if isinstance(var, Parameter))

    def all_parameters(self) -> list[Parameter]:
        """The parameters in the order of their creation."""
        return list(self.iter_parameters())

    # ---- operators

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Add an operator at the end: ``append_op(type, inputs, outputs, attrs)``.

        Inputs and outputs map slots to variables, names, or lists of them.

        Raises:
            ValueError: no type is given.
            EnforceNotMet: the operator type is unknown, or its inputs break one of its rules.
        """
        return self._add_op(len(self.ops), *args, **kwargs)

    def _prepend_op(self, *args: Any, **kwargs: Any) -> Operator:
        return self._add_op(0, *args, **kwargs)

    def _add_op(
        self,
        index: int,
        type: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        stop_gradient: bool = False,
        callsite: Any = None,
        fill_defaults: bool = True,
    ) -> Operator:
        if type is None:
            raise ValueError("`type` to initialized an Operator can not be None.")
        given = {name: value for name, value in (attrs or {}).items() if value is not None}
        op = Operator(
            self,
            type,
            {slot: _names(value, slot, type) for slot, value in (inputs or {}).items()},
            {slot: _names(value, slot, type) for slot, value in (outputs or {}).items()},
            {**self.program._op_attrs(), **given},
            callsite,
            fill_defaults,
        )
        op.infer_shape()
        note(self._take_out, op)
        self.ops.insert(index, op)
        for var in op._variables(op.output_arg_names).values():
            note_attributes(var, "op")
            var.op = op
            if stop_gradient:
                var.stop_gradient = True
        self.program._changed()
        return op

    def devices_of_inputs(self) -> dict[str, str]:
        """The device that is noted on the first operator that reads a variable, by variable."""
        found: dict[str, str] = {}
        for op in reversed(self.ops):
            found.update(dict.fromkeys(op.input_arg_names, op.attrs.get(roles.DEVICE, "")))
        return found

    def _outer_names(self) -> tuple[list[str], list[str]]:
        """Outer variables that this body reads before writing them, and those it writes."""
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        for op in self.ops:
            outside = [n for n in op.needs if _names_outside(self, n)]
            reads.update(dict.fromkeys(name for name in outside if name not in writes))
            writes.update(dict.fromkeys(n for n in op.writes if _names_outside(self, n)))
        return list(reads), list(writes)

    def _insert_op(self, index: int, *args: Any, **kwargs: Any) -> Operator:
        return self._add_op(index, *args, **kwargs)

    def _rename_var(self, name: str, new_name: str) -> Variable:
        """Give a variable of this block another name, in its operators too."""
        var = self.var(name)
        note_attributes(self, "vars")
        note_attributes(var, "name")
        self.vars = OrderedDict(
            (new_name if key == name else key, value) for key, value in self.vars.items()
        )
        var.name = new_name
        for op in self.ops:
            op._rename_input(name, new_name)
            op._rename_output(name, new_name)
        self.program._changed()
        return var

    def _remove_var(self, name: str) -> None:
        note(setattr, self, "vars", self.vars.copy())
        del self.vars[name]
        self.program._changed()

    def _remove_op(self, index: int) -> None:
        note(self.ops.insert, index, self.ops[index])
        del self.ops[index]
        self.program._changed()

    def _take_out(self, op: Operator) -> None:
        """Remove an operator, most likely the last one."""
        self._remove_op(next(i for i in reversed(range(len(self.ops))) if self.ops[i] is op))

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """The block in protobuf text form."""
        from dpexec.engine.ir.printer import block_text

        return block_text(self, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__


def _names(value: Any, slot: str, op_type: str) -> list[str]:
    """The names of the variables in a slot, given as variables or names; None is an empty slot."""
    items = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    names: list[str] = []
    for item in items:
        name = roles.EMPTY if item is None else getattr(item, "name", item)
        if not isinstance(name, str):
            raise TypeError(
                f"{slot!r} of operator {op_type} must be a variable or the name of one, but "
                f"received {type(item).__name__} ({item!r:.80})"
            )
        names.append(name)
    return names


def _names_outside(block: Block, name: str) -> bool:
    """Whether a name belongs neither to ``block`` nor, in a gradient block, to its forward block.

    Names that no block declares count as the block's own: the enclosing operator supplies them as
    gradients.
    """
    forward = block.forward_block_idx
    if name in block.vars or (forward >= 0 and name in block.program.blocks[forward].vars):
        return False
    return block._find_var_recursive(name) is not None


_TRAINING = ("trainable", "optimize_attr", "regularizer", "do_model_average", "is_distributed")
"""Arguments of :meth:`Parameter.set_training`."""


def _redeclared(var: Variable, given: Mapping[str, Any]) -> Any:
    """The existing variable, when the new declaration agrees with it."""
    shape, dtype = given.get("shape"), given.get("dtype")
    properties = {
        "type": (var.type, VarType(given.get("type", VarType.LOD_TENSOR))),
        "shape": (var.shape, None if shape is None else as_shape(shape, var.name)),
        "data type": (var.dtype, None if dtype is None else as_var_type(dtype)),
        "lod_level": (var.lod_level, given.get("lod_level")),
        "persistable": (var.persistable, given.get("persistable")),
    }
    for what, (previous, new) in properties.items():
        if new is not None and new != previous:
            problem = (
                f"Variable {var.name} has been created before. The previous {what} is {previous}; "
                f"the new {what} is {new}. They are not matched."
            )
            raise see("two-variables-of-one-name", ValueError(problem))
    if "stop_gradient" in given:
        var.stop_gradient = given["stop_gradient"]
    return var
