"""``dpexec run --trainers N``: real processes that train together, and end together."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from dpexec.cli import main
from dpexec.commands import launch
from dpexec.commands.processes import Failure

TRAIN = """
import os
import numpy as np
import paddle.fluid as fluid

rank = int(os.environ.get("PADDLE_TRAINER_ID", 0))
trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
fluid.default_startup_program().random_seed = 3
x = fluid.data("x", [None, 8])
y = fluid.data("y", [None, 1])
hidden = fluid.layers.fc(x, 16, act="relu")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
fluid.optimizer.Adam(0.01).minimize(loss)
build = fluid.BuildStrategy()
build.num_trainers, build.trainer_id = trainers, rank
program = fluid.CompiledProgram(fluid.default_main_program())
program = program.with_data_parallel(loss.name, build)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)
for step in range(3):
    batch = rng.randn(8, 8).astype("float32")
    feed = {"x": batch, "y": batch[:, :1]}
    feed = {name: np.array_split(array, trainers)[rank] for name, array in feed.items()}
    print(step, *(float(value).hex() for value in exe.run(program, feed, [loss])[0]))
"""
FAIL = """
import os, sys, time
rank = int(os.environ["PADDLE_TRAINER_ID"])
print("pid", os.getpid())
if rank == 1:
    sys.exit(7)
time.sleep(60)
"""
LOSE = """
import os, signal, sys
from pathlib import Path
import numpy as np
import paddle.fluid as fluid
from dpexec.checkpoint import Checkpoints

rank = int(os.environ.get("PADDLE_TRAINER_ID", 0))
trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
fluid.default_startup_program().random_seed = 3
x = fluid.data("x", [None, 8])
hidden = fluid.layers.dropout(fluid.layers.fc(x, 16, act="relu"), 0.3, seed=5)
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1) - x[:, :1]))
fluid.optimizer.Adam(0.01).minimize(loss)
build = fluid.BuildStrategy()
build.num_trainers, build.trainer_id = trainers, rank
main = fluid.default_main_program()
program = fluid.CompiledProgram(main).with_data_parallel(loss.name, build)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
with Checkpoints(exe, sys.argv[1], program, every=2) as checkpoints:
    start, _ = checkpoints.resume()
    print("begins at", start)
    for step in range(start, 7):
        if (rank, step, start) == (1, 5, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        batch = np.random.RandomState(step).randn(8, 8).astype("float32")
        feed = {"x": np.array_split(batch, trainers)[rank]}
        print(step, *(float(value).hex() for value in exe.run(program, feed, [loss])[0]))
        if rank == 0:
            checkpoints.step()
for param in main.all_parameters():
    value = np.array(fluid.global_scope().find_var(param.name).get_tensor())
    print("state", param.name, value.tobytes().hex())
"""
TELL = """
import os, sys
print(*(os.environ["PADDLE_" + name] for name in ("TRAINER_ID", "TRAINERS_NUM")), sys.argv[1:])
every = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
print(every.index(os.environ["PADDLE_CURRENT_ENDPOINT"]), os.environ["CPU_NUM"], file=sys.stderr)
"""
SERVE = """
import os, sys, time
from pathlib import Path
names = ("TRAINING_ROLE", "PADDLE_TRAINING_ROLE", "PADDLE_TRAINERS_NUM")
told = [os.environ[name] for name in names]
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
if told[0] == "PSERVER":
    endpoint = os.environ["POD_IP"] + ":" + os.environ["PADDLE_PORT"]
    print(*told, servers.index(endpoint))
    Path(sys.argv[1], endpoint).touch()
    time.sleep(60)
while not all(Path(sys.argv[1], endpoint).exists() for endpoint in servers):
    time.sleep(0.05)
print(*told, len(servers))
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def command(path, *arguments):
    return [sys.executable, "-m", "dpexec", "run", str(path), *arguments]


def run(path, *arguments):
    made = command(path, *arguments)
    return subprocess.run(made, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def launched(capsys):
    """What ``run`` does, with a launcher in this process: one less has to import all."""

    def launched(path, *arguments):
        capsys.readouterr()
        code = main(["run", str(path), *arguments])
        return subprocess.CompletedProcess(path, code, *capsys.readouterr())

    return launched


def losses(output):
    """By step, the losses of all replicas in the order of the trainers."""
    found = {}
    for line in sorted(output.splitlines()):
        step, *values = re.sub(r"^\[\d\] ", "", line).split()
        found.setdefault(step, []).extend(values)
    return found


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_processes_compute_what_one_does(script):
    path = script(TRAIN)
    together = run(path, "--trainers", "2", "--devices", "2")
    alone = run(path, "--devices", "4")
    assert together.returncode == alone.returncode == 0, together.stderr
    assert losses(together.stdout) == losses(alone.stdout)
    assert len(losses(together.stdout)) == 3


def test_every_process_is_told_who_it_is(script, launched):
    done = launched(script(TELL), "--trainers", "2", "--devices", "3", "--own", "1")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        "[0] 0 2 ['--own', '1']",
        "[1] 1 2 ['--own', '1']",
    ]
    assert sorted(done.stderr.splitlines()) == ["[0] 0 3", "[1] 1 3"]


def test_servers_are_told_so_and_end_with_the_trainers(script, launched, tmp_path):
    done = launched(script(SERVE), "--trainers", "1", "--servers", "2", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] TRAINER TRAINER 1 2",
        "[server 0] PSERVER PSERVER 1 0",
        "[server 1] PSERVER PSERVER 1 1",
    ]


def test_when_one_fails_all_end(script, launched):
    start = time.monotonic()
    done = launched(script(FAIL), "--trainers", "2")
    assert time.monotonic() - start < 30
    assert done.returncode == 7
    assert "dpexec run: trainer 1 failed with exit code 7" in done.stderr
    pids = [int(number) for number in re.findall(r"pid (\d+)", done.stdout)]
    assert not any(is_running(pid) for pid in pids)


def test_a_signal_that_ended_one_is_named(script, launched):
    text = FAIL.replace("sys.exit(7)", "os.kill(os.getpid(), 9)")
    assert text != FAIL
    done = launched(script(text), "--trainers", "2")
    assert done.returncode == 128 + signal.SIGKILL
    assert "dpexec run: trainer 1 was ended by signal SIGKILL" in done.stderr


def test_a_lost_trainer_starts_again_and_all_go_on_from_the_checkpoint(script, launched, tmp_path):
    path = script(LOSE)
    alone = run(path, "--devices", "4", str(tmp_path / "alone"))
    options = "--trainers", "2", "--devices", "2", "--restarts", "1"
    lost = launched(path, *options, str(tmp_path / "lost"))
    assert alone.returncode == lost.returncode == 0, lost.stderr
    assert "dpexec run: trainer 1 was ended by signal SIGKILL" in lost.stderr
    assert "dpexec run: all start again, 1 of 1" in lost.stderr
    *first, mine, others = re.findall(r"begins at (\d)", lost.stdout)
    assert first == ["0", "0"]
    assert mine == others > "0"
    steps = re.findall(r"^\[(\d)\] (\d) (.*)$", lost.stdout, re.MULTILINE)
    found = {(step, rank): values for rank, step, values in steps}
    for step, values in re.findall(r"^(\d) (.*)$", alone.stdout, re.MULTILINE):
        assert " ".join(found[step, rank] for rank in "01") == values
    states = re.findall(r"state .*", lost.stdout)
    assert sorted(states) == sorted(2 * re.findall(r"state .*", alone.stdout))


def test_restarts_have_an_end(script, monkeypatch, capsys):
    monkeypatch.setattr(launch, "run_together", lambda starts: Failure(starts[1].name, 7, ()))
    code = main(["run", str(script(FAIL)), "--trainers", "2", "--restarts", "2"])
    assert code == 7
    assert capsys.readouterr().err.splitlines() == [
        "dpexec run: trainer 1 failed with exit code 7",
        "dpexec run: all start again, 1 of 2",
        "dpexec run: trainer 1 failed with exit code 7",
        "dpexec run: all start again, 2 of 2",
        "dpexec run: trainer 1 failed with exit code 7",
    ]


def test_restarts_are_for_several_processes(script, capsys):
    assert main(["run", str(script(FAIL)), "--restarts", "2"]) == 2
    assert "--restarts needs --trainers N" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_launcher_that_is_stopped_takes_its_processes_along(script, number):
    text = FAIL.replace("rank == 1", "rank == 9")
    pipe = subprocess.PIPE
    with subprocess.Popen(command(script(text), "--trainers", "2"), stdout=pipe) as launcher:
        assert launcher.stdout is not None
        pids = [int(launcher.stdout.readline().split()[-1]) for _ in range(2)]
        launcher.send_signal(number)
        assert launcher.wait(30) == 128 + number
    assert not any(is_running(pid) for pid in pids)


def test_a_script_that_is_not_there_is_said_once(launched, tmp_path):
    done = launched(tmp_path / "nowhere.py", "--trainers", "2")
    assert done.returncode == 2
    assert done.stderr == f"dpexec run: there is no script {tmp_path / 'nowhere.py'}\n"
