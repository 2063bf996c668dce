"""Single operators and their gradients, compared with values of the real Paddle 1.8.5.

The calls are the operators' samples. ``tests/fixtures/export_ops.py`` writes them down and
``record_ops.py`` records what Paddle makes of them in ``ops.npz``; where a sample says that it
deviates, its reason stands beside it.
"""

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.lod import LOD_SUFFIX, Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ir.roles import GRAD_SUFFIX
from tests.engine.ops.calls import SampleCall, parts, spec_of
from tests.fixtures import packing
from tests.fixtures.export_ops import SHARED

TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
SETTINGS = 3
FEWER_SETTINGS = {
    **dict.fromkeys(
        (
            *(f"c_allreduce_{kind}" for kind in ("sum", "prod", "max", "min")),
            *("c_broadcast", "c_allgather", "c_reducescatter", "allreduce", "broadcast"),
            *("c_sync_calc_stream", "c_sync_comm_stream"),
        ),
        "Paddle has kernels for GPUs alone",
    ),
    "copy_lod": "dpexec's own",
    "kept_lod": "dpexec's own",
    "dgc": "Paddle has it on GPUs alone",
    "dgc_momentum": "Paddle refuses to run it for less than two trainers",
    **dict.fromkeys(("fused_adam", "fused_momentum", "fused_sgd"), "dpexec's own"),
    "fused_batch_norm_act": "Paddle has it on GPUs alone",
    **dict.fromkeys(
        ("fused_gemm_epilogue", "fused_gemm_epilogue_grad"), "of later versions, on GPUs alone"
    ),
    **dict.fromkeys(
        (
            *("fused_embedding_eltwise_layernorm", "fused_fc_elementwise_layernorm"),
            *("fusion_transpose_flatten_concat", "multihead_matmul", "skip_layernorm"),
            *("conv2d_fusion", "conv2d_inception_fusion"),
        ),
        "Paddle has it on GPUs alone: tests/engine/ops/test_fused_for_gpus.py",
    ),
    "fusion_group": "enable_auto_fusion makes it, of operators that are compared",
    **dict.fromkeys(
        ("pyramid_hash", "pyramid_hash_grad"),
        "which updates the table: tests/contrib/test_contrib_layers.py has Paddle's tables",
    ),
    "rank_attention": "Paddle has it on GPUs alone",
    **{
        f"sync_batch_norm{part}": "Paddle has it on GPUs alone"
        for part in ("", "_grad", "_sums", "_grad_sums")
    },
}
OTHER_GRADIENT_OPERATORS = {
    "data_norm": "the sums are outputs as well, which only Paddle's kernel for GPUs writes",
    "fused_elemwise_activation": "the gradient of IntermediateOut is an output that nobody needs",
}


@functools.cache
def recorded():
    """The recorded calls by operator type."""
    calls = packing.load(Path(packing.__file__).with_name("ops.npz"))
    return {type: list(found) for type, found in itertools.groupby(calls, lambda c: c["type"])}


def differentiated():
    """Types whose records have gradients."""
    return {type for type, calls in recorded().items() if any(call["wanted"] for call in calls)}


def value(stored):
    if isinstance(stored, dict):
        if "lod" in stored:
            return Lod(stored["lod"])
        if "entries" in stored:
            return TensorArray((entry["value"], Lod(entry["lod"])) for entry in stored["entries"])
        return SelectedRows(stored["rows"], stored["height"], stored["value"])
    return stored


class Replay:
    """A recorded call, computed again; values by variable."""

    def __init__(self, record):
        inputs = {slot: [value(v) for v in values] for slot, values in record["inputs"].items()}
        self.record = record
        counts = {slot: len(values) for slot, values in record["outputs"].items()}
        sample = Sample(inputs, record["attrs"], counts=counts)
        self.call = SampleCall(record["type"], sample, np.float32)
        self.found = self.call.forward()
        self.lods = {n: lod.to_lists() for n, lod in self.call.output_lods(self.found).items()}
        self.expected = {
            name: value(stored)
            for slot, names in self.call.outputs.items()
            if not slot.endswith(LOD_SUFFIX)
            for name, stored in zip(names, record["outputs"][slot], strict=True)
            if stored is not None  # the original leaves XShape empty, it has a shape only
        }
        self.slots = {n: slot for slot, names in self.call.outputs.items() for n in names}
        self.slots |= {
            name + GRAD_SUFFIX: slot + GRAD_SUFFIX
            for slot, names in self.call.inputs.items()
            for name in names
        }
        if record["wanted"]:
            self._add_gradients()

    def _add_gradients(self):
        values, record = self.found, self.record
        if self.call.definition.is_random:  # the same numbers must have been drawn
            values = {**values, **self.expected}
        made, _ = self.call.backward(values, record["flows"], record["wanted"])
        self.found |= {name + GRAD_SUFFIX: grad for name, grad in made.items()}
        self.expected |= {n + GRAD_SUFFIX: value(grad) for n, grad in record["grads"].items()}


def assert_like(found, expected, what):
    """Kind, data types and shapes agree."""
    assert type(found) is type(expected), what
    for mine, real in zip(parts(found), parts(expected), strict=True):
        assert (mine.dtype, mine.shape) == (real.dtype, real.shape), what


def same(found, expected, size=1):
    """Whether values agree; ``size`` is that of the numbers, if it is small."""
    tolerance = {**TOLERANCE, "atol": TOLERANCE["atol"] * size}
    return all(
        mine.shape == real.shape and np.allclose(mine, real, equal_nan=True, **tolerance)
        for mine, real in zip(parts(found), parts(expected), strict=True)
    )


def size_of(value):
    """The largest number of a value, at most 1."""
    sizes = np.abs(np.concatenate([np.ravel(part) for part in parts(value)]).astype(float))
    return min(1, sizes[np.isfinite(sizes)].max(initial=0))


@pytest.mark.parametrize("type", recorded())
def test_operator_computes_what_paddle_computes(type):
    for record in recorded()[type]:
        replay = Replay(record)
        assert set(record["deviates"]) <= set(replay.slots.values()), "no such output or gradient"
        for name, expected in replay.expected.items():
            found = replay.found[name]
            what = f"{name} of {type} {record['attrs']}: {found}, in Paddle {expected}"
            if replay.slots[name] in record["deviates"]:
                assert not same(found, expected, size_of(found)), f"{what} does not deviate"
            else:
                assert_like(found, expected, what)
                assert same(found, expected), what
        assert replay.lods == record.get("lods", {}), f"offsets of {type} {record['attrs']}"


@pytest.mark.parametrize("type", recorded())
def test_outputs_have_sequences_where_they_have_them_in_paddle(type):
    definition = opdef.get(type)
    in_inputs = definition.inplace.keys() | SHARED.get(type, {}).keys()
    for record in recorded()[type]:
        made_slots = {slot for slot, found in record["outputs"].items() if found} - in_inputs
        for slot, expected in record.get("levels", {}).items():
            specs = {
                name: [spec_of(value(v)).replace(lod_level=int(name == slot)) for v in values]
                for name, values in record["inputs"].items()
                if not name.endswith(LOD_SUFFIX)
            }
            made = definition.infer_specs(specs, record["attrs"])
            outputs = {name: next(iter(made[name])) for name in made_slots}
            found = {n: spec.lod_level for n, spec in outputs.items() if spec and spec.lod_level}
            assert found == expected, f"{type} {record['attrs']} when {slot} has sequences"


def filled(slots):
    """Slots of a user's program: some have variables, none has offsets."""
    return {
        slot: names for slot, names in slots.items() if any(names) and not slot.endswith(LOD_SUFFIX)
    }


@pytest.mark.parametrize("type", sorted(differentiated() - set(OTHER_GRADIENT_OPERATORS)))
def test_gradient_operators_are_those_of_paddle(type):
    for record in recorded()[type]:
        made = Replay(record).call.grad_ops(record["wanted"]) if record["wanted"] else []
        described = [
            {"type": op.type, "inputs": filled(op.inputs), "outputs": filled(op.outputs)}
            for op in made
        ]
        assert described == record["grad_ops"]


def test_every_operator_is_recorded_in_several_settings():
    """Gradient operators are part of the records of their forward operators."""
    few = {
        type: counts
        for type, definition in opdef.registered().items()
        if definition.samples and min(counts := settings(type, definition)) < SETTINGS
    }
    assert set(few) == set(FEWER_SETTINGS), few


def settings(type, definition):
    """In how many settings an operator was recorded, and its gradient, if it has one."""
    calls = recorded().get(type, [])
    counts = [len(calls)]
    if definition.make_grad and not definition.no_grad:
        counts.append(sum(bool(call["grads"]) for call in calls))
    return counts
