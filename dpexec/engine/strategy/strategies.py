"""``BuildStrategy`` and ``ExecutionStrategy``: every field with its type, default and check."""

from __future__ import annotations

import enum
from typing import Any, Self, TypeAlias

from dpexec.engine.core.dtypes import ShownByName
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.passes import OperatorPass, Pass
from dpexec.engine.strategy.fields import Field, Strategy, one_of, optional_bool, positive, strings
from dpexec.engine.strategy.pass_builder import PassBuilder

__all__ = ["DEFAULTS", "BuildStrategy", "ExecutionStrategy", "StrategyDefaults"]


class ReduceStrategy(ShownByName, enum.Enum):
    """How gradients are aggregated."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(ShownByName, enum.Enum):
    """The initial gradient of the loss on each device."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


@dataclass
class StrategyDefaults:
    """The strategies' defaults, set by ``dpexec run --mode`` and ``--scheduler``."""

    reduce_strategy: ReduceStrategy = ReduceStrategy.AllReduce
    scheduler: Any = None


DEFAULTS = StrategyDefaults()


def _scheduler(name: str, value: Any) -> Any:
    known = (None, "threads", "sync", "distributed")
    if hasattr(value, "scheduler_info") or value in known:
        return value
    raise ValueError(
        f"{name} is None, 'threads', 'sync', 'distributed' or a dask.distributed.Client, but "
        f"received {value!r}"
    )


class BuildStrategy(Strategy):
    """How the graph of replicas is built.

    Fields have fluid's names, types and defaults; setting an unknown one raises AttributeError,
    a wrong type TypeError. Once a program was compiled with it, changing it raises
    :class:`EnforceNotMet` (in fluid the change would be ignored).

    ``task_granularity`` is dpexec's own: ``"segment"`` (few coarse dask tasks) or ``"op"`` (one
    dask task per operator, for exploration); both give the same bits.

    ``product_precision`` is dpexec's own, too. With ``"bfloat16"``, ``mul``, ``matmul`` and their
    gradients round float32 operands to bfloat16 and sum in float32. CPUs need AVX512_BF16 or
    AMX_BF16 (oneDNN); GPUs need compute capability 8.0 (cuBLAS). GPUs also have ``"tf32"``,
    operands with 10 bits, and use the setting for ``conv2d`` and ``depthwise_conv2d``, too.
    Parameters, their updates, results and all other operators stay float32. Under
    FLAGS_check_nan_inf, operators run on NumPy, in float32.

    ``allow_cuda_graph_capture``, a field of later fluid versions, makes CUDA graphs of pieces of a
    task whose operators read no values on the host (:mod:`dpexec.engine.gpu.graphs`): one launch
    instead of hundreds. Recorded steps, and steps under FLAGS_check_nan_inf, launch kernels one by
    one.

    The passes ``skip_dead_ops``, ``remove_identities``, ``common_subexpressions``,
    ``constant_folding`` and ``fuse_softmax_with_cross_entropy`` are dpexec's own. ``enable_addto``
    and, on GPUs, ``fuse_gemm_epilogue`` come from later fluid versions. Three passes change bits:
    ``sync_batch_norm`` by design, ``fuse_softmax_with_cross_entropy`` (its class says how much) and
    ``fuse_gemm_epilogue``, as cuBLASLt may sum in another order. Variables that a pass removed can
    still be fetched. `append_pass` adds a user's own pass.

    ``fuse_all_reduce_ops`` merges the all-reduces of a layer, or of neighbouring layers until they
    have ``FLAGS_fuse_parameter_memory_size`` MB or more than ``FLAGS_fuse_parameter_groups_size``
    parameters; the flags are read when the program is compiled. Without these flags, a collective
    task takes layers only until its latency is small against the transfer time, so that it can
    start during the backward pass.

    See Also:
        :class:`~dpexec.Executor`: runs programs.
        :class:`~dpexec.CompiledProgram`: a program on several devices.
        :class:`~dpexec.ParallelExecutor`: the older form of both.
        :class:`~dpexec.ExecutionStrategy`: how it runs.
    """

    appended: tuple[list[OperatorPass], list[Pass]]

    ReduceStrategy: TypeAlias = ReduceStrategy
    GradientScaleStrategy: TypeAlias = GradientScaleStrategy

    reduce_strategy = Field(
        ReduceStrategy.AllReduce,
        ReduceStrategy,
        "Add each gradient on every device (AllReduce), or on its owner alone (Reduce).",
    )
    gradient_scale_strategy = Field(
        GradientScaleStrategy.CoeffNumDevice,
        GradientScaleStrategy,
        "Initial gradient of the loss: the device's share of the batch, 1, or fed by the user.",
    )
    debug_graphviz_path = Field(
        "", str, "Prefix of DOT files of the graph, which are written when compiling."
    )
    enable_sequential_execution = Field(
        False, bool, "Run the operators of a device in the program's order."
    )
    fuse_all_reduce_ops = Field(
        True, bool, "Add the gradients of a layer in one all-reduce; flags set other groups."
    )
    fuse_bn_act_ops = Field(False, bool, "Make one operator of batch_norm and the relu after it.")
    fuse_relu_depthwise_conv = Field(
        False, bool, "Make one operator of depthwise_conv2d and the relu before it."
    )
    fuse_elewise_add_act_ops = Field(
        False, bool, "Make one operator of an addition and an activation."
    )
    fuse_gemm_epilogue = Field(
        False, bool, "On GPUs: make one operator of a matrix product, its bias and relu."
    )
    enable_auto_fusion = Field(
        False, bool, "Make one operator of neighbouring elementwise operators."
    )
    fuse_softmax_with_cross_entropy = Field(
        False, bool, "Make one operator of softmax and cross entropy; gradients differ by rounding."
    )
    enable_addto = Field(
        False, bool, "Add contributions to a gradient as soon as they are computed."
    )
    sync_batch_norm = Field(False, bool, "batch_norm uses the statistics of all devices.")
    fuse_broadcast_ops = Field(
        True, bool, "Send several parameters in one broadcast (Reduce mode)."
    )
    fuse_all_optimizer_ops = Field(False, bool, "Update many parameters in one operator.")
    memory_optimize = Field(
        None, optional_bool, "Free temporaries after their last use; None means True."
    )
    enable_inplace = Field(
        True, bool, "Let optimizers write into their parameters; otherwise they run on NumPy."
    )
    skip_dead_ops = Field(
        True, bool, "Leave out operators whose results are neither fetched nor stored."
    )
    remove_identities = Field(
        False, bool, "Leave out operators that copy; later ones read the original."
    )
    common_subexpressions = Field(False, bool, "Compute equal expressions once.")
    constant_folding = Field(False, bool, "Compute constant expressions when compiling.")
    native_kernels = Field(True, bool, "Compile operators to machine code (needs numba).")
    product_precision = Field(
        "float32",
        one_of("float32", "bfloat16", "tf32"),
        "Round the operands of matrix products: 'bfloat16', 'tf32' (GPUs); 'float32' does not.",
    )
    allow_cuda_graph_capture = Field(
        False, bool, "On GPUs: launch groups of operators as CUDA graphs."
    )
    task_granularity = Field(
        "segment",
        one_of("segment", "op"),
        "What a Dask task holds: a 'segment' of operators, or one 'op'.",
    )

    remove_unnecessary_lock = Field(True, bool, "GPU and parameter server only.", False)
    cache_runtime_context = Field(False, bool, "Cache operator contexts.", False)
    enable_backward_optimizer_op_deps = Field(True, bool, "Multi-trainer GPU only.", False)
    num_trainers = Field(1, int, "Number of processes that train together.")
    trainer_id = Field(0, int, "Number of this process among them, from 0.")
    trainers_endpoints = Field(
        [], strings, "Where each of them listens, as ip:port, in their order."
    )
    nccl_comm_num = Field(1, int, "NCCL communicators.", False)
    use_hierarchical_allreduce = Field(False, bool, "NCCL only.", False)
    hierarchical_allreduce_inter_nranks = Field(0, int, "NCCL only.", False)
    is_distribution = Field(False, bool, "Set by Paddle for programs with send and recv.", False)
    async_mode = Field(
        False, bool, "With parameter servers: update at once, without waiting for all trainers."
    )
    mkldnn_enabled_op_types = Field(set(), strings, "oneDNN only.", False)

    def __init__(self) -> None:
        super().__init__()
        self._values["reduce_strategy"] = DEFAULTS.reduce_strategy
        self._values["trainers_endpoints"] = []
        self._values["mkldnn_enabled_op_types"] = set()
        object.__setattr__(self, "appended", ([], []))

    def with_fields(self, **values: Any) -> Self:
        """A copy with the same passes and other values in some fields.

        Args:
            values: new values by field name; other fields are copied.

        Raises:
            AttributeError: there is no such field.
        """
        made = super().with_fields(**values)
        made.appended[0].extend(self.appended[0])
        made.appended[1].extend(self.appended[1])
        return made

    def append_pass(self, step: OperatorPass | Pass) -> None:
        """Add a user's pass, which runs after the built-in ones of its kind.

        Args:
            step: an object with a ``name`` and one of two methods, which rewrites its argument in
                place and returns whether anything changed. ``rewrite(operators)`` gets the
                operators before replication (:class:`dpexec.engine.graph.operators.Operators`),
                ``apply(graph)`` the graph of the replicas
                (:class:`dpexec.engine.graph.ssa.SSAGraph`). On a cluster, cloudpickle must be able
                to send the object to workers.

        Raises:
            TypeError: ``step`` has no name, or not exactly one of these methods.
            ValueError: a pass or field of this name exists already.
            EnforceNotMet: a program was compiled with the strategy.

        Example:
            >>> import dpexec as fluid
            >>> class Count:
            ...     name = "count"
            ...
            ...     def apply(self, graph):
            ...         print(len(graph.ops), "operators on all devices")
            ...         return False
            >>> fluid.BuildStrategy().append_pass(Count())
        """
        name = getattr(step, "name", None)
        kinds = [callable(getattr(step, method, None)) for method in ("rewrite", "apply")]
        if not isinstance(name, str) or isinstance(step, type) or sum(kinds) != 1:
            raise TypeError(
                "append_pass takes an object with a name and either rewrite(operators) or "
                f"apply(graph), but received {step!r}"
            )
        rewrites, passes = self.appended
        taken = {*self.fields(), *(s.name for s in rewrites), *(s.name for s in passes)}
        if name in taken:
            raise ValueError(f"there is a pass or field {name!r} already; name this one otherwise")
        self._check_open("append_pass")
        self.appended[kinds.index(True)].append(step)  # type: ignore[arg-type]

    def _finalize_strategy_and_create_passes(self) -> PassBuilder:
        if not self.was_compiled():
            self.freeze("_finalize_strategy_and_create_passes")
        return PassBuilder(self, self.appended)


class ExecutionStrategy(Strategy):
    """How the plan is run.

    ``scheduler`` is dpexec's own: ``"threads"`` (dask's threaded scheduler), ``"sync"`` (one
    thread, for a debugger), ``"distributed"`` (the active ``dask.distributed.Client``), or a
    client. None takes the scheduler that dask itself would take: a local scheduler named in
    ``dask.config``, else an active client, else threads. ``trace`` records a timeline.

    In a ``"gang"`` every worker of a cluster runs one long task. It receives steps from the client
    over a direct connection, and the workers exchange gradients with each other: through shared
    memory on one host, else through sockets. With ``collectives = "tasks"`` every segment and
    collective is a dask task, which shows more and is slower. Both give the same bits. The default
    ``"auto"`` takes a gang unless it cannot run the program (with ParallelDo, or on workers without
    sockets); then it takes tasks and logs the reason.

    If a worker of a cluster is lost, or does not answer for ``collective_timeout`` seconds while
    others wait for it, its replicas move to other workers, and the run continues from the last
    complete step, with the same bits. With ``recovery = "mirror"``, state that only one replica has
    (optimizer state in Reduce mode, statistics of its own samples) is copied to a second worker at
    every step. With ``"checkpoint"`` it is not: if such state is lost, the run ends with an error,
    and training has to restart from a checkpoint.

    Raises:
        AttributeError: there is no such field.
        TypeError: a field gets a value of another type.

    See Also:
        :class:`~dpexec.Executor`: runs programs.
        :class:`~dpexec.CompiledProgram`: a program on several devices.
        :class:`~dpexec.ParallelExecutor`: the older form of both.
        :class:`~dpexec.BuildStrategy`: how the graph is built.

    Example:
        >>> import dpexec as fluid
        >>> strategy = fluid.ExecutionStrategy()
        >>> strategy.num_threads = 2  # threads that run tasks of a step
        >>> strategy.num_iteration_per_drop_scope = 100  # how long temporary values may stay
    """

    num_threads = Field(0, int, "Threads that run tasks; 0 means 4 per device.")
    num_iteration_per_drop_scope = Field(1, int, "Runs after which temporary values are freed.")
    num_iteration_per_run = Field(1, positive, "Steps in each call of run.")
    scheduler = Field(
        None,
        _scheduler,
        "'threads', 'sync', 'distributed' or a Client; None: the one that Dask would take.",
    )
    collectives = Field(
        "auto",
        one_of("auto", "tasks", "gang"),
        "On a cluster: dask 'tasks', or inside a 'gang'; 'auto': a gang if it can run the program.",
    )
    collective_timeout = Field(
        120, int, "Seconds after which a silent worker or trainer counts as lost."
    )
    recovery = Field(
        "mirror",
        one_of("mirror", "checkpoint"),
        "Copy a replica's own state to a second worker ('mirror'), or rely on a 'checkpoint'.",
    )
    use_experimental_executor = Field(
        True, bool, "Plan the order of tasks once, and not at every run."
    )
    trace = Field(False, bool, "Record when each operator ran; the latest 200,000 events are kept.")
    _dry_run = Field(False, bool, "Compile and check, but run nothing; fetches are None.")

    use_cuda = Field(True, bool, "Set by the executor; programs may set it, as in fluid.")
    allow_op_delay = Field(False, bool, "Without effect in fluid, too.", False)
    use_thread_barrier = Field(False, bool, "Parameter server only.", False)

    def __init__(self) -> None:
        super().__init__()
        self._values["scheduler"] = DEFAULTS.scheduler
