"""The main paths through the interactive page, in Chromium and in Firefox."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from dpexec.viz.measured.schedule import Schedule

from dpexec import viz
from dpexec.engine.trace.events import Allocation
from tests.engine.run.nets import batches, classifier, train
from tests.viz.browser import Chromium, browser, drawn, hovered, search, show, tabs, track
from tests.viz.firefox import firefox
from tests.viz.test_turns import taking_turns
from tests.viz.traces import in_seconds, straggling
from tests.waiting import until

CANVAS = ".graph .canvas"
IMAGE = f"return document.querySelector('{CANVAS} > canvas').toDataURL()"
SAID = ".play-said"
PIXELS = """
const canvas = [...document.querySelectorAll(arguments[0])].find(c => c.offsetParent);
const copy = Object.assign(document.createElement("canvas"), {
  width: canvas.width, height: canvas.height });
const pen = copy.getContext("2d", { willReadFrequently: true });
pen.drawImage(canvas, 0, 0);
const { data } = pen.getImageData(0, 0, copy.width, copy.height);
let found = 0;
const wanted = arguments[1];
for (let k = 0; k < data.length; k += 4)
  if (wanted.every((value, at) => Math.abs(data[k + at] - value) < 12)) found++;
return found;
"""
ACCENT, LINE = [0x1F, 0x5F, 0xD0], [0xD0, 0x10, 0x3A]


@pytest.fixture(scope="module", params=[browser, firefox])
def window(request):
    with request.param() as found:
        yield found


@pytest.fixture
def straggler(window, tmp_path):
    """A report of hand-made steps of ten seconds; the test must leave the console clean."""
    yield window.open(viz.report(straggling(3)).save(tmp_path / "report.html"))
    assert window.log() == []


def test_a_report_makes_no_request(page):
    assert {"Timeline", "Memory"} <= set(tabs(page))
    for name in tabs(page):
        page.tab(name)
        page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
    asked = {url for url in page.requests() if not url.startswith(("data:", "blob:"))}
    own = {page.js("return location.href.split('#')[0]")}  # which Firefox does not count
    assert asked == own if isinstance(page, Chromium) else asked <= own
    panels = page.js("return document.querySelectorAll('[role=tabpanel]').length")
    assert panels == len(tabs(page))


def still(page):
    """The picture of the graph, once it no longer changes."""
    seen = None
    while seen != (now := page.js(IMAGE)):
        seen = now
        drawn(page)
    return now


def test_fold_then_expand_is_the_same_graph(page):
    page.tab(tabs(page)[1])
    show(page, "operators")
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    page.button("Fit", ".graph")
    before, said = still(page), page.text(".graph .summary")
    assert said.startswith("All ") and said.endswith("nothing folded.")
    show(page, "stages")
    folded = page.text(".graph .summary")
    assert re.search(r"in \d+ boxes; folded: .*\d+ stages?", folded)
    shown, boxes = (
        int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= operators| boxes)", folded)
    )
    assert boxes < shown
    page.button("Fit", ".graph")
    assert still(page) != before
    show(page, "operators")
    page.button("Fit", ".graph")
    assert page.text(".graph .summary") == said
    assert still(page) == before


def test_what_is_chosen_before_the_graph_is_drawn_stays(page):
    page.js(
        "document.querySelectorAll('[role=tab]')[1].click();"  # and at once:
        "const s = document.querySelector('.graph select'); s.value = '';"
        "s.dispatchEvent(new Event('change'))"
    )
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    drawn(page)
    assert page.text(".graph .summary").endswith("nothing folded.")
    assert page.js("return document.querySelector('.graph select').value") == ""


def test_a_node_finds_its_slices_and_back(page):
    page.tab(tabs(page)[1])
    search(page, "softmax_grad device 1")
    page.press(".graph input[type=search]", "\ue007")
    name = page.text(".graph .details h2")
    assert "softmax" in name and "device1" in page.text(".graph .details")
    page.button("Show in timeline", ".graph .details")
    assert page.text("[role=tab][aria-selected=true]") == "Timeline"
    slice_text = page.text(".timeline .details")
    assert "softmax" in slice_text and "device 1" in slice_text and "duration" in slice_text
    page.button("Show in graph", ".timeline .details")
    assert page.text("[role=tab][aria-selected=true]") == tabs(page)[1]
    assert page.text(".graph .details h2") == name


def test_a_slider_says_what_the_step_would_take(window, tmp_path):
    window.open(viz.report(straggling(3)).save(tmp_path / "what-if.html"))
    window.tab(tabs(window)[1])
    said = {}
    for place in (1, 2):  # device 0, which has slack, and device 1, which all wait for
        search(window, "mul_grad")
        window.js(f"document.querySelector('.graph [role=option]:nth-of-type({place})').click()")
        said[place] = [window.text(".what-if")]
        for position in (10, 1):
            window.js(
                "const s = document.querySelector('.what-if input'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))",
                position,
            )
            said[place].append(window.text(".what-if"))
    assert said[1][:2] == [
        "2 times as fast: step 10.0 s, as it was",
        "no time at all: step 10.0 s, as it was",
    ]
    assert said[2] == [
        "2 times as fast: step 8.00 s, −20%",
        "no time at all: step 7.00 s, −30%",
        "0.5 times as fast: step 14.0 s, +40%",
    ]
    show(window, "operators")
    options = window.js(
        "return [...document.querySelectorAll('.graph select')].flatMap(s => [...s.options])"
        ".map(o => o.value)"
    )
    assert "effect" in options and window.log() == []


def test_the_slider_knows_who_waits_for_python(window, tmp_path):
    window.open(viz.report(taking_turns()).save(tmp_path / "turns.html"))
    window.tab(tabs(window)[1])
    search(window, "mul")
    window.js("document.querySelector('.graph [role=option]').click()")
    said = window.text(".what-if")  # of 2 seconds of Python one is less, for both devices
    assert said == "2 times as fast: step 5.00 s, −17%"
    assert window.log() == []


def test_everything_answers_the_keyboard(page):
    page.press("[role=tab][aria-selected=true]", "\ue014")  # arrow right
    assert page.text("[role=tab][aria-selected=true]") == tabs(page)[1]
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    show(page, "stages")
    boxes = page.text(".graph .summary")
    page.press(CANVAS, "\ue015")
    assert page.text(".graph .details h2")
    page.press(CANVAS, "\ue007")
    assert page.text(".graph .summary") != boxes, "Enter expands"
    page.press(CANVAS, "f")
    assert page.text(".graph .summary") == boxes, "f folds again"
    page.press(CANVAS, "/")
    assert page.js("return document.activeElement.type") == "search"
    page.tab("Timeline")
    seen = page.text(".timeline .summary")
    page.press(".timeline .canvas", "w")
    closer = page.text(".timeline .summary")
    page.press(".timeline .canvas", "d")
    assert len({seen, closer, page.text(".timeline .summary")}) == 3
    page.press(".timeline .canvas", ".")
    assert page.text(".timeline .details h2")
    page.press(".timeline .canvas", "\ue00c")  # Escape
    assert page.js("return document.querySelector('.timeline .details').hidden")


def test_passes_say_what_changed(page):
    page.tab("Passes")
    names = page.js(
        "return [...document.querySelectorAll('.passes .stage .name')].map(e => e.textContent)"
    )
    assert "fuse_all_optimizer_ops" in names
    for _ in names:
        page.press(".passes .stages", "\ue013")  # arrow up
    for name in names:
        assert page.text(".passes .summary").startswith(f"After {name}: ")
        if name == "fuse_all_optimizer_ops":
            assert re.search(r"\+\d+ added, −\d+ removed", page.text(".passes .summary"))
            assert "removed (" in page.text(".passes .details")
        page.press(".passes .stages", "\ue015")


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
    page.wait(f"document.querySelector('.timeline .details h2').textContent !== {chosen!r}")
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
        page.go("about:blank")
        page.go(address)
        page.wait("document.documentElement.dataset.ready")
        assert here() == seen and link() == address
    assert first != second and link().count("view=") == 1
    page.go("about:blank")
    page.go(
        report.as_uri()
        + "#view=7.5&2.at=x&2.slice=-3&2.pinned=t99&1.folded=9-1.77777&1.at=,&nodes=99999999"
    )
    page.wait("document.documentElement.dataset.ready")
    for name in tabs(page):
        page.tab(name)


def move_to(page, share):
    """Drag the slider."""
    page.js(
        "const s = document.querySelector('.play-bar input'); s.value = 1000 * arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        share,
    )


def pixels(page, within, colour):
    return page.js(PIXELS, f"{within} canvas", colour)


def coloured(page, within, colour, at_least):
    """Wait until so much of a colour is there: canvases draw with the next frame."""
    until(lambda: pixels(page, within, colour) >= at_least)


def test_all_views_show_one_moment(straggler):
    page = straggler
    assert page.js("return document.querySelector('.play-bar').offsetParent === null")
    page.tab(tabs(page)[1])
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    before = pixels(page, ".graph .canvas >", ACCENT)
    move_to(page, 0.45)
    page.wait("document.querySelector('.play-said').textContent.startsWith('4.50 s')")
    assert page.text(SAID) == (
        "4.50 s · mul_grad on 1 · device 0 waits for device 1: forward_backward_dev1"
    )
    coloured(page, ".graph .canvas >", ACCENT, before + 300)
    page.tab("Timeline")
    coloured(page, ".timeline .canvas >", LINE, 300)
    assert page.text(SAID).startswith("4.50 s")
    page.tab("Time by type")
    assert page.js("return document.querySelector('.play-bar').offsetParent === null")


def test_keys_play_step_and_put_it_away(straggler):
    page = straggler
    page.tab(tabs(page)[1])
    wide = page.js(width := "return document.querySelector('.play-bar input').clientWidth")
    for key, time in (("]", "0"), ("]", "1.00 s"), ("]", "2.00 s"), ("[", "1.00 s")):
        page.press("body", key)
        page.wait(f"document.querySelector('{SAID}').textContent.startsWith('{time}')")
    assert page.js(width) == wide  # or the slider would move under the pointer that drags it
    page.press("body", "}")
    assert page.js("return document.querySelector('.play-bar select').value") == "2"
    move_to(page, 0.99)
    page.type(" ")  # the tab was clicked and has the focus
    assert "Pause" in page.text(".play-bar .play") or page.text(SAID).startswith("10.0")
    page.wait(f"document.querySelector('{SAID}').textContent.startsWith('10.0')")
    page.press("body", "\ue00c")  # Escape
    assert page.text(SAID) == "step 1"


def test_a_real_run_with_memory(window, tmp_path):
    run = train(classifier(), batches(3), devices=2, fuse_all_optimizer_ops=True, trace=True)
    page = window.open(viz.animate(run.compiled).save(tmp_path / "step.html"))
    move_to(page, 0.5)
    page.tab("Memory")
    coloured(page, ".memory-chart", LINE, 100)
    assert " at " in page.text(".memory-chart .tip b")
    page.tab("Timeline")
    coloured(page, ".timeline .canvas >", LINE, 300)
    page.tab("Memory")
    page.js(
        "const chart = [...document.querySelectorAll('.memory-chart')].find(c => c.offsetParent);"
        "for (let k = 0; k < 6; k++) chart.dispatchEvent(new KeyboardEvent('keydown', {key: 'w'}))"
    )
    move_to(page, 0.02)  # outside of what is in view now
    coloured(page, ".memory-chart", LINE, 100)
    assert window.log() == []


def test_a_moment_after_the_last_value_is_shown(window, tmp_path):
    """Where a step goes on long after its last value is gone: a fetch that took long."""
    values = Allocation(0.0, 0, "h", 64, "temporary"), Allocation(3.0, 0, "h", -64, "temporary")
    window.open(viz.animate(replace(straggling(1), memory=values)).save(tmp_path / "step.html"))
    move_to(window, 0.5)
    window.tab("Memory")
    coloured(window, ".memory-chart", LINE, 100)
    assert window.log() == []


def test_bars_show_the_time_of_every_step(page):
    times = page.js("return [...document.querySelectorAll('.step-bar')].map(b => b.title)")
    assert [time.partition(":")[0] for time in times] == ["step 0", "step 1", "step 2"]
    assert all(re.search(r": [\d.]+ (µs|ms|s)", time) for time in times)
    assert "median " in page.text(".step-bars .median")
    high = page.js("return [...document.querySelectorAll('.step-bar')].map(b => b.offsetHeight)")
    assert min(high) > 0 and len(set(high)) > 1


def test_bars_of_steps_open_their_step(straggler):
    straggler.click_on(".step-bar:nth-child(2)")
    assert straggler.text("[role=tab][aria-selected=true]") == "Timeline"
    shown = "document.querySelector('.timeline .summary').textContent"
    straggler.wait(f"{shown}.startsWith('12.0 s in view from 9.0 s')")  # a tenth on each side


def test_compare_shows_causes_that_add_up(window, tmp_path):
    runs = straggling(5), straggling(5, seconds=1.5)
    window.open(viz.compare(*runs, names=["old", "new"]).save(tmp_path / "compare.html"))
    rows = window.js(
        "return [...document.querySelectorAll('.fall-row')]"
        ".map(r => [...r.children].map(c => c.textContent))"
    )
    assert [rows[0][0], rows[-1][0]] == ["old", "new"] and len(rows) > 3
    old, *causes, new = (in_seconds(said) for _, _, said in rows)
    assert (old, new) == (10, 15) and sum(causes) == pytest.approx(new - old)
    assert window.log() == []
