"""Labels of losses: out of range, ignored, of a wrong shape."""

import numpy as np
import pytest

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from tests.engine.ops import calls

SCORES = np.full((3, 10), 0.1, np.float32)

assert calls  # registers the operators


def call(type, *inputs, **attrs):
    definition = opdef.get(type)
    return definition(np, *inputs, **{**definition.kernel_attrs({}), **attrs})


HARD = ["cross_entropy", "cross_entropy2", "softmax_with_cross_entropy", "bpr_loss"]


@pytest.mark.parametrize("wrong", [12, 10, -1])
@pytest.mark.parametrize("type", HARD)
def test_label_out_of_range_is_refused_with_value_and_range(type, wrong):
    labels = np.array([[3], [wrong], [0]])
    expected = f"Label value >= 0 and < 10 expected, but got {wrong}"
    with pytest.raises(ValueError, match=expected):
        call(type, SCORES, labels)


@pytest.mark.parametrize("type", HARD[:3])
def test_ignored_label_may_be_out_of_range(type):
    made = call(type, SCORES, np.array([[3], [-1], [0]]), ignore_index=-1)
    loss = made[1] if type.startswith("softmax") else made[0] if type.endswith("2") else made
    np.testing.assert_allclose(loss[:, 0], [np.log(10), 0, np.log(10)], rtol=1e-6)


@pytest.mark.parametrize("type", HARD[:3])
def test_empty_batch_has_no_losses(type):
    made = call(type, SCORES[:0], np.empty((0, 1), np.int64))
    assert (made if type == "cross_entropy" else made[0]).shape[0] == 0


def test_softmax_with_cross_entropy_gives_ignored_rows_no_gradient():
    softmax = SCORES.copy()
    d_loss = np.ones((3, 1), np.float32)
    labels = np.array([[3], [-1], [0]])
    made = call("softmax_with_cross_entropy_grad", softmax, labels, d_loss, ignore_index=-1)
    assert not made[1].any()
    np.testing.assert_allclose(made[0], [0.1] * 3 + [-0.9] + [0.1] * 6, rtol=1e-6)


@pytest.mark.parametrize("type", HARD)
@pytest.mark.parametrize("shape", [(3, 2), (4, 1), (3, 1, 1)])
def test_labels_of_another_shape_are_refused(type, shape):
    specs = {"Label": [Spec(shape, VarType.INT64)], "X": [Spec((3, 10))]}
    specs["Logits"] = specs["X"]
    with pytest.raises(InvalidOp, match=r"Label .* must have the shape \[3, 1\]"):
        opdef.get(type).infer_specs(specs, {})


def test_float_labels_need_soft_label():
    specs = {"Label": [Spec((3, 10))], "X": [Spec((3, 10))]}
    with pytest.raises(InvalidOp, match="soft_label must be set"):
        opdef.get("cross_entropy").infer_specs(specs, {})
    assert opdef.get("cross_entropy").infer_specs(specs, {"soft_label": True})["Y"][0].shape == (
        3,
        1,
    )


def test_cross_entropy_of_an_impossible_class_is_large_but_finite():
    certain = np.array([[1.0, 0.0]], np.float32)
    assert call("cross_entropy", certain, np.array([[1]]))[0, 0] == np.float32(1e20)


def test_softmax_of_far_logits_has_no_denormals():
    made = call("softmax", np.array([[0.0, -300.0, 500.0]], np.float32))
    assert made.min() >= np.finfo(np.float32).tiny


def test_a_target_that_is_no_number_shows_in_kldiv_loss():
    """As in Paddle; its gradient shows it anyway."""
    target = np.array([[np.nan, 0.5, -1.0]])
    terms = opdef.get("kldiv_loss")(np, np.zeros((1, 3)), target, reduction="none")
    np.testing.assert_allclose(terms, [[np.nan, 0.5 * np.log(0.5), 0.0]])


def test_scores_that_are_no_numbers_give_a_loss_that_is_none():
    """A loss of 0 would hide them. Other sequences keep their loss."""
    sample = calls.samples("warpctc")[0]
    call = calls.SampleCall("warpctc", sample, np.float32)
    logits = call.values["Logits_0"].copy()
    logits[0, 0] = np.nan
    expected, found = call.forward()["out_Loss_0"], call.forward(Logits_0=logits)["out_Loss_0"]
    assert np.isnan(found[0]) and not np.isnan(found[1:]).any()
    np.testing.assert_array_equal(found[1:], expected[1:])


def test_features_that_are_infinite_move_the_center_of_their_class_alone():
    sample = calls.samples("center_loss")[0]
    call = calls.SampleCall("center_loss", sample, np.float32)
    x, label = call.values["X_0"].copy(), call.values["Label_0"].ravel()
    x[0, 0] = np.inf
    moved = call.forward(X_0=x)["out_CentersOut_0"]
    assert np.isfinite(np.delete(moved, label[0], axis=0)).all() and np.isinf(moved[label[0], 0])
