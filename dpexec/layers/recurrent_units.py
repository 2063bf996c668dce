"""One step of an LSTM or a GRU, built from basic layers; used by the cells."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from dpexec.engine.core import unique_name
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.constants import fill_constant
from dpexec.layers.elementwise import elementwise_add, elementwise_mul
from dpexec.layers.joining import concat, split
from dpexec.layers.ops import made as _layers
from dpexec.layers.products import matmul

__all__ = ["Activation", "BasicGRUUnit", "BasicLSTMUnit", "kept"]

_sigmoid, _tanh = _layers["sigmoid"], _layers["tanh"]

Activation = Callable[[Variable], Variable]


def kept(state: Variable, new_state: Variable, step_mask: Variable) -> Variable:
    """The new state of unfinished rows, and the old state of finished ones.

    Args:
        state: the old state, ``(rows, ...)``.
        new_state: the new state, ``(rows, ...)``.
        step_mask: ``(rows,)``: 1 for unfinished rows, 0 for finished ones.
    """
    taken = elementwise_mul(new_state, step_mask, axis=0)
    return taken - elementwise_mul(state, (step_mask - 1), axis=0)


class _Unit:
    """Base class: creates parameters at the first call, when the number of inputs is known.

    Args:
        name_scope: prefix of the parameters' names.
        param_attr: attributes of the weights.
        bias_attr: attributes of the biases.
        dtype: element type of both.
    """

    def __init__(self, name_scope: str, param_attr: Any, bias_attr: Any, dtype: str) -> None:
        name = unique_name.generate(f"{name_scope}/{type(self).__name__}")
        self._helper = LayerHelper(name_scope, name=name)
        self._param_attr = param_attr
        self._bias_attr = bias_attr
        self._dtype = dtype

    def _weight(self, x: Variable, hidden: int, gates: int, part: str = "") -> Any:
        shape = [x.shape[-1] + hidden, gates * hidden]
        if x.shape[-1] <= 0:
            raise AssertionError(f"the last dimension of {x.name} {x.shape} must be known")
        return self._helper.create_parameter(_named(self._param_attr, part), shape, self._dtype)

    def _bias(self, hidden: int, gates: int, part: str = "") -> Any:
        attr = _named(self._bias_attr, part)
        return self._helper.create_parameter(attr, [gates * hidden], self._dtype, is_bias=True)


def _named(attr: Any, part: str) -> Any:
    """The attributes of one of several parameters; a given name gets a suffix."""
    if not part or attr is None or attr.name is None:
        return attr
    made = copy.deepcopy(attr)
    made.name += part
    return made


class BasicGRUUnit(_Unit):
    """One step of a gated recurrent unit; calls share their parameters.

    With the gates ``r, u = act_g([x, h] W_g + b_g)`` and the candidate
    ``c = act_c([x, r * h] W_c + b_c)``, the new state is ``u * h + (1 - u) * c``.

    Args:
        name_scope: prefix of the parameters' names.
        hidden_size: width of the state.
        param_attr: attributes of ``W_g`` and ``W_c``; ``_gate`` and ``_candidate`` are appended to
            its name.
        bias_attr: attributes of ``b_g`` and ``b_c``, with the same suffixes.
        gate_activation: ``act_g``; the sigmoid by default.
        activation: ``act_c``; tanh by default.
        dtype: element type of the parameters.

    Source: ``fluid.contrib.layers.BasicGRUUnit``; Cho et al. 2014, "Learning phrase
    representations using RNN encoder-decoder for statistical machine translation".

    Raises:
        TypeError: an activation is no function.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     unit = fluid.contrib.layers.BasicGRUUnit("gru", hidden_size=16)
        ...     unit(fluid.data("x", [4, 8]), fluid.data("state", [4, 16])).shape
        (4, 16)
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: str = "float32",
    ) -> None:
        super().__init__(name_scope, param_attr, bias_attr, dtype)
        self._hidden_size = hidden_size
        self._gate_activation = gate_activation or _sigmoid
        self._activation = activation or _tanh
        self._parameters: tuple[Any, ...] = ()

    def __call__(self, input: Variable, pre_hidden: Variable) -> Variable:
        """The new state, ``(rows, hidden_size)``.

        Args:
            input: ``(rows, width)``.
            pre_hidden: the previous state, ``(rows, hidden_size)``.
        """
        if not self._parameters:
            self._parameters = self._made(input)
        gate_weight, weight, gate_bias, bias = self._parameters
        gates = matmul(x=concat([input, pre_hidden], 1), y=gate_weight)
        gates = self._gate_activation(elementwise_add(gates, gate_bias))
        reset, update = split(gates, num_or_sections=2, dim=1)
        candidate = matmul(concat([input, reset * pre_hidden], 1), weight)
        candidate = self._activation(elementwise_add(candidate, bias))
        return update * pre_hidden + (1 - update) * candidate

    def _made(self, x: Variable) -> tuple[Any, ...]:
        size = self._hidden_size
        weights = self._weight(x, size, 2, "_gate"), self._weight(x, size, 1, "_candidate")
        return *weights, self._bias(size, 2, "_gate"), self._bias(size, 1, "_candidate")


class BasicLSTMUnit(_Unit):
    """One step of a long short-term memory; calls share their parameters.

    With ``i, j, f, o = [x, h] W + b``, the new cell is
    ``sigmoid(f + forget_bias) * cell + sigmoid(i) * tanh(j)``, and the new state is
    ``sigmoid(o) * tanh(new cell)``.

    Args:
        name_scope: prefix of the parameters' names.
        hidden_size: width of the state.
        param_attr: attributes of ``W``.
        bias_attr: attributes of ``b``.
        gate_activation: ignored, as in fluid, which always uses the sigmoid.
        activation: ignored, as in fluid, which always uses tanh.
        forget_bias: added to the forget gate before its activation.
        dtype: element type of the parameters.

    Source: ``fluid.contrib.layers.BasicLSTMUnit``; Zaremba et al. 2014, "Recurrent neural network
    regularization".

    Raises:
        TypeError: an activation is no function, or ``forget_bias`` no number.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     unit = fluid.contrib.layers.BasicLSTMUnit("lstm", hidden_size=16)
        ...     x, state = fluid.data("x", [4, 8]), fluid.data("state", [4, 16])
        ...     hidden, cell = unit(x, state, state)
        ...     hidden.shape, cell.shape
        ((4, 16), (4, 16))
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(name_scope, param_attr, bias_attr, dtype)
        self._hidden_size = hidden_size
        self._forget_bias = fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False
        self._parameters: tuple[Any, ...] = ()

    def __call__(
        self, input: Variable, pre_hidden: Variable, pre_cell: Variable
    ) -> tuple[Variable, Variable]:
        """The new state and the new cell, ``(rows, hidden_size)`` each.

        Args:
            input: ``(rows, width)``.
            pre_hidden: the previous state, ``(rows, hidden_size)``.
            pre_cell: the previous cell, ``(rows, hidden_size)``.
        """
        if not self._parameters:
            size = self._hidden_size
            self._parameters = self._weight(input, size, 4), self._bias(size, 4)
        weight, bias = self._parameters
        gates = elementwise_add(matmul(x=concat([input, pre_hidden], 1), y=weight), bias)
        i, j, f, o = split(gates, num_or_sections=4, dim=-1)
        kept = elementwise_mul(pre_cell, _sigmoid(elementwise_add(f, self._forget_bias)))
        new_cell = elementwise_add(kept, elementwise_mul(_sigmoid(i), _tanh(j)))
        return _tanh(new_cell) * _sigmoid(o), new_cell
