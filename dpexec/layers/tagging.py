"""Sequence tagging: conditional random fields, and evaluation of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["chunk_eval", "crf_decoding", "linear_chain_crf"]


def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """The loss of a linear-chain conditional random field.

    Args:
        input: scores of tags in rows, ``(rows, tags)`` with one level of sequences, or
            ``(N, T, tags)`` with ``length``.
        label: the right tags, int64 ``(rows, 1)``, or ``(N, T)`` or ``(N, T, 1)`` with ``length``.
        param_attr: attributes of the parameter ``(tags + 2, tags)``: scores of tags at the start
            (row 0), at the end (row 1), and after each tag; :func:`crf_decoding` uses its name.
        length: lengths of padded sequences, int64 ``(N, 1)`` or ``(N,)``.

    Returns:
        The negative log likelihood of the tags, ``(sequences, 1)``. Source: Paddle op
        ``linear_chain_crf``; Lafferty, McCallum, Pereira, 2001.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64; ``label`` is no variable of
            type int64.
        EnforceNotMet: ``label`` or ``length`` does not fit ``input``.

    See Also:
        :func:`crf_decoding`: its best tags.
        :func:`chunk_eval`: precision and recall of the chunks that tags mark.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 8], lod_level=1)
        ...     tags = fluid.data("tags", [None, 1], dtype="int64", lod_level=1)
        ...     scores = fluid.layers.fc(words, 5)
        ...     attr = fluid.ParamAttr(name="transitions")
        ...     loss = fluid.layers.mean(fluid.layers.linear_chain_crf(scores, tags, attr))
        ...     fluid.layers.crf_decoding(scores, attr).shape
        (-1, 1)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "linear_chain_crf")
    check_variable_and_dtype(label, "label", ("int64",), "linear_chain_crf")
    check_type(length, "length", (Variable, str, type(None)), "linear_chain_crf")
    helper = LayerHelper("linear_chain_crf", param_attr=param_attr)
    tags = input.shape[1 if length is None else 2]
    transition = helper.create_parameter(helper.param_attr, [tags + 2, tags], input.dtype)
    slots = ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return add_outputs(helper, inputs, dict.fromkeys(slots, input.dtype))["LogLikelihood"]


def crf_decoding(
    input: Variable,
    param_attr: Any,
    label: Variable | None = None,
    length: Variable | None = None,
) -> Variable:
    """The most probable tags of sequences (Viterbi).

    Args:
        input: as for :func:`linear_chain_crf`.
        param_attr: a ParamAttr with the name of the parameter that :func:`linear_chain_crf` made.
        label: the right tags, int64; None if they are not known.
        length: as for :func:`linear_chain_crf`.

    Returns:
        int64 ``(rows, 1)``, or ``(N, T)`` with ``length``: the tags; with ``label`` 1 for right
        tags and 0 for wrong ones. Source: Paddle op ``crf_decoding``.

    Raises:
        ValueError: there is no such parameter.

    See Also:
        :func:`linear_chain_crf`: the loss of a conditional random field.
        :func:`chunk_eval`: precision and recall of the chunks that tags mark.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     scores = fluid.data("scores", [None, 3, 2])
        ...     length = fluid.data("length", [None], "int64")
        ...     zeros = fluid.ParamAttr("transitions", fluid.initializer.Constant(0.0))
        ...     _ = fluid.layers.create_parameter([4, 2], "float32", attr=zeros)
        ...     path = fluid.layers.crf_decoding(scores, zeros, length=length)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     found = np.array([[[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]], "float32")
        ...     exe.run(main, feed={"scores": found, "length": np.array([3])}, fetch_list=[path])
        [array([[1, 0, 1]])]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "crf_decoding")
    helper = LayerHelper("crf_decoding")
    transition = helper.get_parameter(param_attr.name)
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return add_outputs(helper, inputs, {"ViterbiPath": "int64"})["ViterbiPath"]


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, Variable, Variable, Variable, Variable, Variable]:
    """Precision, recall and F1 score of chunks of words, such as names.

    Args:
        input: tags that were found, int64 ``(rows, 1)`` with one level of sequences, or ``(N, T)``
            with ``seq_length``. A tag is the kind of chunk times the number of the scheme's places,
            plus the place; the largest tag is for words outside of chunks.
        label: the right tags, in the same form.
        chunk_scheme: ``IOB`` (places begin, inside), ``IOE`` (inside, end), ``IOBES`` (begin,
            inside, end, single) or ``plain`` (one place).
        num_chunk_types: kinds of chunks.
        excluded_chunk_types: kinds of chunks that are not counted.
        seq_length: lengths of padded sequences, int64.

    Returns:
        Precision, recall, F1 score, float32 ``(1,)``; numbers of predicted, true, and correctly
        predicted chunks, int64 ``(1,)``, as for ``metrics.ChunkEvaluator``. Source: Paddle op
        ``chunk_eval``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type int64.
        EnforceNotMet: ``input`` and ``label`` have different shapes, or ``chunk_scheme`` is
            unknown.

    See Also:
        :class:`~dpexec.metrics.ChunkEvaluator`: over many batches.
        :func:`linear_chain_crf`: the loss of a conditional random field.
        :func:`crf_decoding`: its best tags.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     guess, truth = (fluid.data(name, [1, 4], "int64") for name in ("guess", "truth"))
        ...     length = fluid.layers.assign(np.array([4], "int64"))
        ...     found = fluid.layers.chunk_eval(guess, truth, "IOB", 1, seq_length=length)
        ...     feed = {"guess": np.array([[0, 1, 2, 0]]), "truth": np.array([[0, 1, 2, 2]])}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(found[:2]))
        [array([0.5], dtype=float32), array([1.], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", ("int64",), "chunk_eval")
    check_variable_and_dtype(label, "label", ("int64",), "chunk_eval")
    dtypes = {
        **dict.fromkeys(("Precision", "Recall", "F1-Score"), "float32"),
        **dict.fromkeys(("NumInferChunks", "NumLabelChunks", "NumCorrectChunks"), "int64"),
    }
    inputs = {"Inference": input, "Label": label, "SeqLength": seq_length}
    attrs = {
        "num_chunk_types": num_chunk_types,
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or []),
    }
    made = add_outputs(LayerHelper("chunk_eval"), inputs, dtypes, attrs)
    precision, recall, f1, found, labelled, right = made.values()
    return precision, recall, f1, found, labelled, right
