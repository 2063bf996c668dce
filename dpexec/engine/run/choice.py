"""Chooses the parts that run the steps of an engine, and refuses parts that do not combine."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import available_cpus, on_gpus
from dpexec.engine.gpu import nccl
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import fetched_of
from dpexec.engine.run.host_launch import HostLaunch
from dpexec.engine.run.nccl_collectives import NcclCollectives
from dpexec.engine.run.orders import DaskOrder, Inline
from dpexec.engine.run.parts import Agreement, Launch, Order
from dpexec.engine.run.scope_store import ScopeStore
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.stream_launch import StreamLaunch
from dpexec.engine.run.whole_code import WholeCode
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

if TYPE_CHECKING:
    from dpexec.engine.run.trainers.exchange import TrainerExchange

__all__ = ["CANNOT", "check_parts", "make_runner", "why_not"]

CANNOT = {
    ("cluster", "trainers"): "BuildStrategy.num_trainers is more than 1, and the scheduler is a "
    "cluster: use either several trainers, or one process with a cluster",
    ("streams", "trainers"): "BuildStrategy.num_trainers > 1 is for CPU devices only",
    ("code", "streams"): "machine code is for processors",
    ("code", "dask's scheduler"): "a step of code is one call, and dask's scheduler sees all tasks",
}
"""Pairs of parts that cannot be combined, and why; the words of a pair are sorted."""


def why_not(*parts: str) -> str:
    """Why some parts cannot be combined; empty if they can.

    Args:
        parts: words of :data:`CANNOT`; other words can be combined with all.
    """
    pairs = ((one, other) for one, other in combinations(sorted(parts), 2))
    return next((CANNOT[pair] for pair in pairs if pair in CANNOT), "")


def check_parts(*parts: str) -> None:
    """Refuse parts that cannot be combined.

    Raises:
        EnforceNotMet: says why.
    """
    reason = why_not(*parts)
    if reason:
        raise EnforceNotMet(reason)


def make_runner(
    replicas: Replicas,
    label: Program,
    program: Program,
    execution: ExecutionStrategy | None,
    num_threads: int,
    trainers: BuildStrategy | None,
    cluster: bool,
) -> StepRunner:
    """The runner of an engine's steps in this process.

    Args:
        replicas: the persistable variables.
        label: the program whose runs are counted.
        program: the program that runs: ``label``, or a copy of it.
        execution: the strategy; None runs all tasks on the calling thread, one after another.
        num_threads: size of the thread pool; 0: the calling thread does everything.
        trainers: the strategy that names the trainers; None: this process alone.
        cluster: whether the steps run on a cluster.

    Raises:
        EnforceNotMet: parts cannot be combined, or number, endpoints and id of the trainers do
            not fit.
    """
    gpus = on_gpus(replicas.places)
    words = ["streams" if gpus else "host", *(["cluster"] if cluster else [])]
    words += [] if trainers is None else ["trainers"]
    check_parts(*words)
    store, order = ScopeStore(replicas, label), _order(execution, num_threads)
    if isinstance(order, DaskOrder) and not order.prepares:
        words.append("dask's scheduler")
    launch: Launch = StreamLaunch(replicas.places) if gpus else HostLaunch()
    agreement: Agreement | None = None
    exchange: TrainerExchange | None = None
    if trainers is not None:
        assert execution is not None
        limit = float(execution.collective_timeout)
        agreement = exchange = _trainers(trainers, replicas, label, program, limit)
    elif gpus and nccl.is_chosen(replicas.places):
        agreement = NcclCollectives()
    code = None if why_not("code", *words) else _code(store, order, num_threads, exchange)
    return StepRunner(store, order, launch, exchange, agreement, code)


def _order(execution: ExecutionStrategy | None, num_threads: int) -> Order:
    if execution is None:
        return Inline()
    return DaskOrder(num_threads, execution.use_experimental_executor)


def _code(
    store: ScopeStore, order: Order, num_threads: int, exchange: TrainerExchange | None
) -> WholeCode:
    if not isinstance(order, DaskOrder):
        return WholeCode(store, fetched_of, None, 1, exchange)
    most = min(num_threads, available_cpus())
    return WholeCode(store, fetched_of, order.threads, most, exchange)


def _trainers(
    strategy: BuildStrategy, replicas: Replicas, label: Program, program: Program, limit: float
) -> TrainerExchange:
    from dpexec.engine.run.trainers.exchange import TrainerExchange
    from dpexec.engine.run.trainers.settings import party_for  # imported when it is used

    return TrainerExchange(party_for(strategy, label), replicas, label, program, limit)
