"""``append_backward`` and ``gradients``: the backward pass as operators of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from dpexec.engine.autodiff.chain import PendingOp, add_up, chain_rule, fill_missing, relevant_ops
from dpexec.engine.autodiff.counters import bring_back
from dpexec.engine.autodiff.recompute import chain_rule_with_checkpoints, seed_dropouts
from dpexec.engine.core import unique_name
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import noted_device
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.undo import note_attributes
from dpexec.engine.ir.variable import Variable

__all__ = ["append_backward", "calc_gradient", "gradients"]

Callback = Callable[..., Any]


class GradientNames:
    """Makes unused names for gradients, and remembers the variable of each.

    If the program has gradients already, names get the prefix ``grad/``, once per earlier backward
    pass.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.origin: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self._names.get(name) or self._take(name, self._prefixed(roles.grad_name(name)))

    def seed(self, name: str) -> str:
        """The name of the gradient that the backward pass starts from."""
        return self._names.get(name) or self._take(name, roles.grad_name(name))

    def _prefixed(self, grad: str) -> str:
        times = self.block.program._appending_grad_times
        return "grad/" * times + grad if times > 1 and self.block.has_var(grad) else grad

    def _take(self, name: str, grad: str) -> str:
        if self.block.has_var(grad):
            grad = unique_name.generate(grad)
        self._names[name] = grad
        self.origin[grad] = name
        return grad


def append_backward(
    loss: Variable,
    parameter_list: Iterable[Variable | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: list[Callback] | None = None,
    checkpoints: Sequence[Variable | str] | None = None,
) -> list[tuple[Variable, Variable]]:
    """Append the operators that compute the gradients of a loss.

    Args:
        loss: shape ``(1,)``; for another shape, the sum of its elements is differentiated. (The
            real Paddle then starts from a gradient of one element and reads out of bounds.)
        parameter_list: parameters, or their names, whose gradients are wanted; by default all
            trainable ones.
        no_grad_set: variables, or their names, at which gradients stop, besides those with
            ``stop_gradient``.
        callbacks: called as ``callback(block=..., context=...)`` after every operator; the context
            maps gradients to their variables, and ``"__current_op_desc__"`` to what was added.
        checkpoints: variables, or their names, to keep for the backward pass; variables between
            them are recomputed there. Dropouts then get their seeds from variables.

    Returns:
        Pairs of parameter and gradient, in the order of ``parameter_list``.

    In a branch (``cond``, ``case``, ``Switch``) the gradients go to a separate block. It runs after
    the branch, if the branch was taken, and also differentiates the operators before the branch.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: a callback cannot be called.
        NotImplementedError: the loss is in a sub-block that is complete already, or a sub-block
            prevents recomputation.
        MissingGradientError: an operator between loss and parameters has no gradient.

    Source: ``fluid.backward.append_backward``.

    See Also:
        :func:`~dpexec.gradients`: with respect to any variables.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), size=1))
        ...     [(p.name, g.name) for p, g in fluid.backward.append_backward(loss)]
        [('fc_0.w_0', 'fc_0.w_0@GRAD'), ('fc_0.b_0', 'fc_0.b_0@GRAD')]
    """
    _check_type(loss, "loss", Variable)
    _check_callbacks(callbacks)
    kept = variable_names(checkpoints or [], "checkpoints")
    program = loss.block.program
    inside = program.current_block()
    ops = _ops_until(inside)
    if inside.idx and kept:
        raise NotImplementedError("append_backward: branches cannot be computed again")
    if loss.block.idx and not any(loss.name in op.output_arg_names for op in ops):
        raise NotImplementedError(
            f"append_backward: loss {loss.name} lies in a control flow block that is complete; "
            "minimize it inside, or return it from there"
        )
    block = program._gradient_block()
    wanted = _parameter_names(program, parameter_list)
    no_grad = _no_gradient(program, no_grad_set)
    note_attributes(program, "_appending_grad_times")
    program._appending_grad_times += not inside.idx
    grad_of = GradientNames(block)
    first, loss_op = grad_of.seed(loss.name), _producer(loss)
    scalar = loss.shape == (1,)
    seeds = [_seed(loss, first, loss_op)] if scalar else _ones_like(loss, first)
    path = relevant_ops(ops, {loss.name}, set(), no_grad)
    if kept:
        seed_dropouts(block, path)
    with program._gradient_block_guard():
        append_gradients(block, path, seeds, {}, no_grad, grad_of, callbacks or [], kept)
    loss_op._set_attr(roles.ROLE, roles.FORWARD | roles.LOSS)
    pairs = [
        (program.global_block().var(name), block.var(grad_of(name)))
        for name in wanted
        if block.has_var(grad_of(name))
    ]
    for param, grad in pairs:
        assert grad.op is not None
        grad.op._set_attr(roles.ROLE_VAR, [param.name, grad.name, *grad.op.role_var])
    return pairs


def calc_gradient(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> Any:
    """Like :func:`gradients`, but returns the gradient itself for a single input, not a list.

    Args:
        targets: as for :func:`gradients`.
        inputs: as for :func:`gradients`.
        target_gradients: as for :func:`gradients`.
        no_grad_set: as for :func:`gradients`.

    Returns:
        A variable for a single input, else a list; None where no gradient flows.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 3.0], "float32"))
        ...     x.stop_gradient = False
        ...     slope = fluid.backward.calc_gradient(fluid.layers.square(x), x)  # not a list
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[slope])
        [array([2., 6.], dtype=float32)]
    """
    _check_type(targets, "targets", Variable, list)
    _check_type(inputs, "inputs", Variable, list)
    _check_type(target_gradients, "target_gradients", Variable, list, type(None))
    targets, inputs = _as_list(targets), _as_list(inputs)
    given = _as_list(target_gradients) or [None] * len(targets)
    _check_targets(targets, given)
    block, program = targets[0].block, targets[0].block.program
    no_grad = _no_gradient(program, no_grad_set)
    note_attributes(program, "_appending_grad_times")
    program._appending_grad_times += 1
    grad_of = GradientNames(block)
    supplied: dict[str, list[str]] = {}
    seeds: list[PendingOp] = []
    for target, gradient in zip(targets, given, strict=True):
        if gradient is None:
            seeds += _ones_like(target, grad_of.seed(target.name))
        else:
            supplied.setdefault(grad_of(target.name), []).append(gradient.name)
    path = relevant_ops(
        block.ops, {target.name for target in targets}, {var.name for var in inputs}, no_grad
    )
    append_gradients(block, path, seeds, supplied, no_grad, grad_of, [])
    found: list[Variable | None] = []
    for name in (grad_of(var.name) for var in inputs):
        made = name if block.has_var(name) else supplied.get(name, [""])[0]
        found.append(block._find_var_recursive(made))
    return found[0] if len(found) == 1 else found


def gradients(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the operators that carry gradients from targets back to inputs.

    If a target also depends on another target, its own initial gradient and the one that flows
    back from the other are added; the real Paddle overwrites one with the other.

    Args:
        targets: variables of one block.
        inputs: variables of the same program.
        target_gradients: initial gradients of the targets, with the targets' shapes; None is a
            gradient of ones.
        no_grad_set: variables, or their names, at which gradients stop, besides those with
            ``stop_gradient``.

    Returns:
        The gradient of each input, None where no target depends on it; [] for one such input.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: numbers or shapes of targets and target_gradients differ.
        MissingGradientError: an operator between inputs and targets has no gradient.

    Source: ``fluid.gradients``.

    See Also:
        :func:`~dpexec.backward.append_backward`: for all parameters at once.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 2])
        ...     x.stop_gradient = False
        ...     (slope,) = fluid.gradients([fluid.layers.square(x)], [x])
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     exe.run(feed={"x": np.array([[1, 3]], "float32")}, fetch_list=[slope])
        [array([[2., 6.]], dtype=float32)]
    """
    found = calc_gradient(targets, inputs, target_gradients, no_grad_set)
    return [] if found is None else _as_list(found)


def _seed(loss: Variable, grad: str, loss_op: Operator) -> PendingOp:
    """The operator that seeds the loss gradient; replication finds it by role, to scale it."""
    attrs = {"shape": [1], "value": 1.0, "dtype": loss.dtype, "force_cpu": False}
    attrs[roles.ROLE] = roles.BACKWARD | roles.LOSS
    attrs[roles.DEVICE] = loss_op.attrs.get(roles.DEVICE, "")
    return PendingOp("fill_constant", {}, {"Out": [grad]}, attrs, loss_op.callsite)


def _ones_like(target: Variable, grad: str) -> list[PendingOp]:
    callsite = target.op.callsite if target.op is not None else None
    shape = target.name + "_shape"
    attrs = {"shape": list(target.shape), "value": 1.0, "dtype": target.dtype}
    return [
        PendingOp("shape", {"Input": [target.name]}, {"Out": [shape]}, {}, callsite),
        PendingOp("fill_constant", {"ShapeTensor": [shape]}, {"Out": [grad]}, attrs, callsite),
    ]


@noted_device(None)  # gradients have the device of their operators, sums of them none
def append_gradients(
    block: Block,
    path: list[Operator],
    seeds: list[PendingOp],
    supplied: Mapping[str, list[str]],
    no_grad: set[str],
    grad_of: GradientNames,
    callbacks: list[Callback],
    checkpoints: Sequence[str] = (),
    outside: Set[str] = frozenset(),
) -> None:
    """Append the backward pass of some operators.

    Args:
        block: the block to append to.
        path: the operators to differentiate, in order.
        seeds: operators that make the initial gradients.
        supplied: maps gradients that the user supplies to the variables that hold them.
        no_grad: names of variables at which gradients stop.
        grad_of: makes the names of gradients.
        callbacks: called after every operator but the seeds, with the block and a context.
        checkpoints: names of variables to keep; variables between them are recomputed.
        outside: gradients that are variables of an outer block, even if this block writes them.
    """
    have = {name for seed in seeds for name in seed.writes()} | set(supplied)
    if checkpoints:
        steps = chain_rule_with_checkpoints(path, checkpoints, have, no_grad, grad_of)
    else:
        steps = chain_rule(path, have, no_grad, grad_of)
    steps = add_up(seeds + steps, supplied, grad_of.origin, block)
    steps = fill_missing(steps, grad_of.origin, {n for names in supplied.values() for n in names})
    context: dict[str, Any] = dict(grad_of.origin)
    with block.program._backward_role_guard():
        bring_back(block, path)
        for number, step in enumerate(steps):
            context["__current_op_desc__"] = _append_step(block, step, grad_of.origin, outside).desc
            for callback in callbacks if number >= len(seeds) else []:
                callback(block=block, context=context)


def _append_step(
    block: Block, step: PendingOp, origin: Mapping[str, str], outside: Set[str]
) -> Operator:
    variable_of = {name: origin.get(name.partition("@RENAME@")[0], "") for name in step.writes()}
    made = [
        block.create_var(name=name)
        for name, variable in variable_of.items()
        if not (block.has_var(name) or name in outside)
        if variable or block._find_var_recursive(name) is None
    ]
    op = block.append_op(
        step.type,
        step.inputs,
        step.outputs,
        {roles.NAME_SCOPE: "/", **step.attrs},
        callsite=step.callsite,
        fill_defaults=False,
    )
    for grad in made:
        var = block._find_var_recursive(variable_of[grad.name])
        if var is not None:  # a gradient has its variable's shape, even if inference knows less
            grad.set_spec(grad.spec.replace(shape=var.shape, dtype=var.dtype))
    return op


def _ops_until(block: Block) -> list[Operator]:
    """The operators that have run when a block ends, in order, including outer blocks."""
    around = _ops_until(block.program.block(block.parent_idx)) if block.idx else []
    return [*around, *block.ops]


def _producer(var: Variable) -> Operator:
    """The operator that writes a variable last."""
    for op in reversed(var.block.ops):
        if var.name in op.output_arg_names:
            return op
    raise ValueError(f"{var.name} is not computed by any operator of its block")


def _parameter_names(
    program: Program, parameter_list: Iterable[Variable | str] | None
) -> list[str]:
    if parameter_list is None:
        return [param.name for param in program.all_parameters() if param.trainable]
    return variable_names(parameter_list, "parameter_list")


def _no_gradient(program: Program, no_grad_set: Iterable[Variable | str] | None) -> set[str]:
    """Names of the variables at which gradients stop."""
    names = {var.name for var in program.list_vars() if var.stop_gradient}
    return names.union(variable_names(no_grad_set or [], "no_grad_set"))


def variable_names(variables: Iterable[Variable | str], argument: str) -> list[str]:
    """The names in an argument that takes variables or their names.

    Raises:
        TypeError: it is no list, tuple or set of them.
    """
    _check_type(variables, argument, list, tuple, set)
    found = []
    for var in variables:
        _check_type(var, f"a member of {argument}", Variable, str)
        found.append(var if isinstance(var, str) else var.name)
    return found


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _check_type(value: Any, argument: str, *types: type) -> None:
    if not isinstance(value, types):
        expected = " or ".join(t.__name__ for t in types)
        raise TypeError(f"the type of {argument} must be {expected}, but received {type(value)}")


def _check_callbacks(callbacks: list[Callback] | None) -> None:
    _check_type(callbacks, "callbacks", list, type(None))
    for callback in callbacks or []:
        if not callable(callback):
            raise ValueError(f"'callback' must be a callable object, but received {callback!r}")


def _check_targets(targets: list[Variable], given: list[Variable | None]) -> None:
    if not targets:
        raise ValueError("gradients needs at least one target")
    if len(targets) != len(given):
        raise ValueError(
            "Should have the same number of target_gradients as targets, but received "
            f"{len(given)} and {len(targets)}"
        )
    for target, grad in zip(targets, given, strict=True):
        if target.block is not targets[0].block:
            raise ValueError("all targets must be in the same block")
        if grad is not None and grad.shape != target.shape:
            raise ValueError(
                f"The shapes of target and grad are different: {target.name} {target.shape}, "
                f"{grad.name} {grad.shape}"
            )
