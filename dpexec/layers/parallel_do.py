"""``ParallelDo``: part of a program on several devices at once; ``get_places`` names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.places import CUDAPlace, Place, on_gpus
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["ParallelDo", "get_places"]

_DEVICE_TYPES = ("AUTO", "CPU", "CUDA")


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """A list of devices for :class:`ParallelDo`, determined when the program is compiled.

    Args:
        device_count: number of devices. None or 0 takes all: ``CPU_NUM`` or else the CPUs available
            to the process; all visible GPUs.
        device_type: ``"CPU"``, ``"CUDA"``, or ``"AUTO"`` (the same as None) for the Executor's
            kind.

    Returns:
        A variable without shape.

    Raises:
        ValueError: ``device_count`` is negative, or the device type is unknown.

    Source: Paddle op ``get_places``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program()):
        ...     places = fluid.layers.get_places(device_count=2, device_type="CPU")
        ...     do = fluid.layers.ParallelDo(places)
        >>> places.name
        'get_places_0.tmp_0'
    """
    count = 0 if device_count is None else int(device_count)
    kind = "AUTO" if device_type is None else str(device_type).upper()
    if count < 0:
        raise ValueError(f"get_places: device_count must not be negative, but received {count}")
    if kind not in _DEVICE_TYPES:
        raise ValueError(
            f"get_places: device_type must be one of {', '.join(_DEVICE_TYPES)}, but received "
            f"{device_type!r}"
        )
    return _places({"device_count": count, "device_type": kind})


def _places(attrs: dict[str, Any]) -> Variable:
    helper = LayerHelper("get_places")
    out = helper.create_variable_for_type_inference("float32")
    out.type, out.stop_gradient = VarType.PLACE_LIST, True
    helper.append_op("get_places", {}, {"Out": [out]}, attrs)
    return out


class ParallelDo:
    """Runs the layers of a ``with`` block on several devices, each on a part of the rows.

    The rows (or sequences) of variables passed to ``read_input`` are split as evenly as possible;
    every other variable that the block reads is available as a whole on every device. The rows of
    variables passed to ``write_output`` are concatenated, so a mean of shape (1,) gives one number
    per device. Gradients flow through: gradients of parameters are summed in the order of the
    devices, gradients of the inputs are concatenated. Nothing is scaled. If there are fewer rows
    than devices, some devices stay idle.

    The layers before and after run on the Executor's device, so a program may use several kinds of
    devices. Persistable variables that the block writes (statistics of ``batch_norm``, counters)
    get the first device's value.

    Args:
        places: the devices: the result of :func:`get_places`, or a list of places.
        use_nccl: require that all places are GPUs. dpexec sums gradients in the same way in either
            case.
        name: prefix of the names of the operator's variables.
        keep_parameters: keep a copy of the parameters on every device. Gradients are then
            all-reduced in the backward pass, and clipping, regularisation and the optimizer's
            updates run on all devices in parallel, so that steps do not copy parameters.

    Raises:
        TypeError: ``places`` has the wrong type.

    Example:
        >>> import numpy as np
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> startup.random_seed = 1
        >>> with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        ...     x = fluid.data("x", shape=[None, 4])
        ...     label = fluid.data("label", shape=[None, 1])
        ...     feature = fluid.layers.fc(x, size=8, act="relu")
        ...     pd = fluid.layers.ParallelDo(fluid.layers.get_places(device_count=2))
        ...     with pd.do():
        ...         prediction = fluid.layers.fc(pd.read_input(feature), size=1)
        ...         pd.write_output(prediction)
        ...     cost = fluid.layers.square_error_cost(pd(), label)
        ...     loss = fluid.layers.mean(cost)
        ...     optimizer = fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
        >>> exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        >>> _ = exe.run(startup, scope=scope)
        >>> batch = {"x": np.ones((5, 4), "float32"), "label": np.ones((5, 1), "float32")}
        >>> losses = [exe.run(main, batch, [loss], scope=scope)[0].item() for _ in range(20)]
        >>> losses[-1] < losses[0] / 10
        True

    Source: Paddle ops ``parallel_do`` and ``parallel_do_grad`` (versions 0.11 to 0.14).
    """

    def __init__(
        self,
        places: Variable | Sequence[Place],
        use_nccl: bool = False,
        name: str | None = None,
        keep_parameters: bool = False,
    ) -> None:
        self.helper = LayerHelper("parallel_do", name=name)
        self.use_nccl = use_nccl
        self.keep_parameters = keep_parameters
        self.places = _as_places(places)
        self._body: Block | None = None
        self._complete = False
        self._inputs: dict[str, Variable] = {}
        self._pre_fetched: list[str] = []
        self._outputs: dict[str, Variable] = {}

    @whole_block
    def do(self) -> Iterator[None]:
        """Add layers to the block inside ``with``.

        Raises:
            ValueError: called a second time, or the block reads none of the inputs.
            NotImplementedError: called inside another block, or the block writes a variable of the
                enclosing block that is not persistable.
        """
        if self._body is not None:
            raise ValueError("ParallelDo.do() can be called once")
        program = self.helper.main_program
        if program.current_block_idx:
            raise NotImplementedError(
                "ParallelDo inside of another block (control flow, or another ParallelDo) is not "
                "supported: use it in the global block"
            )
        self._body = program._create_block()
        try:
            yield
        finally:
            program._rollback()
        self._append_op(self._body)
        self._complete = True

    def read_input(self, var: Variable) -> Variable:
        """Give every device a part of the rows of a variable.

        Returns:
            ``var``; inside the block it holds the device's rows.

        Raises:
            ValueError: called outside of the block.
            TypeError: not a Variable.
        """
        return self._read(var, "read_input")

    def pre_fetch(self, var: Variable) -> Variable:
        """As :meth:`read_input`, for a fed variable, which is split when the batch arrives.

        The program then needs no operator to split it. The program's DataLoader splits a batch, and
        copies it to the devices, in its thread during the previous step.

        Returns:
            ``var``; inside the block it holds the device's rows.

        Raises:
            ValueError: called outside of the block, or the variable is not fed.
            TypeError: not a Variable.
        """
        self._read(var, "pre_fetch")
        if not var.is_data:
            raise ValueError(f"pre_fetch: {var.name} is computed, not fed; use read_input")
        self._pre_fetched.append(var.name)
        return var

    def write_output(self, var: Variable) -> None:
        """Concatenate a variable's rows over the devices, for the layers after the block.

        Raises:
            ValueError: called outside of the block, or the variable is not in the block.
            TypeError: not a Variable.
        """
        body = self._require_inside("write_output")
        _require_variable(var, "write_output")
        if var.name not in body.vars:
            raise ValueError(f"write_output: {var.name} is not computed in the block of ParallelDo")
        self._outputs[var.name] = var

    def __call__(self) -> Variable | list[Variable]:
        """The output with the rows of all devices, or a list if there are several.

        Raises:
            ValueError: the block is not finished, or it has no outputs.
        """
        if not self._complete:
            raise ValueError("ParallelDo output can only be retrieved after its block")
        if not self._outputs:
            raise ValueError("ParallelDo has no output: call write_output in its block")
        assert self._body is not None
        around = self._body.program.block(self._body.parent_idx)
        merged = [around.var(name) for name in self._outputs]
        return merged[0] if len(merged) == 1 else merged

    # ---- the operator

    def _read(self, var: Variable, method: str) -> Variable:
        self._require_inside(method)
        _require_variable(var, method)
        self._inputs[var.name] = var
        return var

    def _append_op(self, body: Block) -> None:
        around = body.program.current_block()
        reads, writes = body._outer_names()
        for name in writes:
            if not around._var_recursive(name).persistable:
                raise NotImplementedError(
                    f"ParallelDo: its block writes {name}, a variable around it that does not "
                    "outlive a run, so the devices' values would replace each other; write a "
                    "variable of the block and give it to write_output"
                )
        inputs = [name for name in self._inputs if name in reads]
        if not inputs:
            raise ValueError("ParallelDo has nothing to split: its block reads no input")
        attrs = {
            "sub_block": body,
            "use_nccl": bool(self.use_nccl),
            "keep_parameters": True if self.keep_parameters else None,
            "pre_fetch": [name for name in self._pre_fetched if name in reads] or None,
        }
        for var in self._outputs.values():
            around.create_var(
                name=var.name,
                shape=[-1, *var.shape[1:]],
                dtype=var.dtype,
                lod_level=var.lod_level,
                stop_gradient=var.stop_gradient,
            )
        scopes = around.create_var(
            name=self.helper.name + ".scopes", type=VarType.STEP_SCOPES, stop_gradient=True
        )
        around.append_op(
            "parallel_do",
            {
                "inputs": inputs,
                "parameters": [name for name in reads if name not in self._inputs],
                "places": [self.places],
            },
            {"outputs": list(self._outputs), "parallel_scopes": [scopes]},
            attrs,
        )

    def _require_inside(self, method: str) -> Block:
        if self._body is None or self._complete:
            raise ValueError(f"ParallelDo.{method} must be called inside of its block")
        return self._body


def _require_variable(var: Any, method: str) -> None:
    if not isinstance(var, Variable):
        raise TypeError(f"ParallelDo.{method} takes a Variable, but received {type(var).__name__}")


def _as_places(places: Any) -> Variable:
    if isinstance(places, Variable):
        if places.type != VarType.PLACE_LIST:
            raise TypeError(f"ParallelDo takes what get_places returns, not variable {places.name}")
        return places
    many = isinstance(places, (list, tuple)) and places
    if not many or not all(isinstance(place, Place) for place in places):
        raise TypeError(
            f"ParallelDo takes what get_places returns, or a list of places, not {places!r}"
        )
    attrs: dict[str, Any] = {"device_count": len(places), "device_type": "CPU"}
    if on_gpus(places):
        if not all(isinstance(place, CUDAPlace) for place in places):
            raise TypeError(f"the places of a ParallelDo must be of one kind, not {places!r}")
        attrs.update(device_type="CUDA", device_ids=[place.device_id for place in places])
    return _places(attrs)
