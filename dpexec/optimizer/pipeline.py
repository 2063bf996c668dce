"""``fluid.optimizer.PipelineOptimizer``: wraps an optimizer for programs cut into sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpexec.engine.core.places import Place
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.optimizer.base import Optimizer


class PipelineOptimizer:
    """Wraps an optimizer for a program that is cut into sections.

    The sections of a batch run one after another, on the device of the executor, before the next
    batch begins, so the results are those of the wrapped optimizer. The original, which needs GPUs,
    processes several batches at once, so that gradients belong to older parameters. To use several
    devices, run the program with ``CompiledProgram.with_data_parallel``.

    Args:
        optimizer: updates the parameters.
        cut_list: lists of the variables at which sections of the forward pass end; the last list
            holds the loss. k lists give 2 * k - 1 sections, including those of the backward pass.
        place_list: a device for every section; not used.
        concurrency_list: number of concurrent batches of each section; not used.
        queue_size: number of batches that wait between sections; not used.
        sync_steps: steps between synchronizations; not used.
        start_cpu_core_id: the first core; not used.

    Raises:
        ValueError: the length of a list differs from the number of sections.

    Source: ``fluid.optimizer.PipelineOptimizer``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 4])
        ...     hidden = fluid.layers.fc(x, 8)  # here the first section ends
        ...     loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
        ...     optimizer = fluid.optimizer.PipelineOptimizer(
        ...         fluid.optimizer.SGD(0.1), cut_list=[[hidden], [loss]]
        ...     )
        ...     _ = optimizer.minimize(loss)  # Executor.train_from_dataset runs the sections
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[Place] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        sections = 2 * len(cut_list or ()) - 1
        for name, given in (("place_list", place_list), ("concurrency_list", concurrency_list)):
            if given is not None and len(given) != sections:
                raise ValueError(
                    f"{name} has {len(given)} entries, but a cut_list of {len(cut_list or ())} "
                    f"makes {max(sections, 0)} sections"
                )
        self._optimizer = optimizer

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> None:
        """Add gradients and updates to the program.

        Args:
            loss: the loss, shape ``(1,)``.
            startup_program: program that initializes the optimizer's variables; None takes the
                default one.
            parameter_list: parameters to update; None takes all trainable ones.
            no_grad_set: variables at which gradients stop.
        """
        self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
