"""The live view's server for training on threads."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import psutil
import pytest

import dpexec as fluid
from dpexec import dashboard
from dpexec.dashboard import pages
from dpexec.engine.trace import live
from tests.dashboard.test_monitor import Trainer
from tests.waiting import until


def get(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read().decode()


def let_work(page):
    """Give a page processor time: it takes none that others want, and other tests want all."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, page, 0)
        os.sched_setscheduler(page, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture(autouse=True)
def _pages_work(monkeypatch):
    serve = dashboard.serve

    def working(*args, **options):
        server = serve(*args, **options)
        let_work(server._process.pid)
        return server

    monkeypatch.setattr(dashboard, "serve", working)


def test_pages_panels_and_metrics_are_served():
    trainer = Trainer()
    with dashboard.serve(trainer.compiled) as server:
        for number in range(4):
            trainer.step(number)
        base = server.url.removesuffix("/dpexec")
        assert "<title>dpexec</title>" in get(server.url)
        plots = json.loads(get(f"{base}/individual-plots.json"))
        assert plots == pages.PLOTS and "dpexec graph" in plots
        for name, path in plots.items():
            title = name.replace(" ", ": ")
            assert f"<title>{title}</title>" in get(base + path)
        lines = get(f"{base}/metrics").splitlines()
        values = {line.partition("{")[0]: line.split()[-1] for line in lines if line[0] != "#"}
        assert float(values["dpexec_steps_total"]) == 4
        assert float(values["dpexec_samples_total"]) == 44
        assert float(values["dpexec_step_seconds_count"]) == 4
        assert float(values["dpexec_bytes_moved_total"]) > 0
        assert 0 < float(values["dpexec_loss"]) < 10
    assert not live.watchers()
    assert not any(t.name == "dpexec-live" for t in threading.enumerate())
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_panels_are_drawn_once_for_all_pages(monkeypatch):
    class Source:
        refreshed = 0

        def refresh(self):
            self.refreshed += 1
            return self.refreshed

    def panel(board, name):
        drawn.append(name)
        return f"{name} {board}"

    source, clock, drawn = Source(), [10.0], []
    monkeypatch.setattr(pages.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(pages, "draw_panel", panel)
    drawings = pages.Drawings(source)
    for _ in range(3):
        assert [drawings.panel(name) for name in ("loss", "graph")] == ["loss 1", "graph 1"]
        clock[0] += 0.1
    assert (source.refreshed, drawn) == (1, ["loss", "graph"])
    clock[0] += pages.INTERVAL
    assert drawings.panel("loss") == "loss 2"


def steps_of(server):
    """The number of steps, as ``/metrics`` tells it; None before the first."""
    lines = get(server.url.replace("dpexec", "metrics")).splitlines()
    found = [float(line.split()[-1]) for line in lines if line.startswith("dpexec_steps_total{")]
    return found[0] if found else None


def test_servers_show_what_each_is_asked_for():
    one, other = Trainer(), Trainer()
    with (
        dashboard.serve(one.compiled) as first,
        dashboard.serve(one.compiled) as second,
        dashboard.serve(other.compiled) as third,
    ):
        for number in range(3):
            one.step(number)
        other.step()
        assert [steps_of(server) for server in (first, second, third)] == [3, 3, 1]
        first.close()
        one.step()
        assert [steps_of(server) for server in (second, third)] == [4, 1]


def test_page_whose_process_ends_is_missed_once_and_training_goes_on():
    trainer = Trainer()
    trainer.step()
    server = dashboard.serve(trainer.compiled)

    def kill():
        os.kill(server._process.pid, signal.SIGKILL)
        server._thread.join(10)

    gone = r"/dpexec is gone, training goes on: the process of the live view ended with SIGKILL"
    with pytest.warns(UserWarning, match=gone):
        kill()
    assert not live.watchers()
    trainer.step()
    server.close()


def test_page_that_stands_still_can_be_closed():
    with dashboard.serve() as server:
        os.kill(server._process.pid, signal.SIGSTOP)
    assert not psutil.pid_exists(server._process.pid)


def has_ended(pid):
    """Whether a process is no more, or only waits to be forgotten."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


TRAINING = """
import os, time
from dpexec import dashboard
server = dashboard.serve()
forked = os.fork()  # has everything open that its parent has
if forked:
    print(server._process.pid, forked, server.url, flush=True)
time.sleep(60)
"""


def test_page_ends_with_the_process_that_trains():
    command = [sys.executable, "-c", TRAINING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
        page, forked, url = training.stdout.readline().split()
        let_work(int(page))
        try:
            assert "<title>dpexec</title>" in get(url)
            assert os.getpgid(int(page)) != os.getpgid(training.pid)  # Ctrl-C is not meant for it
            training.kill()
            until(lambda: has_ended(int(page)))
            assert not has_ended(int(forked))
        finally:
            training.kill()
            os.kill(int(forked), signal.SIGKILL)


def test_server_without_an_executor_shows_what_trains():
    with dashboard.serve() as server:
        assert steps_of(server) is None
        trainer = Trainer()
        trainer.step()
        assert steps_of(server) == 1
        other = Trainer()
        other.step()
        other.step()
        assert steps_of(server) == 2  # of what trained last
        assert server.url in repr(server) and server.url in server._repr_html_()


def test_taken_port_is_an_error_and_leaves_nothing_behind():
    with dashboard.serve() as server:
        port = int(server.url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match="in use"):
            dashboard.serve(port=port)
    assert not live.watchers()


def test_missing_bokeh_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(RuntimeError, match=r"bokeh is not installed.*dpexec\[dashboard\]"):
        dashboard.serve()
    assert not live.watchers()


@pytest.mark.parametrize("wrong", [fluid.Program(), "train.py", fluid.Executor(fluid.CPUPlace())])
def test_what_cannot_be_watched_is_refused(wrong):
    with pytest.raises(TypeError, match="takes a ParallelExecutor or a CompiledProgram"):
        dashboard.serve(wrong)


def test_parallel_executor_is_watched_from_its_first_step(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    trainer = Trainer()
    with fluid.scope_guard(trainer.scope):
        executor = fluid.ParallelExecutor(False, trainer.net.loss.name, trainer.net.main)
        with dashboard.serve(executor) as server:
            executor.run([trainer.net.loss], feed=trainer.feeds[0])
            (line,) = (
                line
                for line in get(server.url.replace("dpexec", "metrics")).splitlines()
                if line.startswith("dpexec_steps_total{")
            )
    assert line.endswith(" 1.0") and 'devices="2"' in line
