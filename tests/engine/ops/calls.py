"""Sample calls of operators as small programs, with an interpreter for them."""

from __future__ import annotations

import functools
import itertools

import numpy as np

import dpexec.engine.ops
from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.lod import LOD_SUFFIX, Lod
from dpexec.engine.core.random import RandomStream
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.opdef import GradContext, SampleRng
from dpexec.engine.ir.program import Program

assert dpexec.engine.ops  # registers the operators


@functools.cache
def samples(type):
    """The samples of an operator; none if its forward operator's samples check it."""
    definition = opdef.get(type)
    return definition.samples(SampleRng()) if definition.samples else []


def parts(value):
    """The arrays a value consists of."""
    if isinstance(value, TensorArray):
        return [part for array, lod in value for part in (array, *lod.levels)]
    if isinstance(value, Lod):
        return list(value.levels)
    return [value.row_array, value.value] if isinstance(value, SelectedRows) else [value]


def converted(value, dtype):
    """A copy with floating point numbers in the type ``dtype``."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_array.copy(), value.height_, converted(value.value, dtype))
    if isinstance(value, TensorArray):
        return with_arrays(value, lambda array: converted(array, dtype))
    if isinstance(value, Lod):
        return value
    value = np.asarray(value)
    if value.dtype.kind != "f":
        return value.copy()
    with np.errstate(over="ignore"):  # samples have large numbers, too
        return value.astype(dtype)


def spec_of(value):
    if isinstance(value, SelectedRows):
        return opdef.Spec(value.shape, as_var_type(value.dtype), VarType.SELECTED_ROWS)
    if isinstance(value, TensorArray):
        return spec_of(value.entry(0)[0]).replace(kind=VarType.LOD_TENSOR_ARRAY)
    kind = VarType.RAW if isinstance(value, Lod) else VarType.LOD_TENSOR
    return opdef.Spec(value.shape, as_var_type(value.dtype), kind)


class SampleCall:
    """One sample of an operator: a program of that operator and the values of its inputs.

    Args:
        type: operator type.
        sample: what it is called with.
        dtype: floating point numbers are converted to this type.

    Attributes:
        xp: what the kernels compute with; the values must be arrays of it.
        choose: gives the kernel to call, of the operator's type and its own kernel.
    """

    choose = staticmethod(lambda type, kernel: kernel)

    def __init__(self, type, sample, dtype):
        self.xp = np
        self.definition = opdef.get(type)
        self.program = Program()
        self.block = self.program.global_block()
        self.values = {}
        self.inputs = {}
        for slot, value in sample.inputs.items():
            values = value if isinstance(value, list) else [value]
            self.inputs[slot] = [f"{slot}_{i}" for i in range(len(values))]
            for name, item in zip(self.inputs[slot], values, strict=True):
                self.values[name] = item = converted(item, dtype)
                self._declare(name, spec_of(item))
        for name, lod in self.lods.items():
            self.block.var(name).lod_level = len(lod.levels)
        specs = {slot: [self.block.var(n).spec for n in ns] for slot, ns in self.inputs.items()}
        inferred = self.inferred(specs, sample)
        outputs = {
            slot: [f"out_{slot}_{i}" for i, spec in enumerate(found) if spec is not None]
            for slot, found in inferred.items()
        }
        for name in (name for names in outputs.values() for name in names):
            self.block.create_var(name=name)
        self.op = self.block.append_op(
            type=type, inputs=self.inputs, outputs=outputs, attrs=dict(sample.attrs)
        )

    def inferred(self, specs, sample):
        """The specs of all outputs, a list for each slot; ``counts`` end those without end."""
        found = self.definition.infer_specs(specs, sample.attrs)
        endless = [slot for slot, made in found.items() if isinstance(made, itertools.repeat)]
        return found | {s: list(itertools.islice(found[s], sample.counts[s])) for s in endless}

    def _declare(self, name, spec):
        var = self.block.create_var(name=name)
        var.set_spec(spec)

    @property
    def lods(self):
        """Offsets by name of the input that has sequences."""
        return {
            name: self.values[lod]
            for slot, lods in self.inputs.items()
            if slot.endswith(LOD_SUFFIX)
            for name, lod in zip(self.inputs[slot.removesuffix(LOD_SUFFIX)], lods, strict=True)
        }

    def output_lods(self, values):
        """Offsets by name of the output that has sequences: made here, or those of an input.

        Args:
            values: as :meth:`forward` returns them.
        """
        shared = next((lod for lod in self.lods.values() if lod), Lod())
        found = {}
        for slot, names in self.outputs.items():
            made = self.outputs.get(slot + LOD_SUFFIX, [])
            if made:
                found.update(zip(names, (values[lod] for lod in made), strict=True))
            elif not slot.endswith(LOD_SUFFIX):
                found.update((n, shared) for n in names if self.block.var(n).lod_level)
        return {name: lod for name, lod in found.items() if lod}

    @property
    def outputs(self):
        """Output names per slot."""
        return self.op.outputs

    def wanted_inputs(self, sample):
        """Names of the inputs whose gradient a sample checks."""
        slots = self.inputs if sample.grad is None else sample.grad
        return [
            name
            for slot in slots
            for name in self.inputs[slot]
            if not isinstance(self.values[name], SelectedRows)
            and self.values[name].dtype.kind == "f"
        ]

    def protect(self):
        """Make every write to an input an error, but for those that may be overwritten."""
        allowed = set(self.definition.inplace.values())
        for slot, names in self.inputs.items():
            for name in names if slot not in allowed else []:
                for array in parts(self.values[name]):
                    array.flags.writeable = False

    def forward(self, **changed):
        """The values after the operator ran.

        Args:
            changed: values of inputs that differ from the sample's.
        """
        values = {**self.values, **changed}
        run(self.op, values, self.xp, self.choose)
        return values

    def grad_ops(self, wanted):
        """The gradient operators for the inputs ``wanted``, not yet in the block."""
        context = GradContext(
            self.op,
            {slot: [roles.grad_name(n) for n in names] for slot, names in self.outputs.items()},
            {
                slot: [roles.grad_name(n) if n in wanted else "" for n in names]
                for slot, names in self.inputs.items()
            },
        )
        return self.definition.make_grad(context)

    def backward(self, values, output_grads, wanted):
        """Run the gradient operators.

        Args:
            values: as :meth:`forward` returns them.
            output_grads: gradients of the outputs by name of the output.
            wanted: names of the inputs.

        Returns:
            Gradients by name of the input, and the inferred specs by name of the gradient.
        """
        values = {**values, **{roles.grad_name(n): g for n, g in output_grads.items()}}
        for grad in output_grads:
            name = roles.grad_name(grad)
            if not self.block.has_var(name):
                self._declare(name, spec_of(values[name]))
        specs = {}
        for grad_op in self.grad_ops(wanted):
            inputs = {slot: names for slot, names in grad_op.inputs.items() if any(names)}
            outputs = {slot: names for slot, names in grad_op.outputs.items() if any(names)}
            for name in (n for names in outputs.values() for n in names if n):
                if not self.block.has_var(name):
                    self.block.create_var(name=name)
            op = self.block.append_op(
                type=grad_op.type, inputs=inputs, outputs=outputs, attrs=dict(grad_op.attrs)
            )
            run(op, values, self.xp, self.choose)
            for names in outputs.values():
                specs.update({name: self.block.var(name).spec for name in names if name})
        return {name: values[roles.grad_name(name)] for name in wanted}, specs

    def read_output_grads(self, wanted):
        """Names of the outputs whose gradients the gradient operators read."""
        read = {n for op in self.grad_ops(wanted) for names in op.inputs.values() for n in names}
        names = [name for found in self.outputs.values() for name in found]
        return [name for name in names if roles.grad_name(name) in read]


def run(op, values, xp=np, choose=SampleCall.choose):
    """Call the kernel of an operator on the values of its variables and store its results."""
    definition = op.definition
    arguments = []
    for slot in definition.inputs:
        found = [values[name] for name in op.inputs.get(slot.name, []) if name]
        arguments.append(found if slot.many else (found or [None])[0])
    keywords = definition.kernel_attrs(op.attrs)
    if "needs" in definition.kernel_arguments:
        wanted = [[bool(n) for n in op.outputs.get(slot.name, [])] for slot in definition.outputs]
        keywords["needs"] = tuple(
            found if slot.many else any(found)
            for slot, found in zip(definition.outputs, wanted, strict=True)
        )
    if "names" in definition.kernel_arguments:
        keywords["names"] = {**op.inputs, **op.outputs}
    if "calls" in definition.kernel_arguments:
        keywords["calls"] = itertools.count()
    if definition.is_random:
        keywords["rng"] = RandomStream(seed=7, key=1, run=0)
    with np.errstate(all="ignore"):
        made = choose(op.type, definition.kernel)(xp, *arguments, **keywords)
    made = made if isinstance(made, tuple) else (made,)
    for slot, value in zip(definition.outputs, made, strict=True):
        names = op.outputs.get(slot.name, [])
        for name, item in zip(names, value if slot.many else [value], strict=False):
            if name:
                assert item is not None, f"{op.type} was asked for {slot.name} and gave None"
                values[name] = item
