"""``fluid.core``: the names that programs take from Paddle's C++ binding as if they were public."""

from dpexec.compat.core_queries import (
    get_variable_tensor,
    is_compiled_with_brpc,
    is_compiled_with_dist,
    is_compiled_with_mkldnn,
    size_of_dtype,
)
from dpexec.engine.core import op_proto_and_checker_maker
from dpexec.engine.core.dtypes import AttrType, VarDesc, VarType
from dpexec.engine.core.errors import EnforceNotMet, EOFException
from dpexec.engine.core.flags import globals
from dpexec.engine.core.paddle_names import (  # noqa: F401
    __unittest_throw_exception__,
    _create_loaded_parameter,
    _set_eager_deletion_mode,
    empty_var_name,
    from_dlpack,
    grad_var_suffix,
    kEmptyVarName,
)
from dpexec.engine.core.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    get_cuda_device_count,
    is_compiled_with_cuda,
)
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray, Tensor

__all__ = [
    "AttrType",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "Place",
    "Scope",
    "SelectedRows",
    "Tensor",
    "VarDesc",
    "VarType",
    "empty_var_name",
    "from_dlpack",
    "get_cuda_device_count",
    "get_variable_tensor",
    "globals",
    "grad_var_suffix",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "op_proto_and_checker_maker",
    "size_of_dtype",
]
