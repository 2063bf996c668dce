"""``dask.annotate`` around runs: chosen workers, priorities and resources."""

import dask
import numpy as np
import pytest
from distributed import SchedulerPlugin

import dpexec as fluid
from dpexec.engine.core.errors import ClusterError, EnforceNotMet
from tests.distributed.nets import NETS
from tests.engine.executors.test_delayed_steps import Training, assert_equal
from tests.engine.run.nets import batches

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])


class Notes(SchedulerPlugin):
    """Notes which annotations tasks of ours came with."""

    name = "notes"

    def __init__(self):
        self.found = {}

    def update_graph(self, scheduler, *, tasks, annotations, **rest):
        for kind, by_key in annotations.items():
            for key, value in by_key.items():
                self.found.setdefault(dask.utils.key_split(key), {})[kind] = value


@pytest.fixture
def notes(pair):
    """Gives the annotations of tasks, by their names."""
    pair.register_plugin(Notes())
    yield lambda: pair.run_on_scheduler(
        lambda dask_scheduler: dask_scheduler.plugins["notes"].found
    )
    pair.unregister_scheduler_plugin("notes")


@pytest.fixture
def lamp(pair):
    """The worker that has a lamp."""
    address = sorted(pair.nthreads())[1]

    def have(lamps):
        pair.run(_set_resources, lamps, workers=[address])

    have(2)
    yield address
    have(0)


async def _set_resources(lamps, dask_worker):
    await dask_worker.set_resources(LAMP=lamps)


def homes(training):
    return set(training.compiled._engine._cluster.address)


def assert_as_plain(training, feeds, losses):
    plain = Training()
    np.testing.assert_array_equal(losses, [plain.run(feed) for feed in feeds])
    assert_equal(plain.state, training.state)


@both_collectives
def test_replicas_live_where_they_are_wanted_and_move_when_that_changes(pair, lamp, collectives):
    training, feeds = Training(scheduler=pair, collectives=collectives), batches(5)
    other = min(pair.nthreads())
    (name,) = (w["name"] for a, w in pair.scheduler_info()["workers"].items() if a == other)
    losses = []
    with dask.annotate(workers=[name]):
        losses.append(training.run(feeds[0]))
    assert homes(training) == {other}
    with dask.annotate(resources={"LAMP": 1}):
        losses.append(training.run(feeds[1]))
        assert homes(training) == {lamp}
        losses.append(training.run(feeds[2]))
    losses.append(training.run(feeds[3]))
    assert homes(training) == {lamp, other}
    with dask.annotate(workers=["no such worker"], allow_other_workers=True):
        losses.append(training.run(feeds[4]))
    assert homes(training) == {lamp, other}
    assert_as_plain(training, feeds, losses)


def test_wishes_that_no_worker_meets_change_nothing(pair, lamp):
    training, feeds = Training(scheduler=pair), batches(2)
    loss = training.run(feeds[0])
    for wish, why in (
        ({"workers": ["moon"]}, r"no worker meets .*workers=\['moon'\].*is another one"),
        ({"resources": {"LAMP": 3}}, r"no worker meets .*LAMP.*has 2 LAMP"),
    ):
        with dask.annotate(**wish), pytest.raises(ClusterError, match=why):
            training.run(feeds[1])
    with dask.annotate(workers=lambda key: key), pytest.raises(TypeError, match="no function"):
        training.run(feeds[1])
    assert_as_plain(training, feeds, [loss, training.run(feeds[1])])


@both_collectives
def test_priorities_and_resources_reach_the_tasks_that_train(pair, lamp, notes, collectives):
    training, feeds = Training(scheduler=pair, collectives=collectives), batches(2)
    wish = {"priority": 7, "resources": {"LAMP": 1}, "allow_other_workers": True}
    with dask.annotate(**wish):
        losses = [training.run(feed) for feed in feeds]
    found = notes()
    trains = [name for name in found if "dev" in name]
    assert trains
    for name in trains:
        assert (found[name]["priority"], found[name]["resources"]) == (7, {"LAMP": 1})
    assert found["setup"]["priority"] == 7
    assert not any(found["setup"].get(kind) for kind in ("resources", "retries"))
    assert not any(kinds.get("allow_other_workers") for kinds in found.values())
    assert_as_plain(training, feeds, losses)


def test_retries_say_that_they_do_not_apply(pair):
    training, (feed,) = Training(scheduler=pair), batches(1)
    with dask.annotate(retries=3):
        with pytest.warns(UserWarning, match="retries=...\\) does not apply"):
            training.run(feed)
        wrong = {**feed, "y": feed["y"] + 7}
        with (
            pytest.warns(UserWarning, match="retries"),
            pytest.raises(EnforceNotMet, match="cross_"),
        ):
            training.run(wrong)


def test_annotations_around_the_making_count_as_well(pair, lamp):
    net, (feed, *_) = NETS["images"]()
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    execution = fluid.ExecutionStrategy()
    execution.scheduler = pair
    with dask.annotate(workers=[lamp]):
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=execution
        )
    exe.run(net.startup, scope=scope)
    exe.run(compiled, feed, [net.loss], scope=scope)
    assert compiled._engine._cluster.address == [lamp]
    exe.close()


def test_delayed_runs_keep_their_annotations(pair, lamp, notes):
    training, (feed,) = Training(scheduler=pair), batches(1)
    with dask.annotate(workers=[lamp], priority=3, retries=1):
        loss = training.delayed(feed)
    found = pair.compute(loss).result()
    assert homes(training) == {lamp}
    assert notes()["train_step"]["workers"] == [lamp]
    assert notes()["train_step"]["retries"] == 1
    (gang,) = (name for name in notes() if name.startswith("gang_dev"))
    assert notes()[gang]["priority"] == 3
    assert_as_plain(training, [feed], [found])


def test_clients_of_dasks_settings_make_the_steps(pair):
    (feed,) = batches(1)
    with dask.config.set(scheduler=pair):
        training = Training(scheduler=None)
        loss = training.run(feed)
    assert len(homes(training)) == 2
    assert_as_plain(training, [feed], [loss])
