"""Recurrent nets over sequences: padded, run by ``LSTM`` and ``GRU`` or ``Scan``, taken out again.

The inputs of fluid's operators are projected already, so the input weights of ONNX choose the
columns in ONNX's order of gates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.onnx.exporting.builder import Builder, Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows

_NAMES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
_NUMBERS = ("identity", "sigmoid", "tanh", "relu")
"""The activations of ``gru_unit`` by their numbers."""


def activation(g: Builder, kind: str, x: Value) -> Value:
    """A value after an activation of a recurrent net."""
    made: Value = x if kind == "identity" else g.node(_NAMES[kind], x)
    return made


def blocks(c: Call, value: Value, order: Sequence[int], axis: int, signs: Sequence[int]) -> Value:
    """The equal parts of a weight in another order, some negated.

    Args:
        c: the operator.
        value: the weight; a constant stays one.
        order: numbers of the parts.
        axis: along which they lie.
        signs: 1 or -1 for each part of the result.
    """
    count = len(order)
    if value in c.g.arrays:
        parts = np.split(c.g.arrays[value], count, axis)
        chosen = [sign * parts[i] for i, sign in zip(order, signs, strict=True)]
        return c.g.constant(np.concatenate(chosen, axis))
    more = {"num_outputs": count} if c.g.opset >= 18 else {}
    found = c.g.Split(value, axis=axis, outputs=count, **more)
    chosen = [
        found[i] if sign > 0 else c.g.Neg(found[i]) for i, sign in zip(order, signs, strict=True)
    ]
    made: Value = c.g.Concat(*chosen, axis=axis)
    return made


def folded(
    c: Call, value: Value, fold: Callable[[np.ndarray], np.ndarray], node: Callable
) -> Value:
    """A function of a value: of a constant at once, else as nodes."""
    if value in c.g.arrays:
        return c.g.constant(fold(c.g.arrays[value]))
    made: Value = node(value)
    return made


def recurrent_weight(c: Call, value: Value, order: Sequence[int], signs: Sequence[int]) -> Value:
    """A weight ``(size, gates * size)`` as ONNX has it: ``(1, gates * size, size)``."""
    ordered = blocks(c, value, order, 1, signs)
    return folded(
        c, ordered, lambda w: w.T[None],
        lambda w: c.g.Unsqueeze(c.g.Transpose(w, perm=[1, 0]), [0]),
    )  # fmt: skip


def choosing(c: Call, size: int, order: Sequence[int], signs: Sequence[int], slot: str) -> Value:
    """Input weights that put the columns of the gates into ONNX's order."""
    count = len(order)
    matrix = np.zeros((1, count * size, count * size))
    for row, (column, sign) in enumerate(zip(order, signs, strict=True)):
        for k in range(size):
            matrix[0, row * size + k, column * size + k] = sign
    return c.number(matrix, slot)


def initial(c: Call, slot: str) -> Value | None:
    """The first states, with the dimension of directions before them."""
    found = c.get(slot)
    return None if found is None else c.g.Unsqueeze(found, [0])


@dataclass(frozen=True)
class Unit:
    """What a recurrent operator computes with: its inputs may have other names in another operator.

    Args:
        c: the operator.
        slot: the input that has the sequences.
        x: the input, projected to the gates, ``(rows, gates * size)``.
        weight: the weight of the states.
        bias: the bias of the gates, and behind it peepholes; None without one.
        size: the number of cells.
        dtype: an input that has the element type of the numbers.
    """

    c: Call
    slot: str
    x: Value
    weight: Value
    bias: Value | None
    size: int
    dtype: str

    def zeros(self, *shape: int) -> Value:
        """A constant of zeros."""
        return self.c.number(np.zeros(shape), self.dtype)

    @property
    def rows(self) -> Rows:
        """The rows of the sequences."""
        need(len(self.c.lengths(self.slot)) == 1, "its input has no sequences, or nested ones")
        return Rows(self.c.g, self.c.sequences(self.slot))

    def added(self) -> Value:
        """The input plus the bias of the gates of an LSTM."""
        bias = self.c.g.Slice(self.bias, [0], [4 * self.size], [1])
        made: Value = self.c.g.Add(self.x, bias)
        return made

    def peepholes(self) -> list[Value]:
        """Those of input, forget and output gate, as fluid has them behind the bias."""
        g, size = self.c.g, self.size
        begins = range(4 * size, 8 * size, size) if self.c.attr("use_peepholes") else ()
        return [g.Slice(self.bias, [a], [b], [1]) for a, b in itertools.pairwise(begins)]


def _unit(c: Call, gates: int) -> Unit:
    """The unit of an operator whose input is projected already."""
    size = cells(c, "Input", gates)
    return Unit(c, "Input", c["Input"], c["Weight"], c.get("Bias"), size, "Input")


def cells(c: Call, slot: str, gates: int) -> int:
    """The number of cells, of an input with a column for each of their gates."""
    size = c.shape(slot)[1] // gates
    need(size > 0, f"its number of cells is open: {c.spec(slot)}")
    return size


@exports("lstm")
def lstm(c: Call) -> None:
    """``LSTM`` with fluid's gates in ONNX's order; ``Scan`` where the cells are wanted, too."""
    write_lstm(_unit(c, 4))


def write_lstm(unit: Unit) -> None:
    """See :func:`lstm`."""
    c, g, size = unit.c, unit.c.g, unit.size
    if c.wants("Cell") or "identity" in kinds(c):
        hidden, cell = _run_lstm(unit, size, lstm_step(unit))
        c.set("Hidden", hidden)
        c.set("Cell", cell)
        return
    rows = unit.rows
    order, plain = (1, 3, 2, 0), (1,) * 4  # candidate, input, forget, output in fluid
    gates = g.Slice(unit.bias, [0], [4 * size], [1])
    bias = g.Concat(blocks(c, gates, order, 1, plain), unit.zeros(1, 4 * size), axis=1)
    peepholes = None
    if c.attr("use_peepholes"):  # input, forget, output in fluid
        peepholes = blocks(
            c, g.Slice(unit.bias, [4 * size], [7 * size], [1]), (0, 2, 1), 1, plain[:3]
        )
    gate, state, candidate = (_NAMES[kind] for kind in kinds(c))
    made = g.LSTM(
        rows.padded(unit.x, 2, None, time_first=True),
        choosing(c, size, order, plain, unit.dtype),
        recurrent_weight(c, unit.weight, order, plain),
        bias, g.cast(rows.lengths, np.int32), initial(c, "H0"), initial(c, "C0"), peepholes,
        hidden_size=size, activations=[gate, candidate, state],
        direction="reverse" if c.attr("is_reverse") else "forward",
    )  # fmt: skip
    c.set("Hidden", rows.taken_out(g.Squeeze(made, [1]), time_first=True))


def kinds(c: Call) -> list[str]:
    """The activations of gates, cells and candidates."""
    return [c.attr(f"{name}_activation") for name in ("gate", "cell", "candidate")]


@exports("gru", without="gates that are no sigmoids, and no activation")
def gru(c: Call) -> None:
    """``GRU``; where the update gate is the share of the new state, it is negated."""
    write_gru(_unit(c, 3))


def write_gru(unit: Unit) -> None:
    """See :func:`gru`."""
    c, g, size = unit.c, unit.c.g, unit.size
    own = c.attr("origin_mode")
    need(own or c.attr("gate_activation") == "sigmoid", "its gates are no sigmoids")
    names = [c.attr("gate_activation"), c.attr("activation")]
    need("identity" not in names, "it has no activation")
    rows = unit.rows
    order, signs = (0, 1, 2), (1 if own else -1, 1, 1)
    weight = folded(
        c, unit.weight, lambda w: _gru_matrix(w, size),
        lambda w: g.Concat(
            g.reshape(g.Slice(g.reshape(w, -1), [0], [2 * size * size]), size, 2 * size),
            g.reshape(g.Slice(g.reshape(w, -1), [2 * size * size], [3 * size * size]), size, size),
            axis=1,
        ),
    )  # fmt: skip
    bias = unit.bias
    if bias is not None:
        bias = g.Concat(blocks(c, bias, order, 1, signs), unit.zeros(1, 3 * size), axis=1)
    made = g.GRU(
        rows.padded(unit.x, 2, None, time_first=True),
        choosing(c, size, order, signs, unit.dtype), recurrent_weight(c, weight, order, signs),
        bias, g.cast(rows.lengths, np.int32), initial(c, "H0"),
        hidden_size=size, activations=[_NAMES[kind] for kind in names],
        direction="reverse" if c.attr("is_reverse") else "forward",
    )  # fmt: skip
    c.set("Hidden", rows.taken_out(g.Squeeze(made, [1]), time_first=True))


def _gru_matrix(weight: np.ndarray, size: int) -> np.ndarray:
    flat = weight.reshape(-1)
    both, new = flat[: 2 * size * size], flat[2 * size * size :]
    return np.concatenate([both.reshape(size, -1), new.reshape(size, -1)], 1)


Step = Callable[[Builder, list[Value], Value], list[Value]]


def scanned(unit: Unit, rows: Rows, x: Value, states: Sequence[Value], step: Step) -> list[Value]:
    """The states after every step of every sequence, as rows.

    Args:
        unit: the operator.
        rows: of the sequences.
        x: what the steps read, ``(rows, width)``.
        states: the first states, ``(sequences, size)``.
        step: writes a step: from states and input to the next states.
    """
    g = unit.c.g
    padded = rows.padded(x, 2, None, time_first=True)
    there = g.Unsqueeze(rows.grid(time_first=True)[1], [2])
    inner = g.inner()
    dtype = onnx_type(unit.c.dtype(unit.dtype))
    names = [inner.unique(f"{g.origin[0]}/state") for _ in states]
    gates, mask = (inner.unique(f"{g.origin[0]}/{name}") for name in ("gates", "there"))
    made = step(inner, names, gates)
    kept = [inner.Where(mask, new, old) for new, old in zip(made, names, strict=True)]
    outputs = [inner.Identity(value) for value in kept]
    body = helper.make_graph(
        inner.nodes, "step",
        [
            *(helper.make_tensor_value_info(name, dtype, [None, None]) for name in names),
            helper.make_tensor_value_info(gates, dtype, [None, None]),
            helper.make_tensor_value_info(mask, onnx.TensorProto.BOOL, [None, 1]),
        ],
        [
            helper.make_tensor_value_info(name, dtype, [None, None])
            for name in (*kept, *outputs)
        ],
    )  # fmt: skip
    found = g.Scan(*states, padded, there, body=body, num_scan_inputs=2, outputs=2 * len(states))
    return [rows.taken_out(value, time_first=True) for value in found[len(states) :]]


def zeros(unit: Unit, rows: Rows, size: int) -> Value:
    """A row of zeros for each sequence."""
    g = unit.c.g
    shape = g.Concat(g.Shape(rows.lengths), g.ints(size), axis=0)
    made: Value = g.Expand(unit.c.number(0.0, unit.dtype), shape)
    return made


def lstm_step(unit: Unit, project: Callable | None = None) -> Step:
    """A step of a long short-term memory; ``project`` makes what the next one sees."""
    c, size = unit.c, unit.size
    gate, state, candidate = kinds(c)
    clip, peepholes = c.attr("cell_clip") or 0.0, unit.peepholes()

    def step(g: Builder, states: list[Value], x: Value) -> list[Value]:
        hidden, before = states
        gates = g.Add(x, g.MatMul(hidden, unit.weight))
        new, taken, kept, shown = g.Split(gates, [size] * 4, axis=1, outputs=4)
        if peepholes:
            taken = g.Add(taken, g.Mul(before, peepholes[0]))
            kept = g.Add(kept, g.Mul(before, peepholes[1]))
        new = activation(g, candidate, new)
        taken, kept = (activation(g, gate, each) for each in (taken, kept))
        cell = g.Add(g.Mul(new, taken), g.Mul(before, kept))
        if clip > 0:
            cell = g.Clip(cell, *(c.number(limit, unit.dtype) for limit in (-clip, clip)))
        if peepholes:
            shown = g.Add(shown, g.Mul(cell, peepholes[2]))
        out = g.Mul(activation(g, state, cell), activation(g, gate, shown))
        return [project(g, out) if project else out, cell]

    return step


def _run_lstm(unit: Unit, width: int, step: Step) -> list[Value]:
    """Outputs and cells of all steps; ``width`` is that of what the next step sees."""
    c, rows, x = unit.c, unit.rows, unit.added()
    turned = c.attr("is_reverse")
    x = rows.turned(x) if turned else x
    states = [
        c.get("H0") or zeros(unit, rows, width),
        c.get("C0") or zeros(unit, rows, unit.size),
    ]
    made = scanned(unit, rows, x, states, step)
    return [rows.turned(value) for value in made] if turned else made


@exports("lstmp")
def lstmp(c: Call) -> None:
    """``Scan``: a step sees a projection of the output before it."""
    unit, width = _unit(c, 4), c.shape("ProjWeight")[1]
    clip, weight = c.attr("proj_clip"), c["ProjWeight"]
    linear = c.attr("proj_activation") == "identity"
    kind = "identity" if linear else c.attr("cell_activation")

    def project(g: Builder, out: Value) -> Value:
        made = activation(g, kind, g.MatMul(out, weight))
        if clip > 0:
            made = g.Clip(made, c.number(-clip, "Input"), c.number(clip, "Input"))
        return made

    made, cell = _run_lstm(unit, width, lstm_step(unit, project))
    c.set("Projection", made)
    c.set("Cell", cell)


@exports("lstm_unit")
def lstm_unit(c: Call) -> None:
    """One step; columns are for input gate, forget gate, output gate and candidate."""
    g, size = c.g, c.shape("C_prev")[1]
    taken, kept, shown, new = g.Split(c["X"], [size] * 4, axis=1, outputs=4)
    kept = g.Sigmoid(g.Add(kept, c.number(c.attr("forget_bias"))))
    cell = g.Add(g.Mul(kept, c["C_prev"]), g.Mul(g.Sigmoid(taken), g.Tanh(new)))
    c.set("C", cell)
    c.set("H", g.Mul(g.Sigmoid(shown), g.Tanh(cell)))


@exports("gru_unit")
def gru_unit(c: Call) -> None:
    """One step; the weight has a matrix for both gates, and behind it one for the candidate."""
    g, size, before = c.g, c.shape("HiddenPrev")[1], c["HiddenPrev"]
    gate, new_kind = (_NUMBERS[c.attr(name)] for name in ("gate_activation", "activation"))
    x = c["Input"] if c.get("Bias") is None else g.Add(c["Input"], c["Bias"])
    flat, whole = g.reshape(c["Weight"], -1), 3 * size * size
    of_gates = g.reshape(g.Slice(flat, [0], [2 * size * size]), size, 2 * size)
    of_new = g.reshape(g.Slice(flat, [2 * size * size], [whole]), size, size)
    both, new = g.Split(x, [2 * size, size], axis=1, outputs=2)
    both = activation(g, gate, g.Add(both, g.MatMul(before, of_gates)))
    update, reset = g.Split(both, [size, size], axis=1, outputs=2)
    new = activation(g, new_kind, g.Add(new, g.MatMul(g.Mul(before, reset), of_new)))
    kept, fresh = (before, new) if c.attr("origin_mode") else (new, before)
    rest = g.Mul(g.Sub(c.number(1.0, "Input"), update), fresh)
    c.set("Hidden", g.Add(g.Mul(update, kept), rest))
