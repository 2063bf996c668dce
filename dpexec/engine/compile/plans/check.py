"""Checks before a run starts: missing values, shapes, types.

The shape rules that were applied when the program was built are applied again with the shapes
that were fed, device by device, and the types that were fed must be those of a kernel. So a wrong
feed fails with the operator's name and the user's line, and no parameter has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpexec.engine.compile.plans.collective_specs import follow_collective
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.dtypes import VarType, dtype_name
from dpexec.engine.core.errors import EnforceNotMet, see, similar
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.opdef import InvalidOp, Spec
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ops._kernel_types import require_kernel

__all__ = ["Rules", "check_fetch_names", "check_merge", "check_run"]

_RESULTS_KEPT = limit_of("checked shapes")

_LISTS = (VarType.LOD_TENSOR_ARRAY, VarType.LOD_RANK_TABLE)


def check_fetch_names(block: Block, names: Iterable[str]) -> None:
    """Refuse names that the program does not have.

    Raises:
        EnforceNotMet: an unknown name.
    """
    for name in names:
        if name not in block.vars:
            problem = (
                f"NotFound: Cannot find fetched variable({name}) in current computation graph. "
                "Possible reasons: the name is misspelled; the variable belongs to another "
                f"program; it was created after the program was compiled{similar(name, block.vars)}"
            )
            raise see("a-fetch-that-is-not-there", EnforceNotMet(problem))


class Rules:
    """The shape rules of operators, with their results for the latest inputs cached.

    So devices with equal parts of a batch are checked once, and a batch of another size costs
    nothing where its size does not matter.
    """

    def __init__(self) -> None:
        self._rules: dict[Operator, _Rule] = {}

    def of(self, op: Operator) -> _Rule:
        """The rule of an operator."""
        if op not in self._rules:
            self._rules[op] = _Rule(op)
        return self._rules[op]


class _Rule:
    """The inputs and outputs of an operator.

    Args:
        op: the operator.
    """

    __slots__ = ("_arrays", "_inputs", "_latest", "_op", "late", "needs")

    def __init__(self, op: Operator) -> None:
        self._op = op
        self.needs = roles.present(op.needs)
        self.late = [name for name in op.reads if name not in self.needs] if op.bodies else []
        self._inputs = roles.present(op.input_arg_names)
        self._arrays = [n for n in roles.present(op.output_arg_names) if _is_array(op.block, n)]
        self._latest: list[tuple[list[Spec | None], dict[str, Spec]]] = []

    def outputs(self, known: Mapping[str, Spec]) -> dict[str, Spec]:
        """The specs of what the operator writes."""
        if self._op.bodies:
            return _inferred(self._op, known)
        names = (*self._inputs, *self._arrays)
        inputs = [known.get(name) for name in names]
        for before, made in self._latest:
            if before == inputs:
                return made
        made = _outputs(self._op, known)
        self._latest = [(inputs, made), *self._latest[: _RESULTS_KEPT - 1]]
        return made


@no_cycles_sought()
def check_run(
    graph: SSAGraph,
    nodes: Sequence[OpNode],
    missing: set[VarNode],
    feeds: Sequence[Mapping[str, Spec]],
    replicas: Replicas,
    rules: Rules | None = None,
    changing: Sequence[set[str]] = (),
) -> list[dict[str, Spec]]:
    """Derive the spec of every value of a run.

    Args:
        graph: the graph.
        nodes: the nodes that run, in order.
        missing: variables that have no value, on idle devices.
        feeds: specs of the feeds by name, per device.
        replicas: the persistable variables.
        rules: the rules of the graph's operators, if it was checked before.
        changing: per device, gets the names of variables whose shape or type changes during the
            run.

    Returns:
        Specs by name, per device; of changing variables the last ones.

    Raises:
        EnforceNotMet: a value is missing, or shapes or types do not fit.
    """
    block = graph.program.global_block()
    rules = rules or Rules()

    def stored(op: Operator, name: str, device: int) -> Spec:
        return _stored_spec(op, name, device, replicas, specs[device])

    specs = [dict(feed) for feed in feeds]
    for node in nodes:
        if node.is_collective:
            follow_collective(node, specs, missing, stored)
            continue
        assert node.op is not None and node.device is not None
        known = specs[node.device]
        rule = rules.of(node.op)
        for name in rule.needs:
            if name not in known:
                known[name] = stored(node.op, name, node.device)
        for name in rule.late:
            if name not in known and name in block.vars and block.vars[name].persistable:
                found = replicas.spec(node.device, name)
                known.update({} if found is None else {name: found})
        try:
            made = rule.outputs(known)
        except EnforceNotMet as error:
            raise _with_fed_types(error, block, feeds[node.device]) from None
        if changing:
            changing[node.device].update(name for name in made if _changes(name, known, made))
        known.update(made)
    return specs


def _outputs(op: Operator, known: Mapping[str, Spec]) -> dict[str, Spec]:
    """The specs of what an operator writes, if there is a kernel for the types of its inputs."""
    made = op.infer_outputs(known)
    for name, spec in made.items():
        if spec.kind == VarType.LOD_TENSOR_ARRAY:  # earlier entries may differ from the new one
            level = op.block._var_recursive(name).lod_level
            entries = _either(known.get(name), spec)
            made[name] = entries.replace(lod_level=max(spec.lod_level, level))
    if op.definition.shapes_by_run:
        return {name: spec.replace(shape=(-1,) * spec.rank) for name, spec in made.items()}
    if op.attrs.get("use_mkldnn"):  # kernels of its own, with 8 bits too: the rules above say which
        return made
    inputs = {
        slot: [known[name] for name in names if name in known] for slot, names in op.inputs.items()
    }
    try:
        require_kernel(op.type, inputs)
    except InvalidOp as error:
        raise op_error(op, str(error), known) from None
    return made


def _is_array(block: Block, name: str) -> bool:
    var = block._find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR_ARRAY


def _with_fed_types(error: EnforceNotMet, block: Block, fed: Mapping[str, Spec]) -> EnforceNotMet:
    """An error that also names feeds of another type than declared, which may be the cause."""
    others = [
        f"  fed Variable {name!r} is declared as {dtype_name(block.vars[name].dtype)!r}, but "
        f"received {dtype_name(spec.dtype)!r}: it may have to be converted, as with "
        f"array.astype({dtype_name(block.vars[name].dtype)!r})"
        for name, spec in fed.items()
        if spec.kind == VarType.LOD_TENSOR and name in block.vars
        if block.vars[name].dtype != spec.dtype
    ]
    return EnforceNotMet("\n".join([str(error), *others])) if others else error


def _changes(name: str, known: Mapping[str, Spec], made: Mapping[str, Spec]) -> bool:
    """Whether a variable has a value already, of another shape or type."""
    old, new = known.get(name), made[name]
    return old is not None and (old.shape, old.dtype, old.kind) != (new.shape, new.dtype, new.kind)


def _inferred(op: Operator, known: Mapping[str, Spec]) -> dict[str, Spec]:
    """The specs of what an operator writes; if it has a body, that may leave earlier values."""
    made = _outputs(op, known)
    if op.definition.stacks:
        return made | _stacked(op, known)
    for body in op.bodies:
        if body.forward_block_idx >= 0:  # gradients are like what the forward body made
            continue
        found = _after(body, known)
        loops = bool(op.definition.repeats)
        while loops and any(found[name] != known.get(name) for name in found):
            known = {**known, **found}  # what a round is not sure of, the next one reads
            found = _after(body, known)
        made.update(found)
    return made


def _stacked(op: Operator, known: Mapping[str, Spec]) -> dict[str, Spec]:
    """The specs of values that an operator stacks over its steps."""
    inputs = [known[name] for name in op.inputs["inputs"]]
    slices = [spec.replace(shape=spec.shape[1:], lod_level=0) for spec in inputs]
    inner = {**known, **dict(zip(op.inputs["inputs"], slices, strict=True))}
    found = [known[name] for name in op.inputs.get("initial_states", [])]
    memories: list[Spec] | None = None
    while found != memories:  # what a step is not sure of, the next one reads
        memories = found
        inner.update(zip(op.attrs["ex_states"], memories, strict=True))
        for own in op.bodies[0].ops:
            inner.update(_inferred(own, inner))
        after = zip(memories, op.attrs["states"], strict=True)
        found = [_either(before, inner[state]) for before, state in after]
    steps = max(spec.shape[0] for spec in inputs)
    outputs = {name: inner[name] for name in op.outputs["outputs"]}
    return {n: spec.replace(shape=(steps, *spec.shape)) for n, spec in outputs.items()}


def _after(body: Block, known: Mapping[str, Spec]) -> dict[str, Spec]:
    """The specs of outer variables that a body writes."""
    inner = dict(known)
    for op in body.ops:
        inner.update(_inferred(op, inner))
    names = (name for name in body._outer_names()[1] if name in inner)
    return {name: _either(known.get(name), inner[name]) for name in names}


def _either(old: Spec | None, new: Spec) -> Spec:
    if old is None:
        return new
    if old.rank != new.rank:  # operators after it take what comes
        return new.replace(shape=(-1,) * new.rank)
    dims = zip(old.shape, new.shape, strict=True)
    return new.replace(shape=tuple(a if a == b else -1 for a, b in dims))


def _stored_spec(
    op: Operator, name: str, device: int, replicas: Replicas, known: Mapping[str, Spec]
) -> Spec:
    var = op.block._find_var_recursive(name)
    if var is None:  # as in damaged files, whose names may hold any bytes
        raise op_error(op, f"variable {name!r} is not declared", known)
    if var.type in _LISTS:  # without entries until something is written
        return var.spec
    found = replicas.spec(device, name) if var.persistable else None
    if found is not None:
        return found
    others = ((other, replicas.spec(device, other)) for other in op.input_arg_names)
    stored = {other: found for other, found in others if found is not None}
    section, why = _why_missing(var)
    raise op_error(op, why, {**stored, **known}, section=section)


def _why_missing(var: Variable) -> tuple[str, str]:
    """The section of the catalogue, and the message, for a variable without value that is read."""
    if var.persistable:
        return "the-startup-program-was-not-run", (
            f"PreconditionNotMet: input variable {var.name} has not been initialized. Run the "
            "startup program first, after minimize() was called: "
            "exe.run(fluid.default_startup_program())"
        )
    if var.is_data and var.name.endswith(LOD_SUFFIX):
        fed = var.name.removesuffix(LOD_SUFFIX)
        kept = var.block._var_recursive(fed).persistable
        state = "lies in the scope" if kept else "is fed"
        return "sequences-that-are-not-fed", (
            f"InvalidArgument: variable {fed} {state} without sequences: feed a LoDTensor with "
            "their lengths, such as fluid.create_lod_tensor(data, [lengths], place)"
        )
    hint = "feed it" if var.is_data else "no operator before computes it, and it is not fed"
    problem = f"InvalidArgument: input variable {var.name} is not initialized: {hint}"
    return "a-variable-that-is-not-fed", problem


def check_merge(name: str, specs: Sequence[Spec | None]) -> None:
    """Refuse a merged fetch whose shapes cannot be concatenated.

    Raises:
        EnforceNotMet: ranks or trailing dimensions differ, a value is sparse, or the values of
            several devices have no dimension.
    """
    found = [spec for spec in specs if spec is not None]
    if any(spec.kind == VarType.SELECTED_ROWS for spec in found):
        raise EnforceNotMet(
            f"fetched variable {name} is a sparse gradient (SelectedRows); only a LoDTensor can "
            "be fetched"
        )
    dense = [spec for spec in found if spec.kind == VarType.LOD_TENSOR]
    without_axis = len(dense) > 1 and any(spec.rank == 0 for spec in dense)
    if without_axis or len({(spec.rank, spec.shape[1:]) for spec in dense}) > 1:
        shapes = ", ".join(str(list(spec.shape)) for spec in found)
        raise EnforceNotMet(
            f"fetched variable {name} has shapes {shapes} on the devices, which cannot be "
            "concatenated along axis 0; fetch it with return_merged=False"
        )
