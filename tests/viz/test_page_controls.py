"""Mouse, keys and links of the interactive page, and its timeline, in a headless browser."""

import re
from dataclasses import replace

from dpexec.viz.measured.memory_use import COLOURS

from dpexec import viz
from dpexec.engine.trace.events import Allocation
from tests.viz.browser import drawn, hovered, show, tabs, track
from tests.viz.graphs import mlp
from tests.viz.traces import straggling, task, trace

CANVAS = ".graph .canvas"


def test_a_tip_goes_when_what_it_speaks_of_goes(page):
    page.tab(tabs(page)[1])
    show(page, "operators")
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    shown = "!document.querySelector('.graph .tip').hidden"
    assert hovered(page, "") and page.js(f"return {shown}")
    said = page.text(".graph .tip")
    show(page, "stages")
    drawn(page)
    assert not page.js(f"return {shown}") or page.text(".graph .tip") != said
    hovered(page, "")
    page.press(CANVAS, "0")
    assert not page.js(f"return {shown}")


def test_hovering_a_line_says_shape_and_bytes(page):
    page.tab(tabs(page)[1])
    show(page, "operators")
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    assert hovered(page, " → "), "no line under the pointer"
    tip = page.text(".graph .tip b")
    assert re.search(r"\[[-\d, ]+\] float32|tensors", tip) and re.search(r"\d (B|KiB)$", tip), tip


def test_the_map_hides_nothing(page):
    page.tab(tabs(page)[1])
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    for _ in range(4):
        page.press(CANVAS, "+")
    drawn(page)
    drawing, small = page.js(
        f"return ['{CANVAS} > canvas', '{CANVAS} > .minimap']"
        ".map(c => document.querySelector(c).getBoundingClientRect()).map(r => [r.left, r.right])"
    )
    assert drawing[1] <= small[0] < small[1]


def test_keys_work_wherever_the_focus_is(page):
    page.tab("Timeline")  # which now has the focus
    for css in ("[role=tab][aria-selected=true]", ".timeline .zoom button", "input[type=checkbox]"):
        seen = page.text(".timeline .summary")
        page.press(css if css[0] == "[" else f".timeline {css.removeprefix('.timeline ')}", "w")
        assert page.text(".timeline .summary") != seen, css
    seen = page.text(".timeline .summary")
    page.press(".timeline input[type=search]", "w")
    page.press(".timeline .tools select", "d")
    assert page.text(".timeline .summary") == seen, "letters are text and choices there"
    page.press("body", "?")
    assert page.js("return !document.querySelector('.timeline .help').hidden")
    page.tab(tabs(page)[1])
    page.press(".graph .zoom button", "\ue015")
    assert page.text(".graph .details h2"), "arrow keys select from anywhere"
    page.tab(next(name for name in tabs(page) if name.startswith("Time by")))
    page.press("body", "/")
    assert page.js("return document.activeElement.placeholder") == "Filter rows"


def test_tracks_are_pinned_hidden_collapsed_and_sorted(page):
    page.tab("Timeline")
    names = (
        "return [...document.querySelectorAll('.timeline .gutter .moving .name')]"
        ".map(e => e.title.split(':')[0])"
    )
    page.button("Fit", ".timeline")
    before = page.js(names)
    keys = page.js(
        "return [...document.querySelectorAll('.timeline .gutter .name')].map(e => e.dataset.does)"
    )
    key = keys[0].split()[1]
    high = "return document.querySelector('.timeline .moving .bar').offsetHeight"
    tall = page.js(high)
    track(page, f"thin {key}")
    assert page.js(high) < tall
    track(page, f"pin {key}")
    assert page.text(".timeline .fixed .name") and page.js(names) == before[1:]
    track(page, f"hide {key}")
    assert not page.text(".timeline .fixed .name")
    page.button("Show 1 hidden track", ".timeline")
    track(page, f"pin {key}")
    assert page.js(names) == before
    page.js(
        "const s = document.querySelector('.timeline .tools select'); s.value = 'thread';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert page.text(".timeline .head button").startswith("▾ thread")


def test_empty_threads_collapse_by_themselves(window, tmp_path):
    other = task("b", 1, 20, 25, thread=1, step=1)
    ran = trace([task("a", 0, 0, 5), task("b", 1, 0, 3), task("a", 0, 20, 25, step=1), other])
    window.open(viz.timeline(ran).save(tmp_path / "empty.html"))
    names = (
        "return [...document.querySelectorAll('.gutter .name, .gutter .idle')]"
        ".map(e => e.textContent)"
    )
    assert window.js(names).count("thread 1") == 0
    assert "1 empty: thread 1" in window.js(names)
    window.js("document.querySelector('.gutter .idle button').click()")
    assert "1 empty: thread 1" not in window.js(names) and "thread 1" in window.js(names)
    window.press("body", "0")  # all steps: none is empty
    assert not any("empty" in name for name in window.js(names))


HIDDEN = """
window.seen = [];
window.hidden = [];
const made = CanvasRenderingContext2D.prototype;
const {fillText, roundRect} = made;
let words = [];
made.fillText = function (text, x, y, ...rest) {
  const at = this.getTransform();
  if (text.endsWith("→")) words.push([at.d * (y - 7) + at.f, text]);
  return fillText.call(this, text, x, y, ...rest);
};
made.roundRect = function (x, y, w, h, ...rest) {
  const at = this.getTransform();
  if (y === 0) words = []; // lanes are drawn first
  if (h === 24) {
    seen.push(...words.map(([, text]) => text));
    hidden.push(...words.filter(([top]) => top < at.d * (y + h) + at.f));
  }
  return roundRect.call(this, x, y, w, h, ...rest);
};
"""


def test_words_at_links_stand_below_the_names_of_lanes(window, tmp_path):
    """Words stand above the first boxes of a column if links come from other columns."""
    page = window.open(viz.draw(mlp(devices=1, layers=7).data()).save(tmp_path / "graph.html"))
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    page.js(HIDDEN)
    show(page, "operators")
    drawn(page)
    page.button("Fit", ".graph")
    drawn(page)
    assert page.js("return seen.length")
    assert page.js("return hidden") == []


def test_a_kind_of_memory_has_one_colour_whatever_else_there_is(window, tmp_path):
    for kinds in (("parameter", "state", "temporary"), ("temporary", "feed")):
        rows = tuple(Allocation(1.0, 0, kind, 64, kind) for kind in kinds)
        made = replace(straggling(1), memory=rows)
        window.open(viz.memory(made).save(tmp_path / "memory.html"))
        legend = window.js(
            "return [...document.querySelectorAll('.legend [style*=part]')]"
            ".map(i => [i.parentNode.textContent, i.style.getPropertyValue('--part')])"
        )
        assert legend == [[kind, f"var(--{COLOURS[kind]}-line)"] for kind in kinds]
        assert f"r-{COLOURS['temporary']}" in viz.memory(made).svg
    assert window.log() == []
