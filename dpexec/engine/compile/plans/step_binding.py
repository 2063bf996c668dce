"""From graph nodes to calls: kernels bound to their attributes, arguments and results.

A device's values lie in an :class:`Env` under the names of the variables; the edges of the plan
keep readers and writers of a name in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpexec.engine import kernels
from dpexec.engine.compile.plans.finite import checking_results
from dpexec.engine.compile.plans.half_precision import computes_in_single, rounding, widening
from dpexec.engine.compile.regions.bodies import Body, Iterations
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Call, kept, random_stream
from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.kernels.implementations import kernel_of

__all__ = ["bind_step", "bind_when_called"]

ModuleOf = Callable[[Operator], Any]


def bind_step(
    node: OpNode,
    module_of: ModuleOf,
    in_place: bool,
    keep: Iterable[str] = (),
    checked: bool = False,
    native: bool = False,
) -> Call:
    """Bind a compute node.

    Args:
        node: the node.
        module_of: returns the array library of an operator, ``numpy`` or ``cupy``.
        in_place: whether it may overwrite its in-place inputs; else it works on copies.
        keep: names that are read after parameters were overwritten: their values must not change
            with a parameter that they are a view of.
        checked: whether results that are no finite numbers are errors.
        native: whether processors use kernels in machine code where there are some.
    """
    assert node.op is not None
    if node.does.seeds:
        return _bind_loss_grad(node.op, module_of(node.op))
    call = _bind_op(node.op, module_of, in_place, checked, native)
    unchanged = kept(node.op) if node.op.definition.inplace else ()
    private = set(node.op.writes).intersection(keep).difference(unchanged)
    return call if in_place or not private else _with_private_results(call, sorted(private))


def bind_when_called(node: OpNode, *how: Any) -> Call:
    """Bind a compute node when it is first called: most become machine code, and never are.

    Args:
        node: the node.
        how: further arguments of :func:`bind_step`.
    """
    bound: list[Call] = []

    def call(env: Env) -> None:
        if not bound:
            bound.append(bind_step(node, *how))
        bound[0](env)

    return call


def _bind_loss_grad(op: Operator, xp: Any) -> Call:
    name = op.output_arg_names[0]
    shape, dtype = tuple(op.attrs["shape"]), to_numpy(op.attrs["dtype"])

    def call(env: Env) -> None:
        env[name] = xp.full(shape, env.shard.weight, dtype)

    return call


def _with_private_results(call: Call, names: Sequence[str]) -> Call:
    def call_and_part(env: Env) -> None:
        call(env)
        for name in names:
            env.part(name)

    return call_and_part


def _bind_op(
    op: Operator, module_of: ModuleOf, in_place: bool, checked: bool, native: bool
) -> Call:
    call = _bind_kernel(op, module_of, in_place, checked, native)
    return checking_results(call, op, module_of(op)) if checked else call


def _bind_kernel(
    op: Operator, module_of: ModuleOf, in_place: bool, checked: bool, native: bool
) -> Call:
    definition, xp = op.definition, module_of(op)
    kernel = definition.kernel
    if xp is not np:
        kernel = kernel_of(op.type, kernel, "gpu")
    elif native:
        kernel = kernel_of(op.type, kernel, "host")
    kwargs = _known_arguments(op)
    safe = in_place or kept(op)
    arguments = _arguments(op, copied=set() if safe else set(definition.inplace.values()))
    targets = [op.outputs.get(slot.name, []) for slot in definition.outputs]
    store = _results(targets, [slot.many for slot in definition.outputs])
    if computes_in_single(op, xp):
        arguments = widening(arguments)
        store = rounding(store, op, op.output_arg_names)
    of_env = _arguments_of_env(op, module_of, checked, native)
    if not of_env:

        def call(env: Env) -> None:
            store(env, kernel(xp, *arguments(env), **kwargs))

        return call

    def call_with_more(env: Env) -> None:
        more = {name: find(env) for name, find in of_env.items()}
        store(env, kernel(xp, *arguments(env), **more, **kwargs))

    return call_with_more


def _known_arguments(op: Operator) -> dict[str, Any]:
    """Arguments of a kernel that are the same in every call: attributes and requested objects."""
    definition = op.definition
    known = definition.kernel_attrs(op.attrs)
    if "needs" in definition.kernel_arguments:
        found = [(op.outputs.get(slot.name, []), slot.many) for slot in definition.outputs]
        known["needs"] = tuple(
            [_wanted(name) for name in names] if many else bool(names) and _wanted(names[0])
            for names, many in found
        )
    if "names" in definition.kernel_arguments:
        known["names"] = {**op.inputs, **op.outputs}
    if "as_rows" in definition.kernel_arguments:
        known["as_rows"] = op.fills_rows
    if "backward" in definition.kernel_arguments:
        known["backward"] = bool(op.role & roles.BACKWARD)
    if "differentiated" in definition.kernel_arguments:
        known["differentiated"] = any(body.backward_block_idx >= 0 for body in op.bodies)
    if "calls" in definition.kernel_arguments:
        known["calls"] = itertools.count()
    return known


def _arguments_of_env(
    op: Operator, module_of: ModuleOf, checked: bool, native: bool
) -> dict[str, Callable[[Env], Any]]:
    """Arguments that an env provides: iterations of a body, random numbers, ..."""
    asked = op.definition.kernel_arguments
    found: dict[str, Callable[[Env], Any]] = {}
    if "before" in asked:
        written = next(iter(op.continued), "")
        own = written in op.block.vars  # not one of that name around
        found["before"] = lambda env: env.get(written) if own else env.find(written)
    if "body" in asked:
        found["body"] = partial(Iterations, _body(op, module_of, checked, native))
    if op.definition.is_random:
        stream = random_stream(op)
        found["rng"] = lambda env: env.draw(stream)
    if "rings" in asked:
        found["rings"] = lambda env: env.shard.rings
    if "share" in asked:
        found["share"] = lambda env: env.shard.share
    return found


def _body(op: Operator, module_of: ModuleOf, checked: bool, native: bool) -> Body:
    def bind(inner: Operator) -> Call:
        return _bind_op(inner, module_of, False, checked, native)

    if module_of(op) is not np or checked or not native:  # who looks at results needs them all
        return Body(op, bind)
    kernels.load()
    from dpexec.engine.compile.regions.deferred import DeferredCalls
    from dpexec.engine.compile.regions.region import regions_of
    from dpexec.engine.compile.regions.whole_loop import WholeLoop

    return Body(op, bind, regions_of, DeferredCalls, WholeLoop)


def _wanted(name: str) -> bool:
    return bool(name) and name != roles.EMPTY


def _arguments(op: Operator, copied: set[str]) -> Callable[[Env], list[Any]]:
    """A function that collects the kernel's arguments from an env."""
    slots = op.definition.inputs
    names = [[n for n in op.inputs.get(slot.name, []) if _wanted(n)] for slot in slots]
    single = all(len(found) < 2 for found in names) and not any(slot.many for slot in slots)
    if single and not copied and not op.definition.lazy:
        flat = [found[0] if found else "" for found in names]
        if all(flat):
            return lambda env: [env[name] for name in flat]
        return lambda env: [env[name] if name else None for name in flat]
    plan = [
        (found, slot.many, slot.name in copied) for found, slot in zip(names, slots, strict=True)
    ]
    if op.definition.lazy:
        return lambda env: [
            [env.find(n) for n in found] if many else env.find(*found) for found, many, _ in plan
        ]

    def collect(env: Env) -> list[Any]:
        arguments: list[Any] = []
        for found, many, copy in plan:
            values = [env[name].copy() if copy else env[name] for name in found]
            arguments.append(values if many else values[0] if values else None)
        return arguments

    return collect


def _results(targets: list[list[str]], many: list[bool]) -> Callable[[Env, Any], None]:
    """A function that puts the kernel's results into an env."""
    if len(targets) == 1 and not many[0]:
        name = targets[0][0] if targets[0] and _wanted(targets[0][0]) else ""

        def store_one(env: Env, result: Any) -> None:
            if name:
                env[name] = result

        return store_one

    if not any(many):
        flat = [names[0] if names and _wanted(names[0]) else "" for names in targets]

        def store_each(env: Env, results: Any) -> None:
            values = results if isinstance(results, tuple) else (results,)
            _check_number(values, flat)
            for name, item in zip(flat, values, strict=True):
                if name and item is not None:
                    env[name] = item

        return store_each

    def store(env: Env, results: Any) -> None:
        values = results if isinstance(results, tuple) else (results,)
        _check_number(values, targets)
        for names, is_many, value in zip(targets, many, values, strict=True):
            for name, item in zip(names, value if is_many else (value,), strict=False):
                if _wanted(name) and item is not None:
                    env[name] = item

    return store


def _check_number(values: tuple[Any, ...], targets: Sequence[Any]) -> None:
    if len(values) != len(targets):
        raise ValueError(
            f"its kernel must return {len(targets)} results, one for each output, but returned "
            f"{len(values)}; the outputs of a gradient are all inputs, unless outputs= names others"
        )
