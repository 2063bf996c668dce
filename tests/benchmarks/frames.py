"""``python -m tests.benchmarks.frames``: the cost of very large views, in Python and in a browser.

A graph of 100,000 operators and a trace of 1,000,000 slices; needs Chromium and its driver. With a
number, so many operators, and ten times as many slices.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from dpexec import viz
from dpexec.engine.trace import Event, Trace
from tests.browser import chromium
from tests.viz.graphs import mlp

OPERATORS = 100_000
STEPS = 10
FRAMES = 40

_MOVE = """
const [selector, by, done] = arguments;
const canvas = document.querySelector(selector);
const box = canvas.getBoundingClientRect();
const at = {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2};
const times = [];
let last = 0;
function frame(now) {
  if (last) times.push(now - last);
  last = now;
  if (times.length >= by.frames) return done(times);
  const turn = times.length % 2 ? 1 : -1;
  const wheel = {deltaY: turn * by.zoom, deltaX: 0, bubbles: true, cancelable: true, ...at};
  canvas.dispatchEvent(new WheelEvent("wheel", {...wheel, shiftKey: by.zoom === 0}));
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
_WATCH = """
const [frames, done] = arguments;
const times = [];
let last = 0;
function frame(now) {
  if (last) times.push(now - last);
  last = now;
  if (times.length >= frames) return done(times);
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
_BLOCKED = """
window.blocked = [];
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) blocked.push(Math.round(entry.duration));
}).observe({type: "longtask", buffered: true});
"""
_SAID = "return document.querySelector('.graph .summary')?.textContent ?? ''"


def trace(data: dict[str, Any]) -> Trace:
    """Every operator once per step, each a few microseconds, on a thread per device."""
    events, clocks = [], [0.0, 0.0]
    for step in range(STEPS):
        for node in data["nodes"]:
            device = node["device"]
            start = max(clocks) if device is None else clocks[device]
            stop = start + (1 + node["id"] % 7) * 1e-6
            clocks = [stop if device in (None, d) else clocks[d] for d in (0, 1)]
            kind = "collective" if device is None else "op"
            facts = {"node": node["id"], "step": step}
            key = f"op-{node['id']}"
            events.append(Event(node["name"], kind, device, key, start, stop, device or 0, **facts))
    events.sort(key=lambda event: event.start)
    return Trace(tuple(events), {"steps": STEPS}, data)


def spent() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def frames(driver: Any, selector: str, what: str, zoom: int) -> None:
    """Print how long frames take while a canvas moves or zooms."""
    by = {"frames": FRAMES, "zoom": zoom}
    times = sorted(driver.execute_async_script(_MOVE, selector, by))
    middle, slow = times[len(times) // 2], times[int(0.95 * len(times))]
    print(f"{what:48} median {middle:7.1f} ms   95% {slow:7.1f} ms")


def playing(driver: Any, what: str) -> None:
    """Print how long frames take while the playhead goes on."""
    toggle = "document.querySelector('.play-bar .play').click()"
    driver.execute_script(toggle)
    times = sorted(driver.execute_async_script(_WATCH, FRAMES))
    driver.execute_script(toggle)
    middle, slow = times[len(times) // 2], times[int(0.95 * len(times))]
    print(f"{what:48} median {middle:7.1f} ms   95% {slow:7.1f} ms")


def wait(driver: Any, condition: str, seconds: float = 60.0) -> float:
    """Wait until an expression is true; returns the seconds that took."""
    start = time.perf_counter()
    while not driver.execute_script(f"return {condition}"):
        if time.perf_counter() - start > seconds:
            raise TimeoutError(condition)
        time.sleep(0.02)
    return time.perf_counter() - start


def blocked(driver: Any, what: str) -> None:
    """Print the longest time for which the page did not answer since the last call."""
    times = driver.execute_script("return blocked.splice(0)")
    print(f"{what:48} longest task {max(times, default=0):5} ms, of {len(times)}")


def open_tab(driver: Any, name: str) -> None:
    """Open a tab by the beginning of its name."""
    tabs = driver.find_elements("css selector", "[role=tab]")
    next(tab for tab in tabs if tab.text.startswith(name)).click()


def in_browser(path: Path) -> None:
    """What a reader of the page waits for, and how smoothly it moves."""
    with chromium(1400, 900) as driver:
        driver.set_script_timeout(300)
        start = time.perf_counter()
        driver.get(path.as_uri())
        driver.execute_script(_BLOCKED)
        wait(driver, "document.documentElement.dataset.ready")
        wait(driver, "document.querySelector('.graph .summary')?.textContent")
        wait(driver, "document.querySelector('.graph canvas').width > 300")
        time.sleep(0.5)
        print(f"{'page opened':48} {time.perf_counter() - start - 0.5:.2f} s")
        print(driver.execute_script(_SAID))
        blocked(driver, "graph, folded")
        frames(driver, ".graph .canvas", "graph, folded: move", 0)
        frames(driver, ".graph .canvas", "graph, folded: zoom", 30)
        playing(driver, "graph, folded: play")
        driver.execute_script(
            "const s = document.querySelector('.graph select'); s.value = '';"
            "s.dispatchEvent(new Event('change'))"
        )
        took = wait(
            driver, "document.querySelector('.graph .summary').textContent.startsWith('All')"
        )
        print(f"{'unfolded and placed':48} {took:.2f} s")
        time.sleep(0.5)
        blocked(driver, "graph, unfolded")
        frames(driver, ".graph .canvas", "graph, unfolded, readable: move", 0)
        fit = "[...document.querySelectorAll('.graph button')].find(b => b.textContent === 'Fit')"
        driver.execute_script(f"{fit}.click()")
        time.sleep(1)
        blocked(driver, "graph, unfolded, all of it: first picture")
        frames(driver, ".graph .canvas", "graph, unfolded, all of it: move", 0)
        frames(driver, ".graph .canvas", "graph, unfolded, all of it: zoom", 30)
        playing(driver, "graph, unfolded, all of it: play")
        blocked(driver, "graph, unfolded, all of it")
        driver.save_screenshot(str(path.with_suffix(".png")))
        open_tab(driver, "Timeline")
        time.sleep(2)
        blocked(driver, "timeline opened")
        frames(driver, ".timeline .canvas", "timeline: move", 0)
        frames(driver, ".timeline .canvas", "timeline: zoom", 30)


def main() -> None:
    """Print what everything takes."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.frames", description=__doc__)
    parser.add_argument("operators", type=int, nargs="?", default=OPERATORS)
    operators = parser.parse_args().operators
    data = mlp(devices=2, layers=operators // 18).data()
    run = trace(data)
    print(f"{len(data['nodes']):,} operators, {len(run):,} slices")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "large.html"
        start = spent()
        viz.Report("large", [viz.draw(data), viz.timeline(run)]).save(page)
        print(f"{'page written':48} {spent() - start:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        in_browser(page)


if __name__ == "__main__":
    main()
