"""The examples learn, and the demo prints and writes what its help says."""

import json
import math
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import dpexec as fluid
from dpexec import cli
from dpexec.engine import trace
from dpexec.examples import demo, training
from dpexec.examples.example import MissingPackageError
from dpexec.examples.training import Settings, Speed, Trainer, train

ALL_REDUCE = fluid.BuildStrategy.ReduceStrategy.AllReduce
REDUCE = fluid.BuildStrategy.ReduceStrategy.Reduce


@pytest.fixture
def quick(monkeypatch):
    """Time for milliseconds only."""
    monkeypatch.setattr(training, "_ROUND_SECONDS", 0.005)


def learn(name, epochs, devices=2, mode=ALL_REDUCE):
    example = demo.find(name)
    data = example.load()
    trainer = Trainer(example.build(), Settings(devices, mode, "threads"), devices)
    losses = train(example, data, trainer, epochs)
    assert len(losses) == epochs * math.ceil(data.samples / example.batch_size)
    return losses, trainer.evaluate(data.test)


def test_digits_are_read():
    _, accuracy = learn("digits", epochs=25)
    assert accuracy > 0.95


def test_line_fits_better_than_the_mean():
    _, loss = learn("fit_a_line", epochs=20)
    assert loss < 0.75  # the variance of what is predicted is 1


def test_words_are_guessed_better_than_by_frequency():
    data = demo.find("word2vec").load()
    counts = np.bincount(data.train["next"].ravel(), minlength=1000) + 1.0
    by_frequency = -np.log(counts / counts.sum())[data.test["next"]].mean()
    _, loss = learn("word2vec", epochs=1, mode=REDUCE)
    assert loss < by_frequency - 0.3


def test_data_of_an_example_are_split_without_overlap():
    data = demo.find("fit_a_line").load()
    train_rows = {row.tobytes() for row in data.train["x"]}
    assert (len(data.train["y"]), len(data.test["y"])) == (354, 88)
    assert not any(row.tobytes() in train_rows for row in data.test["x"])


def test_modes_train_alike():
    assert learn("fit_a_line", 3)[0] == learn("fit_a_line", 3, mode=REDUCE)[0]


@pytest.mark.usefixtures("quick")
def test_demo_ends_with_json_and_writes_its_files(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    arguments = ["demo", "fit_a_line", "--epochs", "2", "--json", "--out", str(out)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    outcome = json.loads(printed[-1])
    assert 0 < outcome["loss"] < 2
    assert outcome["steps"] == 12
    assert outcome["steps_per_second"] > 0
    assert outcome["speedup"] > 0
    ElementTree.parse(outcome["graph"])
    events = trace.load(outcome["trace"])
    assert {event.kind for event in events} == {"feed", "task", "op", "collective", "fetch"}
    assert events.devices == (0, 1)
    assert (out / "fit_a_line-loss.png").is_file()
    assert any("speed-up" in line for line in printed)


@pytest.mark.usefixtures("quick")
def test_demo_without_matplotlib_draws_in_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["demo", "fit_a_line", "--epochs", "1", "--devices", "1", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert "█" in text
    assert "with one replica" in text


def test_demo_without_scikit_learn_names_the_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingPackageError):
        demo.find("digits").load()
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error == ("dpexec demo: the digits come with scikit-learn: pip install 'dpexec[demo]'\n")


def test_demo_to_a_place_that_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_a_speedup_on_a_busy_machine_says_so(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (7.2, 0.0, 0.0), raising=False)
    assert "7 threads wanted the 2 CPUs" in demo._disturbed(2)
    assert demo._disturbed(8) == ""


def test_speedup_compares_with_one_replica():
    assert Speed(replicas=30.0, single=20.0).speedup == 1.5
