"""Clipping of the gradients of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dpexec import layers
from dpexec.clip.base import (
    GradientClipBase,
    Group,
    Groups,
    ParamGrad,
    name_clipped_gradients,
    updates_of,
)
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.callsite import name_scope, warn
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Parameter, Variable

__all__ = [
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "append_gradient_clip_ops",
    "set_gradient_clip",
]


class GradientClipByValue(GradientClipBase):
    """Limits every element to ``[min, max]``.

    Args:
        max: largest value.
        min: smallest value, ``-max`` by default.
        need_clip: function of a parameter: whether its gradient is clipped. None clips all.

    Raises:
        AssertionError: min is not given and max is not positive.
        TypeError: need_clip cannot be called.

    Source: ``fluid.clip.GradientClipByValue``.

    See Also:
        :class:`~dpexec.clip.GradientClipByNorm`: the length of each gradient.
        :class:`~dpexec.clip.GradientClipByGlobalNorm`: the length of all gradients together.
        :func:`~dpexec.clip.set_gradient_clip`: for some parameters.
        :class:`~dpexec.clip.ErrorClipByValue`: gradients inside the net.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([1], "float32", default_initializer=one)
        ...     clip = fluid.clip.GradientClipByValue(max=0.5)
        ...     _ = fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(fluid.layers.mean(w))
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     round(exe.run(main, fetch_list=[w])[0].item(), 5)  # 1 - 0.1 * 0.5
        0.95
    """

    def __init__(
        self,
        max: float,
        min: float | None = None,
        need_clip: Callable[[Any], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        if min is None and max <= 0.0:
            raise AssertionError(f"max {max} must be positive where min is not given")
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def _apply(self, grad: Variable, groups: Groups) -> Variable:
        return layers.clip(x=grad, min=self.min, max=self.max)


class GradientClipByNorm(GradientClipBase):
    """Scales down every gradient whose L2 norm exceeds ``clip_norm``.

    Args:
        clip_norm: largest norm.
        need_clip: function of a parameter: whether its gradient is clipped. None clips all.

    Raises:
        TypeError: need_clip cannot be called.

    Source: ``fluid.clip.GradientClipByNorm``.

    See Also:
        :class:`~dpexec.clip.GradientClipByValue`: each element.
        :class:`~dpexec.clip.GradientClipByGlobalNorm`: the length of all gradients together.
        :func:`~dpexec.clip.set_gradient_clip`: for some parameters.
        :class:`~dpexec.clip.ErrorClipByValue`: gradients inside the net.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=one)
        ...     loss = fluid.layers.reduce_sum(w) * 10.0  # the gradient is [10, 10]
        ...     clip = fluid.clip.GradientClipByNorm(clip_norm=1.0)
        ...     _ = fluid.optimizer.SGD(1.0, grad_clip=clip).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[w])[0].round(4).tolist()
        [0.2928999960422516, 0.2928999960422516]
    """

    def __init__(self, clip_norm: float, need_clip: Callable[[Any], bool] | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def _apply(self, grad: Variable, groups: Groups) -> Variable:
        return layers.clip_by_norm(x=grad, max_norm=self.clip_norm)


class GradientClipByGlobalNorm(GradientClipBase):
    """Scales all gradients by one factor, so that their common L2 norm is at most ``clip_norm``.

    Args:
        clip_norm: largest norm.
        group_name: with ``set_gradient_clip``, gradients of one group are scaled together.
        need_clip: function of a parameter: whether its gradient is clipped. None clips all.

    Raises:
        TypeError: need_clip cannot be called.

    Source: ``fluid.clip.GradientClipByGlobalNorm``; Pascanu, Mikolov, Bengio 2013.

    See Also:
        :class:`~dpexec.clip.GradientClipByValue`: each element.
        :class:`~dpexec.clip.GradientClipByNorm`: the length of each gradient.
        :func:`~dpexec.clip.set_gradient_clip`: for some parameters.
        :class:`~dpexec.clip.ErrorClipByValue`: gradients inside the net.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=one)
        ...     loss = fluid.layers.reduce_sum(w) * 10.0  # the gradient is [10, 10]
        ...     clip = fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0)
        ...     _ = fluid.optimizer.SGD(1.0, grad_clip=clip).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[w])[0].round(4).tolist()
        [0.2928999960422516, 0.2928999960422516]
    """

    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        need_clip: Callable[[Any], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)
        if not isinstance(group_name, str):
            raise TypeError(f"group_name must be a string, but is {group_name!r}")
        self.group_name = group_name

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def _group(self, groups: Groups) -> Group:
        group = groups.setdefault(self.group_name, Group(self.clip_norm))
        if group.clip_norm != self.clip_norm:
            raise ValueError(
                "All parameters' 'clip_norm' of a same group should be the same, but group "
                f"{self.group_name} has {group.clip_norm} and {self.clip_norm}"
            )
        return group

    def _open(self, groups: Groups) -> None:
        group = self._group(groups)
        if group.limit is None:
            group.limit = _constant(self.clip_norm)

    def _prepare(self, grad: Variable, groups: Groups) -> None:
        if grad.type == VarType.SELECTED_ROWS:
            grad = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad))
        self._group(groups).squares.append(layers.reduce_sum(input=layers.square(grad)))

    def _join(self, groups: Groups) -> None:
        group = self._group(groups)
        norm = layers.sqrt(x=layers.sums(group.squares))
        limit = _constant(self.clip_norm) if group.limit is None else group.limit
        group.factor = layers.elementwise_div(x=limit, y=layers.elementwise_max(x=limit, y=norm))

    def _apply(self, grad: Variable, groups: Groups) -> Variable:
        if self._group(groups).factor is None:
            self._join(groups)
        return layers.elementwise_mul(x=grad, y=self._group(groups).factor)


def set_gradient_clip(
    clip: GradientClipBase,
    param_list: Iterable[Parameter | str] | None = None,
    program: Program | None = None,
) -> None:
    """Clip the gradients of some parameters in the next ``minimize``.

    The older way; an optimizer's ``grad_clip`` takes precedence. Parameters that are not in
    ``param_list`` stay unclipped; the real Paddle then clips none at all.

    Args:
        clip: the clipping to apply.
        param_list: parameters or their names; by default all parameters of the program.
        program: by default the default main program.

    Raises:
        TypeError: clip is no gradient clip, or param_list holds neither parameters nor names.
        ValueError: there is no variable of a given name.

    Source: ``fluid.clip.set_gradient_clip``.

    See Also:
        :class:`~dpexec.clip.GradientClipByValue`: each element.
        :class:`~dpexec.clip.GradientClipByNorm`: the length of each gradient.
        :class:`~dpexec.clip.GradientClipByGlobalNorm`: the length of all gradients together.
        :class:`~dpexec.clip.ErrorClipByValue`: gradients inside the net.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=one)
        ...     loss = fluid.layers.reduce_sum(w) * 10.0  # the gradient is [10, 10]
        ...     fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(max=0.5))
        ...     _ = fluid.optimizer.SGD(1.0).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[w])[0].round(4).tolist()
        [0.5, 0.5]
    """
    if not isinstance(clip, GradientClipBase):
        raise TypeError(
            "'clip' should be an instance of GradientClipBase's derived class, but received "
            f"{clip!r}"
        )
    block = (program or default_main_program()).global_block()
    if any("/optimizer" in op.attrs.get(roles.NAME_SCOPE, "") for op in block.ops):
        warn("'set_gradient_clip' has no effect on the 'minimize' that was called before it")
    params: list[Parameter] = []
    for param in block.all_parameters() if param_list is None else param_list:
        found = block.var(param) if isinstance(param, str) else param
        if not isinstance(found, Parameter):
            raise TypeError(
                "'param_list' should be a list of Parameter or basestring(parameter's name), but "
                f"has {param!r}"
            )
        params.append(found)
    for param in params:
        param.gradient_clip_attr = clip


def append_gradient_clip_ops(param_grads: list[ParamGrad]) -> list[ParamGrad]:
    """Clip gradients as :func:`set_gradient_clip` asked for.

    Args:
        param_grads: pairs of parameter and gradient.

    Returns:
        Pairs of parameter and clipped gradient; the same gradient if the parameter has no clip.

    Raises:
        TypeError: ``param_grads`` is no list of pairs.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.1))
        ...     pairs = fluid.clip.append_gradient_clip_ops(fluid.backward.append_backward(loss))
        >>> sum(op.type == "clip" for op in main.global_block().ops)  # weight and bias
        2
    """
    groups: Groups = {}
    clips = {param.name: _own_clip(param) for param, grad in param_grads if grad is not None}
    if not any(clips.values()):
        return param_grads
    block = param_grads[0][0].block.program._gradient_block()
    start = len(block.ops)
    for param, grad in param_grads:
        clip = clips.get(param.name)
        if clip is not None:
            with updates_of(param, grad), name_scope("gradient_clip_@CLIP"):
                clip._process_context(context=groups, param=param, grad=grad)
    prepared = len(block.ops)
    clipped = []
    for param, grad in param_grads:
        clip = clips.get(param.name)
        if clip is not None:
            with updates_of(param, grad), name_scope("graident_clip_@CLIP"):  # spelled so in fluid
                param, grad = clip._create_operators(param=param, grad=grad)
        clipped.append((param, grad))
    name_clipped_gradients(block, start, clipped, prepared)
    return clipped


def _own_clip(param: Any) -> GradientClipBase | None:
    clip: GradientClipBase | None = getattr(param, "gradient_clip_attr", None)
    return clip if clip is not None and clip._needs_clip(param) else None


def _constant(value: float) -> Variable:
    return layers.fill_constant(shape=[1], dtype="float32", value=value)
