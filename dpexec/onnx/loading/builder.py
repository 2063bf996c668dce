"""Adds operators to the program that is made from a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name
from dpexec.engine.ir import opdef
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ops._kernel_types import slot_types
from dpexec.onnx.loading.dims import OpenDim, as_dims
from dpexec.onnx.loading.errors import UnsupportedError
from dpexec.onnx.loading.values import Value

__all__ = ["Builder"]

_WIDER = {
    VarType.BOOL: (VarType.INT32, VarType.INT64, VarType.FP32),
    VarType.UINT8: (VarType.INT32, VarType.INT64, VarType.FP32),
    VarType.INT8: (VarType.INT32, VarType.INT64, VarType.FP32),
    VarType.INT32: (VarType.INT64, VarType.FP64, VarType.FP32),
    VarType.INT64: (VarType.FP64,),
}
"""Wider types to compute in if an operator lacks a type; the first one that it has is taken."""

_REAL = {VarType.FP16, VarType.FP32, VarType.FP64}
_INDICES = {"Indices", "Index", "Mask", "Count", "XShape"}
_OF_OWN_TYPE = {"arg_max", "arg_min", "where_index", "shape", "size"}
_IN_OPERATOR = 64  # elements; larger constants are variables that are saved with the program
_ASSIGNED = {
    VarType.FP32: "fp32_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
    VarType.BOOL: "bool_values",
}


class Builder:
    """Adds operators, constants and parameters to a program.

    Args:
        program: the program; only this object changes it while a model is loaded.
        sizes: sizes of the model's values by name, as ONNX infers them: a number, the name of an
            open size, or None.
        taken: names of the model's values, which no other variable gets.
        padding: rows of tables that are looked up and not trained, by the names of tables.
    """

    def __init__(
        self,
        program: Program,
        sizes: Mapping[str, Sequence[Any]],
        taken: Container[str] = (),
        padding: Mapping[str, int] | None = None,
    ) -> None:
        self.program, self.sizes, self.taken, self.padding = program, sizes, taken, padding or {}
        self.stored: dict[str, np.ndarray[Any, Any]] = {}
        self.scope_name = ""
        self._constants: dict[Any, Variable] = {}
        self._sizes: dict[Any, Variable] = {}
        self._numbers = 0

    @property
    def block(self) -> Block:
        """The block that operators are added to."""
        return self.program.current_block()

    # ---- operators

    def fresh(self, prefix: str, **properties: Any) -> Variable:
        """A new variable of the current block."""
        while True:
            name = f"{prefix}.tmp_{self._numbers}"
            self._numbers += 1
            if not self._has(name):
                return self.block.create_var(name=name, **properties)

    def _has(self, name: str) -> bool:
        """Whether a variable has, or will have, this name."""
        known = name in self.stored or name in self.taken
        return known or self.block._find_var_recursive(name) is not None

    def add(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        *,
        prefix: str,
        outputs: Mapping[str, Any] | None = None,
        many: int = 0,
    ) -> dict[str, Any]:
        """Add an operator; if it lacks an input's type, cast the input, and the results back.

        Args:
            op_type: type of the operator.
            inputs: variables by slot, or lists of them; None for a slot that is left out.
            attrs: its attributes.
            prefix: prefix of the names of new variables.
            outputs: variables to write to, by slot; for other slots, new ones are made.
            many: number of variables in its output, if that is a list.

        Returns:
            The variables of the outputs by slot.
        """
        given = {
            slot: list(value) if isinstance(value, (list, tuple)) else [value]
            for slot, value in inputs.items()
            if value is not None
        }
        casts = {} if (attrs or {}).get("use_mkldnn") else self._casts(op_type, given)
        for slot, variables in given.items():
            given[slot] = [
                self.cast(v, casts[v.dtype], prefix) if (slot, v.name) in casts else v
                for v in variables
            ]
        made: dict[str, Any] = dict(outputs or {})
        for declared in opdef.get(op_type).outputs:
            if declared.name in made or declared.optional or declared.name.endswith("@LOD"):
                continue
            several = declared.many and many
            made[declared.name] = (
                [self.fresh(prefix) for _ in range(many)] if several else self.fresh(prefix)
            )
        scope = {"op_namescope": self.scope_name} if self.scope_name else {}
        self.block.append_op(op_type, given, made, {**(attrs or {}), **scope})
        for value in made.values():
            for var in value if isinstance(value, list) else [value]:
                self._without_gradient(var)
        return self._cast_back(op_type, made, casts, outputs or {}, prefix)

    def _casts(self, op_type: str, given: Mapping[str, list[Variable]]) -> dict[Any, VarType]:
        """The types to which inputs must be cast, by slot and name; and by type."""
        found: dict[Any, VarType] = {}
        for rule in slot_types(op_type):
            for slot in rule.slots:
                for var in given.get(slot, ()):
                    dtype = VarType.FP32 if var.dtype == VarType.FP16 else var.dtype
                    wider = [t for t in _WIDER.get(var.dtype, ()) if t in rule.types]
                    if dtype in rule.types:
                        continue
                    if not wider:
                        raise UnsupportedError(
                            f"{op_type} has no kernel for {var.name} {dtype_name(var.dtype)}"
                            f"{list(var.shape)}, but for {', '.join(map(dtype_name, rule.types))}"
                        )
                    found[slot, var.name] = found[var.dtype] = wider[0]
        return found

    def _cast_back(
        self,
        op_type: str,
        made: dict[str, Any],
        casts: Mapping[Any, VarType],
        outputs: Mapping[str, Any],
        prefix: str,
    ) -> dict[str, Any]:
        back = {wide: own for own, wide in casts.items() if isinstance(own, VarType)}
        if op_type in _OF_OWN_TYPE or not back:
            return made

        def restored(var: Variable) -> Variable:
            return self.cast(var, back[var.dtype], prefix) if var.dtype in back else var

        for slot, value in made.items():
            if slot not in _INDICES and slot not in outputs:
                several = isinstance(value, list)
                made[slot] = [restored(v) for v in value] if several else restored(value)
        return made

    def cast(self, var: Variable, dtype: VarType, prefix: str) -> Variable:
        """A variable cast to a type; the variable itself if it has that type."""
        if var.dtype == dtype:
            return var
        if var.dtype == VarType.INT8:  # which no cast takes
            var = self.add("dequantize", {"Input": var}, {"Scale": 1.0}, prefix=prefix)["Output"]
            return self.cast(var, dtype, prefix)
        self._casts("cast", {"X": [var]})
        made = self.fresh(prefix)
        attrs = {"in_dtype": var.dtype, "out_dtype": dtype}
        self.block.append_op("cast", {"X": [var]}, {"Out": [made]}, attrs)
        self._without_gradient(made)
        return made

    @staticmethod
    def _without_gradient(var: Variable) -> None:
        """Let no gradient flow through whole numbers and truths."""
        if var.dtype not in _REAL:
            var.stop_gradient = True

    # ---- constants and parameters

    def variable(self, value: Value) -> Variable:
        """The variable of a value; that of a constant or parameter is created on first use."""
        if value.var is not None:
            return value.var
        if value.levels is not None:
            return self._signed(value, value.levels)
        assert value.array is not None
        if value.is_open:
            return self._open_numbers(value)
        if value.weight or value.statistic:
            value.var = self._parameter(value)
        else:
            value.var = self.constant(value.array, value.name)
        return value.var

    def _signed(self, value: Value, levels: Variable) -> Variable:
        """Numbers of 8 bits with sign, as integers of 32 bits, from their levels."""
        made = self.cast(levels, VarType.INT32, value.name)
        if value.offset:
            attrs = {"scale": 1.0, "bias": -float(value.offset)}
            made = self.add("scale", {"X": made}, attrs, prefix=value.name)["Out"]
        if self.block is levels.block:  # else a block that does not see it may want it, too
            value.var = made
        return made

    def _open_numbers(self, value: Value) -> Variable:
        """The tensor of an array with open sizes; a single number has the shape [1]."""
        array = value.array
        assert array is not None
        flat = self.numbers(as_dims(array), value.name)
        if array.ndim < 2:
            return flat
        attrs = {"shape": list(array.shape)}
        made: Variable = self.add("reshape2", {"X": flat}, attrs, prefix=value.name)["Out"]
        return made

    def _parameter(self, value: Value) -> Variable:
        assert value.array is not None
        array = np.ascontiguousarray(value.array).reshape(value.array.shape or (1,))
        name = self.store(value.name, array)
        return self.program.global_block().create_parameter(
            name=name,
            shape=array.shape,
            dtype=as_var_type(array.dtype),
            trainable=value.weight,
        )

    def store(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """Keep an array for the scope; returns its variable's name, which is valid for a file."""
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        plain = "/".join(parts) or "constant"
        found, number = plain, 0
        while found in self.stored or self.program.global_block().has_var(found):
            number += 1
            found = f"{plain}_{number}"
        self.stored[found] = array
        return found

    def constant(self, array: Any, name: str = "constant") -> Variable:
        """An untrained variable with these numbers; a single number has the shape [1]."""
        array = np.ascontiguousarray(array)
        array = array.reshape(array.shape or (1,))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._made_constant(array, name)
        return self._constants[key]

    def _made_constant(self, array: np.ndarray[Any, Any], name: str) -> Variable:
        block, dtype = self.program.global_block(), as_var_type(array.dtype)
        if array.size > _IN_OPERATOR or array.size == 0 or dtype not in _ASSIGNED:
            stored = self.store(name, array)
            return block.create_var(
                name=stored, shape=array.shape, dtype=dtype, persistable=True, stop_gradient=True
            )
        self._numbers += 1
        while self._has(f"{name}.tmp_{self._numbers}"):
            self._numbers += 1
        made = block.create_var(name=f"{name}.tmp_{self._numbers}", stop_gradient=True)
        attrs = {"shape": list(array.shape), "dtype": dtype}
        value = array.flat[0]
        if np.all(array == value) and math.isfinite(value):
            attrs |= {"value": float(value)}
            attrs |= {"str_value": str(int(value))} if dtype == VarType.INT64 else {}
            block.append_op("fill_constant", {}, {"Out": [made]}, attrs, stop_gradient=True)
            return made
        attrs[_ASSIGNED[dtype]] = array.reshape(-1).tolist()
        block.append_op("assign_value", {}, {"Out": [made]}, attrs, stop_gradient=True)
        return made

    # ---- sizes

    def dims(self, value: Value) -> list[Any]:
        """The sizes of a tensor: integers, and open sizes."""
        if value.scalar:
            return []
        if value.array is not None:
            return list(value.array.shape)
        known = self.sizes.get(value.name, ())
        known = known if len(known) == value.rank else (None,) * value.rank
        return [self._dim(value, i, size, known[i]) for i, size in enumerate(value.shape)]

    def _dim(self, value: Value, axis: int, size: int, inferred: Any) -> Any:
        if size >= 0:
            return int(size)
        if isinstance(inferred, int):
            return inferred
        if axis not in value.dims:
            key = ("size", inferred) if inferred else ("of", value.name, axis)
            var = value.levels if value.var is None else value.var
            assert var is not None
            value.dims[axis] = self.open_dim(var, axis, key)
        return value.dims[axis]

    def open_dim(self, var: Variable, axis: int, key: Any = None) -> OpenDim:
        """The size of a variable along an axis, known only in a run."""

        def make() -> Variable:
            name = var.name
            shape = self.add("shape", {"Input": var}, prefix=name)["Out"]
            attrs = {"axes": [0], "starts": [axis], "ends": [axis + 1]}
            size = self.add("slice", {"Input": shape}, attrs, prefix=name)["Out"]
            return self.cast(size, VarType.INT64, name)

        return OpenDim(key or ("of", var.name, axis), make, self._combine)

    def computed_dim(self, make: Callable[[], Variable], key: Any) -> OpenDim:
        """A size that operators compute.

        Args:
            make: adds them; returns a variable of one integer.
            key: equal for sizes that are known to be equal.
        """
        return OpenDim(key, lambda: self.cast(make(), VarType.INT64, "size"), self._combine)

    def _combine(self, op_type: str, left: Any, right: Any) -> Variable:
        sides = [self.size_variable(side) for side in (left, right)]
        return self.add(op_type, {"X": sides[0], "Y": sides[1]}, prefix="size")["Out"]

    def size_variable(self, size: Any) -> Variable:
        """A variable of shape [1], int64, with a size."""
        if not isinstance(size, OpenDim):
            return self.constant(np.array([size], np.int64))
        found = self._sizes.get(size.key)
        if found is None or self.block._find_var_recursive(found.name) is None:
            found = self._sizes[size.key] = size.make()
            found.stop_gradient = True
        return found

    def numbers(self, dims: Sequence[Any], prefix: str) -> Variable:
        """A vector (int64) of sizes."""
        if not any(isinstance(size, OpenDim) for size in dims):
            return self.constant(np.array(dims, np.int64))
        parts = [self.size_variable(size) for size in dims]
        if len(parts) == 1:
            return parts[0]
        made = self.add("concat", {"X": parts}, {"axis": 0}, prefix=prefix)["Out"]
        made.stop_gradient = True
        return made

    def mixed(self, dims: Sequence[Any]) -> tuple[list[int], list[Variable] | None]:
        """Sizes as an attribute, -1 for open ones; and as variables (int32) if some are open."""
        numbers = [-1 if isinstance(size, OpenDim) else int(size) for size in dims]
        if not any(isinstance(size, OpenDim) for size in dims):
            return numbers, None
        variables = [self.cast(self.size_variable(d), VarType.INT32, "size") for d in dims]
        return numbers, variables

    def described(self, value: Value) -> str:
        """A value as errors show it."""
        return f"{value.name} {dtype_name(value.dtype)}{list(value.shape)}"
