"""Training on a cluster on dask's own dashboard: task stream, pages, counters."""

import asyncio
import json
import re
import sys
import time
import urllib.request
from types import SimpleNamespace

import pytest
from distributed import Client, performance_report
from distributed.diagnostics.task_stream import color_of_message
from distributed.utils import color_of, key_split

import dpexec as fluid
from dpexec import dashboard
from dpexec.dashboard import pages
from dpexec.dashboard.cluster import Publisher
from dpexec.dashboard.groups import Members
from tests.dashboard.reports import report
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    batches,
    classifier,
    train,
    word_batches,
    words,
)
from tests.waiting import until


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(dashboard_address=":0", **options) as client:
        yield client


def get(client, path):
    url = client.dashboard_link.removesuffix("/status") + path
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def boards_of(client, steps):
    """The boards of the scheduler, as pages show them, when the latest knows of so many steps."""

    def boards(dask_scheduler):
        plugin = dask_scheduler.plugins["dpexec"]
        plugin.refresh()
        return list(plugin.boards.values())

    def found():
        known = client.run_on_scheduler(boards)
        return known if known and known[-1].steps == steps else None

    return until(found)


OWNERS = {"reduce_optimizer_broadcast_dev0", "reduce_optimizer_broadcast_dev1"}


@pytest.mark.parametrize(
    ("mode", "groups"),
    [
        (AllReduce, {"forward_backward_dev0", "all_reduce", "optimizer_dev0", "optimizer_dev1"}),
        (Reduce, {"forward_backward_dev0", *OWNERS, "commit_dev0", "commit_dev1"}),
    ],
)
def test_task_stream_groups_by_phase_and_device(client, mode, groups):
    client.get_task_stream()  # switches recording on
    train(classifier(), batches(3), 2, mode, scheduler=client, collectives="tasks")
    rows = [row for row in client.get_task_stream() if isinstance(row["key"], tuple)]
    found = {key_split(row["key"]) for row in rows}
    assert groups | {"forward_backward_dev1"} <= found
    assert all(re.fullmatch(r"\w+_dev\d|all_reduce|_store|_load", name) for name in found)
    by_step: dict[str, set[str]] = {}  # colours by step of the latest run
    for row in rows:
        by_step.setdefault(row["key"][1], set()).add(color_of(key_split(row["key"])))
    first, second, third = list(by_step.values())[-3:]
    assert first == second == third and len(first) >= 4


def test_prefixes_and_colours_do_not_depend_on_run_or_process():
    for name, colour in (
        ("forward_backward_dev0", "#471669"),
        ("forward_backward_dev1", "#88D547"),
        ("all_reduce", "#2E6C8E"),
        ("optimizer_dev0", "#AFDC2E"),
        ("optimizer_dev1", "#287A8E"),
    ):
        for key in ((f"{name}-3", "0123abcd-17"), (f"{name}-12", "ffffffff-1")):
            assert key_split(key) == name
            assert color_of(key_split(key)) == colour


def measured_board(client, steps):
    """The latest board, when it has a time of every box."""

    def found():
        *_, board = boards_of(client, steps)
        return board if all(board.seconds_of(box) for box in board.boxes) else None

    return until(found)


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_scheduler_shows_the_page_the_panels_and_the_counters(client, collectives):
    run = train(classifier(), batches(3), 2, scheduler=client, collectives=collectives)
    board = measured_board(client, steps=3)
    assert (board.steps, board.samples) == (3, 36)
    assert board.sample is not None and len(board.memory) == 2
    assert len(board.loss.points) == 3
    assert board.loss.points[-1][1] == pytest.approx(float(run.losses[-1].mean()))
    page = get(client, "/dpexec")
    assert "<title>Dask" in page and 'href="dpexec"' in page
    assert 'href="dpexec"' in get(client, "/status")
    plots = json.loads(get(client, "/individual-plots.json"))
    assert pages.PLOTS.items() <= plots.items()
    assert "Individual Task Stream" in plots  # dask's own are still there
    for path in pages.PLOTS.values():
        assert "<title>dpexec: " in get(client, path)
    metrics = get(client, "/metrics")
    assert re.search(rf'dpexec_steps_total{{.*run="{board.run}"}} 3\.0', metrics)
    assert "dask_scheduler_workers" in metrics


GROUPS = [["forward_backward_dev0", "all_reduce", "optimizer_dev0"]]
GROUPS += [[name.replace("dev0", "dev1") for name in GROUPS[0]]]


def members_of(client, steps):
    """What the workers of the latest board have told, when they have told of so many steps."""

    def found():
        board = client.run_on_scheduler(lambda dask_scheduler: _latest(dask_scheduler))
        members = sorted(board.members.values(), key=lambda member: member.name)
        return members if [member.steps for member in members] == [steps, steps] else None

    return until(found)


def _latest(scheduler):
    return scheduler.plugins["dpexec"].refresh()


def test_steps_of_a_gang_are_counted_and_its_tasks_are_shown(client):
    client.get_task_stream()  # switches recording on
    run = train(classifier(), batches(20), 2, scheduler=client, collectives="gang")
    *_, board = boards_of(client, steps=20)
    assert (board.steps, board.samples, board.current) == (20, 240, None)
    assert board.loss.points[-1][1] == pytest.approx(float(run.losses[-1].mean()))
    members = members_of(client, 20)
    assert [list(member.groups) for member in members] == GROUPS
    for group in (group for member in members for group in member.groups.values()):
        assert group.runs == 20 and group.seconds > 0
    tag = run.compiled._engine._cluster.token[:8]
    rows = [row for row in client.get_task_stream() if row["key"][-1].startswith(tag)]
    assert {key_split(row["key"]) for row in rows} == {name for part in GROUPS for name in part}
    assert {row["thread"] for row in rows} == {"dev0", "dev1", "collectives"}
    assert {row["status"] for row in rows} == {"OK"}
    steps = {row["key"][1].partition(",")[0] for row in rows}
    assert {f"{tag}-0", f"{tag}-1", f"{tag}-2"} <= steps and len(steps) < 20
    assert all(", one of " in row["key"][1] for row in rows if row["key"][1][9:] > "1")
    metrics = get(client, "/metrics")
    assert re.search(rf'dpexec_steps_total{{.*run="{board.run}"}} 20\.0', metrics)
    labels = f'group="optimizer_dev1",run="{board.run}",worker="{members[1].name}"'
    assert f"dpexec_group_runs_total{{{labels}}} 20.0" in metrics
    prefix = 'dask_scheduler_tasks_compute_seconds_total{task_prefix_name="optimizer_dev1"}'
    assert float(re.search(f"{prefix} (.*)", metrics)[1]) > 0

    def shown():
        rows = [row for row in client.get_task_stream() if isinstance(row["key"], tuple)]
        return {"gang_dev0", "gang_dev1"} <= {key_split(row["key"]) for row in rows}

    until(shown)  # when nobody has trained for a moment


def test_tasks_of_a_gang_are_no_tasks_of_the_scheduler(client):
    train(classifier(), batches(3), 2, scheduler=client, collectives="gang")
    members_of(client, 3)

    def counted(dask_scheduler):
        prefixes = dask_scheduler.task_prefixes.values()
        return {name: sum(p.states.values()) for p in prefixes if (name := p.name) in GROUPS[0]}

    assert set(client.run_on_scheduler(counted).values()) <= {0}


def test_failed_step_of_a_gang_is_black_in_the_task_stream(client):
    client.get_task_stream()
    net = words(fluid.optimizer.SGD(0.1))
    bad, *rest = word_batches(2)
    run = train(net, rest, 2, scheduler=client, collectives="gang")
    bad["x"][-1, 0] = 50
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(run.scope), pytest.raises(fluid.core.EnforceNotMet):
        exe.run(run.compiled, feed=bad, fetch_list=[net.loss])

    def failed():
        rows = [row for row in client.get_task_stream() if row["status"] == "error"]
        return {key_split(row["key"]): row for row in rows if "EnforceNotMet" in row["key"][1]}

    found = until(failed)
    assert found.keys() == {"gang_dev1"}
    assert color_of_message(found["gang_dev1"]) == "black"
    assert "lookup_table_v2" in found["gang_dev1"]["key"][1]


def test_step_of_a_gang_that_takes_long_is_shown_while_it_runs(client):
    run = train(classifier(), batches(3), 2, scheduler=client, collectives="gang")
    members_of(client, 3)
    tag = run.compiled._engine._cluster.token[:8]

    def tell(dask_scheduler, running):
        plugin, worker = dask_scheduler.plugins["dpexec"], next(iter(dask_scheduler.workers))
        told = {"steps": 0, "groups": {}, "spans": [], "failed": [], "running": running}
        told |= {"tag": tag, "members": 2, "worker": worker}
        plugin.log_event("dpexec-groups", told)
        return plugin.refresh().current

    current = client.run_on_scheduler(tell, running=[7, 2.0])
    assert (current["step"], current["since"]) == (8, 2.0)
    assert client.run_on_scheduler(tell, running=None) is None


def test_workers_that_have_left_are_bounded():
    members = Members(SimpleNamespace(workers={}))
    for number in range(50):
        members.count(("optimizer_dev0-3", f"0123abcd-0-{number}"), {"worker": f"tcp://{number}"})
        members.leave(f"tcp://{number}")
    assert len(members.of("0123abcd")) < 20


def test_measured_step_is_shown_when_all_members_have_told_of_it():
    members = Members(SimpleNamespace(workers={}))
    told = {"tag": "0123abcd", "steps": 1, "groups": {}, "running": None, "members": 2}
    found = []
    for device in (0, 1):
        span = [f"optimizer_dev{device}-{device}", device, 0, 1, 5.0, 6.0]
        found.append(members.take(f"tcp://{device}", {**told, "spans": [span]}))
    first, (second,) = found
    assert first == []
    assert [key for *_, key, _, _ in second["slices"]] == ["optimizer_dev0-0", "optimizer_dev1-1"]


def test_tasks_of_the_scheduler_are_groups_too(client):
    train(classifier(), batches(3), 2, scheduler=client, collectives="tasks")
    boards_of(client, steps=3)
    members = client.run_on_scheduler(lambda dask_scheduler: _latest(dask_scheduler)).members
    found = {name: group.runs for m in members.values() for name, group in m.groups.items()}
    assert found["optimizer_dev0"] == found["optimizer_dev1"] == found["all_reduce"] == 3
    assert [member.steps for member in members.values()] == [3, 3]


def test_performance_report_has_the_groups_and_a_summary(client, tmp_path):
    path = tmp_path / "report.html"
    with performance_report(filename=str(path), mode="inline"):
        train(classifier(), batches(3), 2, scheduler=client)
        boards_of(client, steps=3)
    content = path.read_text(encoding="utf-8")
    assert content.count("forward_backward_dev0") >= 3 and "all_reduce" in content
    assert content.rindex("</script>") < content.index('<section id="dpexec">')
    summary = content[content.index('<section id="dpexec">') :]
    assert "device 1" in summary and "all-reduce" in summary and "2 devices, AllReduce" in summary


def test_performance_report_has_the_groups_of_a_gang_that_has_just_trained(
    client, tmp_path, monkeypatch
):
    async def late(self, send=Publisher._send):  # as on a busy machine
        await asyncio.sleep(0.3)
        await send(self)

    monkeypatch.setattr(Publisher, "_send", late)
    path = tmp_path / "report.html"
    with performance_report(filename=str(path), mode="inline"):
        train(classifier(), batches(3), 2, scheduler=client, collectives="gang")
    content = path.read_text(encoding="utf-8")
    for name in {name for part in GROUPS for name in part}:
        assert f'"{name}"' in content
    summary = content[content.index('<section id="dpexec">') :]
    assert "What steps consist of" in summary and "optimizer_dev1" in summary


def test_plugin_is_installed_once_whatever_trains(client):
    for _ in range(2):
        train(classifier(), batches(1), 2, scheduler=client)
    pages_of = client.run_on_scheduler(
        lambda dask_scheduler: [
            path
            for app in dask_scheduler.http_application.applications
            for path in getattr(app, "app_paths", ())
            if path == "/dpexec"
        ]
    )
    assert pages_of == ["/dpexec"]


def test_scheduler_that_has_begun_anew_shows_the_page_again():
    net, (feed,), options = classifier(), batches(1), {"n_workers": 1, "processes": False}

    def forget(dask_scheduler):
        del dask_scheduler.plugins["dpexec"], dask_scheduler.handlers["dpexec_report"]

    def plugins(dask_scheduler):
        return [*dask_scheduler.plugins]

    def feeds():
        yield feed
        client.run_on_scheduler(forget)
        until = time.monotonic() + 30
        while "dpexec" not in client.run_on_scheduler(plugins) and time.monotonic() < until:
            yield feed

    with Client(dashboard_address=":0", threads_per_worker=1, **options) as client:
        train(net, feeds(), 1, scheduler=client)
        assert "dpexec" in client.run_on_scheduler(plugins)


def test_boards_are_bounded_and_the_latest_is_shown(client):
    train(classifier(), batches(1), 1, scheduler=client)  # installs the plugin
    reports = [report(3, 100.0 + n, run=f"run{n}") for n in range(20)]

    def take(dask_scheduler):
        plugin = dask_scheduler.plugins["dpexec"]
        for number, each in enumerate(reports):
            plugin.report(each, f"token{number}")
        return len(plugin.boards), len(plugin._steps), len(plugin._tokens), plugin.refresh().run

    assert client.run_on_scheduler(take) == (8, 8, 8, "run19")


def test_local_server_points_to_the_cluster(client):
    run = train(classifier(), batches(1), 2, scheduler=client)
    with pytest.raises(ValueError, match=r"trains on a cluster.*/dpexec"):
        dashboard.serve(run.compiled)


def test_scheduler_without_bokeh_says_so_and_trains(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh.server.tornado", None)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with Client(dashboard_address=":0", **options) as client:
        train(classifier(), batches(2), 1, scheduler=client)
        assert "bokeh is not installed" in get(client, "/dpexec")


def test_scheduler_that_takes_no_plugins_is_no_obstacle(monkeypatch):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with Client(dashboard_address=":0", **options) as client:

        def refuse(*_, **__):
            raise ValueError("no plugins here")

        monkeypatch.setattr(client, "register_plugin", refuse)
        without_watch = pytest.warns(UserWarning, match="workers will not notice")
        with without_watch, pytest.warns(UserWarning, match="gets no /dpexec page: no plugins"):
            train(classifier(fluid.optimizer.SGD(0.1)), batches(2), 1, scheduler=client)
