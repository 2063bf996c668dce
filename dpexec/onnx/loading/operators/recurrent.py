"""``LSTM``, ``GRU`` and ``RNN`` over padded sequences, and ``ReverseSequence``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.static_rnn import StaticRNN
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators import fused_gru, fused_lstm
from dpexec.onnx.loading.operators.fused_lstm import FusedUnit, part

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PLAIN = {
    "sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softsign": "softsign",
    "softplus": "softplus",
}  # fmt: skip
_WITH_NUMBERS: dict[str, tuple[str, str | None, str | None, float, float]] = {
    "leakyrelu": ("leaky_relu", "alpha", None, 0.01, 0.0),
    "thresholdedrelu": ("thresholded_relu", "threshold", None, 1.0, 0.0),
    "hardsigmoid": ("hard_sigmoid", "slope", "offset", 0.2, 0.5),
    "elu": ("elu", "alpha", None, 1.0, 0.0),
    "affine": ("scale", "scale", "bias", 1.0, 0.0),
    "scaledtanh": ("stanh", "scale_b", "scale_a", 1.0, 1.0),
}
"""fluid's operator, its attributes for alpha and beta, and their defaults."""


def places_reversed(
    node: Node, x: Variable, lengths: Variable, time_axis: int, batch_axis: int
) -> Variable:
    """A tensor with each sample's first steps in the opposite order."""
    ones = node.add("fill_any_like", {"X": x}, value=1.0, dtype=int(VarType.INT64))
    found = {a: node.add("cumsum", {"X": ones}, axis=a, exclusive=True)
             for a in range(len(x.shape))}  # fmt: skip
    shape = [1] * len(x.shape)
    shape[batch_axis] = -1
    last = node.scaled(node.reshape(node.cast(lengths, VarType.INT64), shape), bias=-1.0)
    time = found[time_axis]
    back = node.binary("elementwise_sub", last, time)
    inside = node.cast(node.binary("greater_equal", back, node.number(0, VarType.INT64)),
                       VarType.INT64)  # fmt: skip
    moved = node.binary("elementwise_mul", inside, node.binary("elementwise_sub", back, time))
    found[time_axis] = node.binary("elementwise_add", time, moved)
    order = [found[a] for a in range(len(x.shape))]
    places = node.add("stack", {"X": order}, "Y", axis=len(x.shape))
    return node.add("gather_nd", {"X": x, "Index": places})


@operator("ReverseSequence")
def reverse_sequence(node: Node) -> Any:
    """The first steps of each sample in the opposite order."""
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    return places_reversed(node, node.var(0), node.var(1), time, batch)


class _Direction:
    """One direction of a recurrent node.

    Args:
        node: the node.
        number: which of its directions.
        x: the sequences, time first.
        mask: 1 for steps of a sequence, 0 behind its end; None if all have the same length.
    """

    def __init__(self, node: Node, number: int, x: Variable, mask: Variable | None) -> None:
        self.node, self.number, self.x, self.mask = node, number, x, mask
        self.hidden = node.attr("hidden_size") or node.value(2).shape[2]
        names = node.attr("activations") or _ACTIVATIONS[node.op_type] * 2
        count = len(_ACTIVATIONS[node.op_type])
        self.activations = [
            self._activation(i) for i in range(number * count, (number + 1) * count)
        ] if names else []  # fmt: skip
        bias = self._part(3)
        self.gates = _GATES[node.op_type]
        width = self.gates * self.hidden
        self.bias = self.own_bias = None
        if bias is not None:
            self.bias, self.own_bias = (
                node.slice(bias, 0, 0, width),
                node.slice(bias, 0, width, 2 * width),
            )
        self.peepholes = self._part(7) if node.op_type == "LSTM" else None

    def _part(self, index: int) -> Variable | None:
        """An input's part for this direction."""
        return part(self.node, index, self.number)

    def _activation(self, index: int) -> Callable[[Variable], Variable]:
        node = self.node
        names = node.attr("activations") or _ACTIVATIONS[node.op_type] * 2
        name = names[index].lower()
        if name in _PLAIN:
            return lambda x: node.add(_PLAIN[name], {"X": x})
        if name not in _WITH_NUMBERS:
            node.fail(f"activation {names[index]} is not supported")
        op_type, first, second, alpha, beta = _WITH_NUMBERS[name]
        alphas, betas = node.attr("activation_alpha", []), node.attr("activation_beta", [])
        attrs: dict[str, Any] = {}
        if first:
            attrs[first] = float(alphas[index] if index < len(alphas) else alpha)
        if second:
            attrs[second] = float(betas[index] if index < len(betas) else beta)
        return lambda x: node.add(op_type, {"X": x}, **attrs)

    def run(self) -> tuple[Variable, list[Variable]]:
        """The states after each step, [time, batch, hidden]; and the last ones."""
        node = self.node
        weight, own = self._part(1), self._part(2)
        assert weight is not None and own is not None
        turned = node.transpose(weight, [1, 0])
        inputs = node.add("mul", {"X": self.x, "Y": turned}, x_num_col_dims=2)
        bias = self.bias
        if bias is not None and self.own_bias is not None and not self._resets_late():
            bias = node.binary("elementwise_add", bias, self.own_bias)
        if bias is not None:
            inputs = node.binary("elementwise_add", inputs, bias)
        self.own = node.transpose(own, [1, 0])
        starts = [self._part(i) for i in ((5, 6) if node.op_type == "LSTM" else (5,))]
        rnn = StaticRNN()
        with rnn.step():
            now = rnn.step_input(inputs)
            mask = None if self.mask is None else rnn.step_input(self.mask)
            states = [
                rnn.memory(init=start) if start is not None
                else rnn.memory(shape=[-1, self.hidden], batch_ref=now)
                for start in starts
            ]  # fmt: skip
            made = getattr(self, f"_{node.op_type.lower()}")(now, *states)
            made = [self._kept(mask, new, old) for new, old in zip(made, states, strict=True)]
            for state, new in zip(states, made, strict=True):
                rnn.update_memory(state, new)
                rnn.step_output(new)
        found = rnn()
        found = found if isinstance(found, list) else [found]
        return self._masked(found[0]), [self._last(states) for states in found]

    def _resets_late(self) -> bool:
        return self.node.op_type == "GRU" and bool(self.node.attr("linear_before_reset", 0))

    def _kept(self, mask: Variable | None, new: Variable, old: Variable) -> Variable:
        """The old state behind the end of a sequence."""
        if mask is None:
            return new
        change = self.node.binary("elementwise_sub", new, old)
        moved = self.node.binary("elementwise_mul", change, mask)
        return self.node.binary("elementwise_add", old, moved)

    def _masked(self, states: Variable) -> Variable:
        if self.mask is None:
            return states
        return self.node.binary("elementwise_mul", states, self.mask)

    def _last(self, states: Variable) -> Variable:
        node = self.node
        made = node.add("slice", {"Input": states}, axes=[0], starts=[-1], ends=[2**31 - 1])
        return node.squeeze(made, [0])

    def _gate(self, x: Variable, number: int) -> Variable:
        start = number * self.hidden
        return self.node.slice(x, 1, start, start + self.hidden)

    def _clipped(self, x: Variable) -> Variable:
        limit = self.node.attr("clip")
        return x if limit is None else self.node.add("clip", {"X": x}, min=-limit, max=limit)

    def _plus(self, x: Variable, y: Variable) -> Variable:
        return self.node.binary("elementwise_add", x, y)

    def _times(self, x: Variable, y: Variable) -> Variable:
        return self.node.binary("elementwise_mul", x, y)

    def _rnn(self, x: Variable, h: Variable) -> list[Variable]:
        total = self._plus(x, self.node.add("mul", {"X": h, "Y": self.own}))
        return [self.activations[0](self._clipped(total))]

    def _gru(self, x: Variable, h: Variable) -> list[Variable]:
        node, gate, size = self.node, self._gate, self.hidden
        f, g = self.activations
        both, last = (
            node.slice(self.own, 1, *ends) for ends in ((0, 2 * size), (2 * size, 3 * size))
        )
        own = node.add("mul", {"X": h, "Y": both})
        late = self._resets_late()
        parts = [gate(own, 0), gate(own, 1)]
        if late and self.own_bias is not None:
            cuts = [node.slice(self.own_bias, 0, i * size, (i + 1) * size) for i in range(3)]
            parts = [self._plus(part, cut) for part, cut in zip(parts, cuts[:2], strict=True)]
        z, r = (f(self._clipped(self._plus(gate(x, i), part))) for i, part in enumerate(parts))
        if late:
            inner = node.add("mul", {"X": h, "Y": last})
            if self.own_bias is not None:
                inner = self._plus(inner, cuts[2])
            inner = self._times(r, inner)
        else:
            inner = node.add("mul", {"X": self._times(r, h), "Y": last})
        new = g(self._clipped(self._plus(gate(x, 2), inner)))
        return [self._plus(new, self._times(z, node.binary("elementwise_sub", h, new)))]

    def _lstm(self, x: Variable, h: Variable, c: Variable) -> list[Variable]:
        f, g, last = self.activations
        gate, node, size = self._gate, self.node, self.hidden
        total = self._plus(x, node.add("mul", {"X": h, "Y": self.own}))

        def peeped(number: int, cell: Variable) -> Variable:
            if self.peepholes is None:
                return gate(total, number)
            cut = node.slice(self.peepholes, 0, number * size, (number + 1) * size)
            return self._plus(gate(total, number), self._times(cell, cut))

        i = f(self._clipped(peeped(0, c)))
        if node.attr("input_forget", 0):
            forget = node.scaled(i, -1.0, 1.0)
        else:
            forget = f(self._clipped(peeped(2, c)))
        new = g(self._clipped(gate(total, 3)))
        cell = self._plus(self._times(forget, c), self._times(i, new))
        out = f(self._clipped(peeped(1, cell)))
        return [self._times(out, last(cell)), cell]


@operator(*_GATES)
def recurrent(node: Node) -> Any:
    """Every direction is fluid's ``lstm`` or ``gru`` if these compute it, else ``recurrent``."""
    batch_first = bool(node.attr("layout", 0))
    x = node.var(0)
    x = node.transpose(x, [1, 0, 2]) if batch_first else x
    if batch_first:
        for index in (5, 6):
            if node.input(index) is not None:
                node.inputs[index] = node.result(node.transpose(node.var(index), [1, 0, 2]))
    lengths, mask = node.optional(4), None
    dims = node.dims(0)
    dims = [dims[1], dims[0], dims[2]] if batch_first else dims
    if lengths is not None:
        mask = _mask(node, lengths, dims[0], x.dtype)
    direction = node.attr("direction", "forward")
    all_states, all_last = [], []
    for number in range(2 if direction == "bidirectional" else 1):
        backwards = direction == "reverse" or number == 1
        states, last = _direction(node, number, (x, dims), lengths, mask, backwards)
        all_states.append(states)
        all_last.append(last)
    y = node.add("stack", {"X": all_states}, "Y", axis=2 if batch_first else 1)
    axis = 1 if batch_first else 0
    finals = [
        node.add("stack", {"X": list(last)}, "Y", axis=axis) for last in zip(*all_last, strict=True)
    ]
    if batch_first:  # [time, batch, direction, hidden]
        y = node.transpose(y, [1, 0, 2, 3])
    return [y, *finals]


def _direction(
    node: Node,
    number: int,
    source: tuple[Variable, list[Any]],
    lengths: Variable | None,
    mask: Variable | None,
    backwards: bool,
) -> tuple[Variable, list[Variable]]:
    """The states after each step of one direction, and the last ones."""
    x, dims = source
    fused = _fused(node, number)
    if fused and lengths is None:
        return fused.run(x, dims, backwards)
    x = _turned(node, x, lengths) if backwards else x
    if fused and lengths is not None and mask is not None:
        states, last = fused.until(lengths, mask, x, dims)
    else:
        states, last = _Direction(node, number, x, mask).run()
    return _turned(node, states, lengths) if backwards else states, last


def _fused(node: Node, number: int) -> FusedUnit | None:
    """A direction as one operator; None if it has to be a loop."""
    if fused_lstm.fuses(node, number):
        return fused_lstm.FusedLSTM(node, number)
    return fused_gru.FusedGRU(node, number) if fused_gru.fuses(node, number) else None


def _turned(node: Node, x: Variable, lengths: Variable | None) -> Variable:
    if lengths is None:
        return node.add("reverse", {"X": x}, axis=[0])
    return places_reversed(node, x, lengths, 0, 1)


def _mask(node: Node, lengths: Variable, steps: Any, dtype: VarType) -> Variable:
    """1 for steps of a sequence, 0 behind its end: [time, batch, 1]."""
    inputs: dict[str, Any] = {"X": node.cast(lengths, VarType.INT64)}
    attrs = {"out_dtype": int(dtype), "maxlen": steps if isinstance(steps, int) else -1}
    if not isinstance(steps, int):
        size = node.builder.size_variable(steps)
        inputs["MaxLenTensor"] = node.cast(size, VarType.INT32)
    made = node.add("sequence_mask", inputs, "Y", **attrs)
    return node.unsqueeze(node.transpose(made, [1, 0]), [2])
