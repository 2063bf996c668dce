"""Beam search on sentences stored as LoD sequences: one step, and collecting the results."""

from __future__ import annotations

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["beam_search", "beam_search_decode"]


def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """One step of a beam search: the best continuations of each sentence.

    Args:
        pre_ids: tokens chosen by the previous step, int64 ``(beams, 1)``. A beam ends with
            ``end_id``.
        pre_scores: scores of ``pre_ids``, ``(beams, 1)``.
        ids: candidates of each beam, int64 ``(beams, K)``; None: 0 to K - 1.
        scores: scores of the candidates, ``(beams, K)``, with two levels of sequences: the beams of
            each sentence, and (as :func:`beam_search` returns them) the beams chosen from each
            beam.
        beam_size: largest number of beams per sentence.
        end_id: the token that ends a beam. A sentence is dropped when all its beams have ended.
        level: level of sequences that holds the beams of each sentence.
        is_accumulated: whether ``scores`` are scores of whole beams. Otherwise they are
            probabilities, and their logarithms are added to ``pre_scores``.
        name: prefix of names.
        return_parent_idx: also return the beam that each token continues.

    Returns:
        Chosen tokens and their scores, ``(n, 1)``, both sequences of two levels: the beams of each
        sentence, and the tokens chosen for each beam. With ``return_parent_idx`` the numbers of
        the beams, int32 ``(n,)``, too. Source: Paddle op ``beam_search``.

    Raises:
        TypeError: ``pre_ids`` is no variable of type int64; ``pre_scores`` or ``scores`` is no
            variable of type float32 or float64.
        EnforceNotMet: ``ids`` and ``scores`` do not have the same shape.

    See Also:
        :func:`beam_search_decode`: its sentences.
        :func:`dynamic_decode`: a whole search, with a decoder.
        :class:`BeamSearchDecoder`: the decoder that searches.
        :func:`gather_tree`: follows the parents of beams.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     ids = fluid.data("ids", [None, 1], "int64", lod_level=2)
        ...     before = fluid.data("before", [None, 1], lod_level=2)
        ...     scores = fluid.data("scores", [None, 3], lod_level=2)  # of words 0, 1 and 2
        ...     best = fluid.layers.beam_search(
        ...         ids, before, None, scores, beam_size=2, end_id=0, return_parent_idx=True
        ...     )
        ...     def fed(rows, kind):
        ...         two_beams = [[2], [1, 1]]  # of one sentence
        ...         rows = np.array(rows, kind)
        ...         return fluid.create_lod_tensor(rows, two_beams, fluid.CPUPlace())
        ...     feed = {"ids": fed([[1], [2]], "int64"), "before": fed([[-1], [-2]], "float32")}
        ...     feed["scores"] = fed([[-9, -1.1, -1.3], [-9, -2.4, -2.1]], "float32")
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     found = exe.run(feed=feed, fetch_list=list(best), return_numpy=False)
        >>> [np.array(value).tolist() for value in found]  # both continue beam 0
        [[[1], [2]], [[-1.100000023841858], [-1.2999999523162842]], [0, 0]]
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ("int64",), "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", SINGLE_DOUBLE, "beam_search")
    check_type(ids, "ids", (Variable, type(None)), "beam_search")
    check_variable_and_dtype(scores, "scores", SINGLE_DOUBLE, "beam_search")
    helper = LayerHelper("beam_search", name=name)
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "scores": scores, "ids": ids}
    dtypes = {
        "selected_scores": pre_scores.dtype,
        "selected_ids": pre_ids.dtype,
        "parent_idx": "int32",
    }
    attrs = {
        "level": level,
        "beam_size": beam_size,
        "end_id": end_id,
        "is_accumulated": is_accumulated,
    }
    made = add_outputs(helper, inputs, dtypes, attrs)
    selected = made["selected_ids"], made["selected_scores"]
    return (*selected, made["parent_idx"]) if return_parent_idx else selected


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Whole sentences from the steps of a beam search.

    Args:
        ids: array of the tokens that :func:`beam_search` chose in every step.
        scores: array of their scores.
        beam_size: largest number of sentences per source.
        end_id: the token that ends a sentence.
        name: prefix of names.

    Returns:
        Tokens and their scores, one-dimensional, both sequences of two levels: the sentences of
        each source, best ones first, and the tokens of each sentence. Source: Paddle op
        ``beam_search_decode``.

    Raises:
        TypeError: ``ids`` is no variable of type int64; ``scores`` is no variable of type float32
            or float64.
        EnforceNotMet: ``ids`` or ``scores`` is no array of variables.

    See Also:
        :func:`beam_search`: one step of a search.
        :func:`dynamic_decode`: a whole search, with a decoder.
        :class:`BeamSearchDecoder`: the decoder that searches.
        :func:`gather_tree`: follows the parents of beams.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> layers, place = fluid.layers, fluid.CPUPlace()
        >>> with fluid.program_guard(fluid.Program()):
        ...     ids, scores, feed = layers.create_array("int64"), layers.create_array("float32"), {}
        ...     # a start (5), two words after it, and an end (0) after each of these
        ...     steps = [([5], [[1], [1]]), ([1, 2], [[1], [2]]), ([0, 0], [[2], [1, 1]])]
        ...     for number, (words, lengths) in enumerate(steps):
        ...         at = layers.fill_constant([1], "int64", number)
        ...         for array, kind in (ids, "int64"), (scores, "float32"):
        ...             name = f"{kind}_{number}"
        ...             fed = fluid.data(name, [None, 1], kind, lod_level=2)
        ...             _ = layers.array_write(fed, at, array)
        ...             rows = np.array(words, kind).reshape(-1, 1)
        ...             feed[name] = fluid.create_lod_tensor(rows, lengths, place)
        ...     found, _ = layers.beam_search_decode(ids, scores, beam_size=2, end_id=0)
        ...     exe = fluid.Executor(place)
        ...     (sentences,) = exe.run(feed=feed, fetch_list=[found], return_numpy=False)
        >>> np.array(sentences).tolist(), sentences.recursive_sequence_lengths()
        ([5, 1, 0, 5, 2, 0], [[2], [3, 3]])
    """
    check_variable_and_dtype(ids, "ids", ("int64",), "beam_search_decode")
    check_variable_and_dtype(scores, "scores", SINGLE_DOUBLE, "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    inputs = {"Ids": ids, "Scores": scores}
    dtypes = {"SentenceIds": ids.dtype, "SentenceScores": scores.dtype}
    made = add_outputs(helper, inputs, dtypes, {"beam_size": beam_size, "end_id": end_id})
    return made["SentenceIds"], made["SentenceScores"]
