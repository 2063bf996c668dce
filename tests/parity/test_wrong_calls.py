"""Wrong calls of layers are refused where the real Paddle refuses them, and change nothing.

tests/fixtures/record_wrong_calls.py records what Paddle makes of them. What dpexec refuses
earlier is fine: it finds mistakes when a layer is called that Paddle finds when it runs.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import wrong_api_calls, wrong_calls

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "wrong_calls.json").read_text())
OUTCOMES = {tuple(entry[:3]): entry[3:] for entry in RECORDED}
LAYERS = sorted({mistake[0].split("(")[0] for mistake in OUTCOMES})

STRICTER = """
collect_fpn_proposals.multi_scores: another dimension
detection_output.nms_threshold: None
dynamic_gru.candidate_activation: empty
edit_distance.input_length: a list
fsp_matrix.y: more rows
full_like.device: a list
generate_proposals.variances: a wider one
hsigmoid.label: a wider one
im2sequence.stride: a list
mean_iou.label: more rows
one_hot.input: another dimension
pool3d.input: a list of it
prroi_pool.input: a list of it
uniform_random.dtype: None
""".strip().splitlines()
"""Nonsense, or garbage numbers, that the original computes with; dpexec names what is wrong."""

OTHER_CLASSES = """
affine_grid.out_shape: None in it
box_coder.target_box: None
elementwise_add.x: None
gelu.x: a number
im2sequence.stride: None in it
image_resize.input: an array
image_resize_short.input: an array
margin_rank_loss.right: None
matmul.transpose_y: 1
pool2d.input: an array
sequence_pool.input: float64
slice.axes: None in it
unfold.dilations: a string
unfold.strides: a half
""".strip().splitlines()
"""Refused by both: dpexec raises TypeError for what is no variable, EnforceNotMet for shapes."""

DEVIATIONS = {*STRICTER, *OTHER_CLASSES}

PLAIN = ("of NumPy", "a tuple", "an array")
"""What stands for a number or a list of Python; some layers of the original refuse it."""


def of(layer):
    return [m for m in OUTCOMES if m[0].split("(")[0] == layer]


@pytest.mark.parametrize("layer", LAYERS)
def test_outcome_is_the_recorded_one(layer):
    wrong = []
    for mistake in of(layer):
        stage, name = OUTCOMES[mistake]
        if "{}.{}: {}".format(layer, *mistake[1:]) in DEVIATIONS:
            continue
        found, error = wrong_calls.make(fluid, mistake)
        if mistake[2] in PLAIN and not found:
            continue
        kinds = {kind.__name__ for kind in type(error).__mro__}
        sooner = (stage, found) == ("run", "build")
        if (found, bool(stage)) != (stage, bool(found)) and not sooner:
            wrong.append(f"{mistake}: {found or 'accepted'} {error!r:.150}, not {stage} {name}")
        elif name and not sooner and name not in kinds:
            wrong.append(f"{mistake}: {error!r:.150}, not {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", LAYERS)
def test_refused_call_leaves_no_traces(layer):
    for mistake in of(layer):
        seen = []
        wrong_calls.make(fluid, mistake, False, lambda *states, seen=seen: seen.extend(states))
        assert seen[:1] == seen[1:], mistake


APIS = json.loads((Path(__file__).parents[1] / "fixtures" / "wrong_api_calls.json").read_text())
PATHS = sorted({entry[0].split("(")[0] for entry in APIS})
OTHER_APIS = """
ParallelExecutor.loss_name: a list of it
WeightNormParamAttr.regularizer: a number
initializer.MSRA.uniform: a list of it
io.firstn.n: no numbers
io.load_inference_model.dirname: empty
io.load_program_state.model_path: bool
lods.array: a number
metrics.Auc.name: an object
nets.simple_img_conv_pool.pool_size: 0
one_hot.depth: 0
optimizer.Momentum.use_nesterov: a list of it
""".strip().splitlines()
"""Nonsense that the original takes."""

OTHER_API_CLASSES = """
Executor.run.program: a list
initializer.Normal.scale: no numbers
initializer.TruncatedNormal.scale: a string
samples.reader: a dict
""".strip().splitlines()
"""Refused by both: dpexec says TypeError or ValueError, the original whatever comes of it."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PATHS)
def test_outcome_of_other_calls_is_the_recorded_one(path):
    for *mistake, stage, name in APIS:
        key = "{}.{}: {}".format(path, *mistake[1:])
        if mistake[0].split("(")[0] != path or key in {*OTHER_APIS, *OTHER_API_CLASSES}:
            continue
        found, error = wrong_api_calls.make(fluid, tuple(mistake))
        if mistake[2] in PLAIN and not found:
            continue
        assert bool(found) == bool(stage), (mistake, error)
        assert (found, stage) != ("run", "build"), (mistake, error)
        if stage == found:
            assert name in {kind.__name__ for kind in type(error).__mro__} | {None}, (
                mistake,
                error,
            )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: fluid.layers.concat([x, x], axis=n(1)),
        lambda x, n: fluid.layers.split(x, [n(1), n(3)], dim=n(1)),
        lambda x, n: fluid.layers.tril(x, diagonal=n(1)),
        lambda x, n: fluid.layers.fill_constant([n(2), 3], "float32", n(1)),
        lambda x, n: fluid.layers.conv2d(fluid.data("i", [1, 2, 4, 4]), n(2), n(3), stride=n(1)),
        lambda x, n: fluid.layers.unfold(fluid.data("i", [1, 2, 4, 4]), (n(2), n(2))),
        lambda x, n: fluid.layers.roll(x, n(1), n(0)),
        lambda x, n: fluid.layers.fc(x, n(3)),
    ],
)
def test_numbers_of_numpy_are_numbers(call):
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        call(fluid.data("x", [4, 4]), np.int64)
        of_numpy = wrong_calls.content(fluid)
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        call(fluid.data("x", [4, 4]), int)
        assert wrong_calls.content(fluid) == of_numpy


def test_fractions_are_no_sizes():
    x = fluid.data("x", [4, 4])
    with pytest.raises(TypeError, match=r"a dimension in the shape of variable fc_0.w_0 must be"):
        fluid.layers.fc(x, 3.5)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"attribute starts must be a list"):
        fluid.layers.slice(x, [0], [0.5], [2])


@pytest.mark.parametrize("name", [3, ["a"], b"a", False])
def test_names_are_strings(name):
    x = fluid.data("x", [4, 4])
    layers = fluid.layers
    for layer in (layers.relu, layers.mean, layers.softmax):
        with pytest.raises(TypeError, match=r"'name' in \w+ must be str or None"):
            layer(x, name=name)
    with pytest.raises(TypeError, match="'name'"):
        layers.create_global_var([1], 1.0, "float32", name=name)


def test_arguments_of_variables_have_the_types_of_paddle():
    block = fluid.default_main_program().global_block()
    wrong = {
        "name": 3,
        "shape": [2.0],
        "dtype": 3,
        "lod_level": "1",
        "persistable": "yes",
        "need_check_feed": [True],
        "type": 3,
    }
    for argument, value in wrong.items():
        with pytest.raises(TypeError):
            block.create_var(**{argument: value})
    assert not block.vars
    assert block.create_var(name=b"made", shape=np.array([2, 3]), persistable=1).persistable is True
    assert fluid.data(b"fed", [2]).name == "fed"


@pytest.mark.parametrize(
    ("call", "attribute"),
    [
        (lambda x: fluid.layers.argmax(x, axis=None), "axis"),
        (lambda x: fluid.layers.clip(x, None, 1.0), "min"),
        (lambda x: fluid.layers.huber_loss(x, x, None), "delta"),
        (lambda x: fluid.layers.group_norm(x, None), "groups"),
    ],
)
def test_what_paddle_requires_is_required(call, attribute):
    with pytest.raises(fluid.core.EnforceNotMet, match=f"attribute {attribute} is required"):
        call(fluid.data("x", [2, 4, 3, 3]))
