"""Helpers that add a layer's operators, and layers generated from an operator's definition."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

from dpexec.checks import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from dpexec.engine.core import unique_name
from dpexec.engine.ir import opdef
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper

__all__ = [
    "add_op",
    "add_outputs",
    "block_around",
    "check_parts",
    "check_positive",
    "check_shape",
    "check_shape_dtype",
    "is_unary",
    "mixed",
    "number_or_tensor",
    "numbers_or_tensors",
    "seed_variable",
    "unary_layer",
]


def add_op(
    op_type: str,
    inputs: Mapping[str, Any],
    dtype: Any,
    attrs: Mapping[str, Any] | None = None,
    *,
    slot: str = "Out",
    layer: str | None = None,
    name: str | None = None,
    out: Variable | None = None,
    act: str | None = None,
    stop_gradient: bool = False,
) -> Variable:
    """Add an operator with one output.

    Args:
        op_type: type of the operator.
        inputs: variables by slot; None for inputs that are not given.
        dtype: element type of the output.
        attrs: attributes that differ from the operator's defaults.
        slot: output slot.
        layer: name that the output's name begins with, if not the operator's.
        name: the user's prefix for the output's name.
        out: existing variable to write to instead.
        act: activation to apply.
        stop_gradient: whether gradients stop at the output.

    Returns:
        The output.
    """
    check_type(out, "out", (Variable, type(None)), layer or op_type)
    helper = LayerHelper(layer or op_type, name=name, act=act)
    made = helper.create_variable_for_type_inference(dtype) if out is None else out
    helper.append_op(type=op_type, inputs=_given(inputs), outputs={slot: made}, attrs=attrs)
    if stop_gradient:
        made.stop_gradient = True
    return helper.append_activation(made)


def add_outputs(
    helper: LayerHelper,
    inputs: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    op_type: str | None = None,
    stop_gradient: bool = False,
) -> dict[str, Variable]:
    """Add an operator, with a new variable for each of its outputs.

    Args:
        helper: the layer's helper; names the variables.
        inputs: variables by slot; None for inputs that are not given.
        dtypes: element types of the outputs by slot, in the order in which the outputs are named.
        attrs: attributes that differ from the operator's defaults.
        op_type: type of the operator, if it differs from the layer's name.
        stop_gradient: whether gradients stop at the outputs.

    Returns:
        The outputs by slot, in the order of ``dtypes``.
    """
    made = {slot: helper.create_variable_for_type_inference(of) for slot, of in dtypes.items()}
    helper.append_op(
        type=op_type or helper.layer_type,
        inputs=_given(inputs),
        outputs=made,
        attrs=attrs,
        stop_gradient=stop_gradient,
    )
    return made


def _given(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {slot: value for slot, value in inputs.items() if value is not None}


def seed_variable(helper: LayerHelper, seed: int) -> Variable:
    """A persistable seed: the startup program sets it, and its operator advances it in every run.

    Args:
        helper: the layer's helper.
        seed: the first seed.
    """
    name = unique_name.generate(f"{helper.layer_type}_seed")
    made = helper.create_global_variable(name=name, dtype="int64", shape=[1], persistable=True)
    helper.set_variable_initializer(made, Constant(seed))
    return made


def block_around() -> Block:
    """The block that encloses the main program's current block."""
    program = default_main_program()
    return program.block(program.current_block().parent_idx)


# ---- arguments that take numbers or tensors


def number_or_tensor(
    value: Any, slot: str, attr: str, inputs: dict[str, Any], attrs: dict[str, Any]
) -> None:
    """Put a number into an attribute, or a variable into an input slot."""
    if isinstance(value, Variable):
        value.stop_gradient = True
        inputs[slot] = [value]
    else:
        attrs[attr] = value


def mixed(values: Any) -> bool:
    """Whether a sequence contains variables."""
    return isinstance(values, (list, tuple)) and any(isinstance(v, Variable) for v in values)


def numbers_or_tensors(
    helper: LayerHelper,
    values: Any,
    slots: tuple[str, str],
    attr: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    dtype: str = "int32",
) -> None:
    """Put integers into an attribute, and variables into input slots.

    Args:
        helper: the layer's helper.
        values: integers, or a variable that holds them, or a mixture.
        slots: slot for a single variable, and slot for a mixture (its numbers become constants).
        attr: attribute for the integers; -1 stands for variables.
        inputs: dict to fill.
        attrs: dict to fill.
        dtype: element type of the constants.
    """
    if isinstance(values, Variable):
        values.stop_gradient = True
        inputs[slots[0]] = values
        return
    attrs[attr] = [-1 if isinstance(v, Variable) else v for v in values]
    if mixed(values):
        inputs[slots[1]] = [_as_tensor(helper, value, dtype) for value in values]


def check_shape(shape: Any, layer: str) -> None:
    """Check that a shape (numbers, possibly with variables) is not empty.

    Raises:
        AssertionError: it is empty.
    """
    if not isinstance(shape, Variable) and not len(shape):
        raise AssertionError(f"The size of 'shape' in {layer} can't be zero.")


def check_shape_dtype(shape: Any, layer: str) -> None:
    """Check that a variable used as a shape, or as one of its dimensions, holds integers.

    Raises:
        TypeError: it does not.
    """
    for part in shape if isinstance(shape, (list, tuple)) else [shape]:
        if isinstance(part, Variable):
            check_dtype(part.dtype, "shape", INTEGERS, layer, f"It is variable {part.name}.")


def check_parts(input: Variable, dim: Any, count: int) -> None:
    """Check that a dimension of a variable can be cut into equal parts.

    Args:
        input: the variable.
        dim: the dimension, or a variable with its number.
        count: number of parts.

    Raises:
        AssertionError: the size is not divisible.
    """
    if count <= 1:
        raise AssertionError(f"split makes at least 2 parts, not {count}")
    size = input.shape[dim] if isinstance(dim, int) and dim < len(input.shape) else -1
    if size > 0 and size % count:
        raise AssertionError(
            f"split cannot cut dimension {dim} of {input.name} {list(input.shape)} into {count} "
            "equal parts"
        )


def check_positive(values: Any, name: str, layer: str) -> None:
    """Check that all numbers of a sequence are positive; variables in it are skipped.

    Raises:
        AssertionError: a number is not positive.
    """
    numbers = [] if isinstance(values, Variable) else values
    for value in numbers:
        if not isinstance(value, Variable) and value <= 0:
            raise AssertionError(
                f"Each number in '{name}' of {layer} must be positive, but received {values!r}"
            )


def _as_tensor(helper: LayerHelper, value: Any, dtype: str) -> Variable:
    if not isinstance(value, Variable):
        constant = helper.create_variable_for_type_inference(dtype)
        attrs = {"value": float(value), "str_value": str(int(value)), "force_cpu": True}
        attrs |= {"shape": [1], "dtype": constant.dtype}
        return add_op("fill_constant", {}, dtype, attrs, out=constant, stop_gradient=True)
    value.stop_gradient = True
    return value


# ---- layers from definitions


def is_unary(definition: opdef.OpDef) -> bool:
    """Whether an operator maps one float tensor to one of the same shape and type."""
    return (
        definition.inputs == (opdef.Slot("X"),)
        and definition.outputs == (opdef.Slot("Out"),)
        and definition.make_grad is not None
        and not any(map(keyword.iskeyword, definition.attrs))
        and _keeps_shape_and_type(definition)
    )


def _keeps_shape_and_type(definition: opdef.OpDef) -> bool:
    probe = opdef.Spec((-1, 5, 7))
    try:
        return definition.infer_specs({"X": [probe]}, {}) == {"Out": [probe]}
    except opdef.InvalidOp:
        return False


_OF_INTEGERS = {"abs", "exp", "square"}
"""Layers of one tensor that fluid lets take integers, too."""


def unary_layer(definition: opdef.OpDef) -> Callable[..., Variable]:
    """The layer of an operator that maps one tensor to one of the same shape and type.

    Its arguments are ``x``, the attributes of the operator in the order of its kernel, and
    ``name``.
    """
    op_type = definition.type
    dtypes = NUMBERS if op_type in _OF_INTEGERS else FLOATS
    names = [n for n in definition.attrs if n in definition.kernel_arguments]
    parameter, by_any = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [
            parameter("x", by_any, annotation=Variable),
            *(_argument(name, definition.attrs[name]) for name in names),
            parameter("name", by_any, default=None, annotation="str | None"),
        ],
        return_annotation=Variable,
    )

    def layer(*args: Any, **kwargs: Any) -> Variable:
        try:
            call = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{op_type}{signature}: {error}") from None
        call.apply_defaults()
        x = call.arguments["x"]
        check_variable_and_dtype(x, "x", dtypes, op_type)
        attrs = {name: call.arguments[name] for name in names}
        return add_op(op_type, {"X": x}, x.dtype, attrs, name=call.arguments["name"])

    layer.__signature__ = signature  # type: ignore[attr-defined]
    kinds = f"{', '.join(dtypes[:-1])} or {dtypes[-1]}; any shape."
    arguments = {"x": kinds, **dict.fromkeys(names, ""), "name": "prefix of names."}
    return document(layer, op_type, op_type, arguments, returns="The shape and type of ``x``.")


def _argument(name: str, default: Any) -> inspect.Parameter:
    """A keyword argument for an attribute; required if the attribute has no default."""
    missing = inspect.Parameter.empty if default is None else default
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=missing)


def document(
    layer: Callable[..., Variable],
    name: str,
    op_type: str,
    arguments: Mapping[str, str],
    summary: str = "",
    *,
    returns: str,
    raises: str = "",
) -> Callable[..., Variable]:
    """Give a generated layer its name, and documentation of its operator and arguments.

    Args:
        layer: the generated function; changed in place.
        name: its name.
        op_type: its operator, whose documentation and example it gets.
        arguments: what each argument means; "" for an attribute of which the documentation of the
            operator says so.
        summary: used instead of the operator's documentation.
        returns: shape and type of the result.
        raises: further errors, a line each.
    """
    described, example, code = opdef.get(op_type).doc.partition("\nExample:\n")
    refused = re.search(r"\nRaises:\n((?: {4}.*\n?)+)", described)
    described = described.replace(refused[0] if refused else "\0", "")
    described, _, told = described.partition("\nArgs:\n")
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", told, re.MULTILINE))
    otherwise = "an attribute of the operator, which does not describe it."
    lines = [f"    {a}: {said or meanings.get(a, otherwise)}" for a, said in arguments.items()]
    sections = [summary or described.rstrip(), "", "Args:", *lines]
    errors = ["TypeError: an argument is no variable, or its numbers have another type."]
    errors += ["EnforceNotMet: the shapes do not fit."] if "y" in arguments else []
    errors += [raises] if raises else []
    errors += [refused[1].strip()] if refused else []  # indented as here
    sections += ["", "Returns:", f"    {returns}", "", "Raises:", *(f"    {e}" for e in errors), ""]
    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = "\n".join(sections) + example + code
    return layer
