"""Beam search on sentences that lie one after another: a step of it, and what it found."""

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
    """The best ways to go on with each sentence; a step of a beam search.

    Args:
        pre_ids: tokens that the step before chose, int64 ``(beams, 1)``. Those that are ``end_id``
            end their beam.
        pre_scores: their scores, ``(beams, 1)``.
        ids: candidates of each beam, int64 ``(beams, K)``; None: 0 to K - 1.
        scores: of the candidates, ``(beams, K)``, sequences of two levels: the beams of each
            sentence, and (as :func:`beam_search` gives them) what each beam was chosen from.
        beam_size: how many beams a sentence may have.
        end_id: the token that ends a sentence. One of which all beams have ended is dropped.
        level: of the sequences, the one with the beams of each sentence.
        is_accumulated: whether ``scores`` are those of whole beams; otherwise they are
            probabilities, whose logarithms are added to ``pre_scores``.
        name: prefix of names.
        return_parent_idx: also return the beam that each token goes on from.

    Returns:
        Chosen tokens and their scores, ``(n, 1)``, both sequences of two levels: the beams of each
        sentence, and the tokens chosen for each beam. With ``return_parent_idx`` the numbers of
        the beams, int32 ``(n,)``, too. Source: Paddle op ``beam_search``.
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
        ids: array of what :func:`beam_search` chose in every step.
        scores: array of the scores that go with it.
        beam_size: how many sentences a source may have.
        end_id: the token that ends a sentence.
        name: prefix of names.

    Returns:
        Tokens and their scores, one-dimensional, both sequences of two levels: the sentences of
        each source, best ones first, and the tokens of each sentence. Source: Paddle op
        ``beam_search_decode``.
    """
    check_variable_and_dtype(ids, "ids", ("int64",), "beam_search_decode")
    check_variable_and_dtype(scores, "scores", SINGLE_DOUBLE, "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    inputs = {"Ids": ids, "Scores": scores}
    dtypes = {"SentenceIds": ids.dtype, "SentenceScores": scores.dtype}
    made = add_outputs(helper, inputs, dtypes, {"beam_size": beam_size, "end_id": end_id})
    return made["SentenceIds"], made["SentenceScores"]
