"""The dask tasks of a step on a cluster: their number, and the values sent between workers."""

import pytest

import dpexec as fluid
from dpexec.engine.cluster.client.jobs import jobs_of, joined_names
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.compile.plans.bucket_size import TASKS, Link
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import PlanKey
from tests.engine.run.nets import AllReduce, Reduce, classifier, strategies

PAIR = ("a", "b")
BYTES_ALONE = Link(0.0, 1e9)


def jobs(homes, mode=AllReduce, idle=(), startup=False, link=TASKS):
    net = classifier(fluid.optimizer.Adam(0.01))
    build, _ = strategies(mode)
    program = net.startup if startup else net.main
    made = Compilation.of(program, [fluid.CPUPlace()] * len(homes), build, False, "tasks")
    graph, _ = made.graph()
    fetched, fed = ((), ()) if startup else ((net.loss.name,), ("x", "y"))
    plan = made.plan(graph, PlanKey(fetched, frozenset(fed), tuple(idle)))
    return jobs_of(plan, HomeTable(homes), lambda: link)


def named(found):
    return [job.name.partition("-")[0] for job in found.found]


def job_called(found, name):
    (job,) = (job for job in found.found if job.name.startswith(name))
    return job


def test_each_replica_has_a_task_before_and_after_the_sum():
    found = jobs(PAIR)
    forward = ["forward_backward_dev0", "forward_backward_dev1"]
    assert named(found) == [*forward, "all_reduce", "optimizer_dev0", "optimizer_dev1"]
    assert [job.feeds for job in found.found] == [True, True, False, False, False]
    assert [job.stores is not None for job in found.found] == [False, False, False, True, True]


def test_owners_take_update_and_send_in_one_task():
    found = jobs(PAIR, Reduce)
    owners = [name for name in named(found) if name.startswith("reduce")]
    assert owners == [f"reduce_optimizer_broadcast_dev{device}" for device in (0, 1)]
    assert len(found.found) == 2 + 2 + 2


def test_only_what_another_worker_reads_is_given():
    found = jobs(PAIR)
    gradients = {name for _, name in job_called(found, "forward_backward_dev1").gives}
    assert gradients and all(name.endswith("@GRAD") for name in gradients)
    assert job_called(found, "forward_backward_dev0").gives == ()
    assert set(job_called(found, "all_reduce").gives) == {(1, name) for name in gradients}


def test_nothing_is_given_on_one_worker():
    assert not any(job.gives for job in jobs(("a", "a")).found)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_jobs_come_after_those_that_they_wait_for(mode):
    for homes in PAIR, ("a", "a", "b"), ("a", "b", "c"):
        for index, job in enumerate(jobs(homes, mode).found):
            assert all(other < index for other in job.after)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_replicas_that_meet_in_every_step_need_not_wait_for_all(mode):
    assert jobs(PAIR, mode).flows
    assert not jobs(PAIR, mode, idle=[1]).flows  # it takes no part in any sum
    assert not jobs(PAIR, mode, startup=True).flows


def devices_of_sums(found, kind):
    """Whose values each job adds up, along the workers."""
    return [job.device for job in found.found if job.name.startswith(f"{kind}_dev")]


def test_workers_with_several_replicas_add_up_before_anything_travels():
    found = jobs(("a", "a", "a", "b", "b"), link=BYTES_ALONE)
    assert devices_of_sums(found, "all_reduce") == [0, 3]
    first, last = (job_called(found, f"all_reduce_dev{device}") for device in (0, 3))
    (action,) = last.actions
    assert {where for where, _ in first.gives} == {0}
    assert {place for _, _, (place, _) in action.takes} == {0}
    assert {where for where, _ in action.leaves} == {1, 2}
    assert {where for where, _ in last.gives} == {0, 1, 2}
    assert found.flows


@pytest.mark.parametrize(
    ("homes", "latency", "along"),
    [
        (("a", "a", "b", "b"), 5e-3, False),  # a hop costs more than these small gradients
        (("a", "a", "b", "b"), 0.0, True),
        (("a", "b"), 0.0, False),  # there is nothing to add up before
        (("a", "a", "b"), 0.0, False),  # as many bytes either way
        (("a", "b", "a", "b"), 0.0, False),  # another order would give other bits
    ],
)
def test_sums_go_along_the_workers_where_that_pays(homes, latency, along):
    found = jobs(homes, link=Link(latency, 1.25e9))
    assert bool(devices_of_sums(found, "all_reduce")) == along


def test_sums_for_an_owner_end_at_its_worker_where_they_can():
    found = jobs(("a", "a", "b", "b"), Reduce, link=BYTES_ALONE)
    assert devices_of_sums(found, "reduce") == [
        0,
        0,
    ]  # for the owners 2 and 3; it pays for no other
    owners = [name for name in named(found) if name.startswith("reduce_optimizer")]
    assert sorted(owners) == [f"reduce_optimizer_broadcast_dev{device}" for device in range(4)]


HOSTS = ("one:1", "two:1", "three:1")


def test_hosts_divide_sums():
    found = jobs(HOSTS, link=BYTES_ALONE)
    first = [name for name in named(found) if name.startswith("forward")]
    assert first == [f"forward_backward_cut_share{s}_dev{d}" for d, s in ((0, 1), (1, 0), (2, 0))]
    assert [n for n in named(found) if n.startswith("cut")] == [
        f"cut_share{share}_dev{device}" for device, share in ((0, 2), (1, 2), (2, 1))
    ]
    for share in range(3):
        adding = job_called(found, f"reduce_scatter_dev{share}")
        (action,) = adding.actions
        assert {source for _, (source, _), _ in action.takes} == {0, 1, 2} - {share}
        assert {name.partition("[")[2] for _, name in adding.gives} == {f"{share}]"}
    last = [name for name in named(found) if name.startswith("all_gather")]
    assert last == [f"all_gather_optimizer_dev{device}" for device in range(3)]
    assert found.flows


def test_a_worker_of_each_host_adds_up():
    found = jobs(("one:1", "one:2", "two:1", "two:2"), link=BYTES_ALONE)
    adders = [job.device for job in found.found if job.name.startswith("reduce_scatter")]
    assert adders == [0, 2]
    assert len([name for name in named(found) if name.startswith("all_gather")]) == 4


@pytest.mark.parametrize(
    ("homes", "options"),
    [
        (HOSTS, {"link": Link(5e-3, 1e9)}),  # more tasks cost more than these few bytes
        (("one:1", "one:2", "one:3"), {"link": BYTES_ALONE}),
        (HOSTS, {"link": BYTES_ALONE, "idle": [2]}),  # no values of its own
        (HOSTS, {"link": BYTES_ALONE, "mode": Reduce}),  # owners divide the work already
    ],
)
def test_sums_stay_whole_where_that_is_faster(homes, options):
    assert not any("share" in name for name in named(jobs(homes, **options)))


def test_names_of_tasks_that_do_two_things_say_both_and_where():
    assert joined_names("optimizer_dev0-4", "forward_dev0-0") == "optimizer_forward_dev0-4-0"
    assert joined_names("forward_dev1-3", "forward_dev1-5") == "forward_dev1-3-5"
    assert joined_names("all_reduce-2", "optimizer_dev0-3") == "all_reduce_optimizer_dev0-2-3"
