"""Seeded random tensors have the bits of the real Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec.engine.ops
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from dpexec.engine.ops import _distributions

assert dpexec.engine.ops  # registers the operators

RECORDED = [
    (
        "uniform_random",
        {"shape": [2, 3], "min": -0.5, "max": 0.25, "seed": 3},
        [-0.499949425, -0.308676988, 0.103043377, 0.00612539053, 0.177900314, -0.0731980205],
    ),
    (
        "uniform_random",
        {"shape": [4], "min": -0.9258201, "max": 0.9258201, "seed": 90},
        [-0.922074199, 0.283153653, -0.700411677, -0.47214061],
    ),
    (
        "uniform_random",
        {"shape": [3], "seed": -5},
        [0.999865174, 0.489805341, -0.608115673],
    ),
    (
        "uniform_random",
        {"shape": [3], "seed": 2147483647},
        [-0.999955058, -0.829935074, 0.202705264],
    ),
    (
        "uniform_random",
        {"shape": [3, 2], "seed": 7, "diag_num": 2, "diag_step": 2, "diag_val": 9.0},
        [9.0, 0.19045424, -0.5810635, 9.0, 0.5513798, -0.3443432],
    ),
    (
        "gaussian_random",
        {"shape": [3, 3], "seed": 7},
        [
            *(-0.66629976, -0.748223722, -0.695240915, 1.11325502, 1.32174134),
            *(0.484373003, -0.422531486, 0.486795723, 0.676673234),
        ],
    ),
    (
        "gaussian_random",
        {"shape": [5], "mean": 0.3, "std": 0.02, "seed": 123},
        [0.299847364, 0.298149198, 0.301250726, 0.303468138, 0.296606511],
    ),
    (
        "gaussian_random",
        {"shape": [4], "std": 2.5, "seed": 2147483646},
        [-2.22832537, -0.576711118, 6.21636105, -0.912772119],
    ),
    (
        "truncated_gaussian_random",
        {"shape": [2, 4], "seed": 1},
        [
            *(-1.9996016, -1.25956285, 0.244920671, 1.14450479),
            *(1.61333048, -0.828092873, 0.0358385369, -0.246496394),
        ],
    ),
    (
        "truncated_gaussian_random",
        {"shape": [5], "mean": 0.3, "std": 0.02, "seed": 99999999},
        [0.315458775, 0.317879498, 0.326914757, 0.316943049, 0.285959333],
    ),
]


def draw(type, attrs, rng=None):
    definition = opdef.get(type)
    arguments = [[] if slot.many else None for slot in definition.inputs]
    keywords = definition.kernel_attrs(attrs)
    return definition(np, *arguments, rng=rng or RandomStream(1, 2, 3), **keywords)


@pytest.mark.parametrize(("type", "attrs", "expected"), RECORDED)
def test_seeded_numbers_equal_those_of_paddle(type, attrs, expected):
    found = draw(type, attrs)
    assert found.dtype == np.float32
    assert found.shape == tuple(attrs["shape"])
    np.testing.assert_array_equal(found.reshape(-1), np.array(expected, dtype=np.float32))


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (
            1,
            {
                108: -0.180521905,
                109: 0.0265165213,
                1272: -0.235525817,
                1273: -0.0505887829,
                11967: -1.51952887,
            },
        ),
        (
            123,
            {
                100: -0.00228478946,
                101: 0.168280989,
                3142: 0.0226680022,
                3143: -0.185770079,
                7142: 0.778644681,
                7143: 0.832046032,
            },
        ),
    ],
)
def test_normal_numbers_where_only_glibcs_logarithm_has_the_right_last_bit(seed, expected):
    found = draw("gaussian_random", {"shape": [20001], "seed": seed})
    for position, value in expected.items():
        assert found[position] == np.float32(value), position


def test_logarithm_is_right_to_the_last_bit_but_one():
    x = np.random.default_rng(0).uniform(1e-30, 1.0, 10000).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    error = np.abs(_distributions._log_float32(x) - exact)
    assert (error <= np.abs(np.spacing(exact.astype(np.float32)))).all()


@pytest.mark.parametrize("type", ["uniform_random", "gaussian_random", "truncated_gaussian_random"])
def test_numbers_without_seed_differ_from_run_to_run(type):
    first, again, next_run = (
        draw(type, {"shape": [4, 5]}, RandomStream(seed=11, key=1, run=run)) for run in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != next_run).any()


@pytest.mark.parametrize("type", ["uniform_random", "gaussian_random", "truncated_gaussian_random"])
def test_any_number_of_elements(type):
    for count in (0, 1, 2, 3):
        assert draw(type, {"shape": [count], "seed": 5}).shape == (count,)


def test_distributions_have_their_moments():
    shape = {"shape": [100_000], "seed": 3}
    uniform = draw("uniform_random", {**shape, "min": -1.0, "max": 3.0})
    normal = draw("gaussian_random", {**shape, "mean": 2.0, "std": 0.5})
    truncated = draw("truncated_gaussian_random", shape)
    assert abs(uniform.mean() - 1.0) < 0.02
    assert abs(uniform.var() - 16 / 12) < 0.02
    assert abs(normal.mean() - 2.0) < 0.01
    assert abs(normal.std() - 0.5) < 0.01
    assert abs(truncated).max() <= 2.0
    assert abs(truncated.std() - 0.8796) < 0.01


@pytest.mark.parametrize(
    "type", ["uniform_random_batch_size_like", "gaussian_random_batch_size_like"]
)
def test_devices_together_draw_what_one_device_draws(type):
    definition = opdef.get(type)
    keywords = definition.kernel_attrs({"shape": [-1, 3]})
    parts = [
        definition(np, np.zeros((samples, 1)), rng=RandomStream(4, 5, 6, (first, samples)),
                   **keywords)
        for first, samples in ((0, 6), (0, 4), (4, 2))
    ]  # fmt: skip
    whole, *shards = parts
    assert len(np.unique(whole)) == whole.size
    np.testing.assert_array_equal(np.concatenate(shards), whole)


def test_float64_has_more_digits():
    found = draw("uniform_random", {"shape": [3], "seed": 3, "dtype": 6})
    assert found.dtype == np.float64
    assert (found != found.astype(np.float32)).all()


def test_shape_attribute_must_be_known():
    with pytest.raises(InvalidOp, match=r"\[-1, 3\]"):
        opdef.get("gaussian_random").infer_specs({}, {"shape": [-1, 3]})


def test_batch_size_like_leaves_only_the_batch_unknown():
    infer = opdef.get("uniform_random_batch_size_like").infer_specs
    found = infer({"Input": [Spec((-1, 7))]}, {"shape": [-1, 3]})
    assert found["Out"][0].shape == (-1, 3)
    with pytest.raises(InvalidOp, match="only dimension 0"):
        infer({"Input": [Spec((-1, 7))]}, {"shape": [-1, -1]})


def test_diagonal_must_fit():
    with pytest.raises(InvalidOp, match="diag_num=4"):
        draw("uniform_random", {"shape": [3, 3], "seed": 1, "diag_num": 4, "diag_step": 3})
