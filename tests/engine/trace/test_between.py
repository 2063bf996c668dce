"""What traces tell of the time between steps."""

import numpy as np

import dpexec as fluid
from dpexec.engine.trace import between
from dpexec.engine.trace.between import noted, preparing


def test_what_is_noted_inside_of_a_block_counts_once():
    with preparing():
        with preparing():
            pass
        with noted("reading"):
            pass
    (began, ended), *_ = reversed(between.spans["preparing"])
    inner = between.spans["reading"][-1]
    assert began <= inner[0] <= inner[1] <= ended
    assert all(other[1] <= began for other in list(between.spans["preparing"])[:-1])


def test_shapes_for_which_steps_are_prepared_are_told_with_the_time_of_making_code():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, None])
        fluid.layers.create_parameter([1], "float32", "unused")
        loss = fluid.layers.mean(fluid.layers.tanh(x))
    how = fluid.ExecutionStrategy()
    how.trace = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=how, places=fluid.cpu_places(1)
    )
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    for columns in (3, 5, 4, 5):
        executor.run(compiled, feed={"x": np.ones((2, columns), "float32")}, fetch_list=[loss])
    meta = compiled.trace.meta
    rows = [(name, shape) for _, name, shape in meta["shapes"]]
    assert rows == [("x", [2, 5]), ("x", [2, 4])]  # the first one is no other shape
    steps = {event.step: event.start for event in reversed(compiled.trace.events)}
    for (time, *_), step in zip(meta["shapes"], (1, 2), strict=True):
        assert steps[step - 1] < time < steps[step]
    prepared = [end - begun for begun, end in meta["preparing"]]
    assert len(prepared) >= 2 and min(prepared) > 0
