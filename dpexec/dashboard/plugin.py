"""The plugin of dask's scheduler, which shows reports on the scheduler's dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps
from tornado import web

from dpexec.dashboard import metrics, pages
from dpexec.dashboard.board import Board, Boards
from dpexec.dashboard.groups import Members, show_in_task_stream, show_time_by_prefix
from dpexec.dashboard.reports import Report, Sample, Slice
from dpexec.engine.cluster.worker.step_groups import TOPIC, tell_all
from dpexec.engine.core.hooks import draw_panel

__all__ = ["NAME", "DashboardPlugin"]

NAME = "dpexec"

_REPORT = """
body { overflow-x: hidden; }
.to-dpexec { position: fixed; top: 6px; right: 28px; font: 13px sans-serif; }
"""
_ANSWER = 3.0  # seconds that workers get to send their remaining reports
_FRESH = 5.0  # seconds for which a step with operators is not replaced by one without
_LONG = 0.25  # seconds; a longer step is shown while it runs
_DEVICE = re.compile(r"_dev(\d+)")
_COUNT = re.compile(r"-\d+$")


class _Steps:
    """The steps of a run as the scheduler sees them: as tasks."""

    def __init__(self) -> None:
        self.tag = ""
        self.since = 0.0
        self.shown = True
        self.rows: list[tuple[str, float, float]] = []
        self.done: list[str] = []

    def begin(self, tag: str) -> None:
        self.tag, self.since, self.shown = tag, time.time(), False
        self.rows, self.done = [], []

    def sample(self) -> Sample | None:
        """The step so far, as a sample of a report."""
        if not self.rows:
            return None
        first = min(start for _, start, _ in self.rows)
        last = max(stop for _, _, stop in self.rows)
        slices: list[Slice] = []
        for name, start, stop in self.rows:
            device = _DEVICE.search(name)
            where = int(device[1]) if device else None
            label = _COUNT.sub("", name)
            slices.append([where, "", "task", label, name, start - first, stop - first])
        number = int(self.tag.rpartition("-")[2]) + 1
        return {"step": number, "seconds": last - first, "slices": slices, "left_out": 0}


class DashboardPlugin(SchedulerPlugin):
    """Adds the page ``/dpexec``, panels for JupyterLab, metrics, and a part of performance reports.

    ``ExecutionStrategy.scheduler = client`` registers it. To have the page before the first
    training, start the scheduler with ``dask scheduler --preload dpexec.dashboard``.
    """

    name = NAME
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Register pages, panels, metrics and event handlers."""
        self.scheduler = scheduler
        self.viewers = 0
        self.boards = Boards()
        self._steps: dict[str, _Steps] = {}
        self._tokens: dict[str, str] = {}
        self._members = Members(scheduler)
        self._unheard: set[str] = set()  # workers whose remaining reports are awaited
        self._trainers: set[str] = set()  # prefixes of tags of trainings with a report
        self._heard = asyncio.Event()
        self._report = scheduler.handlers.get("performance_report")
        scheduler.handlers["dpexec_report"] = self.report
        scheduler.handlers["performance_report"] = self.performance_report
        metrics.publish(self)
        self._add_pages()

    # ---- incoming reports

    def report(self, report: Report, token: str) -> dict[str, int]:
        """Store a trainer's report; returns the number of open pages.

        Args:
            report: the report of its monitor.
            token: prefix of its tasks' tags.
        """
        run = report["run"]
        self._tokens[token] = run
        self._steps.setdefault(run, _Steps())
        board = self.boards.take({**report, "current": None})
        board.members = self._members.of(token)
        self._steps = {r: steps for r, steps in self._steps.items() if r in self.boards}
        self._tokens = {t: r for t, r in self._tokens.items() if r in self.boards}
        self._trainers = {*self._trainers, token} & self._members.tags
        self._heard.set()
        return {"viewers": self.viewers}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note the times of training's tasks.

        Args:
            key: key of the task; tasks other than training's are ignored.
            start: its state before.
            finish: its state now.
            args: ignored.
            kwargs: ``startstops`` holds the times of its computation; others are ignored.
        """
        ended = finish == "memory" and start == "processing"
        if ended and isinstance(key, tuple):
            self._members.count(key, kwargs)
        run = self._run_of(key) if ended else None
        if run is None:
            return
        steps, tag = self._steps[run], key[1]
        if tag != steps.tag:
            self._finish_step(run)
            steps.begin(tag)
        computed = [s for s in kwargs.get("startstops") or () if s["action"] == "compute"]
        tasks = self.boards[run].tasks_of(key[0])
        for span in computed:
            steps.rows.append((tasks[0], span["start"], span["stop"]))
        steps.done.extend(tasks)

    # ---- reports of gangs' members

    def log_event(self, topic: str, msg: Any) -> None:
        """Store the report of a gang's member.

        Args:
            topic: topic of the event; other topics are ignored.
            msg: the report, see :meth:`StepGroups.take`, and its sender.
        """
        if topic != TOPIC:
            return
        if msg.get("all"):
            self._unheard.discard(msg["worker"])
            self._heard.set()
        else:
            self._take(msg["worker"], msg)

    def _take(self, worker: str, told: Mapping[str, Any]) -> None:
        show_in_task_stream(self.scheduler, worker, told)
        show_time_by_prefix(self.scheduler, told["groups"])
        run = self._tokens.get(told["tag"])
        for sample in self._members.take(worker, told):
            if run is not None:
                self.boards[run].take_sample(sample, instead=not self._has_operators(run))

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Called by the scheduler when a worker has left or was lost.

        Args:
            scheduler: dask's scheduler.
            worker: address of the worker.
            kwargs: ignored.
        """
        self._members.leave(worker)

    async def _hear_all(self) -> None:
        """Ask members for reports that they have not sent yet, and await their trainers'.

        A trainer sends its first report behind its first step: perhaps after all steps.
        """
        message = {"op": "run", "function": dumps(tell_all), "args": dumps(()), "wait": True}
        message["kwargs"] = dumps({})
        self._unheard = set(self.scheduler.workers)

        async def hear() -> None:
            answers = await self.scheduler.broadcast(msg=message, on_error="ignore")
            for worker in self.scheduler.workers:  # others have left, or run no dpexec
                if answers.get(worker, {}).get("status") != "OK":
                    self._unheard.discard(worker)
            while self._unheard or self._members.tags - self._trainers:
                self._heard.clear()
                await self._heard.wait()

        with contextlib.suppress(TimeoutError):  # silent ones are left out, and not awaited again
            await asyncio.wait_for(hear(), _ANSWER)
        self._trainers = set(self._members.tags)

    def _run_of(self, key: Any) -> str | None:
        if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str)):
            return None
        return self._tokens.get(key[1].partition("-")[0])

    def _finish_step(self, run: str) -> None:
        """Show a step as the scheduler saw it, unless the trainer sends steps with operators."""
        steps = self._steps[run]
        sample = None if self._has_operators(run) or steps.shown else steps.sample()
        steps.shown = True
        if sample is not None:
            self.boards[run].take_sample(sample)

    def _has_operators(self, run: str) -> bool:
        """Whether the latest recorded step of a run has operators and is recent."""
        board = self.boards[run]
        if board.sample is None or time.time() - board.sampled > _FRESH:
            return False
        return any(row[2] == "op" for row in board.sample["slices"])

    # ---- the data of pages

    def opened(self) -> None:
        """Count an opened page."""
        self.viewers += 1

    def closed(self) -> None:
        """Count a closed page."""
        self.viewers -= 1

    def refresh(self) -> Board:
        """The board of the training with the latest report."""
        board = self.boards.latest
        if not board.run:
            return board
        steps = self._steps[board.run]
        running = [
            task
            for worker in self.scheduler.workers.values()
            for ts in worker.processing
            if self._run_of(ts.key) == board.run and ts.key[1] == steps.tag
            for task in board.tasks_of(ts.key[0])
        ]
        elapsed = time.time() - steps.since
        board.current = None
        long = [member.running for member in board.members.values() if member.running is not None]
        if not running:
            self._finish_step(board.run)
            if long:
                number, since = max(long, key=lambda step: step[1])
                board.current = {"step": number + 1, "since": since, "done": None, "running": None}
        elif elapsed > _LONG:
            number = int(steps.tag.rpartition("-")[2]) + 1
            board.current = {
                "step": number,
                "since": elapsed,
                "done": list(steps.done),
                "running": running,
            }
        board.memory = self._memory()
        return board

    def _memory(self) -> dict[str, tuple[int, int | None]]:
        return {
            f"worker {state.name}": (int(state.metrics.get("memory", 0)), state.memory_limit)
            for state in self.scheduler.workers.values()
        }

    # ---- installation on the scheduler

    def _add_pages(self) -> None:
        application = self.scheduler.http_application
        try:
            from bokeh.server.tornado import BokehTornado
        except ImportError:
            application.add_handlers(".*$", [("/dpexec", _MissingBokeh)])
            return
        dask_pages = [app for app in application.applications if isinstance(app, BokehTornado)]
        if not dask_pages:  # a scheduler without a dashboard stays one
            return
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables
        from tornado.ioloop import IOLoop

        prefix = dask_pages[0].prefix
        variables = template_variables(self.scheduler)
        variables["pages"].append(NAME)  # dask's own pages share these lists
        variables["plots"] += [{"url": url[1:], "name": name} for name, url in pages.PLOTS.items()]
        added = BokehApplication(
            pages.applications(self), self.scheduler, prefix=prefix, template_variables=variables
        )
        application.add_application(added)
        added.initialize(IOLoop.current())
        added.start()
        route = (
            f"{prefix}/individual-plots.json",
            _plots_handler(),
            {"dask_server": self.scheduler},
        )
        application.add_handlers(".*$", [route])

    async def performance_report(self, **options: Any) -> str:
        """Dask's performance report, with a summary of training."""
        assert self._report is not None
        await self._hear_all()
        html: str = await self._report(**options)
        if not self.boards:
            return html
        page, end, rest = html.rpartition("</body>")  # the last: scripts may mention others
        return f"{page}{self._summary()}\n{end}{rest}"

    def _summary(self) -> str:
        board = self.refresh()
        panels = [
            draw_panel(board, name) for name in ("figures", "groups", "graph", "lanes", "loss")
        ]
        return (
            f"<style>{draw_panel(None, 'style')}\n.dpl {{ margin: 16px; }}\n{_REPORT}</style>\n"
            f'<a class="to-dpexec" href="#dpexec">Training with dpexec ↓</a>\n'
            f'<section id="dpexec">{"".join(panels)}</section>'
        )


class _MissingBokeh(web.RequestHandler):
    """Serves a message that bokeh is missing."""

    def get(self) -> None:
        self.write(f"<p>No live view of training: {pages.REQUIREMENT}</p>")


def _plots_handler() -> type[Any]:
    """Dask's list of panels, extended by dpexec's."""
    from distributed.http.scheduler.info import IndividualPlots

    class Plots(IndividualPlots):
        def write(self, chunk: Any) -> None:
            super().write({**chunk, **pages.PLOTS})

    return Plots
