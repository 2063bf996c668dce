"""A scheduler and a worker in processes of their own show training that a client runs."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from distributed import Client

import dpexec as fluid
from tests.engine.run.nets import batches, classifier, train
from tests.waiting import until

DASK = [sys.executable, "-m", "dask"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def scheduler(tmp_path):
    """Address of a scheduler with a worker; the page is there before anybody trains."""
    where = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [
        [
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"),
            *("--preload", "dpexec.dashboard", "--scheduler-file", str(where)),
        ],
        [
            *("worker", "--scheduler-file", str(where), "--nthreads", "2", "--no-nanny"),
            *("--local-directory", str(tmp_path), "--no-dashboard"),
        ],
    ]
    running = []
    with (tmp_path / "log").open("w") as log:
        for command in commands:
            process = subprocess.Popen(
                [*DASK, *command], env=environment, stdout=log, stderr=log, cwd=tmp_path
            )
            running.append(process)
        yield where
        for process in reversed(running):
            process.terminate()
            process.wait(30)


def test_remote_scheduler_shows_training(scheduler):
    until(lambda: scheduler.exists() and scheduler.stat().st_size)
    with Client(scheduler_file=str(scheduler)) as client:
        client.wait_for_workers(1, timeout=30)
        base = client.dashboard_link.removesuffix("/status")
        with urllib.request.urlopen(f"{base}/dpexec", timeout=30) as response:
            assert response.status == 200
        train(classifier(fluid.optimizer.SGD(0.1)), batches(3), 2, scheduler=client)

        def counted():
            with urllib.request.urlopen(f"{base}/metrics", timeout=30) as response:
                lines = response.read().decode().splitlines()
            (steps,) = (line for line in lines if line.startswith("dpexec_steps_total"))
            return steps.endswith(" 3.0")

        until(counted)
