"""``paddle.distributed``: the processes that launchers start."""

import argparse
import logging

import pytest

from dpexec.commands.launch import Job
from dpexec.paddle.distributed import cloud_utils, launch, launch_ps, utils

TELL = """
import os, pathlib, sys, time
names = ["PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_CURRENT_ENDPOINT"]
names += ["PADDLE_TRAINER_ENDPOINTS", "FLAGS_selected_gpus"]
print(sys.argv[1:], *(os.environ.get(name) for name in names), flush=True)
told = pathlib.Path(__file__).with_name("told")
if os.environ["PADDLE_TRAINER_ID"] == "0":
    told.touch()
    sys.exit(0)
while not told.exists():  # whoever fails ends the others
    time.sleep(0.01)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "tell.py"
    path.write_text(TELL)
    return str(path)


@pytest.fixture
def jobs(monkeypatch):
    """What would be started."""
    found = []
    for module in (launch, launch_ps):
        monkeypatch.setattr(module, "run_job", lambda options, job: found.append((options, job)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


def test_trainers_write_their_files_and_know_who_they_are(script, tmp_path, capsys):
    options = ["--selected_gpus=3,5", f"--log_dir={tmp_path / 'logs'}", "--started_port=6170"]
    assert launch.main([*options, script, "7", "--own"]) == 7
    assert "trainer 1 failed with exit code 7" in capsys.readouterr().err
    both = "127.0.0.1:6170,127.0.0.1:6171"
    for rank, gpu in enumerate("35"):
        text = (tmp_path / "logs" / f"workerlog.{rank}").read_text()
        end = f"127.0.0.1:{6170 + rank} {both} {gpu}"
        assert text == f"['7', '--own'] {rank} 2 {end}\n"


def test_machines_have_trainers_of_their_own(jobs):
    launch.main(["--cluster_node_ips=10.0.0.1,10.0.0.2", "--node_ip=10.0.0.2",
                 "--nproc_per_node=2", "train.py", "--lr", "1"])  # fmt: skip
    ((options, job),) = jobs
    assert (options.script, options.arguments) == ("train.py", ["--lr", "1"])
    everybody = [f"10.0.0.{host}:{port}" for host in (1, 2) for port in (6070, 6071)]
    assert job == Job(everybody, range(2, 4), gpus=[])


def test_gpus_are_counted_among_those_that_are_visible(monkeypatch, jobs, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    launch.main(["--selected_gpus=6,4", "--started_port=7000", "train.py"])
    assert jobs[0][1].gpus == ["2", "0"]
    assert launch.main(["--selected_gpus=7", "train.py"]) == 2
    assert "GPU 7 is not in CUDA_VISIBLE_DEVICES=4,5,6" in capsys.readouterr().err
    assert launch.main(["--node_ip=10.0.0.3", "--nproc_per_node=1", "train.py"]) == 2


@pytest.mark.parametrize("listed", [True, False])
def test_paddlecloud_says_who_is_there(monkeypatch, jobs, listed):
    ends = [f"10.0.0.{host}:{port}" for host in (1, 2) for port in (9000, 9001)]
    variables = {"PADDLE_TRAINERS": "10.0.0.1,10.0.0.2", "POD_IP": "10.0.0.2",
                 "PADDLE_TRAINER_ID": "1", "TRAINER_PORTS_NUM": "2",
                 "PADDLE_TRAINERS_NUM": "2", "PADDLE_PORT": "9000"}  # fmt: skip
    if listed:
        variables |= {"DISTRIBUTED_TRAINER_ENDPOINTS": ",".join(ends), "PADDLE_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    launch.main(["--use_paddlecloud", "--nproc_per_node=2", "train.py"])
    assert jobs[0][1] == Job(ends, range(2, 4), gpus=[])
    monkeypatch.delenv("POD_IP")
    with pytest.raises(AssertionError, match="POD_IP is not set"):
        cloud_utils.get_cloud_cluster("127.0.0.1", "127.0.0.1", None, ["0"])


def test_servers_are_started_too(jobs, tmp_path, capsys):
    launch_ps.launch(["--worker_num=3", "--server_num=2", f"--log_dir={tmp_path}", "train.py"])
    launch_ps.launch(["--endpoints=127.0.0.1:7,127.0.0.1:8", "--worker_num=1", "train.py"])
    (_, job), (_, given) = jobs
    assert (len(job.trainers), job.here, job.logs) == (3, range(3), tmp_path)
    assert job.servers == ["127.0.0.1:6170", "127.0.0.1:6171"]
    assert given.servers == ["127.0.0.1:7", "127.0.0.1:8"]
    assert launch_ps.launch(["--endpoints=127.0.0.1:7", "train.py"]) == 2
    assert "1 --endpoints for 2 servers" in capsys.readouterr().err


def test_a_cluster_knows_its_trainers():
    cluster, pod = utils.get_cluster(["a", "b"], "b", [["a:1", "a:2"], ["b:1"]], ["0"])
    assert cluster.trainers_endpoints() == ["a:1", "b:1"]
    assert (cluster.trainers_nranks(), cluster.pods_nranks()) == (2, 2)
    assert pod.trainers == [utils.Trainer(["0"], "b:1", 1)]
    with pytest.raises(AssertionError, match="a has 1 endpoints for 2 trainers"):
        utils.get_cluster(["a"], "a", [["a:1"]], ["0", "1"])
    assert len(utils.find_free_ports(3)) == 3


def test_helpers_of_scripts_are_there():
    parser = argparse.ArgumentParser()
    utils.add_arguments("fast", bool, False, "Whether it is fast.", parser)
    utils.add_arguments("steps", int, 3, "How many.", parser)
    assert vars(parser.parse_args(["--fast", "yes"])) == {"fast": True, "steps": 3}
    assert "How many. Default: 3." in parser.format_help()
    logger = utils.get_logger(logging.INFO, "of this test")
    assert logger.level == logging.INFO
    assert len(logger.handlers) == 1
