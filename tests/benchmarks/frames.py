"""``python -m tests.benchmarks.frames``: the cost of very large views, in Python and in a browser.

A graph of 100,000 operators and a trace of 1,000,000 slices; needs Chromium and its driver,
or Firefox. With a number, so many operators, and ten times as many slices.
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
from tests.viz.browser import Browser, browser
from tests.viz.firefox import firefox
from tests.viz.graphs import mlp

OPERATORS = 100_000
STEPS = 10
FRAMES = 40
BROWSERS: dict[str, Any] = {"chromium": browser, "firefox": firefox}

_MOVE = """
const [selector, by] = arguments;
const canvas = document.querySelector(selector);
const box = canvas.getBoundingClientRect();
const at = {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2};
const times = [];
let last = 0, done;
function frame(now) {
  if (last) times.push(now - last);
  last = now;
  if (times.length >= by.frames) return done(times);
  const turn = times.length % 2 ? 1 : -1;
  const wheel = {deltaY: turn * by.zoom, deltaX: 0, bubbles: true, cancelable: true, ...at};
  canvas.dispatchEvent(new WheelEvent("wheel", {...wheel, shiftKey: by.zoom === 0}));
  requestAnimationFrame(frame);
}
return new Promise(resolve => { done = resolve; requestAnimationFrame(frame); });
"""
_WATCH = """
const [frames] = arguments;
const times = [];
let last = 0, done;
function frame(now) {
  if (last) times.push(now - last);
  last = now;
  if (times.length >= frames) return done(times);
  requestAnimationFrame(frame);
}
return new Promise(resolve => { done = resolve; requestAnimationFrame(frame); });
"""
_BLOCKED = """
window.blocked = PerformanceObserver.supportedEntryTypes.includes("longtask") ? [] : null;
if (blocked) new PerformanceObserver(list => {
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


def frames(page: Browser, selector: str, what: str, zoom: int) -> None:
    """Print how long frames take while a canvas moves or zooms."""
    by = {"frames": FRAMES, "zoom": zoom}
    times = sorted(page.js(_MOVE, selector, by))
    middle, slow = times[len(times) // 2], times[int(0.95 * len(times))]
    print(f"{what:48} median {middle:7.1f} ms   95% {slow:7.1f} ms")


def playing(page: Browser, what: str) -> None:
    """Print how long frames take while the playhead goes on."""
    toggle = "document.querySelector('.play-bar .play').click()"
    page.js(toggle)
    times = sorted(page.js(_WATCH, FRAMES))
    page.js(toggle)
    middle, slow = times[len(times) // 2], times[int(0.95 * len(times))]
    print(f"{what:48} median {middle:7.1f} ms   95% {slow:7.1f} ms")


def wait(page: Browser, condition: str, seconds: float = 60.0) -> float:
    """Wait until an expression is true; returns the seconds that took."""
    start = time.perf_counter()
    while not page.js(f"return {condition}"):
        if time.perf_counter() - start > seconds:
            raise TimeoutError(condition)
        time.sleep(0.02)
    return time.perf_counter() - start


def blocked(page: Browser, what: str) -> None:
    """Print the longest time for which the page did not answer since the last call."""
    times = page.js("return blocked && blocked.splice(0)")
    if times is None:  # Firefox does not say
        return
    print(f"{what:48} longest task {max(times, default=0):5} ms, of {len(times)}")


def in_browser(path: Path, name: str) -> None:
    """What a reader of the page waits for, and how smoothly it moves."""
    with BROWSERS[name]() as page:
        start = time.perf_counter()
        page.go(path.as_uri())
        page.js(_BLOCKED)
        wait(page, "document.documentElement.dataset.ready")
        wait(page, "document.querySelector('.graph .summary')?.textContent")
        wait(page, "document.querySelector('.graph canvas').width > 300")
        time.sleep(0.5)
        print(f"{'page opened':48} {time.perf_counter() - start - 0.5:.2f} s")
        print(page.js(_SAID))
        blocked(page, "graph, folded")
        frames(page, ".graph .canvas", "graph, folded: move", 0)
        frames(page, ".graph .canvas", "graph, folded: zoom", 30)
        playing(page, "graph, folded: play")
        page.js(
            "const s = document.querySelector('.graph select'); s.value = '';"
            "s.dispatchEvent(new Event('change'))"
        )
        took = wait(page, "document.querySelector('.graph .summary').textContent.startsWith('All')")
        print(f"{'unfolded and placed':48} {took:.2f} s")
        time.sleep(0.5)
        blocked(page, "graph, unfolded")
        frames(page, ".graph .canvas", "graph, unfolded, readable: move", 0)
        fit = "[...document.querySelectorAll('.graph button')].find(b => b.textContent === 'Fit')"
        page.js(f"{fit}.click()")
        time.sleep(1)
        blocked(page, "graph, unfolded, all of it: first picture")
        frames(page, ".graph .canvas", "graph, unfolded, all of it: move", 0)
        frames(page, ".graph .canvas", "graph, unfolded, all of it: zoom", 30)
        playing(page, "graph, unfolded, all of it: play")
        blocked(page, "graph, unfolded, all of it")
        page.tab("Timeline")
        time.sleep(2)
        blocked(page, "timeline opened")
        frames(page, ".timeline .canvas", "timeline: move", 0)
        frames(page, ".timeline .canvas", "timeline: zoom", 30)


def main() -> None:
    """Print what everything takes."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.frames", description=__doc__)
    parser.add_argument("operators", type=int, nargs="?", default=OPERATORS)
    parser.add_argument("--browser", choices=list(BROWSERS), default="chromium")
    options = parser.parse_args()
    operators = options.operators
    data = mlp(devices=2, layers=operators // 18).data()
    run = trace(data)
    print(f"{len(data['nodes']):,} operators, {len(run):,} slices")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "large.html"
        start = spent()
        viz.Report("large", [viz.draw(data), viz.timeline(run)]).save(page)
        print(f"{'page written':48} {spent() - start:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        in_browser(page, options.browser)


if __name__ == "__main__":
    main()
