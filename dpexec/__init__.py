"""dpexec: PaddlePaddle fluid's ParallelExecutor on Dask. ``import dpexec as fluid``."""

from dpexec import (
    backward,
    clip,
    compiler,
    core,
    executor,
    framework,
    initializer,
    layer_helper,
    layers,
    nets,
    ops,
    optimizer,
    param_attr,
    regularizer,
    unique_name,
)
from dpexec.autodiff import gradients
from dpexec.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from dpexec.core.scope import Scope, global_scope, scope_guard
from dpexec.core.tensors import LoDTensor, LoDTensorArray, Tensor
from dpexec.data import data
from dpexec.executor import Executor
from dpexec.framework import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    in_dygraph_mode,
    is_compiled_with_cuda,
    name_scope,
    program_guard,
    require_version,
)
from dpexec.input import embedding, one_hot
from dpexec.parallel_executor import ParallelExecutor
from dpexec.param_attr import ParamAttr, WeightNormParamAttr
from dpexec.version import __version__

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "__version__",
    "backward",
    "clip",
    "compiler",
    "core",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "embedding",
    "executor",
    "framework",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "initializer",
    "is_compiled_with_cuda",
    "layer_helper",
    "layers",
    "name_scope",
    "nets",
    "one_hot",
    "ops",
    "optimizer",
    "param_attr",
    "program_guard",
    "regularizer",
    "require_version",
    "scope_guard",
    "unique_name",
]
