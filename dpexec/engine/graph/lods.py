"""Makes sequences explicit: users see them as a property of tensors, the engine as variables.

Before a program is replicated, a copy of it gets a variable ``x@LOD`` for the offsets of the
sequences in ``x``. Operators that read offsets have input slots for them, and operators that make
new sequences have output slots. All other operators keep sequences, so their outputs share the
offsets variable of an input; only ``concat`` also concatenates the offsets. From then on, plans,
tasks and fetches treat offsets as ordinary values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import LOD_SUFFIX, lod_name
from dpexec.engine.graph.gradient_lods import without_sequences
from dpexec.engine.graph.lod_readers import lod_slots
from dpexec.engine.graph.tables import with_tables_written
from dpexec.engine.graph.unpadding import feed_rows
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable

__all__ = ["Sequences", "with_offsets"]


@dataclass(frozen=True)
class Sequences:
    """A program whose sequences are explicit.

    Args:
        program: the program.
        offsets: for variables of the global block that show sequences at the end, the variable
            that holds their offsets.
    """

    program: Program
    offsets: Mapping[str, str] = field(default_factory=dict)


def with_offsets(program: Program) -> Sequences:
    """A copy of a program with explicit sequences and growing tables; itself if it has none.

    Args:
        program: the program, which is not changed.

    Raises:
        EnforceNotMet: an operator needs sequences, but its input cannot hold any.
    """
    program = with_tables_written(program)
    if not _has_sequences(program):
        return Sequences(program)
    return _Rewriter(program.clone()).rewrite()


def _has_sequences(program: Program) -> bool:
    if any(var.lod_level for var in program.list_vars()):
        return True
    ops = (op for block in program.blocks for op in block.ops)
    return any(lod_slots((*op.definition.inputs, *op.definition.outputs)) for op in ops)


Known = dict[str, str]
"""Maps variables with sequences to the variables with their offsets."""


class _Rewriter:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._at_end: dict[int, Known] = {}
        """Of every block."""
        self._rewritten = _rewritten(program)

    def rewrite(self) -> Sequences:
        block = self._program.global_block()
        _mark_fed(block)
        feed_rows(block)
        known = self._block(block, {})
        self._program._changed()
        shown = (block.vars.keys() & known.keys()) - without_sequences(block, known)
        return Sequences(self._program, {n: o for n, o in known.items() if n in shown})

    def _block(self, block: Block, around: Known) -> Known:
        known = {**around, **self._at_end.get(block.forward_block_idx, {})}
        kept = _kept(block)
        for var in list(block.vars.values()):
            if (var.is_data or var.name in kept) and var.lod_level:
                known[var.name] = _declare(var)
        for op in list(block.ops):
            if op.type == "parallel_do":
                self._divided(op, known)
            elif op.type == "parallel_do_grad":
                self._divided_gradients(op, known)
            elif op.definition.by_executor:
                _refuse(op, op.input_arg_names, known, "it takes no sequences, such as {}")
            elif op.bodies:
                self._bodies(op, known)
            _fill(op, known)
            _follow(op, known, self._rewritten)
        self._at_end[block.idx] = known
        return known

    def _bodies(self, op: Operator, known: Known) -> None:
        """Rewrite an operator's bodies, which may write outer variables and their offsets."""
        for body in op.bodies:
            written = body._outer_names()[1]
            for name in known.keys() & set(written):
                _copy_before(op, known, name)
            inside = self._block(body, known)
            known.update({name: inside[name] for name in written if name in inside})

    def _divided(self, op: Operator, known: Known) -> None:
        """Rewrite the body that a ParallelDo runs on every device.

        Inside, divided variables have their own offsets, not shared with undivided variables.
        """
        ahead = op.attrs.get("pre_fetch") or []
        _refuse(op, ahead, known, "pre_fetch cannot divide the sequences of {}; use read_input")
        (body,) = op.bodies
        parameters = op.inputs.get("parameters", [])
        for name in (*op.inputs["inputs"], *parameters):
            if name in known:
                _copy_before(op, known, name)
        op.inputs["parameters"] = [*parameters, *(known[n] for n in parameters if n in known)]
        inside = self._block(body, known)
        for name in op.outputs["outputs"]:
            op.block.vars[name].lod_level = max(body.vars[name].lod_level, int(name in inside))
            own = _declare(body.vars[name]) if name in inside else ""
            if own and inside[name] != own:
                body.ops.append(_copy(op, [inside[name]], own, body))

    def _divided_gradients(self, op: Operator, known: Known) -> None:
        """Rewrite the gradient block of a ParallelDo."""
        (block,) = op.bodies
        forward = self._at_end[block.forward_block_idx]
        parts = {n: forward[n] for n in op.inputs["outputs"] if n in forward}
        self._block(block, known | {roles.part_of_grad(n): o for n, o in parts.items()})
        known.update(_of_gradients(op, known))


def _mark_fed(block: Block) -> None:
    """Mark variables with sequences as fed if no operator computes them.

    Such variables come from ``block.create_var``, or from cutting a program: the operators that
    compute them are left out.
    """
    written = {name for op in block.ops for name in op.writes}
    for var in block.vars.values():
        dense = var.type == VarType.LOD_TENSOR and not var.persistable
        if dense and var.lod_level and var.name not in written:
            var.is_data = True


def _kept(block: Block) -> set[str]:
    """The persistable variables whose sequences come from the scope or a feed.

    These are the ones that an operator reads before any operator writes them.
    """
    kept = {name for name, var in block.vars.items() if var.persistable and var.lod_level}
    read: set[str] = set()
    for op in block.ops if kept else ():
        read.update(op.reads)
        kept.difference_update(set(op.writes) - read)
    return kept


def _rewritten(program: Program) -> set[str]:
    """The variables with several values: programs declare the shape of the last one."""
    made = Counter(var.name for var in program.list_vars() if var.is_data or var.persistable)
    for op in chain.from_iterable(block.ops for block in program.blocks):
        made.update(() if op.bodies else op.writes)
    return {name for name, count in made.items() if count > 1}


def _refuse(op: Operator, names: Iterable[str], known: Known, problem: str) -> None:
    """Raise if some variables of an operator hold sequences."""
    name = next((name for name in names if name in known), None)
    if name is not None:
        raise op_error(op, problem.format(name), {})


def _declare(var: Variable) -> str:
    """A variable for the offsets of another one, beside it."""
    name = lod_name(var.name)
    if name not in var.block.vars:
        var.block.create_var(
            name=name,
            type=VarType.RAW,
            shape=(-1,) * max(var.lod_level, 1),
            dtype=VarType.INT64,
            is_data=var.is_data or var.persistable,
            stop_gradient=True,
        )
    return name


def _copy_before(op: Operator, known: Known, name: str) -> None:
    """Give a variable that a body overwrites its own copy of the offsets."""
    own = _declare(op.block._var_recursive(name))
    if known[name] != own:
        op.block.ops.insert(op.block.ops.index(op), _copy(op, [known[name]], own))
        known[name] = own


def _copy(op: Operator, sources: list[str], target: str, block: Block | None = None) -> Operator:
    attrs = {roles.ROLE: op.role, "count": len(sources)}
    slots = {"X": sources}, {"Out": [target]}
    return Operator(block or op.block, "copy_lod", *slots, attrs, op.callsite)


def _fill(op: Operator, known: Known) -> None:
    """Connect an operator's input slots for offsets."""
    for slot, owner in lod_slots(op.definition.inputs):
        names = roles.present(op.inputs.get(owner, []))
        found = [known.get(name, roles.EMPTY) for name in names]
        partly = slot.optional and slot.many and any(name in known for name in names)
        if partly or (names and roles.EMPTY not in found):
            op.inputs[slot.name] = found
        elif names and not slot.optional:
            name = next(name for name in names if name not in known)
            problem = (
                f"input {owner}({name}) holds no sequences: the data that it is computed from "
                "must be fed as a LoDTensor with sequences"
            )
            declared = op._variables(op.input_arg_names)
            specs = {name: var.spec for name, var in declared.items()}
            raise op_error(op, problem, specs, section="sequences-that-are-not-fed")


def _follow(op: Operator, known: Known, rewritten: Collection[str]) -> None:
    """Find out which outputs hold sequences."""
    lasting = _make_offsets(op, known)
    if op.definition.by_executor:
        return
    if op.bodies:  # its other outputs were followed inside the bodies
        known.update(_of_gradients(op, known))
        return
    shared = dict(_shared(op, known, rewritten))
    for name, var in op._variables(op.output_arg_names).items():
        if name in lasting or name.endswith(LOD_SUFFIX):
            continue
        if var.type == VarType.LOD_TENSOR_ARRAY:  # its entries have their own
            levels = op.infer_outputs(op.input_specs())[name].lod_level
            var.lod_level = max(var.lod_level, levels)
            continue
        if name not in shared:
            known.pop(name, None)
        elif name in op.block.vars:
            known[name] = shared[name]
        else:  # a variable of an outer block, which cannot see this block's offsets
            known[name] = _declare(var)
            copy, after = _copy(op, [shared[name]], known[name]), op.block.ops.index(op) + 1
            made = any(shared[name] in behind.writes for behind in op.block.ops[after : after + 1])
            op.block.ops.insert(after + made, copy)  # behind kept_lod, if that makes them
        var.lod_level = max(var.lod_level, 1) if name in known else 0


def _make_offsets(op: Operator, known: Known) -> set[str]:
    """Connect an operator's output slots for offsets, and return the outputs that have them.

    An output may have none, such as the result of pooling sequences of one level. If the operator
    declares no shape inference, an output gets offsets if the program declares sequences for it, or
    if a Python function makes it from sequences.
    """
    slots = [(slot.name, owner) for slot, owner in lod_slots(op.definition.outputs)]
    outputs = {owner: op._variables(op.outputs.get(owner, [])) for _, owner in slots}
    for slot, owner in slots:
        op.outputs[slot] = list(map(lod_name, outputs[owner]))
    specs = op.infer_outputs(op.input_specs()) if slots else {}
    lasting: set[str] = set()
    from_known = any(name in known for name in op.input_arg_names)
    of_sequences = from_known and not op.definition.by_executor
    for slot, owner in slots:
        declared = op.definition.infer is None
        made = {
            name: var
            for name, var in outputs[owner].items()
            if (var.lod_level or of_sequences if declared else lod_name(name) in specs)
        }
        op.outputs[slot] = [_declare(var) for var in made.values()]
        for name, var in made.items():
            known[name] = lod_name(name)
            var.lod_level = max(var.lod_level, 1)
        lasting |= made.keys()
    return lasting


def _shared(op: Operator, known: Known, rewritten: Collection[str]) -> Iterator[tuple[str, str]]:
    """The outputs that keep the sequences of an input, each with its offsets variable."""
    slots = op.definition.inputs
    inputs = [name for slot in slots for name in op.inputs.get(slot.name, [])]
    sources = [known[name] for name in inputs if name in known]
    yield from _of_gradients(op, known)
    if not sources:
        return
    if op.definition.rows_stay is not None:
        yield from _of_rows(op, known, inputs[0], inputs[0] in rewritten)
        return
    for name, spec in op.infer_outputs(op.input_specs()).items():
        if not spec.lod_level or roles.GRAD_SUFFIX in name:
            continue
        joins = op.definition.joins
        joined = False if joins is None else joins(op, spec.rank)
        if joined is False:
            yield name, sources[0]
        elif joined and len(sources) == len(op.inputs[slots[0].name]):
            yield name, _joined(op, sources, name)


def _of_rows(op: Operator, known: Known, x: str, rewritten: bool) -> Iterator[tuple[str, str]]:
    """The output of an operator that keeps sequences if it keeps the number of rows."""
    name, decide = op.output("Out")[0], op.definition.rows_stay
    before = op.input_specs()
    after = op.infer_outputs(before)[name]
    spec = before[x].replace(shape=(-1,) * before[x].rank) if rewritten else before[x]
    stay = x in known and decide is not None and decide(op, spec, after)
    if stay is None:
        yield name, _kept_by_run(op, known, x, name)
    elif stay:
        yield name, known[x]
    for name in op.outputs.get("XShape", []) if x in known else ():
        yield name, known[x]


def _kept_by_run(op: Operator, known: Known, x: str, name: str) -> str:
    """A variable for the offsets of an output, which has them if a run counts as many rows."""
    block, source, before = op.block, known[x], x
    var = block._var_recursive(name)
    if name == x:  # the operator overwrites its rows; others may read the offsets from before
        before = f"{name}@{len(block.vars)}"
        var = block.create_var(
            name=before, shape=(-1,), dtype=var.dtype, lod_level=var.lod_level, stop_gradient=True
        )
        slots = {"X": [name]}, {"Out": [before]}
        copy = Operator(block, "assign", *slots, {roles.ROLE: op.role}, op.callsite)
        block.ops.insert(block.ops.index(op), copy)
    own = _declare(var)
    slots = {"X": [source], "Before": [before], "After": [name]}, {"Out": [own]}
    made = Operator(block, "kept_lod", *slots, {roles.ROLE: op.role}, op.callsite)
    block.ops.insert(block.ops.index(op) + 1, made)
    return own


def _joined(op: Operator, sources: list[str], name: str) -> str:
    """A variable for the concatenated offsets of all inputs."""
    own = _declare(op.block.vars[name])
    op.block.ops.insert(op.block.ops.index(op), _copy(op, sources, own))
    return own


def _of_gradients(op: Operator, known: Known) -> Iterator[tuple[str, str]]:
    """The gradients that an operator writes, each with the offsets of its forward variable."""
    for name in op.output_arg_names:
        forward, suffix, _ = name.partition(roles.GRAD_SUFFIX)
        if suffix and forward in known:
            yield name, known[forward]
