"""``python -m tests.benchmarks.large_views``: how fast large views are made, shown and searched.

A graph of 10,000 operators and a trace of 100,000 slices; needs Chromium and its driver for what a
browser does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpexec import viz
from tests.browser import chromium
from tests.viz import big

ROUNDS = 5
QUERIES = ("fc_300.w_0@GRAD", "all_reduce", "device 1 relu", "[784, 200]", "/^mul_grad/")

_SEARCH = """
const field = document.querySelector(".graph input[type=search]");
const start = performance.now();
field.value = arguments[0];
field.dispatchEvent(new Event("input"));
field.parentElement.querySelectorAll("[role=option]").length;
return performance.now() - start;
"""
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_DRAWN = "return document.querySelector('.timeline canvas')?.width > 300"


def median(work: Callable[[], Any]) -> float:
    """Median seconds of some calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def line(what: str, seconds: float, limit: float) -> None:
    """Print a figure beside its limit."""
    print(f"{what:52} {seconds * 1e3:9.1f} ms   (limit {limit * 1e3:g})")


def in_browser(path: Path) -> None:
    """What a reader of the page waits for."""
    with chromium(1400, 900) as driver:
        driver.get(path.as_uri())
        while (paint := driver.execute_script(_PAINT)) is None:
            time.sleep(0.01)
        line("first paint", paint / 1e3, 2.0)
        slowest = max(driver.execute_script(_SEARCH, query) for query in QUERIES)
        line(f"slowest of {len(QUERIES)} searches", slowest / 1e3, 0.1)
        tabs = driver.find_elements("css selector", "[role=tab]")
        start = time.perf_counter()
        next(tab for tab in tabs if tab.text == "Timeline").click()
        while not driver.execute_script(_DRAWN):
            time.sleep(0.01)
        line("timeline shown", time.perf_counter() - start, 5.0)


def main() -> None:
    """Print what everything takes, and what it may take."""
    graph, trace = big.graph(), big.trace()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "large.html"
        drawn = median(lambda: viz.draw(graph).save(page))
        line("10,000 operators: laid out and written", drawn, 2.0)
        prepared = median(lambda: viz.timeline(trace).payload())
        line("100,000 slices: prepared", prepared, 5.0)
        viz.Report("large", [viz.draw(graph), viz.timeline(trace)]).save(page)
        print(f"{'page with both':52} {page.stat().st_size / 1e6:9.2f} MB   (limit 5)")
        in_browser(page)


if __name__ == "__main__":
    main()
