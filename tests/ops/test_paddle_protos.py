"""Slots and attributes of the operators against those of the real PaddlePaddle 1.8.5.

``tests/fixtures/record_ops.py`` records ``op_protos.json``.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dpexec.core.lod import LOD_SUFFIX
from dpexec.ir import opdef
from tests.fixtures import packing

PROTOS = json.loads(Path(packing.__file__).with_name("op_protos.json").read_text())
OTHER_SLOTS = {
    ("assign", "X"): "Paddle's operator does nothing without an input",
    ("conditional_block", "Scope"): "nothing is kept in it",
    ("conditional_block_infer", "Scope"): "as that of conditional_block",
    ("create_py_reader", "Out"): "a list in Paddle, always of one reader",
    ("dgc_momentum", "Grad_out"): "programs of older versions do not have it",
    ("instance_norm", "Bias"): "its layer may leave it out, which the operator then refuses",
    ("instance_norm", "Scale"): "as its Bias",
    ("save", "kLookupTablePath"): "of parameter servers",
    ("sequence_unpad", "Length@ROWS"): "which is fed beside lengths, is no variable in Paddle",
    ("while", "Condition"): "a list in Paddle, always of one variable",
    ("while", "StepScopes"): "nothing is kept in them",
}
OTHER_OPERATORS = {
    "c_gen_nccl_id": "Paddle has it on GPUs alone",
    "copy_lod": "offsets of sequences are no variables in Paddle",
    "dgc": "Paddle has it on GPUs alone",
    "fused_batch_norm_act": "Paddle has it on GPUs alone",
    **dict.fromkeys(
        (
            *("fused_embedding_eltwise_layernorm", "fused_fc_elementwise_layernorm"),
            *("fusion_transpose_flatten_concat", "multihead_matmul", "skip_layernorm"),
        ),
        "Paddle has it on GPUs alone",
    ),
    "fusion_group": "enable_auto_fusion makes it, of operators that are compared",
    "fused_adam": "Paddle's pass makes one adam of parameters that lie together",
    "fused_momentum": "as fused_adam",
    "fused_gemm_epilogue": "of later versions of Paddle, on GPUs alone",
    "fused_sgd": "as fused_adam",
    "sync_batch_norm": "Paddle has it on GPUs alone",
    "sync_batch_norm_sums": "half of sync_batch_norm",
    "parallel_do": "Paddle 1.8 does not have it any more",
}


def compared(type, slots):
    """What slots are: name, whether for several variables, whether the one may be absent."""
    return sorted(
        (name, many, many or optional)
        for name, many, optional in slots
        if (type, name) not in OTHER_SLOTS and not name.endswith(LOD_SUFFIX)
    )


@pytest.mark.parametrize("type", PROTOS)
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_slots_are_those_of_paddle(type, side):
    slots = [(slot.name, slot.many, slot.optional) for slot in getattr(opdef.get(type), side)]
    recorded = [(s["name"], s["duplicable"], s["dispensable"]) for s in PROTOS[type][side]]
    assert compared(type, slots) == compared(type, recorded)


@pytest.mark.parametrize("type", PROTOS)
def test_attributes_and_defaults_are_those_of_paddle(type):
    attrs, recorded = opdef.get(type).attrs, PROTOS[type]["attrs"]
    assert set(attrs) == set(recorded) - {"sub_block"}  # a block has no default
    for name, default in recorded.items():
        if default is not None:  # else it must be given
            assert_same(attrs[name], default, name)


def assert_same(value, default, name):
    if isinstance(default, float):
        np.testing.assert_allclose(value, default, rtol=1e-6, err_msg=name)
    else:
        assert (list(value) if isinstance(value, tuple) else value) == default, name


def test_every_operator_is_compared():
    unknown = {t for t in opdef.registered() if t not in PROTOS and "_grad" not in t}
    assert unknown == set(OTHER_OPERATORS)
