"""Every kernel in machine code, compared with its operator on NumPy on the operator's samples."""

from __future__ import annotations

import numpy as np
import pytest

from dpexec.engine.compile.plans.step_binding import bind_step
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, overwrites
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.ir import opdef, roles
from tests.engine.ops.calls import SampleCall, run, samples, spec_of

pytest.importorskip("numba", reason="kernels in machine code need numba")

from dpexec.engine.compile.regions.arena import arena_of
from dpexec.engine.compile.regions.memory import aligned
from dpexec.engine.compile.regions.task import TaskCode
from dpexec.engine.kernels import implementations

CANCELLING = ("batch_norm", "instance_norm")
"""Their gradients are what is left of terms about 1."""


def tolerance(type, expected):
    """Sums lose what their terms do, which are as large as the largest element."""
    finite = np.ravel(expected)[np.isfinite(np.ravel(expected))]
    largest = 1 if type in CANCELLING else np.abs(finite).max(initial=0)
    return {"atol": 2e-6 * min(largest, 1), "rtol": 2e-5}


def assert_near(type, value, expected):
    assert value.dtype == expected.dtype
    for mine, theirs in zip(arrays(value), arrays(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, **tolerance(type, theirs))


def copied(value):
    return value if isinstance(value, SelectedRows | Lod) else np.array(value)


def arrays(value):
    """What a value consists of."""
    if isinstance(value, Lod):
        return value.levels
    return [value.row_array, value.value] if isinstance(value, SelectedRows) else [value]


def calls(type):
    """Every sample of an operator and of its gradients: operator and values of all variables."""
    for sample in samples(type):
        call = SampleCall(type, sample, np.float32)
        for out, source in call.definition.inplace.items():
            if call.inputs.get(source):
                call.op.outputs[out] = list(call.inputs[source])
        before = {name: copied(value) for name, value in call.values.items()}
        values = {name: copied(value) for name, value in before.items()}
        run(call.op, values)
        yield call.op, before, values
        if call.definition.make_grad:
            yield from gradient_calls(call, sample, values)


def gradient_calls(call, sample, values):
    rng = np.random.default_rng(0)
    for names in call.outputs.values():
        for name in names:
            if values[name].dtype == np.float32:
                grad = rng.normal(size=values[name].shape).astype("float32")
                values[roles.grad_name(name)] = grad
                call._declare(roles.grad_name(name), spec_of(grad))
    if not any(roles.grad_name(n) in values for names in call.outputs.values() for n in names):
        return  # of integers
    for made in call.grad_ops(call.wanted_inputs(sample)):
        slots = [
            {slot: names for slot, names in side.items() if any(names)}
            for side in (made.inputs, made.outputs)
        ]
        if not slots[1]:
            continue
        for name in (n for names in slots[1].values() for n in names if n):
            call.block.create_var(name=name)
        op = call.block.append_op(made.type, *slots, dict(made.attrs))
        before = dict(values)
        run(op, values)
        yield op, before, dict(values)


def drawn(op, before):
    """What a random operator gives in a run, where its numbers come from the device's shard."""
    graph = build_ssa_graph(op.block.program, [CPUPlace()], ReplicationOptions())
    env = Env()
    env.update(before)
    bind_step(next(node for node in graph.ops if node.op is op), lambda _: np, False)(env)
    return env


def run_code(ops, before, after, packed=None):
    """What the last operator computes in a piece of code; None if its lowering declines."""
    op = ops[-1]
    graph = build_ssa_graph(op.block.program, [CPUPlace()], ReplicationOptions())
    nodes = {node.op: node for node in graph.ops}
    in_place = {name for out in overwrites(op) for name in op.outputs[out]}
    written = {name for names in op.outputs.values() for name in names if name}
    limits = {n: len(v.row_array) for n, v in after.items() if isinstance(v, SelectedRows)}
    specs = {n: spec_of(v) for n, v in after.items()}
    for name in in_place:  # as in a program, no shape is known by the name of one that changes
        if np.shape(before[name]) != np.shape(after[name]):
            specs[name] = specs[name].replace(shape=(-1,))
    lower = implementations.find(op.type, "code")
    if lower is not None and lower.ragged:  # a run tells the sizes, as in a program
        specs.update({n: s for n, s in op.infer_outputs(specs).items() if s.size < 0})
    code = TaskCode(specs, frozenset(written), in_place, limits, packed=packed)
    markers = [Step(nodes[op], lambda env: pytest.fail("the operator ran on NumPy")) for op in ops]
    code.take(markers)
    if markers[-1] in code.order:
        return None
    code.layout()
    arena = arena_of([code.sizes], [{}])
    places = aligned(arena.nbytes), arena.inner[0], arena.lasting[0]
    (step,) = code.finish(*places, markers, rows=0, sized=code.sized(0))
    env = Env()
    env.update({n: copied(v) for n, v in before.items() if n not in written - in_place})
    step.call(env)
    return {name: env[name] for name in written}


def behind_copies(op, values):
    """Copies of what an operator reads, which nobody reads after it; and the operator on them."""
    kept = {name for out in overwrites(op) for name in op.outputs[out]}
    names = {name for name in op.input_arg_names if name not in kept and name in values}
    dense = (n for n in names if not isinstance(values[n], SelectedRows))
    copied = {n: f"{n}@COPY" for n in dense if values[n].dtype == np.float32 and values[n].size}
    ops = []
    for name, copy in copied.items():
        op.block.create_var(name=copy)
        ops.append(op.block.append_op("scale", {"X": [name]}, {"Out": [copy]}))
        values[copy] = values[name]
    inputs = {slot: [copied.get(n, n) for n in names] for slot, names in op.inputs.items()}
    return [*ops, op.block.append_op(op.type, inputs, op.outputs, op.all_attrs())]


def lowered(type):
    """Whether an operator or its gradient has a lowering."""
    gradient = "cross_entropy_grad2" if type == "cross_entropy2" else f"{type}_grad"
    values = [value for sample in samples(type) for value in sample.inputs.values()]
    sparse = any(isinstance(value, SelectedRows) for value in values)
    return any(
        implementations.find(t, "code", s) for t in (type, gradient) for s in {False, sparse}
    )


WITH_DOUBLES = {
    "sync_batch_norm",
    "sync_batch_norm_grad",
}  # tests/engine/passes/test_sync_batch_norm.py
TYPES = [
    type
    for type in opdef.registered()
    if samples(type) and lowered(type) and type not in WITH_DOUBLES
]


@pytest.mark.parametrize("type", TYPES)
def test_code_computes_what_the_operator_computes(type):
    taken = set()
    for op, before, after in calls(type):
        for ops in ([op], behind_copies(op, after)):
            found = run_code(ops, before, after)
            if found is None:
                continue
            taken.add(op.type)
            expected = drawn(op, before) if op.definition.is_random else after
            for name, value in found.items():
                try:
                    assert_near(type, value, expected[name])
                except AssertionError as error:
                    error.add_note(f"{name} of {op}")  # to print an operator takes longer
                    raise
    assert taken, f"no sample of {type} is lowered"
