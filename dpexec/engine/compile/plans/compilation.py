"""From strategies to graph and plans: every process follows the same recipe.

A :class:`Compilation` holds everything that graph and plans depend on. It can be pickled, so the
workers of a cluster build the same graph and plans as the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dpexec.engine import kernels
from dpexec.engine.compile.plans.bucket_size import GANG, TASKS, THREADS
from dpexec.engine.compile.plans.partition import PlanOptions
from dpexec.engine.compile.plans.plan import Plan, PlanKey, make_plan
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import CUDAPlace, Place, array_module, available_cpus, on_gpus
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.graph.dot import write_graphviz
from dpexec.engine.graph.kinds import ALL_REDUCE, REDUCE
from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.parallel_do import shares_memory
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program
from dpexec.engine.passes import PASSES, REWRITES, OperatorPass, Pass, PassManager, PassRecord
from dpexec.engine.passes.fuse_all_reduce import FuseAllReduce
from dpexec.engine.passes.fuse_gemm_epilogue import FuseGemmEpilogue
from dpexec.engine.strategy.strategies import BuildStrategy

__all__ = ["Compilation", "require_capability"]

_FOR_GPUS = frozenset(["allow_cuda_graph_capture", FuseGemmEpilogue.name])


@dataclass(frozen=True)
class Compilation:
    """How a program becomes a graph and plans.

    Args:
        program: what is compiled.
        places: the devices.
        options: how it is replicated over the devices.
        rewrites: passes over the operators before that, in order.
        passes: passes over the graph, in order.
        planning: options of plans.
        native: libraries of machine code and their versions; empty: operators run on NumPy.
        halves: whether matrix products round their operands to bfloat16.
        collectives: how workers exchange values, ``"tasks"`` or ``"gang"``; None: there are none.
    """

    program: Program
    places: list[Place]
    options: ReplicationOptions
    rewrites: list[OperatorPass]
    passes: list[Pass]
    planning: PlanOptions
    native: Mapping[str, str]
    halves: bool = False
    collectives: str | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        places: list[Place],
        strategy: BuildStrategy | None,
        scale_loss_grad: bool,
        collectives: str | None = None,
    ) -> Compilation:
        """The compilation that a strategy describes.

        Args:
            program: what is compiled.
            places: the devices.
            strategy: None runs the operators as they are, on one device.
            scale_loss_grad: seed the loss gradient with the device's share of the batch.
            collectives: if the devices are those of workers, how these exchange values.

        Raises:
            RuntimeError: it asks for a precision of products that the devices do not support.
        """
        if collectives is not None:
            places = [_on_worker(place) for place in places]
        if strategy is None:
            one_memory = collectives is None and shares_memory(program, places)
            options = ReplicationOptions(scale_loss_grad=False, shared_memory=one_memory)
            native = kernels.libraries()
            planning = PlanOptions(native=bool(native), shared=one_memory)
            return cls(program, places, options, [], [], planning, native, collectives=collectives)
        own_before, own_after = strategy.appended
        switched = [make for make in REWRITES if _is_on(strategy, make.name, places)]
        rewrites = [*(make() for make in switched), *own_before]
        passes = [make() for make in PASSES if getattr(strategy, make.name)] + own_after
        options = _replication(strategy, places, scale_loss_grad, collectives is not None)
        native = kernels.libraries() if strategy.native_kernels else {}
        halves = _halves(strategy, places, native)
        planning = PlanOptions(
            granularity=strategy.task_granularity,
            skip_dead=strategy.skip_dead_ops,
            in_place=strategy.enable_inplace,
            drop=strategy.memory_optimize is not False,
            bucket_bytes=_bucket_bytes(passes, options, collectives),
            rounding=_rounding(strategy, places),
            captured=_is_on(strategy, "allow_cuda_graph_capture", places),
            branches=_has_free_cores(places, options, collectives),
            native=bool(native),
            shared=options.shared_memory,
        )
        return cls(
            program, places, options, rewrites, passes, planning, native, halves, collectives
        )

    @property
    def in_common(self) -> bool:
        """Whether users see one value of a variable for all devices, also if workers have more."""
        reduces = self.options.mode == REDUCE.name and not on_gpus(self.places)
        return self.options.shared_memory or (self.collectives is not None and reduces)

    @no_cycles_sought()
    def graph(self, kept: Iterable[str] = ()) -> tuple[SSAGraph, list[PassRecord]]:
        """The replicated graph after all passes, and what each pass did.

        Args:
            kept: variables that passes must not remove.
        """
        return self._replicated(self.places, self.options, kept)

    def _replicated(
        self, places: list[Place], options: ReplicationOptions, kept: Iterable[str] = ()
    ) -> tuple[SSAGraph, list[PassRecord]]:
        manager = PassManager(self.passes, self.rewrites)
        operators = manager.rewrite(Operators(self.program, kept))
        graph = manager.run(build_ssa_graph(self.program, places, options, operators))
        return graph, manager.records

    @no_cycles_sought()
    def plan(self, graph: SSAGraph, key: PlanKey) -> Plan:
        """Make a plan; if passes removed a fetched variable, of another graph that has it.

        Args:
            graph: made by :meth:`graph`.
            key: fetches, feeds and idle devices of the run.
        """
        if not graph.removed.isdisjoint(key.fetch):
            graph, _ = self.graph(kept=key.fetch)
        return make_plan(graph, key, self.planning)

    def write_graphviz(self, path: str) -> None:
        """Write the files of ``BuildStrategy.debug_graphviz_path``.

        They hold the nodes that fluid's files hold, so without those that merge sparse rows.
        """
        alone = ReplicationOptions(scale_loss_grad=False)
        original = build_ssa_graph(self.program, self.places[:1], alone)
        fused, _ = self._replicated(self.places[:1], alone)
        graph, _ = self._replicated(self.places, replace(self.options, merge_rows=False))
        write_graphviz(path, original, fused, graph)


def _on_worker(place: Place) -> Place:
    """The device of a replica on its worker, which uses the first GPU that it sees."""
    return CUDAPlace(0) if isinstance(place, CUDAPlace) else place


def _replication(
    strategy: BuildStrategy, places: Sequence[Place], scale_loss_grad: bool, on_cluster: bool
) -> ReplicationOptions:
    """How a strategy has the program replicated; for the rest see :meth:`Compilation.of`."""
    reduce = strategy.reduce_strategy == BuildStrategy.ReduceStrategy.Reduce
    customized = BuildStrategy.GradientScaleStrategy.Customized
    one_memory = not on_cluster and not on_gpus(places)
    return ReplicationOptions(
        mode=(REDUCE if reduce else ALL_REDUCE).name,
        merge_rows=True,
        scale_loss_grad=scale_loss_grad,
        keep_loss_grad=strategy.gradient_scale_strategy == customized,
        shared_memory=reduce and one_memory,
        trainers=strategy.num_trainers,
    )


def _has_free_cores(
    places: Sequence[Place], options: ReplicationOptions, collectives: str | None
) -> bool:
    """Whether there are cores in this process that no replica uses."""
    here = collectives is None and options.trainers == 1 and not on_gpus(places)
    return here and len(places) < available_cpus()


def _bucket_bytes(
    passes: Iterable[Pass], options: ReplicationOptions, collectives: str | None
) -> int:
    """Bytes of a collective task; None if fluid's flags determine which gradients go together."""
    fused = next((step for step in passes if isinstance(step, FuseAllReduce)), None)
    if fused is not None and fused.megabytes > 0 and not options.has_owners:
        return 0
    exchange = TASKS if collectives == "tasks" else THREADS
    if collectives == "gang" or options.trainers > 1:
        exchange = GANG
    return exchange.bucket_bytes


def _is_on(strategy: BuildStrategy, field: str, places: Sequence[Place]) -> bool:
    """Whether an option has an effect; warns if it has none, as only GPUs support it."""
    on = bool(getattr(strategy, field))
    if on and field in _FOR_GPUS and not on_gpus(places):
        warn(f"BuildStrategy.{field} has no effect: no replica is on a GPU")
        return False
    return on


def _halves(strategy: BuildStrategy, places: Sequence[Place], native: Mapping[str, str]) -> bool:
    """Whether CPUs compute products in bfloat16; an error if they cannot."""
    if on_gpus(places) or strategy.product_precision == "float32":
        return False
    if strategy.product_precision == "tf32":
        raise RuntimeError("BuildStrategy.product_precision = 'tf32' is for GPUs: CPUs have none")
    if not native:
        raise RuntimeError(
            "BuildStrategy.product_precision = 'bfloat16' needs kernels in machine code on "
            "CPUs: install dpexec[fast] and leave native_kernels on"
        )
    return True


def _rounding(strategy: BuildStrategy, places: Sequence[Place]) -> str | None:
    """The type that GPUs round operands of products to; an error if they cannot."""
    if strategy.product_precision == "float32" or not on_gpus(places):
        return None
    for place in places:
        if not isinstance(place, CUDAPlace):
            raise RuntimeError(
                f"BuildStrategy.product_precision = {strategy.product_precision!r} is for GPUs "
                "alone, or for CPUs alone"
            )
        require_capability(place, strategy.product_precision)
    return strategy.product_precision


def require_capability(place: CUDAPlace, precision: str) -> None:
    """Refuse a GPU whose tensor cores cannot round operands of products.

    Args:
        place: the GPU, of this process.
        precision: ``BuildStrategy.product_precision``.

    Raises:
        RuntimeError: the GPU is too old.
    """
    capability = array_module(place).cuda.Device(place.device_id).compute_capability
    if int(capability) < 80:
        raise RuntimeError(
            f"BuildStrategy.product_precision = {precision!r} needs GPUs of compute capability "
            f"8.0, but {place} has {int(capability) / 10}"
        )
