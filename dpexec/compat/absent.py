"""Names of fluid 1.8 that dpexec does not have, with the reason and a replacement."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import NoReturn

from dpexec.engine.core.errors import see, similar

__all__ = ["KNOWN", "explain_import", "explain_in", "explain_missing_names", "missing_name"]

_WHY = {
    "eager execution; dpexec runs programs": (
        "BCELoss BackwardStrategy BatchNorm BilinearTensorProduct ComplexVariable Conv2D "
        "Conv2DTranspose Conv3D Conv3DTranspose Dropout DygraphGeneratorLoader "
        "DygraphParameterNameChecker Embedding GRUUnit GroupNorm InstanceNorm L1Loss Layer "
        "LayerNorm Linear MSELoss NCE NLLLoss PRelu ParamBase Pool2D ProgramDescTracer "
        "SimpleLayer SpectralNorm Tracer TreeConv VarBase complex dygraph_utils "
        "dygraph_parameter_name_checker hapi "
        "load_dygraph monkey_patch_varbase save_dygraph VariableMetaClass ParameterMetaClass"
    ),
    "a name of Keras or PyTorch; docs/from-keras.md says what it is called here": (
        "AvgPool2d AveragePooling2D BatchNorm2d BatchNormalization CrossEntropyLoss Dense Flatten "
        "GRU Input LSTM MaxPool2d MaxPooling2D Model Module ReLU Sequential"
    ),
    "fluid.contrib.slim has quantization alone; PaddleSlim prunes, distils and searches": (
        "Compressor slim"
    ),
    "fluid.contrib.slim.quantization has passes that do it": (
        "QuantizeTranspiler quantize QuantizationStrategy"
    ),
    "dpexec does not compute with the integers of MKL-DNN": (
        "MKLDNNPostTrainingQuantStrategy QatInt8MkldnnPass Qat2Int8MkldnnPass"
    ),
    "files of HDFS are for fsspec, or hadoop's own commands": (
        "BDFS FS FileSystem HDFSClient LocalFS fs_wrapper hdfs hdfs_utils multi_download "
        "multi_upload"
    ),
    "it belongs to the original's trainers in C++; Executor.train_from_dataset reads data sets": (
        "BoxPS BoxPSDataset DataFeed DeviceWorker DeviceWorkerFactory DistMultiTrainer "
        "DownpourSGD FetchHandlerMonitor Hogwild MultiTrainer PipelineTrainer Section TrainerBase "
        "TrainerDesc TrainerFactory device_worker multiprocess_utils trainer_desc trainer_factory "
        "BatchedTensorProvider DataLoaderBase keep_data_loader_order"
    ),
    "fluid.incubate.fleet.parameter_server.distribute_transpiler has parameter servers": (
        "convert_dist_to_sparse_program distribute_lookup_table get_inference_model "
        "load_persistables_for_increment load_persistables_for_inference lookup_table_utils pslib "
        "GeoSgdTranspiler geo_sgd_transpiler ListenAndServ Recv Send BlockGuardServ VarBlock "
        "transpiler.ServerRuntimeConfig same_or_split_var slice_variable "
        "VarDistributed VarStruct VarsDistributed vars_distributed ufind UnionFind Fleet "
        "fluid.distributed helper ps_instance ps_pb2 fleet_barrier_util fleet_util http_server"
    ),
    "PaddleCloudRoleMaker and UserDefinedRoleMaker say who a process is": (
        "GeneralRoleMaker MPIRoleMaker MPISymetricRoleMaker MockBarrier"
    ),
    "operators in C++ cannot be loaded; layers.py_func calls functions in Python": (
        "load_op_library OpProtoHolder get_all_op_protos fluid.op generate_layer_fn "
        "math_op_patch monkey_patch_variable"
    ),
    "graphs and passes are those of dpexec.engine.graph and dpexec.engine.passes": (
        "Pass get_pass generate_control_dev_var_name"
    ),
    "dpexec.viz draws programs, graphs and traces": (
        "GraphPreviewGenerator Edge Rank crepr graphviz net_drawer"
    ),
    "with one process of several devices, CompiledProgram.with_data_parallel does it": (
        "SingleProcessMultiThread CollectiveOpBasedOptimizer DistFCConfig LambConfig"
    ),
    "checkpoints are in dpexec.checkpoint": "TrainStatus",
    "data sets read local files, and these have no reader": (
        "flowers mq2007 voc2012 image_util preprocess_img preprocess_util plotcurve"
    ),
    "dpexec checks values by FLAGS_check_nan_inf": (
        "prepare_fast_nan_inf_debug run_fast_nan_inf_debug"
    ),
    "a class of the original's C++; fluid's own classes do it": (
        "CpuPassStrategy DeviceContext DistCommunicator EventSortingKey ExecutorPrepareContext "
        "FetchList FetchUnmergedList GlobalVarGetterSetterRegistry Gloo GpuPassStrategy "
        "IterableDatasetWrapper LoDTensorBlockingQueue LodRankTable MkldnnQuantizerConfig "
        "MultiDeviceFeedReader OrderedMultiDeviceFeedReader "
        "OrderedMultiDeviceLoDTensorBlockingQueue PaddlePassBuilder PaddlePlace ParallelStrategy "
        "PassStrategy ProfilerState Reader TracerOption set_paddle_lib_path core.Dataset "
        "core.Executor core.Operator core.ParallelExecutor core.PassBuilder core.Variable"
    ),
    "it works on what PSLib's servers store; let the pipe command prepare the lines": (
        "generate_local_tables_unlock get_pv_data_size postprocess_instance preprocess_instance "
        "set_current_phase set_download_cmd set_enable_pv_merge set_feed_type "
        "set_generate_unique_feasigns set_merge_by_lineid set_merge_by_sid set_parse_content "
        "set_parse_ins_id set_parse_logkey set_pv_batch_size set_rank_offset"
    ),
    "programs are built by layers; these parts of the original's Python are its own": (
        "BaseErrorClipAttr BlockGuard BlockGuardWithCompletion ConditionalBlockGuard "
        "DataToLoDTensorConverter IfElseBlockGuard NameScope PyFuncRegistry StaticRNNMemoryLink "
        "WhileGuard copy_mutable_vars copy_var_to_parent_block cross_entropy2 escape_math "
        "find_op_index find_true_post_op find_true_prev_op func get_indent_space "
        "hold_mutable_vars monkey_patch_reader_methods ProgramStats serialize_op_decs "
        "switch_device update_loss_scaling log load_combine save save_combine "
        "check_feed_shape_type dimension_is_compatible_with dtype_is_compatible_with "
        "common_ops_import check_import_scipy torch2paddle show_pb distribution "
        "parameter_server.version fleet.utils utils.profiler PlotData "
        "repr_attr repr_data_type repr_lodtensor repr_op repr_selected_rows repr_tensor "
        "repr_tensor_array repr_var DecoupledWeightDecay ParentWatchDog XmapEndSignal"
    ),
    "dpexec's own compiled code needs no headers or libraries of Paddle": (
        "sysconfig avx_supported get_dso_path get_glibc_ver less_than_ver load_dso pre_load "
        "run_shell_command"
    ),
    "python -m dpexec.paddle.distributed.launch starts trainers": (
        "Hdfs JobServer TrainerProc start_local_trainers terminate_local_procs watch_local_trainers"
    ),
    "readers are made by train() and test() of each data set": (
        "reader_creator fetch_all must_mkdirs word_count unittest load_sentiment_data sort_files "
        "download_data_if_not_yet feature_range fluid_model load_data predict_reader"
    ),
}
KNOWN = {name.rpartition(".")[2]: why for why, names in _WHY.items() for name in names.split()}
"""What to know of names and modules of fluid that are missing."""

_TO_IMPORT = {"checkpoint", "dashboard", "extend", "onnx", "sklearn", "viz"}
"""Modules that ``import dpexec`` leaves out, since they load slowly or need an extra."""


def explain_missing_names(package: str, parts: Collection[str]) -> None:
    """Make the modules imported so far explain missing names.

    Args:
        package: ``dpexec``, or ``dpexec.paddle``.
        parts: names of its modules.
    """
    wanted = {package, *(f"{package}.{part}" for part in parts)}
    inside = tuple(f"{part}." for part in wanted - {package})
    for name, module in list(sys.modules.items()):
        if name in wanted or name.startswith(inside):
            explain_in(module)


def explain_in(module: ModuleType) -> None:
    """Make a module explain missing names, unless it does so already."""
    vars(module).setdefault("__getattr__", functools.partial(_raise, module))


def _raise(module: ModuleType, name: str) -> NoReturn:
    raise missing_name(module.__name__, name, vars(module).get("__all__", ()))


def missing_name(own: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have.

    Args:
        own: name of the module.
        name: the missing name.
        known: candidates for suggestions.
    """
    if name in KNOWN:
        fluid = "paddle" if own.startswith("dpexec.paddle") else "fluid"
        path = own.removeprefix("dpexec").removeprefix(".paddle")
        problem = f"{fluid}{path}.{name} is not supported by dpexec: {KNOWN[name]}"
    else:
        hint = "" if name.startswith("__") else similar(name, known)
        if name in _TO_IMPORT and own == "dpexec":
            hint = f" before it is imported: from dpexec import {name}"
        problem = f"module {own!r} has no attribute {name!r}{hint}"
    return see("a-name-that-is-not-there", AttributeError(problem))


_BROUGHT_BY_PADDLE = {
    name: name
    for name in [
        "astor",
        "decorator",
        "funcsigs",
        "gast",
        "matplotlib",
        "nltk",
        "objgraph",
        "prettytable",
        "rarfile",
        "requests",
        "scipy",
        "six",
    ]
} | {"PIL": "pillow", "cv2": "opencv-python-headless", "google": "protobuf"}
"""Modules that come with Paddle 1.8.5, and the packages that hold them."""


def explain_import(error: ImportError) -> None:
    """Add the reason to an error about a name, or a module, that cannot be imported."""
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module in _BROUGHT_BY_PADDLE:
            error.add_note(
                "it comes with Paddle, and dpexec does not need it: "
                f"pip install {_BROUGHT_BY_PADDLE[module]}"
            )
        return
    found = re.match(r"cannot import name '(\w+)'", str(error))
    if found and found[1] in KNOWN:
        error.add_note(f"{found[1]} is not supported by dpexec: {KNOWN[found[1]]}")
