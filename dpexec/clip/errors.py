"""Clipping of gradients inside the network, of variables that have an error clip."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.block import Block

__all__ = ["ErrorClipByValue", "error_clip_callback"]


class ErrorClipByValue:
    """Limits the gradient of a variable inside the network: ``Variable.set_error_clip``.

    Args:
        max: largest value.
        min: smallest value, ``-max`` by default.

    Source: ``fluid.clip.ErrorClipByValue``.

    Raises:
        TypeError: ``max`` or ``min`` is no number.

    See Also:
        :class:`~dpexec.clip.GradientClipByValue`: each element.
        :class:`~dpexec.clip.GradientClipByNorm`: the length of each gradient.
        :class:`~dpexec.clip.GradientClipByGlobalNorm`: the length of all gradients together.
        :func:`~dpexec.clip.set_gradient_clip`: for some parameters.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     one = fluid.initializer.Constant(1.0)
        ...     w = fluid.layers.create_parameter([2], "float32", default_initializer=one)
        ...     hidden = w * 3.0
        ...     hidden._set_error_clip(fluid.clip.ErrorClipByValue(max=0.5))
        ...     loss = fluid.layers.reduce_sum(hidden) * 10.0  # the gradient of hidden is [10, 10]
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[w.name + "@GRAD"])[0].tolist()
        [1.5, 1.5]
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        attrs = {"min": self.min, "max": self.max}
        block.append_op("clip", {"X": grad_name}, {"Out": grad_name}, attrs)


def error_clip_callback(block: Block, context: dict[str, Any]) -> None:
    """For ``append_backward``: clip the last operator's gradients whose variable has an error clip.

    Args:
        block: the block to which the gradients' operators are appended.
        context: what ``append_backward`` passes to callbacks; not used.

    Raises:
        TypeError: a variable's ``error_clip`` is not an error clip.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main, fluid.Program()):
        ...     hidden = fluid.layers.fc(fluid.data("x", [None, 4]), 3)
        ...     hidden.error_clip = fluid.clip.ErrorClipByValue(0.1)
        ...     loss = fluid.layers.reduce_mean(hidden)
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> sum(op.type == "clip" for op in main.global_block().ops)
        1
    """
    for grad in block.ops[-1].output_arg_names:
        error_clip = block._var_recursive(context[grad]).error_clip if grad in context else None
        if error_clip is None:
            continue
        if not isinstance(error_clip, ErrorClipByValue):
            raise TypeError(
                "Variable's error_clip should be an instance of ErrorClipByValue or None, but "
                f"that of {context[grad]} is {error_clip!r}"
            )
        error_clip._append_clip_op(block, grad)
