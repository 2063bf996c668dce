"""dpexec: PaddlePaddle fluid's ParallelExecutor on Dask. ``import dpexec as fluid``."""

from typing import TYPE_CHECKING, Any

from dpexec.engine.core.memory import no_cycles_sought as _no_cycles_sought

with _no_cycles_sought():  # of all that is imported all stays: searches took a tenth of the time
    from dpexec import (
        average,
        backward,
        clip,
        communicator,
        compiler,
        contrib,
        core,
        data_feed_desc,
        data_feeder,
        dataloader,
        dataset,
        debugger,
        default_scope_funcs,
        dygraph,
        errors,
        evaluator,
        executor,
        framework,
        incubate,
        initializer,
        install_check,
        io,
        layer_helper,
        layers,
        metrics,
        nets,
        optimizer,
        param_attr,
        profiler,
        reader,
        regularizer,
        transpiler,
        unique_name,
    )
    from dpexec.compat.absent import explain_missing_names
    from dpexec.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
    from dpexec.data import data
    from dpexec.data_feed_desc import DataFeedDesc
    from dpexec.data_feeder import DataFeeder
    from dpexec.dataset import DatasetFactory
    from dpexec.dygraph import (
        disable_dygraph,
        disable_imperative,
        enable_dygraph,
        enable_imperative,
    )
    from dpexec.engine.autodiff import gradients
    from dpexec.engine.core import hooks
    from dpexec.engine.core.flags import get_flags, set_flags
    from dpexec.engine.core.scope import Scope, global_scope, scope_guard
    from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray, Tensor
    from dpexec.engine.core.version import __version__
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
    from dpexec.io import load, load_program_state, save, set_program_state
    from dpexec.lod_tensor import create_lod_tensor, create_random_int_lodtensor
    from dpexec.parallel_executor import ParallelExecutor
    from dpexec.param_attr import ParamAttr, WeightNormParamAttr
    from dpexec.transpiler import DistributeTranspiler, DistributeTranspilerConfig
    from dpexec.transpiler.memory_optimization_transpiler import memory_optimize, release_memory

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeedDesc",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
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
    "average",
    "backward",
    "clip",
    "communicator",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feed_desc",
    "data_feeder",
    "dataloader",
    "dataset",
    "debugger",
    "default_main_program",
    "default_scope_funcs",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "disable_imperative",
    "dygraph",
    "embedding",
    "enable_dygraph",
    "enable_imperative",
    "errors",
    "evaluator",
    "executor",
    "framework",
    "from_torch",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "incubate",
    "initializer",
    "install_check",
    "io",
    "is_compiled_with_cuda",
    "layer_helper",
    "layers",
    "load",
    "load_program_state",
    "memory_optimize",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "param_attr",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "release_memory",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_program_state",
    "transpiler",
    "unique_name",
]


def from_torch(module: Any, example: Any, **options: Any) -> list[Any]:
    """A module of PyTorch as a program; needs PyTorch and ``pip install dpexec[onnx]``.

    Args:
        module: a ``torch.nn.Module``.
        example: a tensor for each argument, as a tuple, or one tensor.
        **options: as for :func:`dpexec.onnx.from_torch`.

    Returns:
        The program, the names to feed, and the variables to fetch. Parameters are in the scope
        under the names that they have in the module.

    Raises:
        ImportError: PyTorch is not installed.

    Example:
        >>> import dpexec as fluid, torch  # doctest: +SKIP
        >>> net = torch.nn.Linear(3, 2)  # doctest: +SKIP
        >>> program, feeds, fetches = fluid.from_torch(net, torch.randn(4, 3))  # doctest: +SKIP
    """
    from dpexec import onnx

    return onnx.from_torch(module, example, **options)


def _picture(shown: Any) -> dict[str, str]:
    from dpexec.viz.notebook import picture

    return picture(shown)


def _panel(board: Any, name: str) -> str:
    from dpexec.viz.live_panels import live_view

    return live_view.css() if board is None else live_view.panel(board, name)


def _show_on_dashboard(client: Any, engine: Any, token: str) -> None:
    from dpexec import dashboard

    dashboard.attach(client, engine, token)


hooks.picture.supply(_picture)
hooks.draw_panel.supply(_panel)
hooks.show_on_dashboard.supply(_show_on_dashboard)

if not TYPE_CHECKING:  # type checkers shall go on to find misspelled names
    explain_missing_names(__name__, __all__)
