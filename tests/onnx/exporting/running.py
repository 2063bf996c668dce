"""Models of ONNX, checked and run by onnxruntime; samples of operators as models."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import LOD_SUFFIX, Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp
from dpexec.onnx.exporting.mapping import mappings
from dpexec.onnx.program_exporter import lengths_names, program_to_model
from tests.engine.ops.calls import SampleCall

INTERNAL = {
    *("XShape", "Mask", "MaxIndex", "SavedMean", "SavedVariance", "ReserveSpace", "MidOut"),
    *("MeanOut", "VarianceOut", "BatchGate", "BatchCellPreAct", "BatchHidden"),
    *("BatchResetHiddenPrev", "Norm", "U", "Gate", "ResetHiddenPrev", "XNorm", "YNorm"),
    *("Mean", "Variance", "OutScales", "Activated", "MatchX", "Argmax", "OutState", "OutAccum"),
    *("ReorderedH0", "ReorderedC0", "XX", "BatchedInput", "BatchedOut", "BatchedHidden"),
    *("BatchedCell", "IntermediateOut"),
}
"""Outputs that only gradients read."""


def checked(model):
    """The model as bytes, after the checker of ONNX has inferred all shapes."""
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def run(model, feeds, optimized=False):
    """The outputs by name, as onnxruntime computes them; optimizing takes longer than running."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(checked(model), options)
    names = {each.name for each in session.get_inputs()}
    outputs = [each.name for each in session.get_outputs()]
    given = {name: value for name, value in feeds.items() if name in names}
    return dict(zip(outputs, session.run(outputs, given), strict=True))


def with_lengths(name, array, lod):
    """An array, and beside it the lengths of its sequences as models take and give them."""
    levels = [np.diff(level) for level in lod.levels] if lod else []
    return {name: array, **dict(zip(lengths_names(name, len(levels)), levels, strict=True))}


class SampleModel:
    """A sample of an operator as a program, which can be written as ONNX.

    Args:
        type: operator type.
        sample: what it is called with.
        is_open: whether the first dimension of all inputs is unknown.
    """

    def __init__(self, type, sample, is_open):
        definition, self.is_open = opdef.get(type), is_open
        if "is_test" in definition.attrs:
            sample = dataclasses.replace(sample, attrs={**sample.attrs, "is_test": True})
        self.call = call = SampleCall(type, sample, np.float32)
        self.constants = mappings()[type].constants
        names = {n: s for s, ns in call.inputs.items() if not s.endswith(LOD_SUFFIX) for n in ns}
        self.feeds = [name for name, slot in names.items() if slot not in self.constants]
        for name, slot in names.items():
            var = call.block.var(name)
            var.persistable = slot in self.constants
        if is_open:
            self._open(names)
        call.values = {
            name: value if isinstance(value, Lod) else np.asarray(value)
            for name, value in call.values.items()
        }

    def _open(self, names):
        """Forget the first dimension of all inputs, or of the first one if all are too many."""
        for wanted in ([*names], [*names][:1]):
            specs = {name: self.call.block.var(name).spec for name in names}
            for name in wanted:
                var = self.call.block.var(name)
                if var.shape and not var.persistable:
                    var.set_spec(var.spec.replace(shape=(-1, *var.shape[1:])))
            try:
                self.call.op.infer_outputs(self.call.op.input_specs())  # no other types are tried
                return self.call.op.infer_shape()
            except EnforceNotMet:
                for name, spec in specs.items():
                    self.call.block.var(name).set_spec(spec)
        raise InvalidOp("it needs to know its dimensions")

    def model(self, opset):
        slots = [s for s in self.call.outputs if not s.endswith(LOD_SUFFIX) and s not in INTERNAL]
        slots = slots[:1] if self.is_open else slots  # what nobody reads may be left out
        targets = [name for slot in slots for name in self.call.outputs[slot]]
        values = self.call.values
        return program_to_model(self.call.program, self.feeds, targets, values.get, opset)

    def given(self):
        """What the model is fed."""
        lods, values = self.call.lods, self.call.values
        made = [with_lengths(name, values[name], lods.get(name)) for name in self.feeds]
        return {name: value for part in made for name, value in part.items()}

    def expected(self):
        """What the operator computes."""
        values = self.call.forward()
        lods = self.call.output_lods(values)
        names = [n for names in self.call.outputs.values() for n in names]
        made = [
            with_lengths(n, values[n], lods.get(n)) for n in names if not isinstance(values[n], Lod)
        ]
        return {name: value for part in made for name, value in part.items()}


def sample_model(type, sample, is_open):
    """See :class:`SampleModel`; None if the sample has no arrays or no unknown dimensions."""
    given = [v for v in sample.inputs.values() for v in (v if isinstance(v, list) else [v])]
    if any(isinstance(v, (SelectedRows, TensorArray)) for v in given):
        return None
    try:
        return SampleModel(type, sample, is_open)
    except InvalidOp:
        if is_open:
            return None  # it needs to know this dimension, and says so
        raise
