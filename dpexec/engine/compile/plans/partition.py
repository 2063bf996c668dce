"""From the SSA graph to tasks: few, coarse, and safe to roll back.

A lane is a device, or a kind of collective. Walking the nodes in program order, a node's stage is
one more than that of a predecessor in another lane, and the nodes with the same lane and stage
form a task: a segment of operators between collectives, or a bucket of collectives. Segments are
cut where a bucket of gradients is complete, so that its aggregation starts while the backward
pass goes on. Where there are more cores than devices, a segment falls into its expensive branches
and what lies between (:mod:`.branches`).

Operators that overwrite parameters in place wait for every forward and backward operator of every
device. So everything that can fail in a step runs before them, and a failed step changes nothing.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable

from dpexec.engine.compile.plans.branches import Stage, multiplications, stages_of
from dpexec.engine.compile.plans.bucket_size import THREADS
from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode

__all__ = ["Busy", "PlanOptions", "Task", "live_nodes", "partition"]

Busy = tuple[tuple[int, int], ...]
"""How many devices of each ParallelDo get rows, by the number of its block."""

_ROLE_WORDS = {"lr_sched": "", "optimize": "optimizer"}


@dataclass
class Task:
    """One task of the plan.

    Args:
        id: position in the plan.
        key: its dask key; the first word is what the dashboard groups by.
        device: where it runs; None for a collective that belongs to all devices.
        nodes: its nodes, in order.
        after: ids of the tasks that it waits for.
    """

    id: int
    key: tuple[str, int]
    device: int | None
    nodes: list[OpNode]
    after: list[int] = field(default_factory=list)

    @property
    def layer(self) -> str:
        """Role and device, such as "optimizer_dev0"."""
        return _word(self.nodes, "segment")

    @property
    def is_collective(self) -> bool:
        """Whether it combines values of several devices."""
        return self.nodes[0].is_collective


@dataclass(frozen=True)
class PlanOptions:
    """How a graph becomes a plan.

    Args:
        granularity: ``"segment"``, or ``"op"`` for a task per operator.
        skip_dead: leave out operators whose results are not read.
        in_place: let optimizers overwrite parameters and their state; otherwise new values are
            stored at the end of the run.
        drop: free a temporary after its last use; else when the run is over.
        bucket_bytes: of gradients that a collective task aggregates, see :mod:`.bucket_size`; 0
            makes a task of every aggregation.
        rounding: the type that GPUs round operands of matrix products to, see
            :mod:`dpexec.engine.kernels.gpu.products`; None: they do not.
        captured: whether GPUs launch pieces of tasks as CUDA graphs.
        branches: whether expensive branches are tasks of their own: there are cores for them.
        native: whether processors use kernels in machine code where there are some.
        shared: whether devices share persistable variables.
    """

    granularity: str = "segment"
    skip_dead: bool = False
    in_place: bool = True
    drop: bool = True
    bucket_bytes: int = THREADS.bucket_bytes
    rounding: str | None = None
    captured: bool = False
    branches: bool = False
    native: bool = False
    shared: bool = True


def live_nodes(
    graph: SSAGraph, idle: Iterable[int], fed: Iterable[str], busy: Busy = ()
) -> tuple[list[OpNode], set[VarNode]]:
    """The nodes that run when some devices get no samples.

    An idle device skips operators that depend on fed values, and runs the rest: learning-rate
    schedules, and updates from gradients that the other devices contributed to. Persistable
    variables that a skipped operator would change keep their values. Of the body of a ParallelDo it
    skips everything.

    Args:
        graph: the graph.
        idle: devices without samples.
        fed: names that are fed.
        busy: how many devices of each ParallelDo get rows.

    Returns:
        The nodes that run, in order, and the variables that therefore have no value.
    """
    idle_devices = set(idle)
    idle_in = {body: set(graph.bodies[body][count:]) for body, count in busy}
    if not idle_devices and not any(idle_in.values()):
        return list(graph.ops), set()
    fed_names = set(fed)
    stored = {v.name for v in graph.program.global_block().vars.values() if v.persistable}
    missing = {
        var
        for var in graph.vars
        if var.device in idle_devices and var.writer is None and var.name in fed_names
    }
    kept = []
    for node in graph.ops:
        sources = [var for var in node.inputs if var.kind == "var"]
        lacking = [var for var in sources if var in missing]
        without_rows = idle_in.get(node.body, set())
        if node.does.seeds:
            skip = node.device in idle_devices
        elif node.is_collective:
            skip = len(lacking) == len(sources)
        else:
            skip = bool(lacking) or node.device in without_rows
        if skip:
            left = {
                (var.device, var.name)
                for var in sources
                if var.name in stored and var not in missing
            }
            missing.update(var for var in node.outputs if (var.device, var.name) not in left)
        else:
            kept.append(node)
        if node.does.splits:
            missing.update(var for var in node.outputs if var.device in without_rows)
    return kept, missing


def partition(
    graph: SSAGraph,
    nodes: list[OpNode],
    in_place: set[OpNode],
    options: PlanOptions,
) -> list[Task]:
    """Group nodes into tasks.

    With several trainers, sums go beyond this process: they come one after another, in the order
    of the tasks, and nothing is overwritten before.

    Args:
        graph: the graph.
        nodes: those of its nodes that run, in order.
        in_place: nodes that overwrite persistable variables.
        options: how it is planned.

    Returns:
        Tasks in a topological order.
    """
    granularity = options.granularity
    if granularity == "op":
        stages: list[Stage] = [[[node]] for node in nodes]
    else:
        cuts = _cuts(graph, nodes, options.bucket_bytes)
        segments = _segments(nodes, in_place, cuts, graph.trainers > 1)
        parted = (_stages(nodes, in_place) if options.branches else [[nodes]] for nodes in segments)
        stages = [stage for segment in parted for stage in segment]
    numbers = itertools.count()
    made = [[_task(next(numbers), group, granularity) for group in stage] for stage in stages]
    tasks = [task for stage in made for task in stage]
    _connect(made, in_place, chain=granularity != "op")
    if graph.trainers > 1:
        _in_order(tasks, in_place)
    return tasks


def _lane(node: OpNode) -> Hashable:
    return (node.kind, node.device) if node.is_collective else node.device


def _segments(
    nodes: list[OpNode], in_place: set[OpNode], cuts: set[OpNode], sums_first: bool
) -> list[list[OpNode]]:
    stage: dict[OpNode, int] = {}
    floor: defaultdict[Hashable, int] = defaultdict(int)
    work: dict[Hashable, int] = {}  # last stage of what comes before updates by lane
    loops: dict[Hashable, int] = {}  # likewise, of what may go on for ever: Ctrl-C must stop it
    groups: dict[tuple[Hashable, int], list[OpNode]] = {}
    for node in nodes:
        lane = _lane(node)
        level = floor[lane]
        for var in node.inputs:
            before = var.writer
            if before in stage:
                level = max(level, stage[before] + (_lane(before) != lane))
        if node in in_place:
            level = max([level, *(s + (other != lane) for other, s in work.items())])
            level = max(level, loops.get(lane, -1) + 1)
        stage[node] = level
        groups.setdefault((lane, level), []).append(node)
        if not node.is_collective:
            floor[lane] = max(floor[lane], level)
        if node.role in ("forward", "backward") or (sums_first and node.does.combines):
            work[lane] = max(work.get(lane, 0), level)
        if node.op is not None and any(op.definition.repeats for op in node.op.with_inner()):
            loops[lane] = level
        if node in cuts:
            for device in {n.device for n in nodes if not n.is_collective}:
                floor[device] += 1
    return [groups[key] for key in sorted(groups, key=lambda key: (key[1], str(key[0])))]


def _cuts(graph: SSAGraph, nodes: list[OpNode], bucket_bytes: int) -> set[OpNode]:
    """Collectives that complete a bucket, when enough gradients come after them."""
    variables = graph.program.global_block().vars
    sizes: dict[OpNode, int] = {}
    for node in nodes:
        if node.does.of_gradients:
            names = dict.fromkeys(var.name for var in node.outputs if var.kind == "var")
            specs = [variables[name].spec for name in names]
            sizes[node] = sum(abs(s.size) * to_numpy(s.dtype).itemsize for s in specs)
    cuts = set()
    filled, rest = 0, sum(sizes.values())
    for node, size in sizes.items():
        filled, rest = filled + size, rest - size
        if filled >= bucket_bytes and rest > bucket_bytes // 2:
            cuts.add(node)
            filled = 0
    return cuts


def _stages(segment: list[OpNode], in_place: set[OpNode]) -> list[Stage]:
    """Divide operators before updates into branches; updates and later operators stay last."""
    if segment[0].is_collective:
        return [[segment]]
    first = next((i for i, node in enumerate(segment) if node in in_place), len(segment))
    stages = stages_of(segment[:first], multiplications)
    if segment[first:] and (not stages or len(stages[-1]) > 1):
        return [*stages, [segment[first:]]]
    stages[-1][0].extend(segment[first:])
    return stages


def _task(number: int, group: list[OpNode], granularity: str) -> Task:
    return Task(number, (_word(group, granularity), number), group[0].device, group)


def _word(group: list[OpNode], granularity: str) -> str:
    """Role and device of nodes."""
    first = group[0]
    where = "" if first.device is None else f"_dev{first.device}"
    if granularity == "op" or first.is_collective:
        label = first.kind if first.is_collective else first.name.replace(" ", "_")
    else:
        roles = dict.fromkeys(_ROLE_WORDS.get(node.role, node.role) for node in group)
        label = "_".join(role for role in roles if role) or "lr_sched"
    return label + where


def _connect(stages: list[list[Task]], in_place: set[OpNode], chain: bool) -> None:
    tasks = [task for stage in stages for task in stage]
    home = {node: task for task in tasks for node in task.nodes}
    after: dict[int, set[int]] = {task.id: set() for task in tasks}
    last_on: dict[int | None, list[Task]] = {}
    for stage in stages:
        device = stage[0].device
        in_turn = chain and not stage[0].is_collective
        for task in stage:
            before = [home[v.writer] for n in task.nodes for v in n.inputs if v.writer in home]
            before += last_on.get(device, []) if in_turn else []
            after[task.id].update(other.id for other in before if other is not task)
        if in_turn:
            last_on[device] = stage
    _wait_for_work(tasks, in_place, after)
    for task in tasks:
        task.after = sorted(after[task.id])


def _wait_for_work(tasks: list[Task], in_place: set[OpNode], after: dict[int, set[int]]) -> None:
    """Let the tasks that overwrite wait for all forward and backward tasks before them."""
    ends: set[int] = set()
    for task in tasks:
        overwrites = not in_place.isdisjoint(task.nodes)
        if overwrites:
            after[task.id].update(ends)
        elif any(node.role in ("forward", "backward") for node in task.nodes):
            ends -= after[task.id]
            ends.add(task.id)


def _in_order(tasks: list[Task], in_place: set[OpNode]) -> None:
    """Let each sum wait for earlier sums, and let none run while variables are overwritten."""
    latest: list[int] = []
    updates: list[int] = []
    for task in tasks:
        if task.nodes[0].does.combines:
            task.after = sorted({*task.after, *latest, *updates})
            latest, updates = [task.id], []
        elif not in_place.isdisjoint(task.nodes):
            task.after = sorted({*task.after, *latest})
            updates.append(task.id)
