"""Comparing sequences of different lengths: temporal classification, edit distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.manipulation import squeeze
from dpexec.layers.ordering import topk

__all__ = ["ctc_greedy_decoder", "edit_distance", "warpctc"]


def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The loss of connectionist temporal classification (CTC).

    Args:
        input: unnormalised scores of all classes for each step, float32 ``(rows, classes)`` with
            one level of sequences, or ``(T, N, classes)`` with lengths.
        label: the tags, int32 ``(tags, 1)`` with one level of sequences, or ``(N, most tags)`` with
            lengths.
        blank: the class that means "no tag".
        norm_by_times: divide gradients by the number of steps.
        input_length: lengths of padded sequences of steps, int64 ``(N,)``.
        label_length: lengths of padded sequences of tags, int64 ``(N,)``.

    Returns:
        The negative log likelihood of the tags, ``(sequences, 1)``; 0 for sequences with fewer
        steps than their tags need. Source: Paddle op ``warpctc``; Graves et al., 2006.

    Raises:
        TypeError: ``input`` is no variable of type float32; ``label`` is no variable of type int32.
        EnforceNotMet: ``input`` has no such shape, or ``blank`` is no class of it.

    See Also:
        :func:`ctc_greedy_decoder`: its sequences, from the same scores.
        :func:`edit_distance`: how far they are from the right ones.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     scores = fluid.data("scores", [20, None, 5])
        ...     tags = fluid.data("tags", [None, 8], dtype="int32")
        ...     steps = fluid.data("steps", [None], dtype="int64")
        ...     count = fluid.data("count", [None], dtype="int64")
        ...     fluid.layers.warpctc(scores, tags, input_length=steps, label_length=count).shape
        (-1, 1)
    """
    check_variable_and_dtype(input, "input", ("float32",), "warpctc")
    check_variable_and_dtype(label, "label", ("int32",), "warpctc")
    inputs = {"Logits": input, "Label": label}
    if input_length is not None and label_length is not None:
        check_variable_and_dtype(input_length, "LogitsLength", ("int64",), "warpctc")
        check_variable_and_dtype(label_length, "LabelLength", ("int64",), "warpctc")
        inputs |= {"LogitsLength": input_length, "LabelLength": label_length}
    dtypes = {"Loss": input.dtype, "WarpCTCGrad": input.dtype}
    attrs = {"blank": blank, "norm_by_times": norm_by_times}
    return add_outputs(LayerHelper("warpctc"), inputs, dtypes, attrs)["Loss"]


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The likeliest class of every step, without repetitions and blanks.

    Args:
        input: probabilities or scores of all classes, ``(rows, classes)`` with one level of
            sequences, or ``(N, T, classes)`` with ``input_length``.
        blank: the class that means "no tag".
        input_length: lengths of padded sequences, int64 ``(N, 1)``.
        padding_value: fills padded sequences after their tags.
        name: prefix of names.

    Returns:
        Tags, int64 ``(tags, 1)`` with one level of sequences, ``[[-1]]`` if there are none at all;
        for padded sequences ``(N, T)``, and the number of tags of each, int64 ``(N, 1)``. Source:
        Paddle op ``ctc_align``.

    Raises:
        EnforceNotMet: ``input`` holds no floats, or is neither ``(rows, classes)`` nor, with
            lengths, of rank 3.

    See Also:
        :func:`warpctc`: the loss of connectionist temporal classification.
        :func:`edit_distance`: how far they are from the right ones.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> scores = np.eye(3, dtype="float32")[[1, 1, 0, 1]]  # a, a, blank, a
        >>> with fluid.program_guard(fluid.Program()):
        ...     x, length = fluid.data("x", [None, 4, 3]), fluid.data("length", [None, 1], "int64")
        ...     out = fluid.layers.ctc_greedy_decoder(x, blank=0, input_length=length)
        ...     feed = {"x": scores[None], "length": np.array([[4]])}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(out))
        [array([[1, 1, 0, 0]]), array([[2]])]
    """
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    check_type(input_length, "input_length", (Variable, str, type(None)), "ctc_greedy_decoder")
    _, best = topk(input, k=1)
    inputs, dtypes = {"Input": best}, {"Output": "int64"}
    attrs: dict[str, Any] = {"merge_repeated": True, "blank": blank}
    if input_length is not None:
        inputs = {"Input": squeeze(best, [2]), "InputLength": input_length}
        dtypes["OutputLength"] = "int64"
        attrs["padding_value"] = padding_value
    made = add_outputs(helper, inputs, dtypes, attrs, op_type="ctc_align")
    return made["Output"] if input_length is None else (made["Output"], made["OutputLength"])


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """The number of insertions, deletions and substitutions that turn sequences into their labels.

    Args:
        input: tokens, int64 ``(rows, 1)`` with one level of sequences, or ``(N, T)`` with lengths.
        label: the right tokens, in the same form.
        normalized: divide by the lengths of the labels.
        ignored_tokens: tokens to remove from both before comparing; not for padded sequences.
        input_length: lengths of ``input``, int64 ``(N,)``.
        label_length: lengths of ``label``, int64 ``(N,)``.

    Returns:
        Distances ``(sequences, 1)`` and the number of sequences ``(1,)``. Source: Paddle op
        ``edit_distance``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type int64.
        EnforceNotMet: an argument is neither ``(rows, 1)`` nor, with its lengths, ``(samples,
            length)``.

    See Also:
        :class:`~dpexec.metrics.EditDistance`: over many batches.
        :func:`warpctc`: the loss of connectionist temporal classification.
        :func:`ctc_greedy_decoder`: its sequences, from the same scores.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     guess, truth = (fluid.data(name, [1, 3], "int64") for name in ("guess", "truth"))
        ...     lengths = fluid.layers.assign(np.array([3], "int64"))
        ...     distance, count = fluid.layers.edit_distance(
        ...         guess, truth, normalized=False, input_length=lengths, label_length=lengths
        ...     )
        ...     feed = {"guess": np.array([[1, 2, 3]]), "truth": np.array([[1, 4, 3]])}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[distance, count])
        [array([[1.]], dtype=float32), array([1])]
    """
    check_variable_and_dtype(input, "input", ("int64",), "edit_distance")
    check_variable_and_dtype(label, "label", ("int64",), "edit_distance")
    for name, length in (("input_length", input_length), ("label_length", label_length)):
        check_type(length, name, (Variable, str, type(None)), "edit_distance")
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        input, label = _without(helper, ignored_tokens, input, label)
    inputs = {"Hyps": input, "Refs": label}
    if input_length is not None and label_length is not None:
        inputs |= {"HypsLength": input_length, "RefsLength": label_length}
    dtypes = {"Out": "int64", "SequenceNum": "int64"}
    made = add_outputs(helper, inputs, dtypes, {"normalized": normalized})
    return made["Out"], made["SequenceNum"]


def _without(helper: LayerHelper, tokens: Sequence[int], *inputs: Variable) -> list[Variable]:
    """Variables' sequences with some tokens removed."""
    dtypes, attrs = {"Out": "int64"}, {"tokens": list(tokens)}
    return [
        add_outputs(helper, {"X": ids}, dtypes, attrs, op_type="sequence_erase")["Out"]
        for ids in inputs
    ]
