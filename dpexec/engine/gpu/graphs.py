"""CUDA graphs: pieces of a task that are captured with their addresses and launched at once.

The first time, a piece runs as usual, while CuPy compiles kernels and cuBLAS allocates its memory.
The second time it is captured on its own stream, and from then on only launched. Memory allocated
during the capture comes from the piece's own pool, so no other code gets it.

The graph reads some inputs at their own addresses: variables that the plan keeps (parameters,
optimizer state), results of other pieces, and sums that were in the same array twice. If one of
them moves, the piece is captured again. All other inputs (feeds, other sums, results of operators
outside graphs) are copied into the piece's memory before every launch, as are the origins of its
random numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, run_steps
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import array_module
from dpexec.engine.core.ranges import Check, looking_later
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.gpu.origins import DrawingEnv, Origins
from dpexec.engine.gpu.reserves import reserve_of
from dpexec.engine.ir.operator import Operator

__all__ = ["GraphPiece", "Pieces", "is_capturable", "pieces_of"]

_FEWEST_STEPS = 2
_MOST_CAPTURES = 4  # then a piece whose variables keep moving runs without a graph

Begin = Callable[[Check, Step, Env], None]
Pieces: TypeAlias = "list[GraphPiece | Sequence[Step]]"


def pieces_of(plan: Plan, device: int, steps: Sequence[Step], moving: bool) -> Pieces:
    """Divide a task into pieces that are captured, and lists of steps that are not.

    Checks of values must be complete before the first step that overwrites a parameter, so a new
    piece begins there.

    Args:
        plan: the task's plan.
        device: the device that runs the task.
        steps: the steps of the task.
        moving: whether variables that the plan keeps have new addresses at every step; they are
            then copied like other inputs.
    """
    pieces: Pieces = []
    for fits, found in _split(plan, steps):
        if fits and len(found) >= _FEWEST_STEPS:
            pieces.append(GraphPiece(plan, device, found, moving))
        else:
            pieces.append(found)
    return pieces


def _split(plan: Plan, steps: Sequence[Step]) -> Iterator[tuple[bool, list[Step]]]:
    """Runs of steps that all can, or all cannot be captured; the first update begins a new run."""
    first = next((step for step in steps if _updates(plan, step)), None)
    found: list[Step] = []
    kind = False
    for step in steps:
        op = step.node.op
        fits = False
        if op is not None and op not in plan.on_host and step.code is None:
            fits = is_capturable(op)
        if found and (fits != kind or step is first):
            yield kind, found
            found = []
        kind = fits
        found.append(step)
    if found:
        yield kind, found


def is_capturable(op: Operator) -> bool:
    """Whether a graph can replay an operator.

    A graph replays kernels and copies with their captured arguments. So an operator in it must not
    read values on the host, nor copy values from the host, such as constants made by NumPy: a
    replayed copy would read page-locked memory that has been reused by then.

    Args:
        op: the operator.
    """
    able = op.definition.capturable
    if not (able(op) if callable(able) else able):
        return False
    if any(op.inputs.get(slot) for slot in op.definition.host_inputs):
        return False
    found = op._variables([*op.input_arg_names, *op.output_arg_names])
    return all(var.type != VarType.LOD_TENSOR_ARRAY for var in found.values())


def _updates(plan: Plan, step: Step) -> bool:
    """Whether a step overwrites a variable that the plan keeps."""
    op, device = step.node.op, step.node.device
    return op is not None and any((device, n) in plan.overwritten for n in op.output_arg_names)


class GraphPiece:
    """Consecutive steps of a device that can be captured in a graph.

    Args:
        plan: the plan of the steps.
        device: the device that runs them.
        steps: the steps.
        moving: see :func:`pieces_of`.

    Attributes:
        steps: the same.
        xp: ``cupy``.
        writes: names of the variables that the steps write.
        overwritten: names of the variables that the plan overwrites.
        updates: whether the steps overwrite a variable that the plan keeps.
        reserve: the memory pool of its graphs.
    """

    def __init__(self, plan: Plan, device: int, steps: Sequence[Step], moving: bool) -> None:
        self.steps = steps
        self.xp = array_module(plan.graph.places[device])
        self._reads, self.writes = _names(steps)
        self.overwritten = {name for _, name in plan.overwritten}
        self._staged = {name for number, name in plan.commits if number == device}
        kept = () if moving else (*self.overwritten, *plan.reads[device])
        self._kept = {*kept} - self._staged
        self.updates = any(_updates(plan, step) for step in steps)
        self._sums = {
            var.name
            for task in plan.tasks
            if task.is_collective
            for node in task.nodes
            for var in node.outputs
            if var.device == device and var.name in self._reads
        }
        self._drops = {name for step in steps for name in step.drops}
        self.reserve = reserve_of(plan, steps[0].node)
        self._runs = self._captures = 0
        self._before: dict[str, Any] = {}  # sums of the first run
        self._captured: _Captured | None = None

    def run(
        self,
        env: Env,
        usual: Callable[[Sequence[Step]], None],
        fixed: dict[str, Any],
        begin: Begin,
    ) -> None:
        """Run the steps on the current stream.

        Args:
            env: the values of the device.
            usual: runs steps one by one.
            fixed: results of earlier pieces of the task; the results of this one are added.
            begin: begins a check of a step, given the step's inputs.
        """
        self._runs += 1
        if self._captured is None or not self._captured.fits(env):
            known = {**self._before, **fixed}
            self._captured = self._capture(env, known) if self._runs > 1 else None
        first = self._runs == 1
        self._before = {name: env.find(name) for name in self._sums} if first else {}
        if self._captured is None:
            usual(self.steps)
            return
        self._captured.launch(env)
        fixed.update(self._captured.results)
        for name in self._staged & self._captured.results.keys():
            env[name] = env[name].copy()  # the variable must not change before the step's end
        for name in self._drops:
            env.pop(name, None)
        for check, step, inputs in self._captured.checks:
            begin(check, step, inputs)

    def _capture(self, env: Env, known: Mapping[str, Any]) -> _Captured | None:
        """Capture a graph of the steps; None if that is not possible.

        Args:
            env: the values of the device.
            known: values whose addresses are expected to stay the same.
        """
        given = {name: env.find(name) for name in self._reads}
        given = {name: value for name, value in given.items() if value is not None}
        on_gpu = all(_is_on_gpu(self.xp, value) for value in given.values())
        if self._captures >= _MOST_CAPTURES or not on_gpu:
            return None
        self._captures += 1
        try:
            stay = {name for name in given if name in self._kept or given[name] is known.get(name)}
            return _Captured(self, env, given, stay)
        except (EnforceNotMet, MemoryError, RuntimeError) as error:  # CUDA refuses, or a step fails
            self._captures = _MOST_CAPTURES
            names = ", ".join(dict.fromkeys(step.node.name for step in self.steps))
            warnings.warn(
                f"no CUDA graph could be captured of {names}, which run one by one: {error}",
                stacklevel=2,
            )
            return None


class _Captured:
    """A captured graph with its memory.

    Args:
        piece: the piece.
        env: the values of the device.
        given: the values that the piece reads.
        stay: names of inputs that are read at their own addresses, without a copy.

    Attributes:
        results: the values that it writes, in the same arrays after every launch.
        checks: checks of computed values, each with its step and the step's inputs.
    """

    def __init__(
        self, piece: GraphPiece, env: Env, given: Mapping[str, Any], stay: set[str]
    ) -> None:
        xp = piece.xp
        self._seed = env.shard.weight, env.shard.share
        self._kept = {name: value for name, value in given.items() if name in stay}
        self._reserve = piece.reserve  # keeps the pool alive: the graph refers to its addresses
        drawing = [s for s in piece.steps if s.node.op and s.node.op.definition.is_random]
        with self._reserve.current(xp) as stream:
            self._copies = {
                name: with_arrays(value, lambda array: xp.empty(array.shape, array.dtype))
                for name, value in given.items()
                if name not in stay
            }
            self._origins = Origins(xp, len(drawing))
            inner = DrawingEnv(env.shard, self._origins)
            inner.update({**self._kept, **self._copies})
            inner.guard(piece.overwritten)
            stream.begin_capture()
            try:
                self.checks = [*_run(piece.steps, inner)]
            finally:
                self._graph = stream.end_capture()
        self.results = {name: inner[name] for name in piece.writes if name in inner}

    def fits(self, env: Env) -> bool:
        """Whether uncopied inputs are still the same arrays, and all shapes and shares the same."""
        if (env.shard.weight, env.shard.share) != self._seed:
            return False
        sizes = all(_form(env.find(name)) == _form(copy) for name, copy in self._copies.items())
        return sizes and all(env.find(name) is value for name, value in self._kept.items())

    def launch(self, env: Env) -> None:
        """Enqueue the graph on the current stream.

        Args:
            env: the values of the device; the results are added.
        """
        for name, copy in self._copies.items():
            for target, source in zip(_arrays(copy), _arrays(env[name]), strict=True):
                target[...] = source
        self._origins.write(env.shard)
        self._graph.launch()
        env.update(self.results)


def _arrays(value: Any) -> list[Any]:
    """The arrays inside a value."""
    return [value.row_array, value.value] if isinstance(value, SelectedRows) else [value]


def _is_on_gpu(xp: Any, value: Any) -> bool:
    return all(isinstance(array, xp.ndarray) for array in _arrays(value))


def _form(value: Any) -> Any:
    found = [(getattr(a, "shape", None), getattr(a, "dtype", None)) for a in _arrays(value)]
    return found, value.height_ if isinstance(value, SelectedRows) else None


def _run(steps: Sequence[Step], env: Env) -> Iterator[tuple[Check, Step, Env]]:
    """Run steps; returns the checks that they would make."""
    for step in steps:
        assert step.node.device is not None and step.node.op is not None
        inputs = Env()
        inputs.update((name, env.find(name)) for name in step.node.op.input_arg_names)
        with looking_later() as checks:
            run_steps([step], [env] * (step.node.device + 1))
        yield from ((check, step, inputs) for check in checks)


def _names(steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """The names that steps read from outside, and the names that they write."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for step in steps:
        assert step.node.op is not None
        reads.update(dict.fromkeys(n for n in step.node.op.input_arg_names if n not in writes))
        writes.update(dict.fromkeys(step.node.op.output_arg_names))
    return list(reads), list(writes)
