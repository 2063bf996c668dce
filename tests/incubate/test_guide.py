"""The scripts of the guide, run by processes of every role."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid

GUIDE = Path(__file__).parents[2] / "docs" / "fleet.md"
SCRIPTS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


PARAMETER_SERVER, COLLECTIVE = SCRIPTS


@pytest.mark.parametrize(
    ("script", "options"),
    [(PARAMETER_SERVER, ("--servers", "1")), (COLLECTIVE, ())],
    ids=["parameter_server", "collective"],
)
def test_processes_of_every_role_run_the_script(tmp_path, script, options):
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "dpexec", "run", "train.py", "--trainers", "2", *options]
    environment = {**os.environ, "FLAGS_rpc_deadline": "60000"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"\[\d\] loss (\S+)", done.stdout)
    assert len(found) == 2 and all(float(loss) < 0.01 for loss in found)
    if options:
        state = fluid.load_program_state(str(tmp_path / "model"))
        np.testing.assert_allclose(state["fc_0.w_0"], np.ones((4, 1)), atol=0.2)
