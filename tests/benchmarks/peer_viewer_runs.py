"""Other tools that show runs: HTA reads dpexec's Chrome trace, dask runs the graph as tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed import Client, performance_report

from tests.benchmarks.peer_viewer_servers import rows
from tests.browser import chromium

SECONDS = 60  # for a page

HTA = """
import logging, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
start = time.perf_counter()
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
took = time.perf_counter() - start
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(f"read after {took:.1f} s, {memory:.0f} MB")
try:
    print(found.get_temporal_breakdown(visualize=False))
except Exception as error:
    print(f"get_temporal_breakdown: {type(error).__name__}: {error}")
"""

_PAINTED = """
const canvases = [];
const walk = root => {
  canvases.push(...root.querySelectorAll('canvas'));
  for (const one of root.querySelectorAll('*')) if (one.shadowRoot) walk(one.shadowRoot);
};
walk(document);
return canvases.filter(one => one.width > 200 && one.height > 100).length;
"""


def dask(graph: Mapping[str, Any], folder: Path) -> str:
    """What a performance report of dask makes of the graph; its scripts are in the file."""
    page = folder / "dask.html"
    tasks = {name: (_nothing, inputs) for name, _, inputs in rows(graph)}
    with Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as client:
        start = time.perf_counter()
        with performance_report(filename=str(page), mode="inline"):
            client.get(tasks, list(tasks)[-1])
        ran = time.perf_counter() - start
    size = page.stat().st_size / 1e6
    return f"{len(tasks):,} tasks and the report in {ran:.1f} s, {size:.2f} MB, {_painted(page)}"


def _nothing(inputs: list[None]) -> None:
    """Stands for an operator."""


def _painted(page: Path) -> str:
    """When a page has painted its first picture."""
    with chromium(1400, 900) as driver:
        start = time.perf_counter()
        driver.get(page.as_uri())
        while not driver.execute_script(_PAINTED):
            if time.perf_counter() - start > SECONDS:
                return f"no picture in {SECONDS} s"
            time.sleep(0.05)
        return f"first picture after {time.perf_counter() - start:.1f} s"
