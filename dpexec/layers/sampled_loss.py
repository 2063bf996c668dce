"""Losses over many classes (sampled, hierarchical), and losses with state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import SINGLE_DOUBLE, check_choice, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant, NumpyArrayInitializer
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.param_attr import ParamAttr

__all__ = ["center_loss", "hsigmoid", "nce", "sampled_softmax_with_cross_entropy"]

_SAMPLERS = ("uniform", "log_uniform", "custom_dist")


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise-contrastive estimation: discriminate the true class from a few random ones.

    Args:
        input: features ``(N, D)``.
        label: true classes, int64 ``(N, classes per sample)``.
        num_total_classes: number of classes.
        sample_weight: weights of the samples ``(N, 1)``.
        param_attr: attributes of the weight ``(num_total_classes, D)``.
        bias_attr: attributes of the bias ``(num_total_classes, 1)``; False for none.
        num_neg_samples: number of random classes per sample; None for 10.
        name: prefix of names.
        sampler: ``"uniform"``, ``"log_uniform"`` (low numbers more often) or ``"custom_dist"``.
        custom_dist: the probability of every class, for ``"custom_dist"``.
        seed: any number but 0 draws the same classes in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.
        is_sparse: make the weight's gradient sparse: it holds only the rows that were used.

    Returns:
        Losses ``(N, 1)``, divided by ``num_neg_samples + 1``. Source: Paddle op ``nce``; Gutmann,
        Hyvarinen, 2010.

    Raises:
        ValueError: there is no such sampler.

    See Also:
        :func:`hsigmoid`: for very many classes: a tree of them.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8])
        ...     y = fluid.data("y", [None, 1], "int64")
        ...     fluid.layers.nce(x, y, num_total_classes=100, num_neg_samples=5).shape
        (-1, 1)
    """
    helper = LayerHelper("nce", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "nce")
    check_variable_and_dtype(label, "label", ("int64",), "nce")
    check_choice(sampler, "sampler", _SAMPLERS, "nce")
    shape = [num_total_classes, input.shape[1]]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    inputs = {"Input": input, "Label": label, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(
            helper.bias_attr, [num_total_classes, 1], input.dtype, is_bias=True
        )
    if sample_weight is not None:
        inputs["SampleWeight"] = sample_weight
    if sampler == "custom_dist":
        if custom_dist is None:
            raise AssertionError("sampler 'custom_dist' of nce needs custom_dist")
        inputs |= _custom_inputs(helper, custom_dist, num_total_classes)
    noises = 10 if num_neg_samples is None else int(num_neg_samples)
    attrs = {
        "num_total_classes": int(num_total_classes),
        "num_neg_samples": noises,
        "seed": seed,
        "sampler": _SAMPLERS.index(sampler),
        "is_sparse": is_sparse,
        "remote_prefetch": is_sparse,
    }
    dtypes = {"Cost": input.dtype, "SampleLogits": input.dtype, "SampleLabels": label.dtype}
    return add_outputs(helper, inputs, dtypes, attrs)["Cost"] / (noises + 1)


def _custom_inputs(helper: LayerHelper, odds: Sequence[float], classes: int) -> dict[str, Variable]:
    """Parameters that hold a distribution and its alias table."""
    alias, stays = alias_table([odds[i] * classes for i in range(classes)])
    arrays = {
        "CustomDistProbs": np.array(odds, dtype=np.float32),
        "CustomDistAlias": np.array(alias, dtype=np.int32),
        "CustomDistAliasProbs": np.array(stays, dtype=np.float32),
    }
    made = {}
    for slot, array in arrays.items():
        made[slot] = helper.create_parameter(
            ParamAttr(),
            array.shape,
            str(array.dtype),
            default_initializer=NumpyArrayInitializer(array),
        )
        made[slot].stop_gradient = True
    return made


def alias_table(shares: Sequence[float]) -> tuple[list[int], list[float]]:
    """The alias table for drawing from a distribution (Walker, 1977).

    Args:
        shares: probabilities times their number, so that their mean is 1.

    Returns:
        For each class its alias (-1 for none), and the probability of not using the alias.
    """
    alias, stays = [-1] * len(shares), [1.0] * len(shares)
    rich = [(i, share) for i, share in enumerate(shares) if share > 1]
    poor = [(i, share) for i, share in enumerate(shares) if share < 1]
    while rich and poor:
        (giver, much), (taker, little) = rich.pop(0), poor.pop(0)
        alias[taker], stays[taker] = giver, little
        left = much + little - 1
        if left > 1:
            rich.append((giver, left))
        elif left < 1:
            poor.append((giver, left))
    return alias, stays


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Hierarchical sigmoid: the loss of the decisions on the path to the label in a tree.

    Args:
        input: features ``(N, D)``.
        label: classes, int64 ``(N, 1)``.
        num_classes: number of classes; with ``is_custom``, number of inner nodes.
        param_attr: attributes of the weight, a row for each inner node.
        bias_attr: attributes of the bias; False for none.
        name: prefix of names.
        path_table: with ``is_custom``: nodes from the root to the label per sample, int64 ``(N,
            depth)``, padded with -1.
        path_code: with ``is_custom``: decisions at these nodes, 0 or 1.
        is_custom: use the given tree instead of a complete binary one.
        is_sparse: with ``is_custom``: make the weight's gradient sparse, holding only visited
            nodes.

    Returns:
        Losses ``(N, 1)``. As in Paddle, a path that is shorter than the longest one of the tree
        adds ``log(2)`` for each missing node; gradients do not change by that. Source: Paddle op
        ``hierarchical_sigmoid``; Morin, Bengio, 2005.

    Raises:
        ValueError: an argument for the kind of tree is missing, or belongs to the other kind.

    See Also:
        :func:`nce`: for very many classes: noise-contrastive estimation.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8])
        ...     y = fluid.data("y", [None, 1], "int64")
        ...     fluid.layers.hsigmoid(x, y, num_classes=10).shape
        (-1, 1)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "hsigmoid")
    check_variable_and_dtype(label, "label", ("int64",), "hsigmoid")
    helper = LayerHelper(
        "hierarchical_sigmoid", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name
    )
    paths = {"PathTable": path_table, "PathCode": path_code}
    if is_custom and (None in (path_table, path_code) or num_classes is None):
        raise ValueError("hsigmoid with is_custom needs path_table, path_code and num_classes")
    if not is_custom and (num_classes is None or num_classes < 2):
        raise ValueError("hsigmoid needs num_classes of at least 2, or a tree of its own")
    if not is_custom and (path_table is not None or path_code is not None):
        raise ValueError("path_table and path_code of hsigmoid need is_custom")
    dtype, nodes = input.dtype, num_classes if is_custom else num_classes - 1
    out = helper.create_variable_for_type_inference(dtype)
    decisions = helper.create_variable_for_type_inference(dtype)
    weight = helper.create_parameter(helper.param_attr, [nodes, input.shape[1]], dtype)
    inputs = {"X": input, "W": weight, **(paths if is_custom else {}), "Label": label}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [nodes, 1], dtype, is_bias=True)
    is_sparse = is_sparse and is_custom
    helper.append_op(
        type="hierarchical_sigmoid",
        inputs=inputs,
        outputs={"Out": out, "PreOut": decisions, "W_Out": weight},
        attrs={
            "num_classes": num_classes,
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        },
    )
    return out


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Cross entropy of a softmax over the true class and a few random ones.

    Args:
        logits: scores ``(N, classes)``.
        label: true classes, int64 ``(N, num_true)``.
        num_samples: number of classes drawn for the batch; low numbers are drawn more often.
        num_true: number of true classes per sample.
        remove_accidental_hits: exclude drawn classes that are true ones.
        use_customized_samples: use the given classes instead of drawing them.
        customized_samples: true and other classes, int64 ``(N, num_true + num_samples)``.
        customized_probabilities: the probability with which each class was drawn.
        seed: any number but 0 draws the same classes in every run; 0 draws new ones each time,
            even if the program has a ``random_seed``.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``sample_logits``; Jean and others, 2015.

    Raises:
        TypeError: ``logits`` or ``label`` is no variable, or customized samples are missing.
        EnforceNotMet: ``label`` does not fit, or ``num_samples`` exceeds the number of classes.

    See Also:
        :func:`cross_entropy`: from probabilities.
        :func:`softmax_with_cross_entropy`: from scores, in one exact operator.
        :func:`sigmoid_cross_entropy_with_logits`: for several labels per row.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     scores = fluid.data("scores", [None, 50000])
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     loss = fluid.layers.sampled_softmax_with_cross_entropy(scores, label, 100)
        ...     loss.shape
        (-1, 1)
    """
    customized = {"Samples": customized_samples, "Probabilities": customized_probabilities}
    for slot, variable in customized.items():
        kinds = (Variable, str, type(None))
        check_type(variable, f"customized_{slot.lower()}", kinds, "sample_logits")
    helper = LayerHelper("sample_logits")
    inputs, made = {"Logits": logits, "Labels": label}, {}
    dtypes: dict[str, Any] = {"Samples": "int64", "Probabilities": logits.dtype}
    if use_customized_samples:
        for slot, variable in customized.items():
            check_type(variable, f"customized_{slot.lower()}", Variable, "sample_logits")
            inputs[f"Customized{slot}"] = made[slot] = variable  # type: ignore[assignment]
        dtypes = {}
    dtypes |= {"SampledLogits": logits.dtype, "SampledLabels": "int64", "one_hot": logits.dtype}
    dtypes |= {"LogitsDim": logits.dtype, "LabelsDim": label.dtype}
    made |= {slot: helper.create_variable_for_type_inference(of) for slot, of in dtypes.items()}
    soft = made.pop("one_hot")
    attrs = {
        "use_customized_samples": use_customized_samples,
        "uniq": True,
        "remove_accidental_hits": remove_accidental_hits,
        "num_samples": num_samples,
        "seed": seed,
    }
    helper.append_op(type="sample_logits", inputs=inputs, outputs=made, attrs=attrs)
    helper.append_op(
        type="one_hot",
        inputs={"X": made["SampledLabels"]},
        outputs={"Out": soft},
        attrs={"depth": num_samples + 1},
    )
    found = add_outputs(
        helper,
        {"Logits": made["SampledLogits"], "Label": soft},
        dict.fromkeys(("Loss", "Softmax"), logits.dtype),
        {"soft_label": True, "ignore_index": 0, "numeric_stable_mode": False},
        op_type="softmax_with_cross_entropy",
    )
    return found["Loss"] / num_true


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: float | Variable,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Half the squared distance of features from the center of their class.

    Args:
        input: features ``(N, D)``.
        label: classes, int64 ``(N, 1)``.
        num_classes: number of classes.
        alpha: update rate of the centers; a number or a one-element variable.
        param_attr: attributes of the centers ``(num_classes, D)``.
        update_center: whether to update the centers.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``center_loss``; Wen and others, 2016.

    Raises:
        TypeError: ``input`` is no variable, or ``alpha`` neither a number nor a variable.
        EnforceNotMet: ``label`` is not of integers.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     features = fluid.data("features", [None, 8])
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     fluid.layers.center_loss(features, label, 10, alpha=0.1, param_attr=None).shape
        (-1, 1)
    """
    check_type(label, "label", (Variable, str), "center_loss")
    helper = LayerHelper("center_loss", input=input)
    dtype = helper.input_dtype()
    centers = helper.create_parameter(param_attr, [num_classes, input.shape[1]], dtype)
    centers.stop_gradient = True
    check_type(alpha, "alpha", (float, Variable), "center_loss")
    rate = alpha
    if not isinstance(rate, Variable):
        rate = helper.create_variable(
            name="centerloss_alpha",
            shape=[1],
            dtype="float32",
            persistable=True,
            stop_gradient=True,
            initializer=Constant(rate),
        )
    difference = helper.create_variable_for_type_inference(dtype)
    loss = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="center_loss",
        inputs={"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": rate},
        outputs={"SampleCenterDiff": difference, "Loss": loss, "CentersOut": centers},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss
