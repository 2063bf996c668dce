"""Training continued from a checkpoint gives the same bits as training without interruption."""

import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from dpexec.checkpoint import Checkpoints, Resumed
from dpexec.checkpoint.files import Folder, Stored
from dpexec.engine.core.errors import EnforceNotMet
from tests.checkpoint.training import net, train
from tests.distributed.clusters import workers
from tests.distributed.kept import PROGRAMS, STEPS
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, strategies

ROOT = Path(__file__).parents[2]


def assert_resumes(tmp_path, first=None, second=None, **options):
    """Six steps and then four more have the results of ten."""
    expected, whole, programs = train(tmp_path / "whole", 10, every=100, **options)
    before, _, _ = train(tmp_path / "run", 7, **options, **(first or {}))
    after, state, again = train(tmp_path / "run", 10, **options, **(second or {}))
    assert np.array_equal(expected, [*before[:6], *after])
    assert whole.keys() == state.keys()
    for name, value in whole.items():
        assert np.array_equal(value, state[name]), f"{name} differs"
    assert programs == again
    return whole


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_two_replicas_go_on_with_the_same_bits(tmp_path, mode, scheduler):
    state = assert_resumes(tmp_path, mode=mode, scheduler=scheduler)
    own = {name for name in state if name.endswith("@1")}
    assert len(own) == (2 if mode == AllReduce else 0)  # mean and variance of the second half


def test_what_every_replica_holds_back_of_its_gradients_is_state(tmp_path):
    def dgc():
        optimizer = fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, sparsity=[0.9])
        return classifier(optimizer, sizes=(8, 3000, 3), dropout=0.2)

    state = assert_resumes(tmp_path, make=dgc)
    assert any("dgc_v" in name.lower() and name.endswith("@1") for name in state), sorted(state)


@pytest.mark.parametrize("kind", ["program", "parallel"])
def test_executor_and_parallel_executor_go_on_with_the_same_bits(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    assert_resumes(tmp_path, kind=kind)


@pytest.fixture(scope="module")
def clusters():
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "set_as_default": False}
    with (
        workers(2) as two_workers,
        Client(n_workers=1, processes=False, **options) as one_worker,
    ):
        yield two_workers.client, one_worker


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_cluster_goes_on_with_another_number_of_workers_and_on_threads(tmp_path, mode, clusters):
    two, one = clusters
    expected, whole, _ = train(tmp_path / "whole", 5, mode=mode)
    for name, first, second in (
        ("cluster", two, one),
        ("home", one, "threads"),
        ("away", "sync", two),
    ):
        train(tmp_path / name, 4, mode=mode, scheduler=first)
        losses, state, _ = train(tmp_path / name, 5, mode=mode, scheduler=second)
        assert np.array_equal(losses, expected[3:])
        for variable, value in whole.items():
            assert np.array_equal(value, state[variable]), f"{name}: {variable} differs"


def test_what_is_saved_right_after_resuming_is_what_was_resumed(tmp_path):
    train(tmp_path, 3)
    stored = Folder(tmp_path).read(3)
    trained = net()
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        compiled = fluid.CompiledProgram(trained.main).with_data_parallel(
            trained.loss.name, places=[fluid.CPUPlace()] * 2
        )
        with Checkpoints(exe, tmp_path, compiled) as checkpoints:
            assert checkpoints.resume() == Resumed(3, {"next": 3})
            checkpoints.save("again")
    again = Folder(tmp_path).read(3)
    assert again.about == {**stored.about, "extra": "again"}
    for (facts, value), (_, other) in zip(again.arrays, stored.arrays, strict=True):
        assert np.array_equal(value, other), facts


def test_programs_that_are_trained_together_count_their_runs_apart(tmp_path):
    one, other = classifier(dropout=0.5), classifier(fluid.optimizer.SGD(0.05), dropout=0.5)
    feed = batches(1)[0]

    def train_both(folder, steps):
        losses = []
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(one.startup)
            with Checkpoints(exe, folder, [one.main, other.main], every=2) as checkpoints:
                for step in range(checkpoints.resume().step, steps):
                    for made in (one, other, other)[: 2 + step % 2]:
                        losses += exe.run(made.main, feed, [made.loss])
                    checkpoints.step()
        return losses

    expected = train_both(tmp_path / "whole", 6)
    train_both(tmp_path / "run", 4)
    assert np.array_equal(train_both(tmp_path / "run", 6), expected[-5:])


def test_the_last_checkpoints_are_kept(tmp_path):
    train(tmp_path, 13, every=2, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-00000000{step:02}.npz" for step in (8, 10, 12)
    ]
    assert "manifest.json" in np.load(tmp_path / "step-0000000012.npz")


def test_checkpoints_go_where_fsspec_reaches():
    train("memory://runs/1", 4, every=2)
    losses, _, _ = train("memory://runs/1", 5, every=2)
    assert len(losses) == 1
    assert Folder("memory://runs/1").steps() == [2, 4]


def test_killed_training_leaves_whole_checkpoints(tmp_path):
    command = [sys.executable, "-m", "tests.checkpoint.kill_training", str(tmp_path / "run"), "3"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3 kills" in done.stdout


# ---- what is refused


def resume(folder, main, devices=1, mode=AllReduce):
    """Resume in a new scope; returns the names of the variables in it."""
    scope = fluid.Scope()
    build = fluid.BuildStrategy()
    build.reduce_strategy = mode
    compiled = fluid.CompiledProgram(main.main).with_data_parallel(
        main.loss.name, build, places=[fluid.CPUPlace()] * devices
    )
    exe = fluid.Executor(fluid.CPUPlace())
    with Checkpoints(exe, folder, compiled, scope=scope) as checkpoints:
        try:
            checkpoints.resume()
        finally:
            names = scope.local_var_names()
    return names


def test_other_programs_are_refused_before_anything_changes(tmp_path):
    train(tmp_path, 3)
    other = classifier(sizes=(8, 5, 3))
    scope = fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(other.startup, scope=scope)
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}
    with (
        Checkpoints(exe, tmp_path, other.main, scope=scope) as checkpoints,
        pytest.raises(EnforceNotMet) as raised,
    ):
        checkpoints.resume()
    text = str(raised.value)
    assert "fc_0.w_0 is float32[8, 16] in the checkpoint, float32[8, 5] in the program" in text
    assert "batch_norm_0.b_0 is float32[16] in the checkpoint, missing in the program" in text
    assert before.keys() == set(scope.local_var_names())
    for name, value in before.items():
        assert np.array_equal(value, np.array(scope.find_var(name).get_tensor()))


def test_other_replicas_are_refused(tmp_path):
    train(tmp_path, 3)
    with pytest.raises(EnforceNotMet, match="of 2 replicas, but the program is compiled for 3"):
        resume(tmp_path, net(), 3)
    with pytest.raises(EnforceNotMet, match="values of single replicas, such as batch_norm_0"):
        resume(tmp_path, net(), 2, Reduce)


def test_an_earlier_run_is_not_mixed_with_a_new_one(tmp_path):
    train(tmp_path, 3)
    with (
        Checkpoints(fluid.Executor(fluid.CPUPlace()), tmp_path, net().main) as checkpoints,
        pytest.raises(EnforceNotMet, match=r"earlier run: call resume\(\)"),
    ):
        checkpoints.step()


# ---- writing beside the training


def test_writing_does_not_hold_up_training_and_sees_no_later_step(tmp_path, monkeypatch):
    written, write = threading.Event(), Folder.write

    def slow(self, step, content):
        assert written.wait(20)
        write(self, step, content)

    monkeypatch.setattr(Folder, "write", slow)
    trained, feeds = net(), batches(5)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(trained.startup)
        with Checkpoints(exe, tmp_path, trained.main, every=3) as checkpoints:
            for feed in feeds:
                exe.run(trained.main, feed)
                checkpoints.step()
                if checkpoints._done == 3:
                    third = np.array(scope.find_var("fc_0.w_0").get_tensor())
            assert checkpoints.steps == []
            written.set()
        assert not np.array_equal(third, np.array(scope.find_var("fc_0.w_0").get_tensor()))
    found = {entry["variable"]: array for entry, array in Folder(tmp_path).read(3).arrays}
    assert np.array_equal(found["fc_0.w_0"], third)


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    def fail(self, step, content):
        raise OSError(f"no space for step {step}")

    monkeypatch.setattr(Folder, "write", fail)
    trained = net()
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(trained.startup)
        checkpoints = Checkpoints(exe, tmp_path, trained.main, every=2)
        checkpoints.step()
        checkpoints.step()
        wait([checkpoints._writing])
        with pytest.raises(OSError, match="no space for step 2"):
            checkpoints.step()
        checkpoints.step()
        with pytest.raises(OSError, match="no space for step 4"):
            checkpoints.close()


def test_half_a_file_is_removed_when_writing_fails(tmp_path):
    train(tmp_path, 3)
    stored = Folder(tmp_path).read(3)
    (tmp_path / "step-0000000009.npz.part").write_text("of a process that was killed")
    impossible = Stored(stored.about, [*stored.arrays, ({}, np.array([object()]))])
    with pytest.raises((TypeError, ValueError)):
        Folder(tmp_path).write(4, impossible)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000003.npz"]


@pytest.mark.parametrize("place", ["threads", "cluster"])
def test_a_write_after_resuming_reaches_all_replicas(tmp_path, place, request):
    scheduler = request.getfixturevalue("clusters")[1] if place == "cluster" else "threads"
    train(tmp_path, 3)
    trained, feed = net(), batches(1)[0]
    build, execution = strategies(scheduler=scheduler)
    compiled = fluid.CompiledProgram(trained.main).with_data_parallel(
        trained.loss.name, build, execution, places=[fluid.CPUPlace()] * 2
    )
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        with Checkpoints(exe, tmp_path, compiled) as checkpoints:
            checkpoints.resume()
            mean = fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor()
            mean.set(np.full(16, 1000, "float32"))
            exe.run(compiled, feed, [trained.loss])
            state = checkpoints._training.take()
    means = [array for facts, array in state.arrays if facts["variable"] == "batch_norm_0.w_1"]
    assert len(means) == 2 and np.min(means) > 800


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_arrays_tables_and_sequences_are_state(tmp_path, name, clusters):
    """Written on threads and in mode gang, read there and in mode tasks."""
    threads, cluster = {"scheduler": "threads"}, {"scheduler": clusters[0]}
    tasks, gang = ({**cluster, "collectives": how} for how in ("tasks", "gang"))
    whole = PROGRAMS[name]().run(2, **threads)
    for number, (first, second) in enumerate([(threads, tasks), (gang, threads)]):
        found = []
        for begin, end, options in ((0, 2, first), (2, STEPS, second)):
            kept, exe = PROGRAMS[name](), fluid.Executor(fluid.CPUPlace())
            with fluid.scope_guard(fluid.Scope()):
                kept.start()
                program = kept.compiled(2, **options)
                with Checkpoints(exe, tmp_path / str(number), program, every=2) as saved:
                    saved.resume()
                    found += kept.train(program, range(begin, end))
                    saved.save()
        assert found == whole


def test_arguments_are_checked(tmp_path):
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(TypeError, match="not JSON serializable"):
        Checkpoints(exe, tmp_path, net().main).save(extra={"reader": object()})
    with pytest.raises(TypeError, match="every must be an integer"):
        Checkpoints(exe, tmp_path, every="a")
    with pytest.raises(ValueError, match="every is 0"):
        Checkpoints(exe, tmp_path, every=0)
    with pytest.raises(TypeError, match="Executor or ParallelExecutor"):
        Checkpoints(fluid.Program(), tmp_path)
    with pytest.raises(TypeError, match="Programs and CompiledPrograms"):
        Checkpoints(exe, tmp_path, [exe])
