"""The names of fluid 1.8 that real programs use are there; private ones do what they do there."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import surface_cases

FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = json.loads((FIXTURES / "surface.json").read_text())


@pytest.mark.parametrize("case", surface_cases.CASES, ids=lambda case: case.__name__)
def test_private_name_behaves_as_recorded(case):
    assert json.loads(json.dumps(case(fluid))) == RECORDED[case.__name__]


def test_tensor_shares_its_memory_by_dlpack():
    tensor = fluid.LoDTensor()
    tensor.set(np.arange(6, dtype="float32").reshape(2, 3))

    class Holder:
        def __dlpack__(self, **_):
            return tensor._to_dlpack()

        def __dlpack_device__(self):
            return (1, 0)

    np.testing.assert_array_equal(np.from_dlpack(Holder()), np.array(tensor))


def test_operators_and_their_neighbours_are_counted():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        hidden = fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 3, act="relu")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    single, pairs = fluid.contrib.op_freq_statistic(main)
    counts, adjacent = dict(single), dict(pairs)
    assert counts["mul"] == counts["relu"] == 2 and counts["mean"] == 1
    assert "sgd" not in counts, "it writes parameters alone"
    assert single == sorted(single, key=lambda pair: -pair[1])
    assert adjacent["mul->elementwise_add"] == 2
    assert adjacent["elementwise_add->relu"] == 2
    assert adjacent["relu->mul"] == 1
    with pytest.raises(TypeError):
        fluid.contrib.op_freq_statistic("main")
