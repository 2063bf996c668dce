"""``fluid.metrics.DetectionMAP``: the mean average precision of a detector over a data set."""

from __future__ import annotations

from typing import Any

from dpexec import layers, unique_name
from dpexec.engine.ir.variable import Variable
from dpexec.framework import Program, program_guard
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper

__all__ = ["DetectionMAP"]


class DetectionMAP:
    """A detector's mean average precision: of each batch, and of all batches since :meth:`reset`.

    Args:
        input: detections as rows of label, score and box, ``(found, 6)``, one sequence per image,
            as ``layers.detection_output`` returns them.
        gt_label: labels of the true objects, ``(objects, 1)``, one sequence per image.
        gt_box: their boxes, ``(objects, 4)``.
        gt_difficult: 1 for difficult objects, ``(objects, 1)``; None if no object is difficult.
        class_num: number of classes.
        background_label: ignored; accepted for compatibility. Classes without objects do not count.
        overlap_threshold: intersection over union above which a detection is right.
        evaluate_difficult: whether difficult objects count.
        ap_version: ``"integral"`` or ``"11point"``.

    The program accumulates in persistable variables, which the startup program resets; each device
    has its own. Source: ``fluid.metrics.DetectionMAP``; Everingham et al. 2010.

    Raises:
        ValueError: ``class_num`` is missing.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     found = fluid.data("found", [None, 6], lod_level=1)  # label, score, box
        ...     label = fluid.data("label", [None, 1], lod_level=1)
        ...     box = fluid.data("box", [None, 4], lod_level=1)
        ...     both = fluid.metrics.DetectionMAP(found, label, box, class_num=2).get_map_var()
        >>> def fed(rows):
        ...     rows = np.array(rows, "float32")
        ...     return fluid.create_lod_tensor(rows, [[len(rows)]], fluid.CPUPlace())
        >>> feed = {"label": fed([[1]]), "box": fed([[0, 0, 1, 1]])}
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     _ = exe.run(startup)
        ...     for place in [0, 0, 1, 1], [5, 5, 6, 6]:  # right, wrong
        ...         feed["found"] = fed([[1, 0.9, *place]])
        ...         print([value.tolist() for value in exe.run(main, feed, list(both))])
        [[1.0], [1.0]]
        [[0.0], [0.5]]
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise ValueError("DetectionMAP needs class_num, the number of classes")
        self.helper = LayerHelper("map_eval")
        self._first: list[dict[str, Any]] = []
        columns = [gt_label, *([] if gt_difficult is None else [gt_difficult])]
        casts = [layers.cast(column, gt_box.dtype) for column in columns]
        settings: dict[str, Any] = {
            "detect_res": input,
            "label": layers.concat([*casts, gt_box], axis=1),
            "class_num": class_num,
            "background_label": background_label,
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = layers.detection.detection_map(**settings)
        counts = self._state("accum_pos_count", "int32", [class_num, 1])
        right = self._state("accum_true_pos", "float32", [-1, 2])
        wrong = self._state("accum_false_pos", "float32", [-1, 2])
        self.has_state = self._state("has_state", "int32", [1])
        starts = self._state("accum_starts", "int32", [class_num + 1])
        made = [self.helper.create_variable_for_type_inference("float32") for _ in range(2)]
        self.accum_map = layers.detection.detection_map(
            **settings,
            has_state=self.has_state,
            input_states=[counts, layers.lod_reset(right, starts), layers.lod_reset(wrong, starts)],
            out_states=[counts, *made],
        )
        for rows in made:
            rows.desc.set_lod_level(1)  # the operator has sequences there, and declares none
        layers.assign(_starts(made[0]), starts)
        for rows, state in zip(made, (right, wrong), strict=True):  # states have no sequences
            layers.assign(rows, state)
        layers.fill_constant([1], "int32", 1, out=self.has_state)

    def _state(self, suffix: str, dtype: str, shape: list[int]) -> Variable:
        """A variable to accumulate in: initially 0, or empty if the number of rows varies."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        kept: dict[str, Any] = {"name": name, "dtype": dtype, "persistable": True}
        first = {**kept, "shape": [max(size, 0) for size in shape]}
        self._first.append(first)
        startup = self.helper.startup_program.global_block()
        startup.create_var(initializer=Constant(0), **first)
        return self.helper.create_variable(shape=shape, **kept)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """The mAP of the batch and of all batches, both ``(1,)``, to be fetched."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Reset the accumulated state; may be called before the first batch.

        Args:
            executor: runs the program that resets the variables.
            reset_program: the program to add the operators to; a new one by default.
        """
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            for first in self._first:
                var = program.current_block().create_var(**first)
                layers.fill_constant(var.shape, var.dtype, 0, out=var)
        executor.run(program)


def _starts(rows: Variable) -> Variable:
    """Start and end of each sequence, int32 ``(n, 2)``: variables keep no LoD between runs."""
    ones = layers.scale(rows, scale=0.0, bias=1.0)
    lengths = layers.reduce_max(layers.sequence_pool(ones, "sum"), dim=1)
    ends = layers.cumsum(lengths)
    return layers.cast(layers.concat([layers.fill_constant([1], "float32", 0.0), ends]), "int32")
