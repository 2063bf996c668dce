"""``BuildStrategy`` and ``ExecutionStrategy``: every field with its type, default and check."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dpexec.core.dtypes import ShownByName
from dpexec.errors import EnforceNotMet, similar
from dpexec.ir.callsite import warn
from dpexec.passes import OperatorPass, Pass
from dpexec.runtime.pass_builder import PassBuilder

__all__ = ["DEFAULTS", "BuildStrategy", "ExecutionStrategy", "StrategyDefaults"]


class ReduceStrategy(ShownByName, enum.Enum):
    """How gradients are aggregated."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(ShownByName, enum.Enum):
    """What the gradient of the loss is seeded with on each device."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


@dataclass
class StrategyDefaults:
    """What new strategy objects start from; ``dpexec run --mode`` and ``--scheduler`` set it."""

    reduce_strategy: ReduceStrategy = ReduceStrategy.AllReduce
    scheduler: Any = None


DEFAULTS = StrategyDefaults()


class _Field:
    """A checked attribute of a strategy.

    Args:
        default: the initial value.
        kind: what may be assigned: ``bool``, ``int``, ``str``, an enum, or a checking function.
        doc: one line for ``help()``.
        effective: False for what fluid has and dpexec accepts, but which changes nothing here;
            assigning another value than the default says so once.
    """

    def __init__(self, default: Any, kind: Any, doc: str, effective: bool = True) -> None:
        self.default = default
        self.kind = kind
        self.effective = effective
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return instance._values[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        value = self._check(value)
        known = value == self.default or value == instance._values.get(self.name)
        if not (known or self.effective):
            _say_once(type(instance).__name__, self.name)
        instance._set(self.name, value)

    def _check(self, value: Any) -> Any:
        if not isinstance(self.kind, type):
            return self.kind(self.name, value)
        if self.kind is bool and isinstance(value, (bool, int, np.bool_)):
            return bool(value)
        if self.kind is int and isinstance(value, (int, np.integer)):
            if value < 0:
                raise TypeError(f"{self.name} must not be negative, but received {value}")
            return int(value)
        if self.kind not in (bool, int) and isinstance(value, self.kind):
            return value
        what = f"a value of type {self.kind.__name__}"
        if issubclass(self.kind, enum.Enum):
            what = " or ".join(map(str, self.kind))
        raise TypeError(f"{self.name} takes {what}, but received {value!r}")


_said: set[tuple[str, str]] = set()


def _say_once(owner: str, name: str) -> None:
    if (owner, name) not in _said:
        _said.add((owner, name))
        warn(f"{owner}.{name} is accepted but has no effect in this version of dpexec")


class _Strategy:
    _values: dict[str, Any]
    _frozen_by: str | None

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_frozen_by", None)
        for name, field in self.fields().items():
            self._values[name] = field.default

    @classmethod
    def fields(cls) -> dict[str, _Field]:
        """All fields by name."""
        return {name: value for name, value in vars(cls).items() if isinstance(value, _Field)}

    def _set(self, name: str, value: Any) -> None:
        if value != self._values[name]:
            self._check_open(name)
        self._values[name] = value

    def _check_open(self, name: str) -> None:
        if self._frozen_by is not None:
            raise EnforceNotMet(
                f"PreconditionNotMet: {type(self).__name__} has been finalized by "
                f"{self._frozen_by}, {name} cannot be configured again; make a new strategy and a "
                "new CompiledProgram"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields():
            hint = similar(name, self.fields()) or f"; it has {', '.join(self.fields())}"
            raise AttributeError(f"{type(self).__name__} has no field {name!r}{hint}")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled")

    def __repr__(self) -> str:
        changed = {
            name: value
            for name, value in self._values.items()
            if value != self.fields()[name].default
        }
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in changed.items())})"

    def freeze(self, by: str) -> None:
        """Refuse changes from now on: the strategy was compiled into a plan."""
        object.__setattr__(self, "_frozen_by", by)

    def was_compiled(self) -> bool:
        """Whether a program was compiled with it."""
        return self._frozen_by == "compilation"


def _optional_bool(name: str, value: Any) -> bool | None:
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    raise EnforceNotMet(f"{name} takes None, True or False, but received {value!r}")


def _strings(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple, set)) and all(isinstance(v, str) for v in value):
        return type(value)(value)
    raise TypeError(f"{name} takes a collection of strings, but received {value!r}")


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value in known:
            return str(value)
        raise ValueError(f"{name} is {' or '.join(map(repr, known))}, but received {value!r}")

    return check


def _scheduler(name: str, value: Any) -> Any:
    known = (None, "threads", "sync", "distributed")
    if hasattr(value, "scheduler_info") or value in known:
        return value
    raise ValueError(
        f"{name} is None, 'threads', 'sync', 'distributed' or a dask.distributed.Client, but "
        f"received {value!r}"
    )


class BuildStrategy(_Strategy):
    """How the graph of replicas is built.

    Fields have fluid's names, types and defaults; setting an unknown one raises AttributeError,
    a wrong type TypeError. Once a program was compiled with it, changing it raises
    :class:`EnforceNotMet` (in fluid the change would be ignored).

    ``task_granularity`` is dpexec's own: ``"segment"`` (few coarse dask tasks) or ``"op"`` (one
    dask task per operator, for exploration); both give the same bits.

    ``product_precision``, too: with ``"bfloat16"`` the operators ``mul`` and ``matmul`` and their
    gradients round float32 operands to bfloat16 and add the products up in float32 (oneDNN; the
    processor must have AVX512_BF16 or AMX_BF16; cuBLAS on GPUs of compute capability 8.0 or more,
    which have ``"tf32"``, too: operands of 10 bits; ``conv2d`` and ``depthwise_conv2d`` are
    products there as well). Parameters, their updates, results and all
    other operators stay float32. Under FLAGS_check_nan_inf, operators run on NumPy, in float32.

    ``allow_cuda_graph_capture``, which later versions of fluid have, makes CUDA graphs of pieces
    of a task whose operators look at no value (:mod:`dpexec.runtime.gpu.graphs`): one launch
    instead of hundreds. Recorded steps, and those under FLAGS_check_nan_inf, are launched one by
    one.

    So are the passes ``skip_dead_ops``, ``remove_identities``, ``common_subexpressions``,
    ``constant_folding`` and ``fuse_softmax_with_cross_entropy``, and those that later versions of
    fluid have: ``enable_addto``, and on GPUs ``fuse_gemm_epilogue``. All passes keep all bits but
    ``sync_batch_norm``, which it is there for, ``fuse_softmax_with_cross_entropy`` (its class says
    how close results are) and, as cuBLASLt may add up in another order, ``fuse_gemm_epilogue``;
    what a pass removed can still be fetched. Passes of one's own run, too: `append_pass`.

    ``fuse_all_reduce_ops`` puts the gradients of a layer together, or those of neighbouring layers
    until there are ``FLAGS_fuse_parameter_memory_size`` MB or more than
    ``FLAGS_fuse_parameter_groups_size`` parameters, as these flags are when the program is
    compiled. Without them, a collective task takes layers until its latency is small against
    their transfer, and no more, so that it starts while the backward pass goes on.
    """

    appended: tuple[list[OperatorPass], list[Pass]]

    ReduceStrategy: TypeAlias = ReduceStrategy
    GradientScaleStrategy: TypeAlias = GradientScaleStrategy

    reduce_strategy = _Field(
        ReduceStrategy.AllReduce, ReduceStrategy, "AllReduce or Reduce aggregation."
    )
    gradient_scale_strategy = _Field(
        GradientScaleStrategy.CoeffNumDevice,
        GradientScaleStrategy,
        "Seed of the loss gradient: the device's share of the batch, one, or fed by the user.",
    )
    debug_graphviz_path = _Field("", str, "Prefix of DOT files written when compiling.")
    enable_sequential_execution = _Field(False, bool, "Keep the program's order on each device.")
    fuse_all_reduce_ops = _Field(True, bool, "One all-reduce per layer, or as flags say.")
    fuse_bn_act_ops = _Field(False, bool, "One operator normalizes a batch and applies relu.")
    fuse_relu_depthwise_conv = _Field(False, bool, "depthwise_conv2d applies the relu before it.")
    fuse_elewise_add_act_ops = _Field(False, bool, "One operator adds and activates.")
    fuse_gemm_epilogue = _Field(False, bool, "On GPUs: products add their bias, and relu.")
    enable_auto_fusion = _Field(False, bool, "One operator for what works on single elements.")
    fuse_softmax_with_cross_entropy = _Field(
        False, bool, "One operator for softmax and cross entropy; gradients differ by rounding."
    )
    enable_addto = _Field(False, bool, "Add contributions to a gradient as soon as they are there.")
    sync_batch_norm = _Field(False, bool, "batch_norm uses the statistics of all devices.")
    fuse_broadcast_ops = _Field(True, bool, "One broadcast for several parameters.")
    fuse_all_optimizer_ops = _Field(False, bool, "One operator updates many parameters.")
    memory_optimize = _Field(
        None, _optional_bool, "Free temporaries after their last use; None is True."
    )
    enable_inplace = _Field(True, bool, "Let optimizers overwrite; else they run on NumPy.")
    skip_dead_ops = _Field(True, bool, "Compute only what is fetched or kept.")
    remove_identities = _Field(False, bool, "Read the original instead of a copy.")
    common_subexpressions = _Field(False, bool, "Compute once what is computed twice.")
    constant_folding = _Field(False, bool, "Compute what constants give when compiling.")
    native_kernels = _Field(True, bool, "Put operators together to machine code (needs numba).")
    product_precision = _Field(
        "float32", _one_of("float32", "bfloat16", "tf32"), "What matrix products are computed in."
    )
    allow_cuda_graph_capture = _Field(False, bool, "On GPUs: launch pieces as CUDA graphs.")
    task_granularity = _Field(
        "segment", _one_of("segment", "op"), "One dask task per 'segment' or per 'op'."
    )

    remove_unnecessary_lock = _Field(True, bool, "GPU and parameter server only.", False)
    cache_runtime_context = _Field(False, bool, "Cache operator contexts.", False)
    enable_backward_optimizer_op_deps = _Field(True, bool, "Multi-trainer GPU only.", False)
    num_trainers = _Field(1, int, "How many processes train together.")
    trainer_id = _Field(0, int, "Number of this one.")
    trainers_endpoints = _Field([], _strings, "Where they listen: ip:port of each, in order.")
    nccl_comm_num = _Field(1, int, "NCCL communicators.", False)
    use_hierarchical_allreduce = _Field(False, bool, "NCCL only.", False)
    hierarchical_allreduce_inter_nranks = _Field(0, int, "NCCL only.", False)
    is_distribution = _Field(False, bool, "Set by the original for send/recv programs.", False)
    async_mode = _Field(False, bool, "The program's parameter servers wait for nobody.")
    mkldnn_enabled_op_types = _Field(set(), _strings, "oneDNN only.", False)

    def __init__(self) -> None:
        super().__init__()
        self._values["reduce_strategy"] = DEFAULTS.reduce_strategy
        self._values["trainers_endpoints"] = []
        self._values["mkldnn_enabled_op_types"] = set()
        object.__setattr__(self, "appended", ([], []))

    def append_pass(self, step: OperatorPass | Pass) -> None:
        """Let a pass of one's own run, behind the built-in ones of its kind.

        Args:
            step: an object with a ``name`` and one of two methods, which rewrites in place and
                returns whether anything changed. ``rewrite(operators)`` gets the operators of the
                program before they are replicated (:class:`dpexec.graph.operators.Operators`),
                ``apply(graph)`` the graph of the replicas (:class:`dpexec.graph.ssa.SSAGraph`).
                For a cluster it must be something that cloudpickle can send to workers.

        Raises:
            TypeError: it has no name, or not exactly one of these methods.
            ValueError: a pass or field of this name is there already.
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
        return PassBuilder(self)


class ExecutionStrategy(_Strategy):
    """How the plan is run.

    ``scheduler`` is dpexec's own: ``"threads"`` (dask's threaded scheduler), ``"sync"`` (one
    thread, for a debugger), ``"distributed"`` (the active ``dask.distributed.Client``), or a
    client. With None it is what dask itself would take: a local scheduler that ``dask.config``
    names, else an active client, else the threads. ``trace`` records what ran when.

    With ``collectives = "gang"`` every worker of a cluster gets one task for all steps of a run
    (``num_iteration_per_run``), inside of which the workers exchange gradients: through shared
    memory on one host, else through sockets. That is faster than ``"tasks"``, where every
    segment and collective is a dask task, and gives the same bits.

    When a worker of a cluster is lost, or silent for ``collective_timeout`` seconds while others
    wait for it, its replicas move to other workers, and the run goes on from the last complete
    step, with the same bits. With ``recovery = "mirror"``, what only one replica has (in Reduce
    mode the state of optimizers, in general statistics of its own samples) goes to a second worker
    at every step for that. With ``"checkpoint"`` it does not: if such state is lost, the run ends
    with an error, and training goes on from a checkpoint.
    """

    num_threads = _Field(0, int, "Size of the thread pool; 0 means 4 per device.")
    num_iteration_per_drop_scope = _Field(1, int, "Runs between clean-ups of temporaries.")
    num_iteration_per_run = _Field(1, int, "Steps per call of run.")
    scheduler = _Field(
        None, _scheduler, "'threads', 'sync', 'distributed', a Client; None: see above."
    )
    collectives = _Field(
        "tasks", _one_of("tasks", "gang"), "On a cluster: dask 'tasks', or inside a 'gang'."
    )
    collective_timeout = _Field(120, int, "Seconds that a silent worker is waited for.")
    recovery = _Field(
        "mirror", _one_of("mirror", "checkpoint"), "What is lost with workers: see above."
    )
    use_experimental_executor = _Field(True, bool, "Plan the tasks' order once, not at every run.")
    trace = _Field(False, bool, "Record what ran when: the latest 200,000 events are kept.")
    _dry_run = _Field(False, bool, "Compile and check, but run nothing; fetches are None.")

    use_cuda = _Field(True, bool, "Set by the executor; kept so that programs may set it.")
    allow_op_delay = _Field(False, bool, "Without effect in fluid, too.", False)
    use_thread_barrier = _Field(False, bool, "Parameter server only.", False)

    def __init__(self) -> None:
        super().__init__()
        self._values["scheduler"] = DEFAULTS.scheduler
