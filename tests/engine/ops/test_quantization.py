"""Fake quantization over several steps: windows, ties, required inputs."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ops.fake_quantize import fake_quantize_abs_max, fake_quantize_range_abs_max

X = np.float32([[-1, 0.5, 0.252], [0.003937, 0.011811, 0.019685]])
WINDOW = [0.5, 2.0, 0.7, 0.25, 1.5]


@pytest.mark.parametrize(
    ("step", "scale", "before", "after", "found"),
    [
        (0, 0.001, [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], 1.0),
        (2, 2.0, WINDOW, [0.5, 2, 1, 0.25, 1.5], 2.0),
        (6, 2.0, WINDOW, [0.5, 1, 0.7, 0.25, 1.5], 1.5),
        (3, 2.0, [0.5, 2, 3, 0, 0], [0.5, 2, 3, 1, 0], 2.0),
        (7, 0.9, WINDOW, [0.5, 2, 1, 0.25, 1.5], 1.0),
    ],
)
def test_window_gives_the_scale_that_paddle_gives(step, scale, before, after, found):
    window, _, scale = fake_quantize_range_abs_max(
        np,
        X,
        np.float32([scale]),
        np.int64([step]),
        window_size=5,
        before=np.float32(before),
    )
    np.testing.assert_array_equal(window, np.float32(after))
    np.testing.assert_array_equal(scale, np.float32([found]))


def test_window_is_kept_from_step_to_step():
    """The operator writes one place of its window; the others are those of former steps."""
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        block = main.global_block()
        made = {
            name: block.create_var(name=name, shape=shape, dtype=dtype, persistable=True)
            for name, shape, dtype in [
                ("scale", [1], "float32"), ("scales", [3], "float32"), ("step", [1], "int64"),
            ]
        }  # fmt: skip
        out = block.create_var(name="out", shape=x.shape, dtype="float32")
        block.append_op(
            type="fake_quantize_range_abs_max",
            inputs={"X": x, "InScale": made["scale"], "Iter": made["step"]},
            outputs={"Out": out, "OutScale": made["scale"], "OutScales": made["scales"]},
            attrs={"window_size": 3},
        )
        fluid.layers.increment(made["step"])
    for name, value in [("scale", [0.001]), ("scales", [0, 0, 0]), ("step", [0])]:
        dtype = np.int64 if name == "step" else np.float32
        scope.var(name).get_tensor().set(np.array(value, dtype), fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    scales = [
        exe.run(main, feed={"x": np.float32([[largest, 0, 0]])}, fetch_list=["scale"], scope=scope)
        for largest in (3, 2, 1, 0.5)
    ]
    assert [float(found[0][0]) for found in scales] == [3, 3, 3, 2]
    np.testing.assert_array_equal(np.array(scope.find_var("scales").get_tensor()), [0.5, 2, 1])


def test_ties_go_to_the_even_level():
    levels, scale = fake_quantize_abs_max(np, np.float32([127, 0.5, 1.5, 2.5, -0.5, -1.5]))
    assert (levels.tolist(), scale.tolist()) == ([127, 0, 2, 2, 0, -2], [127])


@pytest.mark.parametrize("bits", [0, 17])
def test_other_numbers_of_bits_are_refused(bits):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        block = fluid.default_main_program().global_block()
        out = {slot: block.create_var(name=slot) for slot in ("Out", "OutScale")}
        with pytest.raises(fluid.core.EnforceNotMet, match=f"bit_length is {bits}"):
            block.append_op(
                type="fake_quantize_abs_max",
                inputs={"X": x},
                outputs=out,
                attrs={"bit_length": bits},
            )


def test_means_must_be_given_where_they_move():
    """The original reads memory that is not there, and ends."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        block = fluid.default_main_program().global_block()
        out = {slot: block.create_var(name=slot) for slot in ("Out", "OutScale")}
        with pytest.raises(fluid.core.EnforceNotMet, match="InAccum and InState must be given"):
            block.append_op(type="moving_average_abs_max_scale", inputs={"X": x}, outputs=out)
