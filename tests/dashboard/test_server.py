"""The small server for training on threads, and what it refuses."""

import json
import sys
import threading
import urllib.error
import urllib.request

import pytest

import dpexec as fluid
from dpexec import dashboard
from dpexec.dashboard import pages
from dpexec.trace import live
from tests.dashboard.test_monitor import Trainer


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


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

    source, clock, drawn = Source(), [10.0], []
    monkeypatch.setattr(pages.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(pages, "draw", lambda board, name: drawn.append(name) or f"{name} {board}")
    drawings = pages.Drawings(source)
    for _ in range(3):
        assert [drawings.panel(name) for name in ("loss", "graph")] == ["loss 1", "graph 1"]
        clock[0] += 0.1
    assert (source.refreshed, drawn) == (1, ["loss", "graph"])
    clock[0] += pages.INTERVAL
    assert drawings.panel("loss") == "loss 2"


def test_server_without_an_executor_shows_what_trains():
    with dashboard.serve() as server:
        assert "dpexec_steps_total{" not in get(server.url.replace("dpexec", "metrics"))
        trainer = Trainer()
        trainer.step()
        assert "dpexec_steps_total{" in get(server.url.replace("dpexec", "metrics"))
        assert server.url in repr(server) and server.url in server._repr_html_()


def test_taken_port_is_an_error_and_leaves_nothing_behind():
    with dashboard.serve() as server:
        port = int(server.url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match="in use"):
            dashboard.serve(port=port)
    assert not live.watchers()


def test_missing_bokeh_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh.server.server", None)
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
