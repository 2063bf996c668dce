"""The list of common operators without machine code, each with its reason."""

from __future__ import annotations

import pytest

from dpexec.engine.ir import opdef
from dpexec.ops import tier1

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.kernels import implementations

ON_NUMPY = {
    "once, in startup programs": "gaussian_random uniform_random seed range",
    "control flow, readers and files": (
        "conditional_block create_double_buffer_reader create_py_reader feed fetch load "
        "load_combine py_func read save save_combine"
    ),
    "booleans": "allclose is_empty reduce_all",
    "gradients of gradients": (
        "elementwise_add_grad_grad elementwise_div_grad_grad elementwise_mul_grad_grad "
        "elementwise_sub_grad_grad elu_grad_grad instance_norm_grad_grad leaky_relu_grad_grad "
        "mul_grad_grad relu_grad_grad reshape2_grad_grad sqrt_grad_grad square_grad_grad"
    ),
    "one program or none, and NumPy's own loops": (
        "add_position_encoding arg_max bpr_loss bpr_loss_grad elementwise_floordiv "
        "elementwise_mod elementwise_pow_grad pad pad_grad reverse sampling_id similarity_focus"
    ),
}


def test_what_runs_on_numpy_is_known():
    known = {type for types in ON_NUMPY.values() for type in types.split()}
    found = {
        type
        for type in tier1()
        if opdef.find(type) is not None and implementations.find(type, "code") is None
    }
    assert found == known, f"lowered now: {known - found}; not lowered: {found - known}"
