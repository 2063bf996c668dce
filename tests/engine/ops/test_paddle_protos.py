"""Slots, attributes and defaults of operators, compared with those of the real Paddle 1.8.5.

``tests/fixtures/record_ops.py`` records ``op_protos.json``.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir import opdef
from dpexec.engine.ir.signature import attribute_of
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
    ("lookup_sparse_table", "WOut"): "Paddle's operator writes its input W",
    ("save", "kLookupTablePath"): "of parameter servers",
    ("sequence_unpad", "Length@ROWS"): "which is fed beside lengths, is no variable in Paddle",
    ("while", "Condition"): "a list in Paddle, always of one variable",
    ("while", "StepScopes"): "nothing is kept in them",
}
OTHER_OPERATORS = {
    "c_gen_nccl_id": "Paddle has it on GPUs alone",
    "copy_lod": "offsets of sequences are no variables in Paddle",
    "kept_lod": "offsets of sequences are no variables in Paddle",
    "dgc": "Paddle has it on GPUs alone",
    "fused_batch_norm_act": "Paddle has it on GPUs alone",
    **dict.fromkeys(
        (
            *("fused_embedding_eltwise_layernorm", "fused_fc_elementwise_layernorm"),
            *("fusion_transpose_flatten_concat", "multihead_matmul", "skip_layernorm"),
            *("conv2d_fusion", "conv2d_inception_fusion"),
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

WITHOUT_EFFECT = {
    "choose another library or algorithm for the same numbers": """
        exhaustive_search im2col_step is_test min_row_size_to_use_multithread numeric_stable_mode
        use_calc_stream use_cudnn use_mkldnn use_quantizer use_seq workspace_size_MB
        x_data_format y_data_format""",
    "of integers of 8 bits, which the operator does not take": "conv3d.force_fp32_output",
    "Paddle's kernels on CPUs do not read it, or read it and make the same of it": """
        auc.curve conv2d.fuse_brelu_threshold conv2d.fuse_relu_before_depthwise_conv
        lookup_sparse_table.auto_grown_table lookup_sparse_table.padding_idx
        data_norm.summary_decay_rate data_norm.sync_stats
        depthwise_conv2d.fuse_brelu_threshold force_cpu
        fuse_beta in_dtype quantize.output_format recurrent.is_train reduce_all.out_dtype
        reduce_any.out_dtype""",
    "says what a gradient is that nothing flows into: it is like the variable": """
        rnn_memory_helper.dtype""",
    "stands in for an input Seed without a value, which is an error": "startup_seed",
    "says how gradients and variables lie in memory, and when they go": """
        grad_inplace skip_eager_deletion_vars""",
    "the executor reads it: feeds, fetches, blocks, rings, seeds": """
        c_comm_init.nranks c_comm_init.rank col dpsgd.seed dropout.fix_seed dropout.seed ring_id
        sub_block""",
    "of servers of parameters, on gRPC in Paddle: dpexec's own run beside the executor": """
        Fanin checkpint_block_id dc_asgd distribute_update_vars distributed_mode do_not_run endpoint
        endpoints epmap fake_init.shape grad_to_block_id half_async height_sections is_distributed
        lr_decay_block_id merge_add num optimize_blocks prefetch_var_name_to_block_id pserver_id
        recv_varnames remote_prefetch rpc_get_thread_num rpc_prefetch_thread_num
        rpc_send_thread_num sections send_varnames sparse_grad_to_param sync_mode table_names
        trainer_id use_send_handler varnames with_barrier""",
    "of readers and places, which the executor has itself": """
        device_count device_index device_type drop_last dtypes infer_out lod_levels need_check_feed
        place ranks shape_concat throw_eof_exp use_data_config""",
}
"""Attributes, ``operator.attribute`` or of whatever operator, that change no number on CPUs."""
EXPLAINED = {name for names in WITHOUT_EFFECT.values() for name in names.split()}


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


OF_LATER_VERSIONS = {"roi_align": {"aligned"}}
"""Attributes that models of other ecosystems need; the default is what Paddle 1.8.5 does."""


@pytest.mark.parametrize("type", PROTOS)
def test_attributes_and_defaults_are_those_of_paddle(type):
    attrs, recorded = opdef.get(type).attrs, PROTOS[type]["attrs"]
    added = OF_LATER_VERSIONS.get(type, set())
    assert set(attrs) - added == set(recorded) - {"sub_block"}  # a block has no default
    for name, default in recorded.items():
        if default is not None:  # else it must be given
            assert_same(attrs[name], default, name)


BY_LAYERS = {
    "of the executor, and of readers that it runs": """
        c_allgather c_comm_init create_py_reader fake_init feed fetch""",
    "layers always give ksize": """
        max_pool2d_with_index max_pool3d_with_index pool2d pool3d unpool""",
}
"""Operators with defaults where Paddle has none."""


@pytest.mark.parametrize("type", PROTOS)
def test_attributes_without_defaults_are_required(type):
    if type not in " ".join(BY_LAYERS.values()).split():
        recorded = {name for name, default in PROTOS[type]["attrs"].items() if default is None}
        assert recorded - {"sub_block"} <= set(opdef.get(type).required)


def read_by(definition):
    """The attributes that kernel and ``infer`` of an operator ask for."""
    return set(map(attribute_of, definition.kernel_arguments | definition.infer_arguments))


def unread(type):
    """The attributes that neither the operator nor its gradients ask for."""
    found = (opdef.find(type + suffix) for suffix in ("", "_grad", "_grad_grad"))
    read = (read_by(definition) for definition in found if definition)
    return set(PROTOS[type]["attrs"]).difference(*read)


@pytest.mark.parametrize("type", PROTOS)
def test_attributes_are_read_or_refused_or_have_no_effect(type):
    definition = opdef.get(type)
    unexplained = unread(type) - set(definition.fixed)
    assert {n for n in unexplained if not {n, f"{type}.{n}"} & EXPLAINED} == set()


def test_what_is_said_to_have_no_effect_is_read_by_nothing():
    found = {name for type in PROTOS for name in unread(type)}
    found |= {f"{type}.{name}" for type in PROTOS for name in unread(type)}
    assert found >= EXPLAINED


FIXED = [(t, name) for t, d in opdef.registered().items() for name in d.fixed]


def another(default):
    return default + "2" if isinstance(default, str) else [1, 0] if default == [] else 2.0


@pytest.mark.parametrize(("type", "name"), FIXED)
def test_other_values_of_fixed_attributes_are_refused(type, name):
    definition = opdef.get(type)
    inputs = {slot.name: [opdef.Spec((3, 3))] for slot in definition.inputs if not slot.optional}
    switch, default = definition.fixed[name], definition.attrs[name]
    value = [2.0] if isinstance(default, list) and default else another(default)
    attrs = {switch: True} if switch else {}
    with pytest.raises(opdef.InvalidOp, match=f"attribute {name} must be"):
        definition.infer_specs(inputs, {**attrs, name: value})


@pytest.mark.parametrize("type", ["fusion_seqpool_concat", "fusion_seqpool_cvm_concat"])
def test_pooled_sequences_stand_side_by_side_only(type):
    row, offsets = opdef.Spec((5, 4), lod_level=1), opdef.Spec((3,))
    inputs = {"X": [row], "X@LOD": [offsets], "CVM": [opdef.Spec((2, 2))]}
    with pytest.raises(opdef.InvalidOp, match="axis can only be 1, but is 0"):
        opdef.get(type).infer_specs(inputs, {"axis": 0})


def test_errors_name_operator_and_attribute():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 2])
        block = main.global_block()
        out = block.create_var(name="out")
        wrong = {"use_mkldnn": True, "fused_reshape_Out": [2]}
        with pytest.raises(
            fluid.core.EnforceNotMet, match="operator matmul: attribute fused_reshape_Out must"
        ):
            block.append_op("matmul", {"X": x, "Y": x}, {"Out": out}, wrong)
        block.append_op("matmul", {"X": x, "Y": x}, {"Out": out}, {"fused_reshape_Out": [2]})
    feed = {"x": np.eye(2, dtype=np.float32)}
    (made,) = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[out])
    np.testing.assert_array_equal(made, np.eye(2))


def assert_same(value, default, name):
    if isinstance(default, float):
        np.testing.assert_allclose(value, default, rtol=1e-6, err_msg=name)
    else:
        assert (list(value) if isinstance(value, tuple) else value) == default, name


def test_every_operator_is_compared():
    unknown = {t for t in opdef.registered() if t not in PROTOS and "_grad" not in t}
    assert unknown == set(OTHER_OPERATORS)
