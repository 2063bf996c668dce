"""The element types that Paddle's kernels take, and the errors for others."""

from pathlib import Path

import numpy as np
import pytest

from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.ir import opdef
from dpexec.engine.ir.spec import InvalidOp, Spec
from dpexec.engine.ops import _kernel_types
from dpexec.engine.ops._kernel_types import require_kernel, slot_types
from tests.engine.ops.calls import spec_of
from tests.fixtures import packing

CALLS = packing.load(Path(__file__).parents[2] / "fixtures" / "ops.npz")
TYPES = sorted(_kernel_types._table())


def test_every_line_names_slots_of_an_operator():
    assert len(TYPES) > 500
    for op_type in TYPES:
        known = [slot.name for slot in opdef.get(op_type).inputs]
        for rule in slot_types(op_type):
            assert set(rule.slots) <= set(known), op_type
            assert rule.types, op_type


def test_calls_that_paddle_runs_are_taken():
    """All recorded ones, as they were recorded, but for those of MKL-DNN's own kernels."""
    for call in (call for call in CALLS if not call["attrs"].get("use_mkldnn")):
        inputs = {
            slot: [spec_of(value) for value in values if isinstance(value, np.ndarray)]
            for slot, values in call["inputs"].items()
        }
        require_kernel(call["type"], inputs)


def spec(dtype):
    return Spec((2, 3), as_var_type(dtype))


@pytest.mark.parametrize(
    ("op_type", "inputs", "message"),
    [
        ("softmax", {"X": ["int64"]}, r"X int64\[2, 3\] cannot be int64: .* float32, float64"),
        ("cos_sim", {"X": ["float64"], "Y": ["float64"]}, "X float64.*but for float32"),
        ("multiplex", {"X": ["float32"], "Ids": ["int64"]}, "Ids int64.*but for int32"),
        ("elementwise_add", {"X": ["float32"], "Y": ["int64"]}, "X and Y must have one data type"),
        ("concat", {"X": ["float32", "float64"]}, "X must have one data type"),
        ("adam", {"Param": ["float32"], "Grad": ["float64"]}, "must have one data type"),
        ("gather", {"X": ["int8"], "Index": ["int64"]}, "X int8"),
        ("shuffle_batch", {"X": ["bool"], "Seed": ["int64"]}, "X bool"),
    ],
)
def test_others_are_refused_by_slot(op_type, inputs, message):
    with pytest.raises(InvalidOp, match=message):
        require_kernel(op_type, {slot: list(map(spec, found)) for slot, found in inputs.items()})


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("crop", {"X": "float32", "Y": "int64"}),
        ("cvm", {"X": "float32", "CVM": "int64"}),
        ("density_prior_box", {"Input": "float32", "Image": "int64"}),
        ("gaussian_random_batch_size_like", {"Input": "int64"}),
        ("uniform_random_batch_size_like", {"Input": "int64"}),
        ("sgd", {"Param": "float32", "Grad": "float32", "LearningRate": "int64"}),
        ("softmax", {"X": "float16"}),
        ("elementwise_add", {"X": "float16", "Y": "float32"}),
        ("fill_constant", {"ValueTensor": "int64"}),
        ("a users own", {"X": "int64"}),
    ],
)
def test_slots_that_decide_nothing_take_more(op_type, inputs):
    require_kernel(op_type, {slot: [spec(dtype)] for slot, dtype in inputs.items()})


def test_only_tensors_have_a_type():
    array = Spec((2, 3), VarType.INT64, VarType.LOD_TENSOR_ARRAY)
    require_kernel("softmax", {"X": [array]})
