"""The programs of the guides run, and give what the guides say.

Scripts of several processes are tested where these are (``incubate``, ``runtime/pservers``), and so
are clusters, data sets and predictors.
"""

import re
import subprocess
import sys
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dpexec as fluid
from dpexec import viz
from dpexec.checkpoint import Checkpoints
from dpexec.engine.core.errors import section_of
from dpexec.engine.ir import opdef
from tests.engine.run.nets import batches, classifier
from tests.guides import ROOT, programs


@pytest.fixture
def trained():
    """What guides take for granted: a net on two replicas, its batches, an executor."""
    net, exe = classifier(), fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, places=fluid.cpu_places(2)
    )
    names = {"fluid": fluid, "dpexec": fluid, "np": np, "viz": viz, "exe": exe}
    names |= {"main": net.main, "loss": net.loss, "compiled": compiled}
    names |= {"batches": batches(120), "steps": 120, "feed": batches(1)[0]}
    with fluid.program_guard(net.main, net.startup):
        yield names


def test_sequences():
    names: dict = {}
    for program in programs("docs/sequences.md"):
        exec(program, names)
    names["exe"].run(fluid.default_startup_program())
    run = {"feed": names["batch"], "fetch_list": [names["states"]], "return_numpy": False}
    (states,) = names["exe"].run(**run)
    assert 0 < float(names["value"]) < 2
    assert states.lod() == [[0, 3, 5]] and states.shape() == [5, 16]
    (attended,) = names["exe"].run(feed=names["batch"], fetch_list=[names["attended"]])
    assert attended.shape == (2, 16)
    (between,) = names["exe"].run(feed=names["batch"], fetch_list=[names["between"]])
    assert between.shape == (2, 3, 32)


def test_optimizers(capsys):
    names: dict = {}
    for program in programs("docs/optimizers.md"):
        exec(program, names)
    (shown,) = re.findall(
        r"```text\n(.*?)```", (ROOT / "docs/optimizers.md").read_text(), re.DOTALL
    )
    assert capsys.readouterr().out == shown
    assert names["now"] == np.float32(0.01) and np.isfinite(names["smooth"]).all()


def test_questions(trained, monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "3")
    on_all_cores, cell = programs("docs/questions.md")
    exec(on_all_cores, trained)
    assert trained["losses"].shape == (3,)
    assert float(capsys.readouterr().out) == pytest.approx(np.mean(trained["losses"]))
    for _ in range(2):  # a cell that may run again
        exec(cell, trained)
        assert [p.name for p in trained["main"].all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_dask_graphs(capsys):
    names: dict = {}
    for program in programs("docs/dask-graphs.md"):
        exec(program, names)
    best, *layers = capsys.readouterr().out.splitlines()
    found = [float(np.mean(loss.compute())) for loss in names["losses"]]
    assert float(best) == pytest.approx(min(found)) and found == sorted(found, reverse=True)
    assert {"all_reduce 1", "optimizer_dev0 1", "optimizer_dev1 1"} <= {*layers}


def test_checkpoints(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, shuffled, _ = programs("docs/checkpoints.md")
    exec(program, trained)
    assert trained["start"] == 0
    exec(program, trained)
    assert (trained["start"], trained["extra"]) == (100, {"epoch": 0})
    exec(shuffled, trained)
    assert (trained["start"], trained["checkpoints"].steps) == (0, [50, 100])


def test_checkpoints_of_epochs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    table = pd.DataFrame(np.eye(40, 5, dtype="float32"), columns=list("abcdy"))
    monkeypatch.setattr(dd, "read_parquet", lambda _: dd.from_pandas(table, npartitions=2))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, places=fluid.cpu_places(2)
    )
    names: dict = {"Checkpoints": Checkpoints, "compiled": compiled, "exe": exe}
    *_, program = programs("docs/checkpoints.md")
    exec(program, names)
    assert (names["start"], names["checkpoints"].steps) == (0, [1, 2, 3])
    exec(program, names)
    assert names["start"] == 3


def test_trainers(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("CPU_NUM", "2")
    compiled, exchange, resumed = programs("docs/trainers.md")
    exec(compiled, trained)
    exec(resumed, trained | {"trainer_id": 0})
    given = np.array([1, 3, 2], "float32")
    with fluid.program_guard(fluid.Program()):
        trained["value"] = fluid.data("value", [3])
        exec(exchange, trained)
        (found,) = trained["exe"].run(feed={"value": given}, fetch_list=[trained["everywhere"]])
    assert np.array_equal(found, given)


def test_viz(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = programs("docs/viz.md")
    head, tail = program.split("...  # train\n")
    exec(head, trained)
    replicas = fluid.CompiledProgram(trained["main"]).with_data_parallel(
        trained["loss"].name, exec_strategy=trained["execution"], places=fluid.cpu_places(2)
    )
    trained["exe"].run(replicas, feed=trained["feed"], fetch_list=[trained["loss"]])
    exec(tail, trained | {"replicas": replicas})
    assert viz.timeline("trace.json.gz").svg == viz.timeline(replicas).svg


def test_tutorial_of_nets_and_replicas(capsys):
    names: dict = {}
    for program in programs("docs/tutorial/1-first-net.md"):
        exec(program, names)
    said = capsys.readouterr().out
    assert "(3000, 2) (3000, 1)" in said and "(-1, 3) VarType.FP32" in said
    assert "point" in said and "(-1, 2)" in said, "the error of the wrong feed"
    assert float(names["loss_value"]) < 0.3 and float(names["right"]) > 0.9
    for program in programs("docs/tutorial/2-two-replicas.md"):
        exec(program, names)
    assert names["losses"].shape == (2,)


def test_tutorial_of_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    *head, checkpoints, resumed, interrupted = programs("docs/tutorial/3-your-own-data.md")
    for program in head:
        exec(program, names)
    assert names["losses"].mean() < 1e-3 and float(names["value"]) < 0.5
    exec(checkpoints, names)
    assert (names["start"], names["checkpoints"].steps) == (0, [30, 40, 50])
    exec(checkpoints, names)
    assert names["start"] == 50
    exec(resumed, names)
    assert names["checkpoints"].steps == [12, 15, 18]
    assert sorted(names["houses"]["city"].unique().compute()) == [0, 1, 2, 3]
    assert float((names["shown"]["y"] - names["shown"]["predicted"]).abs().max()) < 0.1
    exec(interrupted, names)
    assert Path("interrupted").is_dir()


def test_tutorial_of_clusters(tmp_path):
    (script,) = programs("docs/tutorial/4-on-a-cluster.md")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = re.findall(r"equal: (\w+)", ran.stdout)
    assert (ran.returncode, said) == (0, ["True", "True"]), ran.stdout + ran.stderr
    assert "has left the cluster" in ran.stderr


def test_extending(capsys, monkeypatch):
    monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})  # other tests list operators
    names: dict = {}
    for program in programs("docs/extending.md"):
        exec(program, names)
    page = (ROOT / "docs/extending.md").read_text("utf-8")
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert capsys.readouterr().out == "".join(shown)


def test_what_is_known_from_keras(capsys):
    (program,) = programs("docs/from-keras.md")
    names: dict = {}
    exec(program, names)
    assert capsys.readouterr().out == "100%\n"
    with pytest.raises(AttributeError, match="from-keras"):
        _ = fluid.layers.Dense


def test_catalogue_of_errors(tmp_path, monkeypatch):
    """Each example fails, names its section, and has its words; ``...`` stands for any."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    net, *examples = programs("docs/errors.md")
    exec(net, names)
    page = (ROOT / "docs/errors.md").read_text("utf-8")
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    headings = {
        number: re.sub(r"[^\w-]", "", line[4:].lower().replace(" ", "-"))
        for number, line in enumerate(page.splitlines())
        if line.startswith("### ")
    }
    for example, text in zip(examples, shown, strict=True):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - of any class; the page says which
            exec(example, names)
        found = f"{raised.type.__name__}: {raised.value}"
        pieces = [piece for line in text.splitlines() for piece in line.split("...")]
        assert [piece for piece in pieces if piece not in found] == [], found
        line = len(example) - len(example.lstrip("\n"))
        assert section_of(raised.value) == headings[max(n for n in headings if n < line)]


def test_migration(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    alias, executor = programs("docs/migration.md")
    names: dict = {}
    exec(alias, names)
    assert names["fluid"] is fluid
    exec(executor, names)
    assert names["losses"].shape == (2,)
