"""The script of the guide, run by one process for every role."""

import os
import re
import subprocess
import sys

import pytest

from tests.engine.parameter_server.runs import free_endpoints
from tests.guides import programs


@pytest.fixture
def script(tmp_path):
    (code,) = programs("docs/parameter-servers.md")
    path = tmp_path / "train.py"
    path.write_text(code, encoding="utf-8")
    return path


def start(script, role, endpoint, servers, trainer=0):
    host, port = endpoint.split(":")
    environment = {
        **os.environ,
        "TRAINING_ROLE": role,
        "PADDLE_TRAINER_ID": str(trainer),
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "POD_IP": host,
        "PADDLE_PORT": port,
        "CPU_NUM": "2",
        "FLAGS_rpc_deadline": "60000",
        "DPEXEC_SECRET": "of these processes",
    }
    command = [sys.executable, "-m", "dpexec", "run", str(script)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_processes_of_every_role_run_the_script_of_the_guide(script):
    servers = free_endpoints(1)
    processes = [start(script, "PSERVER", servers[0], servers)]
    processes += [start(script, "TRAINER", servers[0], servers, trainer) for trainer in range(2)]
    try:
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 3, outputs
    for output, _ in outputs[1:]:
        assert float(re.search(r"loss (\S+)", output)[1]) < 0.01
