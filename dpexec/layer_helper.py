"""``fluid.layer_helper.LayerHelper``: builds the variables, parameters and operators of a layer."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers build
from dpexec.checks import FLOATS, check_type, convert_dtype
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import see
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program, default_main_program, default_startup_program
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.initializer import Initializer
from dpexec.param_attr import ParamAttr, WeightNormParamAttr

__all__ = ["LayerHelper"]


class LayerHelper:
    """Creates the variables, parameters and operators of one call of a layer.

    Args:
        layer_type: prefix of generated names, as in ``fc_0.w_0``.
        kwargs: the arguments of the layer: ``input``, ``param_attr``, ``bias_attr``, ``act``,
            ``name`` and ``use_cudnn`` have a meaning here.

    Example:
        >>> import dpexec as fluid
        >>> def cube(x, name=None):
        ...     helper = LayerHelper("cube", **locals())
        ...     out = helper.create_variable_for_type_inference(x.dtype)
        ...     attrs = {"factor": 3.0}
        ...     helper.append_op("pow", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
        ...     return out
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program()):
        ...     cube(fluid.data("x", shape=[None, 4])).name
        'cube_0.tmp_0'
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.kwargs = kwargs
        self.layer_type = layer_type
        given = kwargs.get("name")
        check_type(given, "name", (str, type(None)), layer_type)
        self.name: str = unique_name.generate(layer_type) if given is None else given

    @property
    def main_program(self) -> Program:
        """The program that layers are built into."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that initializers are built into."""
        return default_startup_program()

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Add an operator to the current block of the main program."""
        return self.main_program.current_block().append_op(*args, **kwargs)

    # ---- arguments of the layer

    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """The variables in an argument that accepts one or several.

        Raises:
            TypeError: one of them is no variable.
        """
        given = self.kwargs.get(input_param_name, [])
        inputs = list(given) if isinstance(given, (list, tuple)) else [given]
        for value in inputs:
            if not isinstance(value, Variable):
                raise TypeError(
                    f"'{input_param_name}' of {self.layer_type} must be a Variable, "
                    f"but received {type(value).__name__}"
                )
        return inputs

    def input(self, input_param_name: str = "input") -> Variable:
        """The variable in an argument that accepts exactly one.

        Raises:
            ValueError: there are several, or none.
        """
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ValueError(
                f"'{input_param_name}' of {self.layer_type} takes one variable, not {len(inputs)}"
            )
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> VarType:
        """The data type that all inputs share.

        Raises:
            ValueError: they differ, or there are none.
        """
        inputs = self.multiple_input(input_param_name)
        dtypes = {var.dtype for var in inputs}
        if len(dtypes) != 1:
            shown = ", ".join(f"{var.name}: {convert_dtype(var.dtype)}" for var in inputs)
            problem = (
                f"inputs of {self.layer_type} must have one data type, but are {shown or 'none'}"
            )
            raise see("a-layer-that-takes-another-type", ValueError(problem))
        return dtypes.pop()

    @property
    def param_attr(self) -> Any:
        """The argument ``param_attr`` as ParamAttr, a list of them, or False."""
        return ParamAttr._to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        """The argument ``bias_attr`` as ParamAttr, a list of them, or False."""
        return ParamAttr._to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[Any]:
        """One parameter attribute per input.

        Raises:
            ValueError: there are several, but their number is not ``length``.
        """
        given = self.param_attr
        attrs = list(given) if isinstance(given, list) else [given]
        if len(attrs) == 1:
            return [copy.deepcopy(attrs[0]) for _ in range(length)]
        if len(attrs) != length:
            raise ValueError(
                f"param_attr of {self.layer_type} has {len(attrs)} entries for {length} inputs"
            )
        return attrs

    def iter_inputs_and_params(
        self, input_param_name: str = "input"
    ) -> Iterator[tuple[Variable, Any]]:
        """Pairs of an input and the ParamAttr of its parameter."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    def is_instance(self, param_name: str, cls: type) -> None:
        """Check the type of an argument.

        Raises:
            TypeError: it has another type.
        """
        if not isinstance(self.kwargs.get(param_name), cls):
            raise TypeError(f"'{param_name}' of {self.layer_type} must be {cls.__name__}")

    # ---- variables

    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Any:
        """Make a parameter in both programs, initialised in the startup program.

        Args:
            attr: a ParamAttr, or a value that converts to one; False for no parameter.
            shape: dimensions, all known.
            dtype: element type.
            is_bias: a bias is named ``b`` and starts at zero by default; a weight is named ``w``
                and starts with Xavier.
            default_initializer: used where ``attr`` has none.
            stop_gradient: accepted for fluid's sake: use ``ParamAttr(trainable=False)``.
            type: the kind of variable, such as ``LOD_TENSOR``.

        Returns:
            The parameter of the main program, None if ``attr`` is False; for a
            WeightNormParamAttr the variable that is computed from two parameters.

        Raises:
            TypeError: there is no initializer and no default one for this data type.
        """
        attr = copy.deepcopy(ParamAttr._to_attr(attr))
        if attr is False:
            return None
        if not isinstance(attr, ParamAttr):
            raise TypeError(
                f"{self.layer_type} makes one parameter here, but has {len(attr)} attrs"
            )
        if attr.name is None:
            attr.name = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if default_initializer is not None or attr.initializer is not None:
            attr._set_default_initializer(default_initializer)
        elif convert_dtype(dtype) not in FLOATS:
            raise TypeError(
                f"parameter {attr.name} of {self.layer_type} is {convert_dtype(dtype)}: only "
                "floats have a default initializer, so give one"
            )
        elif is_bias:
            attr._set_default_bias_initializer()
        else:
            attr._set_default_param_initializer()
        if isinstance(attr, WeightNormParamAttr):
            from dpexec.weight_norm import create_normalized_weight  # made of layers

            programs = self.startup_program, self.main_program
            return create_normalized_weight(self.name, programs, attr, shape, dtype)
        self.startup_program.global_block().create_parameter(
            dtype=dtype, shape=shape, type=type, **attr._to_kwargs(with_initializer=True)
        )
        return self.main_program.global_block().create_parameter(
            dtype=dtype, shape=shape, type=type, **attr._to_kwargs()
        )

    def create_variable_for_type_inference(
        self, dtype: Any, stop_gradient: bool = False
    ) -> Variable:
        """A temporary variable for an output; its shape is inferred when the operator is added."""
        return self.main_program.current_block().create_var(
            name=unique_name.generate(f"{self.name}.tmp"),
            dtype=dtype,
            persistable=False,
            stop_gradient=stop_gradient,
        )

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """A variable of the current block; arguments as for ``Block.create_var``."""
        return self.main_program.current_block().create_var(*args, **kwargs)

    def create_global_variable(
        self, persistable: bool = False, *args: Any, **kwargs: Any
    ) -> Variable:
        """A variable of the global block; arguments as for ``Block.create_var``."""
        block = self.main_program.global_block()
        return block.create_var(*args, persistable=persistable, **kwargs)

    def create_data(self, name: str, **kwargs: Any) -> Variable:
        """A variable that is fed.

        Args:
            name: the key in feeds.
            kwargs: as for ``Block.create_var``.

        Warns:
            UserWarning: in an interactive session, the variable is the program's first feed and
                operators read it already: running a cell again adds its layers a second time.
        """
        block = self.main_program.global_block()
        first = next((var.name for var in block.vars.values() if var.is_data), None)
        again = name == first and any(name in op.input_arg_names for op in block.ops)
        if again and hasattr(sys, "ps1"):
            warn(
                f"{name} is declared again, and this program has operators that read it: what "
                "follows is added to them. A cell that is to run again builds a new program: "
                "with fluid.program_guard(main, startup), fluid.unique_name.guard(): ..., where "
                "main and startup are fluid.Program()"
            )
        return self.create_global_variable(name=name, is_data=True, **kwargs)

    def create_or_get_global_variable(
        self, name: str, *args: Any, **kwargs: Any
    ) -> tuple[Variable, bool]:
        """A variable of the global block, and whether this call created it."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> None:
        """Make the startup program initialise a variable of the main program."""
        self.startup_program.global_block().create_var(
            name=var.name,
            type=var.type,
            dtype=var.dtype,
            shape=var.shape,
            persistable=True,
            initializer=initializer,
        )

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of the main program with this name.

        Raises:
            ValueError: there is none.
        """
        param = self.main_program.global_block().var(name)
        if not isinstance(param, Parameter):
            raise ValueError(f"{name} is a variable, not a parameter")
        return param

    # ---- the end of many layers

    def append_bias_op(
        self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None
    ) -> Variable:
        """Add a bias of shape ``input_var.shape[dim_start:dim_end]``, unless it is switched off."""
        bias_attr = self.bias_attr
        if bias_attr is False:
            return input_var
        bias = self.create_parameter(
            bias_attr, list(input_var.shape[dim_start:dim_end]), input_var.dtype, is_bias=True
        )
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(
            type="elementwise_add",
            inputs={"X": [input_var], "Y": [bias]},
            outputs={"Out": [out]},
            attrs={"axis": dim_start},
        )
        return out

    def append_activation(self, input_var: Variable) -> Variable:
        """Add the activation named by the argument ``act``.

        Raises:
            TypeError: ``act`` is not a string.
        """
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if not isinstance(act, str):
            raise TypeError(f"'act' of {self.layer_type} must be a string, but received {act!r}")
        attrs = {}
        if self.kwargs.get("use_cudnn"):
            attrs["use_cudnn"] = True
        if "use_mkldnn" in self.kwargs:
            attrs["use_mkldnn"] = self.kwargs["use_mkldnn"]
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(type=act, inputs={"X": [input_var]}, outputs={"Out": [out]}, attrs=attrs)
        return out
