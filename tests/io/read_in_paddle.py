"""The other direction, second half: the real Paddle 1.8.5 loads and runs what dpexec saved.

See write_for_paddle.py. Each training program runs 10 steps on 2 devices from the state in each
of the three formats, each inference model once; all must agree within 1e-5 relative.
"""

import os
import sys

import numpy as np
import paddle.fluid as fluid

from tests.fixtures import saved_cases


def load(kind, directory, main, exe):
    if kind == "separate":
        fluid.io.load_persistables(exe, os.path.join(directory, "separate"), main)
    elif kind == "combined":
        fluid.io.load_persistables(exe, directory, main, "combined")
    else:
        state = fluid.io.load_program_state(os.path.join(directory, "model"))
        fluid.io.set_program_state(main, state)


def check_case(name, directory):
    exe = fluid.Executor(fluid.CPUPlace())
    parts = []
    for part in ("main", "startup"):
        with open(os.path.join(directory, part), "rb") as file:
            parts.append(fluid.Program.parse_from_string(file.read()))
    main, startup = parts
    feeds = saved_cases.CASES[name].feeds()
    with np.load(os.path.join(directory, "expected.npz")) as expected:
        wanted, inferred, loss = expected["losses"], expected["inferred"], str(expected["loss"])
    for kind in ("separate", "combined", "model"):
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            load(kind, directory, main, exe)
            compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss)
            losses = [
                exe.run(compiled, feed=feed, fetch_list=[loss])[0]
                for feed in feeds[: saved_cases.STEPS]
            ]
        np.testing.assert_allclose(np.stack(losses), wanted, rtol=1e-5, err_msg=name + kind)
    with fluid.scope_guard(fluid.Scope()):
        model, _, targets = fluid.io.load_inference_model(os.path.join(directory, "inference"), exe)
        found = exe.run(model, feed=feeds[0], fetch_list=targets)[0]
    np.testing.assert_allclose(found, inferred, rtol=1e-5, err_msg=name)


if __name__ == "__main__":
    os.environ["CPU_NUM"] = "2"
    for case in saved_cases.CASES:
        check_case(case, os.path.join(sys.argv[1], case))
        print(case, "agrees")
