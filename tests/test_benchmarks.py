"""The benchmarks run and compute the expected losses and tables. No time is measured here."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpexec as fluid
from tests.benchmarks import __main__ as command
from tests.benchmarks import (
    cluster,
    gpu_kernels,
    machine,
    model,
    prediction,
    predictors,
    registry,
    report,
    scaling,
    startup,
)
from tests.benchmarks.driver import Peer, measure
from tests.benchmarks.peers.workloads import WORKLOADS
from tests.benchmarks.registry import AbsentError, Entry
from tests.fakes.cupy import install
from tests.waiting import until

ROOT = Path(__file__).parents[1]


@pytest.fixture
def no_lock(tmp_path, monkeypatch):
    """A benchmark that runs on this machine must not hold these tests up; nor may peers."""
    monkeypatch.delenv("DPEXEC_PEER_TORCH", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def result(label, ms, loss=1.0, parallel=True, other=0.0):
    return {
        "label": label,
        "ms": ms,
        "loss": loss,
        "data_parallel": parallel,
        "ms_min": ms,
        "ms_max": ms,
        "cpu": 2.0,
        "other_cpu": other,
        "cpu_wait": 0.0,
        "memory_mb": 80,
        "threads": 3,
    }


def test_predictors_and_onnxruntime_compute_the_same():
    ours, theirs, integers = predictors.predictors_of("wide_deep", rows=2, threads=1)
    np.testing.assert_allclose(ours(), theirs(), rtol=1e-3)
    assert ours().shape == integers().shape == (2, 1)


def test_command_trains_a_workload_and_writes_json(tmp_path, no_lock):
    line = [sys.executable, "-m", "tests.benchmarks", "W1", "--against", ""]
    line += ["--rounds", "2", "--seconds", "0.01", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads((tmp_path / "out.json").read_text()).values()
    (own,) = run["peers"]
    assert own["loss"] == pytest.approx(1.2967, abs=1e-3)
    assert own["data_parallel"] and own["operators"] > 20 and own["dask_tasks"] > 2
    assert len(own["blocks"]) == 2 and 0 < own["ms_min"] <= own["ms"] <= own["ms_max"]
    assert own["memory_mb"] > 20 and own["threads"] >= 2
    assert set(own["versions"]) == {"python", "numpy", "dpexec"}
    assert run["bound_ms"] > 0 and run["against_all"] is None
    assert "dpexec" in done.stdout and "1.29" in done.stdout


def test_failed_peer_is_reported_and_the_others_go_on(no_lock):
    spec, said = WORKLOADS["W1"] | {"batch": 4}, []
    entries = [Entry("dpexec:no_such_field=1", spec), Entry("dpexec-single", spec)]
    failed, good = measure(entries, 1, 0.01, said.append)
    assert "no_such_field" in failed["error"] and "ms" not in failed
    assert good["ms"] > 0 and "error" not in good
    assert any("dpexec:no_such_field=1 failed" in text for text in said)


def test_peers_stand_still_while_others_train(tmp_path):
    """With all that they started, in sessions of their own, too."""
    script = (
        "import json, subprocess, sys\n"
        "args = [sys.executable, '-c', 'while True: pass']\n"
        "child = subprocess.Popen(args, start_new_session=True)\n"
        "say = lambda **told: print(json.dumps(told), flush=True)\n"
        "say(first_loss=1.0, loss=1.0, child=child.pid)\n"
        "for line in sys.stdin:\n"
        "    say(ms=1.0)\n"
        "child.kill()\n"
    )
    entry = SimpleNamespace(
        kind=SimpleNamespace(processes=False, parallel=False),
        shares=1,
        command=lambda rank, meet: [sys.executable, "-c", script],
        environment=lambda: None,
    )

    def states():
        return {machine._stat(pid)[0] for pid in machine.descendants(peer._pids)}

    peer = Peer(entry, tmp_path / "peer")
    child = peer.start()["child"]
    assert child in machine.descendants(peer._pids)
    peer.freeze()
    until(lambda: states() == {"T"})
    peer.calibrate(1e-5)
    peer.block()
    until(lambda: states() == {"T"})
    assert peer.result()["ms"] == 1.0
    peer.stop()
    until(lambda: not Path(f"/proc/{child}").exists())


def test_scaling_measures_points_and_draws_them(tmp_path, no_lock, monkeypatch):
    points = [({"hidden": [8] * depth}, 1) for depth in (1, 2)]
    monkeypatch.setitem(scaling.AXES, "operators", points)
    run = scaling.measure_axis("operators", ["dpexec"], 1, 0.01)
    small, large = run["points"]["dpexec"]
    assert small["size"] < large["size"]
    assert str(large["size"]) in scaling.table("operators", run)
    assert list(small["phases"]) == list(startup.PHASES)
    assert 0 < small["phases"]["first step"][0] == small["first_step_s"]
    scaling.plot({"operators": run}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_growth_is_told_as_a_power():
    points = [
        {"size": size, "ms": ms, "first_step_s": 0, "memory_mb": 1}
        for size, ms in ((10, 1.0), (100, 10.0), (1000, 1000.0))
    ]
    lines = scaling.table("batch", {"points": {"dpexec": points}, "busy": False}).splitlines()
    assert [line.split()[-1] for line in lines[2:]] == ["-", "1.00", "2.00"]


def test_summary_compares_with_the_best():
    measured = [
        result("dpexec", 2.0),
        result("torch-ddp", 4.0),
        result("jax", 1.0, parallel=False),
        result("tf", 8.0, loss=1.1, parallel=False),
        result("dpexec:num_threads=2", 0.5),
        result("products", 0.4),
        {"label": "torch", "error": "out of memory"},
    ]
    run = report.summarize(measured, "mlp")
    assert run["against_parallel"] == 0.5 and run["against_all"] == 2.0
    assert run["bound_ms"] == 0.4 and run["share_of_bound"] == 0.2
    assert run["other_losses"] == ["tf"] and not run["busy"]
    text = report.table("title", run)
    assert "torch failed: out of memory" in " ".join(text.split()) and "VOID" not in text
    assert text.index("jax") < text.index("dpexec ") < text.index("torch-ddp")


def test_cluster_is_compared_with_trainers_and_threads():
    names = ("dpexec", "dpexec-cluster", "dpexec-trainers", "torch-ddp")
    measured = [result(name, ms) for name, ms in zip(names, (1.0, 2.0, 1.5, 8.0), strict=True)]
    text = cluster.verdict(report.summarize(measured, "mlp"))
    assert "cluster: 2.000 ms; trainers +0.50 ms" in text
    assert "2.00 x dpexec;" in text and "0.25 x torch-ddp" in text
    assert "failed" in cluster.verdict(report.summarize([result("dpexec", 1.0)], "mlp"))


def test_replicas_in_other_processes_have_the_loss_of_threads(no_lock):
    spec = WORKLOADS["W1"] | {"batch": 8, "inputs": 16, "hidden": [8]}
    names = ("dpexec", "dpexec-trainers", "dpexec-cluster")
    threads, *others = measure([Entry(name, spec) for name in names], 1, 0.01)
    assert [o["loss"] for o in others] == pytest.approx([threads["loss"]] * 2, rel=1e-6)


def test_summary_says_when_the_machine_was_busy():
    run = report.summarize([result("dpexec", 2.0, other=0.5)], "mlp")
    assert run["busy"] and "VOID" in report.table("title", run)


def test_comparison_allows_for_the_speed_of_the_machine():
    about = {"machine": {"commit": "abc", "date": "today"}}
    before = about | report.summarize([result("dpexec", 2.0), result("jax", 4.0)], "mlp")
    now = report.summarize([result("dpexec", 2.0), result("jax", 8.0), result("tf", 1.0)], "mlp")
    text = report.comparison("W1", before, now)
    assert "dpexec takes 0.50 of the time" in text and "take 2.00" in text and "tf" not in text


def test_figures_of_gpus_need_one(capsys, monkeypatch):
    monkeypatch.setattr(command, "is_compiled_with_cuda", lambda: False)
    with pytest.raises(SystemExit):
        command.arguments(["W1", "--device", "gpu"])
    assert "--device gpu: CuPy" in capsys.readouterr().err
    monkeypatch.setattr(command, "is_compiled_with_cuda", lambda: True)
    for wrong in (["W5"], ["--record"], ["--against", "tf"]):
        with pytest.raises(SystemExit):
            command.arguments(["--device", "gpu", *wrong])
    options = command.arguments(["W6", "--device", "gpu"])
    assert options.specs["W6"]["precision"] == "bfloat16" and options.precision is None
    fields = {key for label in options.labels for key in Entry(label, {}, 1, "gpu").settings}
    assert all(hasattr(fluid.BuildStrategy(), field) for field in fields)
    options = command.arguments(["W6", "--device", "gpu", "--against", "", "--precision", "tf32"])
    assert options.labels[0] == "dpexec" and options.replicas == 1
    entry = Entry("dpexec", options.specs["W6"], 2, options.device, options.precision)
    assert entry.environment()["CUDA_VISIBLE_DEVICES"] == "0,1"
    request = json.loads(entry.command(0, "")[-1])
    assert (request["device"], request["precision"]) == ("gpu", "tf32")


def test_a_step_is_compared_with_both_bounds_together():
    parts = [result("dpexec", 2.0), result("products", 0.7), result("traffic", 0.3)]
    run = report.summarize(parts, "mlp")
    assert [peer["label"] for peer in run["peers"]] == ["dpexec"]
    assert "dpexec's step takes 2.00 times as long as both together" in report.table("W1", run)


def test_bounds_of_gpus_are_no_peers():
    run = report.summarize([result("dpexec", 2.0), result("torch-traffic", 0.5)], "mlp")
    assert run["traffic_ms"] == 0.5 and [peer["label"] for peer in run["peers"]] == ["dpexec"]
    assert "its update alone: 0.500 ms, 0.25 of dpexec's step" in report.table("title", run)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("keras", "no peer 'keras'"),
        ("paddle18:fast", "NAME:SETTING=VALUE"),
        ("torch:num_threads=2", "torch has no field 'num_threads'"),
        ("torch-graphs", "torch-graphs is not for cpus"),
    ],
)
def test_wrong_labels_are_refused(label, complaint):
    with pytest.raises(ValueError, match=complaint):
        Entry(label, {})


def test_settings_are_fields_or_environment_variables():
    entry = Entry("dpexec:num_threads=3:SOME_VARIABLE=x", {}, replicas=4)
    assert json.loads(entry.command(0, "")[-1])["options"]["num_threads"] == "3"
    assert entry.environment()["SOME_VARIABLE"] == "x" and entry.environment()["CPU_NUM"] == "4"


def test_python_of_a_peer(monkeypatch):
    entry = Entry("torch-ddp", {})
    monkeypatch.setenv("DPEXEC_PEER_TORCH", sys.executable)
    assert entry.python() == sys.executable
    monkeypatch.setenv("DPEXEC_PEER_TORCH", "/no/such/python")
    with pytest.raises(ValueError, match="no such program"):
        entry.python()
    monkeypatch.delenv("DPEXEC_PEER_TORCH")
    monkeypatch.setattr(registry, "_importable", lambda package: False)
    with pytest.raises(AbsentError, match="DPEXEC_PEER_TORCH is not set"):
        entry.python()


def test_baseline_keeps_other_workloads_and_takes_no_void_figures(tmp_path, monkeypatch, capsys):
    path = tmp_path / "baseline.json"
    monkeypatch.setattr(command, "BASELINE", path)
    quiet, busy = [report.summarize([result("dpexec", 2.0, other=x)], "mlp") for x in (0.0, 1.0)]
    assert command.record({"W1": quiet}) and command.record({"W2": quiet})
    assert not command.record({"W1": quiet, "W4": busy})
    assert "W4" in capsys.readouterr().out
    assert json.loads(path.read_text()) == {"W1": quiet, "W2": quiet}


def test_the_model_of_a_step_finds_its_constants():
    constants = [3e-5, 2e-5, 2.6e-11, 6e-10]
    points = model.FITTED + model.CHECKED
    for cores in (1, 2):
        times = {p: float(np.dot(constants, p.terms(cores))) for p in points}
        assert np.allclose(model.fitted(times, cores), constants)


@pytest.mark.parametrize("net", prediction.SHAPES)
def test_prediction_on_two_replicas_is_compared_with_one(net):
    name, rows, *numbers = prediction.compare(net, 2, 1, 0.01).split()
    one, two, ratio, *_ = (float(text.replace(",", "")) for text in numbers)
    assert (name, rows) == (net, "2")
    assert ratio == pytest.approx(two / one, rel=0.02, abs=0.006)  # it has two decimals


def test_kernels_for_gpus_are_compared(monkeypatch, capsys):
    install(monkeypatch, 1)
    monkeypatch.setattr(gpu_kernels, "CALLS", 1)
    monkeypatch.setattr(gpu_kernels, "BLOCKS", 1)
    assert gpu_kernels.main([(2, 3, 6, 6)], [(3, 5)], [(3, 4, 5)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 4 + 5 + 5 + 2
    assert all("fastest:" in line for line in lines)
    assert sum("dpexec" in line for line in lines) == len(lines) - 1
    assert any("bfloat16" in line and "rounded in front" in line for line in lines)
