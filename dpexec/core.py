"""``fluid.core``: the names of Paddle's C++ binding that programs use."""

from dpexec.compat.core_queries import (
    get_variable_tensor,
    is_compiled_with_brpc,
    is_compiled_with_dist,
    is_compiled_with_mkldnn,
    size_of_dtype,
)
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
from dpexec.engine.graph.node_graph import Graph
from dpexec.engine.graph.nodes import IrNode as Node
from dpexec.engine.ir import op_proto_and_checker_maker
from dpexec.engine.ir.desc import ProgramDesc
from dpexec.engine.ir.views import BlockView as BlockDesc
from dpexec.engine.ir.views import OperatorView as OpDesc
from dpexec.inference import (
    AnalysisConfig,
    AnalysisPredictor,
    NativeConfig,
    NativePaddlePredictor,
    PaddleBuf,
    PaddleDType,
    PaddlePredictor,
    PaddleTensor,
    ZeroCopyTensor,
    create_paddle_predictor,
    paddle_dtype_size,
    paddle_tensor_to_bytes,
)

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "AttrType",
    "BlockDesc",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "LoDTensorArray",
    "NativeConfig",
    "NativePaddlePredictor",
    "Node",
    "OpDesc",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePredictor",
    "PaddleTensor",
    "Place",
    "ProgramDesc",
    "Scope",
    "SelectedRows",
    "Tensor",
    "VarDesc",
    "VarType",
    "ZeroCopyTensor",
    "create_paddle_predictor",
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
    "paddle_dtype_size",
    "paddle_tensor_to_bytes",
    "size_of_dtype",
]
