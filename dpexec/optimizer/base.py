"""The base class of optimizers, which turns a loss into one update operator per parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import dpexec.engine.ops  # noqa: F401 - the operators that optimizers build
from dpexec.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from dpexec.engine.autodiff.backward import append_backward, variable_names
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import see, similar
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import name_scope, noted_device, warn
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program, default_main_program, program_guard
from dpexec.engine.ir.undo import note
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.regularizer import WeightDecayRegularizer, append_regularization_ops

__all__ = ["Optimizer", "State", "require_given"]

ParamGrad = tuple[Any, Any]


@dataclass(frozen=True)
class State:
    """A variable that an optimizer keeps for every parameter.

    Args:
        name: middle part of the variable's name, as in ``fc_0.w_0_velocity_0``.
        slot: input slot of the update operator.
        output: output slot, None if the operator does not update it.
        fill: initial value.
        scalar: use shape ``(1,)`` instead of the parameter's shape.
        device: the device noted on the operator that fills it; None for the parameter's.
    """

    name: str
    slot: str
    output: str | None
    fill: float = 0.0
    scalar: bool = False
    device: str | None = None


def require_given(optimizer: str, **arguments: Any) -> None:
    """Raise an AssertionError that names the first argument that is None."""
    for name, value in arguments.items():
        if value is None:
            raise AssertionError(f"{optimizer} needs a{'n' * (name[0] in 'aeiou')} {name}")


def _dynamic_only(name: str) -> Any:
    def method(self: Optimizer, *_: Any, **__: Any) -> Any:
        raise AssertionError(
            f"{type(self).__name__}.{name}() works in fluid's dynamic graph mode only; what "
            "the optimizer of a program keeps lies in the scope: see fluid.save and fluid.io"
        )

    method.__name__ = name
    method.__doc__ = "Not available in a program; raises AssertionError as in fluid."
    return method


class Optimizer:
    """Base class: subclasses define the operator, its states and its attributes.

    Args:
        learning_rate: a float, or a variable with one element (a schedule).
        parameter_list: parameters, or their names, to update; by default all trainable ones.
        regularization: weight decay of parameters without their own ``regularizer``.
        grad_clip: clipping of gradients; takes precedence over ``set_gradient_clip``.
        name: part of the names of the states.

    Raises:
        TypeError: learning_rate is neither float nor Variable, grad_clip is no gradient clip, or
            the name is no string.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     w = fluid.layers.create_parameter([1], "float32", is_bias=True)
        ...     optimizer = fluid.optimizer.SGD(learning_rate=0.5)
        ...     pairs = optimizer.backward(fluid.layers.reduce_sum(fluid.layers.scale(w, 3.0)))
        ...     _ = optimizer.apply_gradients(pairs)  # both together: optimizer.minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[w])
        [array([-1.5], dtype=float32)]
    """

    type: ClassVar[str]
    takes_learning_rate: ClassVar[bool] = True

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        rate: Any = learning_rate
        if not isinstance(rate, (float, Variable)):
            problem = (
                f"learning rate should be float or Variable, got {rate!r} of type "
                f"{type(rate).__name__} here"
            )
            raise see("a-layer-that-takes-another-type", TypeError(problem))
        if grad_clip is not None and not isinstance(grad_clip, GradientClipBase):
            raise TypeError(
                "'grad_clip' should be an instance of GradientClipBase's derived class, but "
                f"received {grad_clip!r}"
            )
        if not isinstance(name, (str, type(None))):
            raise TypeError(f"the name of an optimizer must be a string, but is {name!r:.80}")
        self.regularization = regularization
        self._parameter_list = parameter_list
        self._grad_clip = grad_clip
        self._learning_rate = learning_rate
        self._name = name
        self._dtype: VarType | None = None
        self._learning_rate_map: dict[Program, Variable] = {}
        if isinstance(learning_rate, Variable):
            self._learning_rate_map[default_main_program()] = learning_rate
        self._checkpoints: Sequence[Variable | str] | None = None
        self._states: tuple[State, ...] = ()
        self._attrs: dict[str, Any] = {}
        self._accumulators: defaultdict[str, dict[str, Variable]] = defaultdict(dict)
        self._opti_name_list: list[str] = []
        self._devices: dict[str, str] = {}

    # ---- what users call

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append the backward pass and the updates.

        Args:
            loss: shape ``(1,)``.
            startup_program: initialises the states; by default the default startup program.
            parameter_list: parameters, or their names, to update; by default those of the
                constructor.
            no_grad_set: variables, or their names, at which gradients stop.

        Returns:
            The update operators, and the pairs of parameter and gradient.

        Raises:
            AssertionError: the loss is no variable, or has another shape.
        """
        if not isinstance(loss, Variable):
            raise AssertionError("The loss should be an Variable.")
        with no_cycles_sought():
            params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
            return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: list[Callable[..., Any]] | None = None,
    ) -> list[ParamGrad]:
        """The first half of :meth:`minimize`: append the backward pass.

        Args:
            loss: shape ``(1,)``.
            startup_program: as for :meth:`minimize`.
            parameter_list: as for :meth:`minimize`.
            no_grad_set: as for :meth:`minimize`.
            callbacks: as for :func:`dpexec.backward.append_backward`; they replace the callback
                that clips errors (``Variable.set_error_clip``).

        Returns:
            Pairs of parameter and gradient.

        Raises:
            AssertionError: the loss has another shape, or callbacks is no list.
        """
        if callbacks is not None and not isinstance(callbacks, list):
            raise AssertionError(f"callbacks must be a list, not {callbacks!r}")
        if loss.shape != (1,):
            problem = (
                f"The loss.shape should be (1L,), but the current loss.shape is {loss.shape}. "
                "Maybe that you should call fluid.layers.mean to process the current loss."
            )
            raise see("a-loss-that-is-no-single-number", AssertionError(problem))
        self._dtype = loss.dtype
        program = loss.block.program
        no_grad = variable_names(no_grad_set or [], "no_grad_set")
        no_grad += [param.name for param in program.all_parameters() if not param.trainable]
        chosen = parameter_list or self._parameter_list
        for name in variable_names(chosen or [], "parameter_list"):
            if not program.global_block().has_var(name):
                known = similar(name, (param.name for param in program.all_parameters()))
                warn(f"parameter_list names {name!r}, which the program does not have{known}")
        with program_guard(program, startup_program):
            params_grads = append_backward(
                loss,
                chosen,
                no_grad,
                [error_clip_callback] if callbacks is None else callbacks,
                self._checkpoints,
            )
            self._append_dgc_ops(params_grads)
            return params_grads

    def _append_dgc_ops(self, params_grads: list[ParamGrad]) -> None:
        """Append operators that compress gradients before devices exchange them."""

    def apply_gradients(self, params_grads: list[ParamGrad]) -> list[Operator]:
        """The second half of :meth:`minimize`, on the default programs: clip, decay, update.

        Args:
            params_grads: pairs of parameter and gradient; a gradient of None is left out.

        Returns:
            The update operators.
        """
        params_grads = sorted(params_grads, key=lambda pair: pair[0].name)
        clip = append_gradient_clip_ops if self._grad_clip is None else self._grad_clip
        with default_main_program()._gradient_block_guard():
            params_grads = append_regularization_ops(clip(params_grads), self.regularization)
            return self._create_optimization_pass(params_grads)

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: list[ParamGrad]
    ) -> list[Operator]:
        """:meth:`apply_gradients` on the program of ``loss``."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def get_opti_var_name_list(self) -> list[str]:
        """The names of the states."""
        return self._opti_name_list

    state_dict = _dynamic_only("state_dict")
    set_dict = _dynamic_only("set_dict")
    current_step_lr = _dynamic_only("current_step_lr")
    clear_gradients = _dynamic_only("clear_gradients")

    # ---- learning rate

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        return self._learning_rate_map.get(program or default_main_program())

    def _create_global_learning_rate(self) -> None:
        if self._global_learning_rate() is not None:
            return
        if not isinstance(self._learning_rate, float):
            raise TypeError(
                f"the learning rate {self._learning_rate.name} belongs to another program than "
                "the loss; build the schedule inside the program_guard of the loss"
            )
        helper = LayerHelper("global_var")
        rate = helper.create_global_variable(
            name=unique_name.generate("learning_rate"),
            shape=[1],
            dtype=self._dtype or VarType.FP32,
            persistable=True,
            stop_gradient=True,
        )
        helper.set_variable_initializer(rate, Constant(float(self._learning_rate)))
        note(self._learning_rate_map.pop, default_main_program())
        self._learning_rate_map[default_main_program()] = rate

    def _create_param_lr(self, param_and_grad: ParamGrad) -> Variable:
        """The learning rate of one parameter: ``ParamAttr.learning_rate`` times the optimizer's."""
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        rate = self._global_learning_rate()
        assert rate is not None
        if isinstance(factor, Variable):
            return factor
        if factor == 1.0:
            return rate
        program = default_main_program()
        with program._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            block = program.current_block()
            scaled = block.create_var(name=unique_name.generate("tmp"), dtype=rate.dtype)
            attrs = {"scale": float(factor), "bias": 0.0, "bias_after_scale": True}
            block.append_op("scale", {"X": rate}, {"Out": scaled}, attrs)
        return scaled

    # ---- states

    def _create_accumulators(self, block: Block, parameters: list[Any]) -> None:
        for param in parameters:
            for state in self._states:
                shape, kind = ([1], VarType.LOD_TENSOR) if state.scalar else (None, None)
                self._add_accumulator(
                    state.name, param, None, state.fill, shape, kind, state.device
                )

    def _add_accumulator(
        self,
        name: str,
        param: Any,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Iterable[int] | None = None,
        type: VarType | None = None,
        device: str | None = None,
    ) -> Variable:
        """Create a persistable variable that belongs to a parameter.

        Raises:
            ValueError: it exists already: an optimizer can update a parameter in one ``minimize``
                only.
        """
        kind = self._kind(name)
        if param.name in self._accumulators[kind]:
            raise ValueError(f"Accumulator {kind} already exists for parameter {param.name}")
        helper = LayerHelper("accumulator")
        state = helper.create_global_variable(
            name=unique_name.generate(f"{param.name}_{kind}"),
            persistable=True,
            dtype=dtype or param.dtype,
            type=type or param.type,
            shape=list(param.shape if shape is None else shape),
        )
        with noted_device(self._devices.get(param.name) if device is None else device):
            helper.set_variable_initializer(state, Constant(float(fill_value)))
        note(self._accumulators[kind].pop, param.name)
        note(self._opti_name_list.remove, state.name)
        self._accumulators[kind][param.name] = state
        self._opti_name_list.append(state.name)
        return state

    def _get_accumulator(self, name: str, param: Any) -> Variable:
        """The variable that :meth:`_add_accumulator` created.

        Raises:
            ValueError: there is no such variable.
        """
        kind = self._kind(name)
        if param.name not in self._accumulators[kind]:
            raise ValueError(f"Accumulator {kind} does not exist for parameter {param.name}")
        return self._accumulators[kind][param.name]

    def _kind(self, name: str) -> str:
        return name if self._name is None else f"{self._name}_{name}"

    # ---- operators

    def _create_optimization_pass(self, params_grads: list[ParamGrad]) -> list[Operator]:
        block = default_main_program()._gradient_block()
        start = len(block.ops)
        self._devices = block.devices_of_inputs()
        self._create_accumulators(block, [p for p, _ in params_grads if p.trainable])
        self._create_global_learning_rate()
        for param, grad in params_grads:
            if grad is None:
                continue
            role = block.program._optimized_guard([param, grad])
            with role, name_scope("optimizer"), noted_device(self._devices.get(param.name)):
                if param.trainable:
                    self._append_optimize_op(block, (param, grad))
        self._finish_update(block, params_grads)
        return block.ops[start:]

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        param, grad = param_and_grad
        inputs = {"Param": param, "Grad": grad}
        outputs = {"ParamOut": param}
        if self.takes_learning_rate:
            inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        for state in self._states:
            variable = self._get_accumulator(state.name, param)
            inputs[state.slot] = variable
            if state.output is not None:
                outputs[state.output] = variable
        inputs.update(self._extra_inputs())
        return block.append_op(self.type, inputs, outputs, self._op_attrs(param))

    def _extra_inputs(self) -> dict[str, Variable]:
        """Inputs of the operator other than parameter, gradient, learning rate and states."""
        return {}

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        """The attributes of the update operator of a parameter."""
        return self._attrs

    def _finish_update(self, block: Block, params_grads: list[ParamGrad]) -> None:
        """Append operators that run after the updates of all parameters."""
