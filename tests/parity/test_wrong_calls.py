"""Wrong calls of layers are refused where the real Paddle refuses them, and leave no traces.

tests/fixtures/record_wrong_calls.py records what Paddle makes of them. What dpexec refuses
earlier is fine: it finds mistakes when a layer is called that Paddle finds when it runs.
"""

import json
from pathlib import Path

import pytest

import dpexec as fluid
from tests.fixtures import wrong_calls

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "wrong_calls.json").read_text())
OUTCOMES = {tuple(entry[:3]): entry[3:] for entry in RECORDED}
LAYERS = sorted({mistake[0].split("(")[0] for mistake in OUTCOMES})

WIDER = """
argmax.axis: None
ctc_greedy_decoder.input_length: a list of it
dropout.seed: no numbers
fill_constant.shape: uint8
pool2d.pool_stride: of NumPy
sequence_scatter.updates: more rows
""".strip().splitlines()
"""dpexec takes these; the original takes no numbers of NumPy and no such shapes, or refuses an
integer type while the program is built that dpexec refuses when it runs."""

STRICTER = """
center_loss.label: more rows
continuous_value_model.cvm: float64
conv2d_transpose.dilation: -1
detection_output.background_label: 2 ** 40
dist.y: more rows
full_like.device: a string
generate_proposals.variances: a wider one
im2sequence.filter_size: one more
pad2d.data_format: bool
pad_constant_like.x: uint8
scale.scale: more rows
target_assign.mismatch_value: -100
unfold.dilations: -1
""".strip().splitlines()
"""Nonsense, or garbage numbers, that the original computes with; dpexec names what is wrong."""

OTHER_CLASSES = """
addmm.input: None
bmm.y: a name
center_loss.alpha: -100
conv3d.input: an array
elementwise_add.x: None
elementwise_equal.y: a name
gather.input: an array
gaussian_random.dtype: bool
gaussian_random.shape: None in it
gelu.x: int64
matmul.transpose_x: a list
matmul.x: more rows
matmul.x: one dimension less
reduce_max.input: an array
reduce_prod.input: uint8
sampling_id.x: None
unfold.kernel_sizes: None
unfold.strides: an object
""".strip().splitlines()
"""Refused by both: dpexec raises TypeError for what is no variable, EnforceNotMet for shapes."""

DEVIATIONS = {*WIDER, *STRICTER, *OTHER_CLASSES}


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
