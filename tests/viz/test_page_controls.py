"""Mouse, keys and links of the interactive page, and its timeline, in a headless browser."""

import re
from collections import Counter

import pytest
from dpexec.viz.measured.schedule import Schedule

from dpexec import viz
from tests.engine.run.nets import batches, classifier, train
from tests.viz.browser import BROWSER, DRIVER, MISSING, browser, drawn, hovered, search, show, tabs
from tests.viz.traces import task, trace

pytest.importorskip("selenium", reason="no headless browser: selenium is not installed")
if not (BROWSER and DRIVER):
    pytest.skip(MISSING, allow_module_level=True)

CANVAS = ".graph .canvas"

# selenium leaves the pipes of its driver process to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def window():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def run():
    return train(classifier(), batches(3), devices=2, fuse_all_optimizer_ops=True, trace=True)


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    return viz.report(run.compiled).save(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(window, report):
    """The report, freshly opened; the test must leave the console clean."""
    yield window.open(report)
    assert window.log() == []


def test_a_click_opens_a_folded_box_and_shift_click_selects_it(page):
    page.tab(tabs(page)[1])
    show(page, "stages")
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    before = page.text(".graph .summary")
    place = hovered(page, "click or Enter: open")
    assert place, "no folded box under the pointer"
    page.click(*place, shift=True)
    assert "folded" in page.text(".graph .details") and page.text(".graph .summary") == before
    page.click(*place)
    assert page.text(".graph .summary") != before
    assert page.text(".graph .details dt") == "open", "what the box said stays beside the graph"
    page.press("body", "f")
    assert page.text(".graph .summary") == before, "f folds again what was opened"


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


def track(page, does):
    """Press a button beside a track."""
    page.js(
        "document.querySelector(`.timeline [data-does='${arguments[0]}']`)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        does,
    )


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


def test_an_area_is_added_up(page, run):
    page.tab("Timeline")
    page.button("Fit", ".timeline")
    page.press("body", ".")
    page.press("body", "m")
    chosen = page.text(".timeline .details h2")
    assert chosen.endswith(" selected") and page.text(".timeline .details .sums")
    page.button("Fit", ".timeline")
    x, y, width, height = page.js(
        "const box = document.querySelector('.timeline .canvas').getBoundingClientRect();"
        "return [box.left, box.top, box.width, box.height].map(Math.round)"
    )
    page.drag((x + 152, y + 60), (x + width + 50, y + height - 5), shift=True)
    sums = page.js(
        "return [...document.querySelectorAll('.timeline .sums')[0].rows]"
        ".map(r => [r.cells[0].textContent.split(' ').pop(), parseInt(r.cells[1].textContent)])"
    )
    schedule = Schedule(run.compiled.trace)
    roles = Counter(schedule.role_of(piece) for piece in schedule.slices)
    found = dict(sums)
    assert sum(found.values()) == len(schedule.slices)
    assert [found[role] for role in ("feed", "fetch")] == [roles["feed"], roles["fetch"]]
    page.press("body", "\ue00c")  # Escape
    assert page.js("return document.querySelector('.timeline .details').hidden")


def test_a_link_opens_the_same_view(page, report):
    def here():
        page.wait("!document.querySelector('section:not([hidden]) canvas')?.width || true")
        drawn(page)
        return page.js(
            "const body = document.querySelector('section.body:not([hidden])');"
            "const said = css => body.querySelector(css).textContent;"
            "return [...['.tools', '.details', '.summary', '.search .status'].map(said),"
            " ...[...body.querySelectorAll('input, select')].map(i => i.value + i.checked)]"
        )

    def link():
        page.js("return new Promise(done => setTimeout(done, 250))")  # the address waits for rest
        return page.js("return location.href")

    assert "#" not in link(), "nothing was chosen yet"
    page.tab("Timeline")
    page.press("body", "w", "w", "d", ".", ".")
    key = page.js("return document.querySelector('.gutter .name').dataset.does.slice(5)")
    track(page, f"pin {key}")
    timeline, first = here(), link()
    page.tab(tabs(page)[1])
    show(page, "stages")
    page.press("body", "+", "+", "\ue015", "\ue00c")
    search(page, "mul")
    graph, second = here(), link()
    for address, seen in ((first, timeline), (second, graph)):
        page.driver.get("about:blank")
        page.driver.get(address)
        page.wait("document.documentElement.dataset.ready")
        assert here() == seen and link() == address
    assert first != second and link().count("view=") == 1
    page.driver.get("about:blank")
    page.driver.get(
        report.as_uri()
        + "#view=7.5&2.at=x&2.slice=-3&2.pinned=t99&1.folded=9-1.77777&1.at=,&nodes=99999999"
    )
    page.wait("document.documentElement.dataset.ready")
    for name in tabs(page):
        page.tab(name)
