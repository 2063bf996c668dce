"""The other direction, first half: dpexec saves what the real Paddle 1.8.5 then loads and runs.

Usage: python -m tests.io.write_for_paddle DIRECTORY, then, where python has paddlepaddle 1.8.5,
python -m tests.io.read_in_paddle DIRECTORY.
"""

import os
import sys
from pathlib import Path

import numpy as np

import dpexec as fluid
from tests.fixtures import saved_cases


def write_case(name, directory):
    """Programs, state in three formats, an inference model, and what dpexec computes from it."""
    os.environ["CPU_NUM"] = "2"
    main, startup, loss = saved_cases.build(fluid, name)
    directory.mkdir(parents=True)
    (directory / "main").write_bytes(main.desc.serialize_to_string())
    (directory / "startup").write_bytes(startup.desc.serialize_to_string())
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_persistables(exe, str(directory / "separate"), main)
        fluid.io.save_persistables(exe, str(directory), main, "combined")
        fluid.save(main, str(directory / "model"))
        feeds = saved_cases.CASES[name].feeds()
        names = [var.name for var in main.list_vars() if var.is_data]
        targets = fluid.io.save_inference_model(
            str(directory / "inference"), names, [loss], exe, main
        )
        tested, _, _ = fluid.io.load_inference_model(str(directory / "inference"), exe)
        inferred = exe.run(tested, feed=feeds[0], fetch_list=targets)[0]
        compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
        losses = [
            exe.run(compiled, feed=feed, fetch_list=[loss])[0]
            for feed in feeds[: saved_cases.STEPS]
        ]
    np.savez(directory / "expected.npz", losses=np.stack(losses), inferred=inferred, loss=loss.name)


if __name__ == "__main__":
    for case in saved_cases.CASES:
        write_case(case, Path(sys.argv[1]) / case)
