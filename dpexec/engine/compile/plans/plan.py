"""Plans: a graph made ready to run for one fetch list and one set of busy devices."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpexec.engine.compile.plans.collectives import bind_collective
from dpexec.engine.compile.plans.host_numbers import modules_of, on_host
from dpexec.engine.compile.plans.layers import Layered
from dpexec.engine.compile.plans.partition import Busy, PlanOptions, Task, live_nodes, partition
from dpexec.engine.compile.plans.step_binding import bind_when_called
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.compile.regions.step import Call, CollectiveCall, Step, kept, overwrites
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import on_gpus
from dpexec.engine.graph.describe import describe
from dpexec.engine.graph.drawable import Drawable
from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes import needed_nodes

__all__ = ["Plan", "PlanKey", "make_plan", "tasks_before"]


class PlanKey(NamedTuple):
    """The properties of a run that its plan depends on.

    Args:
        fetch: names that are fetched.
        fed: names that are fed.
        idle: devices without samples.
        checked: whether results that are no finite numbers make the run fail
            (FLAGS_check_nan_inf); nothing is overwritten then before the end.
        busy: how many devices of each ParallelDo get rows.
    """

    fetch: tuple[str, ...]
    fed: frozenset[str]
    idle: tuple[int, ...] = ()
    checked: bool = False
    busy: Busy = ()


@dataclass(eq=False)
class Plan(Layered, Drawable):
    """The tasks of a run, with their order and devices.

    Args:
        graph: the graph it was made from.
        key: what it was made for.
        nodes: nodes that run, in order.
        live: these, and those that could run if their results were needed.
        missing: variables without a value, on idle devices.
        tasks: the tasks in a topological order.
        steps: bound nodes per task.
        reads: per device, the persistable variables that it reads as soon as it has samples.
        commits: (device, name) of persistable variables to store after the run.
        overwritten: (device, name) of those that were updated in place.
        updates: numbers of the tasks that overwrite them.
        active: devices with samples, of those that run the whole program.
        captured: whether GPUs launch pieces of its tasks as CUDA graphs.
        exchange: how values get from GPU to GPU on a cluster; determined by the first run.
        on_host: operators that the host computes for GPUs, since they give numbers for shapes.
    """

    graph: SSAGraph
    key: PlanKey
    nodes: list[OpNode]
    live: list[OpNode]
    missing: set[VarNode]
    tasks: list[Task]
    steps: list[list[Step]]
    reads: list[list[str]]
    commits: list[tuple[int, str]]
    overwritten: list[tuple[int, str]]
    updates: frozenset[int]
    active: list[int]
    captured: bool = False
    exchange: str = ""
    on_host: frozenset[Operator] = frozenset()

    @property
    def fetch(self) -> tuple[str, ...]:
        """Names that are fetched."""
        return self.key.fetch

    @property
    def checked(self) -> bool:
        """Whether results that are no finite numbers make the run fail."""
        return self.key.checked

    def make_env(self, shard: Shard | None, values: Mapping[str, Any]) -> Env:
        """The start of a run on one device.

        Args:
            shard: the device's part of the run.
            values: fed and stored values, by name.
        """
        env = Env(shard)
        env.update(values)
        env.guard({name for _, name in self.overwritten})
        return env

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Names of the persistable variables that it changes."""
        return frozenset(name for _, name in (*self.commits, *self.overwritten))

    @functools.cached_property
    def behind_updates(self) -> frozenset[int]:
        """Numbers of the tasks that overwrite variables, or wait for such tasks."""
        found: set[int] = set()
        for task in self.tasks:
            if task.id in self.updates or not found.isdisjoint(task.after):
                found.add(task.id)
        return frozenset(found)

    @functools.cached_property
    def updates_may_wait(self) -> bool:
        """Whether a step is as good as made when all but its updates has run.

        It is if nothing behind updates can fail, meets other replicas, reads what is fed, or makes
        something else that is fetched or stored than what they overwrite.
        """
        late = [self.tasks[number] for number in self.behind_updates]
        nodes = [node for task in late for node in task.nodes]
        made = {(var.device, var.name) for node in nodes for var in node.outputs}
        changed = {name for _, name in (*made, *self.overwritten)}
        read = {var.name for node in nodes for var in node.inputs}
        return (
            bool(late)
            and not any(task.is_collective for task in late)
            and not any(node.op is not None and _may_fail(node.op) for node in nodes)
            and made.isdisjoint(self.commits)
            and changed.isdisjoint(self.fetch)
            and read.isdisjoint(self.key.fed)
        )

    @functools.cached_property
    def fetched_elsewhere(self) -> list[tuple[int, str, int]]:
        """(device, name, other): the new value of what the devices share is with the other."""
        made = {(v.device, v.name) for n in self.nodes for v in n.outputs if v.kind == "var"}
        homes = {name: home for home, name in reversed(self.commits)}
        found = [(d, n) for n, held in zip(self.fetch, self.sources, strict=True) for d in held]
        return [(d, n, homes[n]) for d, n in found if n in homes and (d, n) not in made]

    @functools.cached_property
    def sources(self) -> list[Sequence[int]]:
        """Per fetch, the devices whose values are returned.

        They have samples. But moments in Reduce mode come from their owner, which has none in a
        batch with fewer samples than devices.
        """
        held, replicas = self.graph.holders, self.graph.replicas
        return [held(name, self.active) or held(name, replicas) for name in self.fetch]

    @functools.cached_property
    def width(self) -> int:
        """How many tasks can run at the same time, as far as there are processors."""
        level: dict[int, int] = {}
        for task in self.tasks:
            level[task.id] = 1 + max((level[index] for index in task.after), default=0)
        counts = Counter(level[task.id] for task in self.tasks if not task.is_collective)
        return max(counts.values(), default=1)

    @functools.cached_property
    def initializes(self) -> bool:
        """Whether it only gives persistable variables their first values."""
        made = {(v.device, v.name) for n in self.nodes for v in n.outputs if v.kind == "var"}
        return made <= set(self.commits) and not any(self.reads)

    def describe(self) -> str:
        """The tasks with what they wait for, one line each."""
        lines = []
        for task in self.tasks:
            after = ", ".join(self.tasks[i].key[0] for i in task.after) or "-"
            lines.append(f"{task.id:3d} {task.key[0]:32s} {len(task.nodes):4d} ops, after {after}")
        dead = len(self.live) - len(self.nodes)
        if dead:
            lines.append(f"{dead} operators are skipped: nobody reads what they compute")
        if self.exchange:
            lines.append(f"values go from GPU to GPU {self.exchange}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The graph with the tasks that its nodes belong to, as plain values."""
        title = f"plan · {len(self.tasks)} tasks · {len(self.nodes)} operators"
        return describe(self.graph, self.tasks, title=title)

    def __repr__(self) -> str:
        return f"<Plan: {len(self.tasks)} tasks, {len(self.nodes)} operators>\n{self.describe()}"


def make_plan(graph: SSAGraph, key: PlanKey, options: PlanOptions) -> Plan:
    """Choose the nodes that run, and group them into tasks; kernels are bound when they are called.

    Args:
        graph: the graph.
        key: properties of the run.
        options: how it is planned.
    """
    block, fetch, checked = graph.program.global_block(), key.fetch, key.checked
    live, missing = live_nodes(graph, key.idle, key.fed, key.busy)
    nodes = needed_nodes(graph, live, frozenset(fetch)) if options.skip_dead else live
    may = options.in_place and not checked
    in_place = _in_place_nodes(block, nodes, options.shared) if may else set()
    tasks = partition(graph, nodes, in_place, options)
    drop = options.drop and options.granularity != "op"
    drops = _drops(block, tasks, set(fetch)) if drop else {}
    commits, overwritten = _writes(graph, nodes, in_place, options.shared)
    late = {*fetch, *(name for _, name in commits), *_read_late(nodes, in_place)}
    kept = {*fetch, *(name for _, name in (*commits, *overwritten))}
    numbers = on_host(nodes, kept) if on_gpus(graph.places) else frozenset()
    modules = [modules_of(place, numbers, options.rounding) for place in graph.places]

    def bind(node: OpNode) -> Step:
        call: Call | CollectiveCall
        if node.device is None or node.is_collective:
            call = bind_collective(node, graph.places, missing)
        else:
            module_of = modules[node.device]
            how = module_of, node in in_place, late, checked, options.native
            call = bind_when_called(node, *how)
        return Step(node, call, drops.get(node, ()))

    return Plan(
        graph=graph,
        key=key,
        nodes=nodes,
        live=live,
        missing=missing,
        tasks=tasks,
        steps=[[bind(node) for node in task.nodes] for task in tasks],
        reads=_reads(graph, graph.ops, fetch),
        commits=commits,
        overwritten=overwritten,
        updates=frozenset(t.id for t in tasks if not in_place.isdisjoint(t.nodes)),
        active=[device for device in graph.replicas if device not in key.idle],
        captured=options.captured and not checked,
        on_host=numbers,
    )


def _in_place_nodes(block: Block, nodes: Sequence[OpNode], shared: bool) -> set[OpNode]:
    """Nodes that may overwrite persistable variables, which nothing else writes.

    Those must come after the last operator that checks values: it could fail when parameters have
    already changed. Such an operator itself, as ``auc``, and what comes before it, work on copies.
    What several devices update in memory that they share, as where a gradient lies in the scope
    and has no owner, each computes from the old value.
    """
    found: dict[OpNode, list[str]] = {}
    replaced: set[str] = set()
    for node in nodes:
        names = _overwritten_names(block, node)
        if node.op is not None and _may_fail(node.op):  # on one device, when others are further
            replaced.update(set(node.op.writes).difference(kept(node.op)), *found.values())
            found = {}
        elif names:
            found[node] = names
        elif node.op is not None:
            replaced.update(node.op.writes)
    if shared:
        users = Counter(name for names in _names_by_device(found) for name in names)
        replaced.update(name for name, devices in users.items() if devices > 1)
    return {node for node, names in found.items() if replaced.isdisjoint(names)}


def _names_by_device(overwritten: Mapping[OpNode, list[str]]) -> Iterable[set[str]]:
    """Names of the variables that nodes overwrite, per device."""
    found: defaultdict[int | None, set[str]] = defaultdict(set)
    for node, names in overwritten.items():
        found[node.device].update(names)
    return found.values()


def _may_fail(op: Operator) -> bool:
    """Whether an operator, or one in its body, looks at values and may refuse them."""
    return any(inner.definition.checks_values for inner in op.with_inner())


def _overwritten_names(block: Block, node: OpNode) -> list[str]:
    """Persistable variables that a node can overwrite; empty unless it can overwrite them all."""
    if node.op is None or not node.does.computes:
        return []
    pairs = overwrites(node.op)
    names = [name for out in pairs for name in node.op.outputs[out]]
    complete = len(pairs) == len(node.op.definition.inplace)
    stored = all(name in block.vars and block.vars[name].persistable for name in names)
    return names if complete and stored else []


def _read_late(nodes: Sequence[OpNode], in_place: set[OpNode]) -> set[str]:
    """Names that are read when parameters may be overwritten already.

    Only the forward and backward operators before the first update are sure to come before it.
    """
    first = next((index for index, node in enumerate(nodes) if node in in_place), len(nodes))
    early = {node for node in nodes[:first] if node.role in ("forward", "backward")}
    return {var.name for node in nodes if node not in early for var in node.inputs}


def _reads(graph: SSAGraph, nodes: Sequence[OpNode], fetch: Sequence[str]) -> list[list[str]]:
    variables = graph.program.global_block().vars
    found: list[dict[str, None]] = [{} for _ in graph.places]
    for node in nodes:
        for var in node.inputs:
            declared = variables.get(var.name)
            if declared is not None and declared.persistable:
                found[var.device][var.name] = None
    for name in fetch:
        if variables[name].persistable:
            for device in graph.holders(name, graph.replicas):
                found[device][name] = None
    return [list(names) for names in found]


def _writes(
    graph: SSAGraph, nodes: Sequence[OpNode], in_place: set[OpNode], shared: bool
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Variables that are stored at the end of the run, and variables overwritten in place.

    Shared variables are stored once: of replicated operators, which write equal counters and
    statistics of a device's own samples, device 0's values count.
    """
    variables = graph.program.global_block().vars
    staged: dict[str, set[int]] = {}
    direct: dict[tuple[int, str], None] = {}
    for node in nodes:
        overwritten = set()
        if node in in_place and node.op is not None:
            overwritten = {name for out in overwrites(node.op) for name in node.op.outputs[out]}
        unchanged = kept(node.op) if node.op is not None else ()
        for var in node.outputs:
            declared = variables.get(var.name)
            if declared is None or not declared.persistable or var.name in unchanged:
                continue
            if var.name in overwritten:
                direct[(var.device, var.name)] = None
            elif not (shared and node.is_collective):
                staged.setdefault(var.name, set()).add(var.device)
    commits = [
        (device, name)
        for name, devices in staged.items()
        for device in ([min(devices)] if shared else sorted(devices))
    ]
    return commits, list(direct)


def _drops(block: Block, tasks: Sequence[Task], fetched: set[str]) -> dict[OpNode, tuple[str, ...]]:
    """The node after which a temporary is freed: the last user, if all others come before it."""
    before = tasks_before(tasks)
    users: dict[tuple[int, str], int] = {}  # tasks, a bit for each
    last: dict[tuple[int, str], OpNode] = {}
    home: dict[tuple[int, str], Task] = {}
    for task in tasks:
        for node in task.nodes:
            for var in (*node.inputs, *node.outputs):
                if var.kind == "var":
                    place = (var.device, var.name)
                    users[place] = users.get(place, 0) | 1 << task.id
                    last[place], home[place] = node, task
    drops: dict[OpNode, list[str]] = {}
    for place, node in last.items():
        name, task = place[1], home[place]
        declared = block.vars.get(name)
        stored = name in fetched or (declared is not None and declared.persistable)
        others = users[place] & ~(before[task.id] | 1 << task.id)
        if not (stored or task.is_collective or others):
            drops.setdefault(node, []).append(name)
    return {node: tuple(names) for node, names in drops.items()}


def tasks_before(tasks: Sequence[Task]) -> list[int]:
    """Per task, the tasks that are sure to have ended when it starts: a bit for each number.

    Args:
        tasks: in a topological order.
    """
    before: list[int] = []
    for task in tasks:
        before.append(0)
        for index in task.after:
            before[-1] |= before[index] | 1 << index
    return before
