"""The interactive page in headless Chromium: features 6, 12, 14, 16 and 18, keyboard, colours."""

import re

import pytest
from dpexec.viz.pages.page import page as make_page

from dpexec import viz
from tests.engine.run.nets import batches, classifier, train
from tests.viz import bare, big
from tests.viz.browser import (
    BROWSER,
    DRIVER,
    MISSING,
    browser,
    search,
    show,
    tabs,
)
from tests.viz.graphs import mlp
from tests.viz.traces import straggling

pytest.importorskip("selenium", reason="no headless browser: selenium is not installed")
if not (BROWSER and DRIVER):
    pytest.skip(MISSING, allow_module_level=True)

# selenium leaves the pipes of its driver process to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

CANVAS = ".graph .canvas"
IMAGE = f"return document.querySelector('{CANVAS} > canvas').toDataURL()"


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


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A page with 10,000 nodes and 100,000 slices."""
    folder = tmp_path_factory.mktemp("large")
    views = [viz.draw(big.graph()), viz.timeline(big.trace())]
    return viz.Report("large", views).save(folder / "large.html")


@pytest.fixture
def page(window, report):
    """The report, freshly opened; the test must leave the console clean."""
    yield window.open(report)
    assert window.log() == []


def test_a_report_makes_no_request(page):
    assert {"Timeline", "Memory"} <= set(tabs(page))
    for name in tabs(page):
        page.tab(name)
        page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
    asked = [url for url in page.requests() if not url.startswith(("data:", "blob:"))]
    assert [url.rpartition("/")[2] for url in asked] == ["report.html"]
    panels = page.js("return document.querySelectorAll('[role=tabpanel]').length")
    assert panels == len(tabs(page))


def test_the_policy_forbids_requests(page):
    blocked = page.js("return fetch('https://example.com/').then(() => 'sent', () => 'refused')")
    assert blocked == "refused"
    assert any("Content Security Policy" in line for line in page.log())


def test_ten_thousand_nodes(window, large):
    assert large.stat().st_size < 5_000_000
    window.open(large)
    show(window, "operators")
    said = "document.querySelector('.graph .summary').textContent"
    window.wait(f"{said}.startsWith('All 10,000 operators')", 20.0)  # placed in a worker
    for query in ("fc_300.w_0@GRAD", "all_reduce", "device 1 relu", "[784, 200]", "/^mul_grad/"):
        hits, status = search(window, query)
        assert hits > 0, (query, status)
    assert search(window, "fc_300.w_0@GRAD")[1] == "5 of 10,000 operators"
    assert window.log() == []


def test_a_hundred_thousand_slices(window, large):
    window.open(large)
    window.tab("Timeline")
    window.wait("document.querySelector('.timeline canvas')?.width > 300")
    assert window.text(".timeline .search .status") == "100,000 slices"


def test_a_long_chain_opens_readable_and_whole(window, large):
    window.open(large)
    window.wait("document.querySelector('.graph .summary').textContent.includes('folded:')")
    said = window.text(".graph .summary")
    assert re.search(r"in \d\d boxes; folded: .*\d+ repeats", said), said
    window.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    before = window.js(IMAGE)
    window.button("Fit", ".graph")
    window.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert window.js(IMAGE) == before  # all of it was seen
    window.wait("location.hash.includes('at=')")
    scale = float(re.split(r"%2C|,", window.js("return location.hash"))[-1].split("&")[0])
    assert scale * 12 >= 8  # pixels of a label


def test_bad_expressions_say_so(page):
    page.tab(tabs(page)[1])
    hits, status = search(page, "/(/")
    assert hits == 0 and "Invalid regular expression" in status


def test_fold_then_expand_is_the_same_graph(page):
    page.tab(tabs(page)[1])
    show(page, "operators")
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    page.button("Fit", ".graph")
    page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    before, said = page.js(IMAGE), page.text(".graph .summary")
    assert said.startswith("All ") and said.endswith("nothing folded.")
    show(page, "stages")
    folded = page.text(".graph .summary")
    assert re.search(r"in \d+ boxes; folded: .*\d+ stages?", folded)
    shown, boxes = (
        int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= operators| boxes)", folded)
    )
    assert boxes < shown
    page.button("Fit", ".graph")
    page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.js(IMAGE) != before
    show(page, "operators")
    page.button("Fit", ".graph")
    page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.text(".graph .summary") == said
    assert page.js(IMAGE) == before


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


def test_a_node_tells_what_its_blocks_run(window, tmp_path):
    graph = mlp(1).data()
    graph["nodes"][0]["body"] = [
        {"name": "conditional_block", "output": "x", "depth": 0},
        {"name": "print", "output": "", "depth": 1},
    ]
    window.open(viz.draw(graph).save(tmp_path / "blocks.html"))
    assert search(window, "print")[0] == 1
    window.js("document.querySelector('.graph [role=option]').click()")
    assert "2 ops: conditional_block, print" in window.text(".graph [role=option]")
    shown = window.text(".graph .details")
    assert "Runs 2 operators" in shown and "conditional_blockxprint" in shown
    assert window.log() == []


def test_everything_answers_the_keyboard(page):
    first = page.find("[role=tab][aria-selected=true]")
    first.send_keys("\ue014")  # arrow right
    assert page.text("[role=tab][aria-selected=true]") == tabs(page)[1]
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


def test_controls_have_names_and_focus_is_seen(page):
    for name in tabs(page):
        page.tab(name)
    nameless = page.js(
        "return [...document.querySelectorAll('button, input, select, [tabindex=\"0\"]')].filter("
        "e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.title))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    page.tab(tabs(page)[1])
    page.press(CANVAS, "\ue004")  # Tab
    page.js("document.querySelector('.graph select').focus()")
    page.press(".graph select", "\ue004")
    outline = page.js("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_dark_follows_the_system_and_the_switch(window, report):
    background = "return getComputedStyle(document.body).backgroundColor"
    with window.media("prefers-color-scheme", "dark"):
        window.open(report)
        dark = window.js(background)
        window.find(".theme").click()
        light = window.js(background)
    assert (dark, light) == ("rgb(18, 23, 29)", "rgb(255, 255, 255)")


def test_tables_sort_filter_and_download(page):
    page.tab(next(name for name in tabs(page) if name.startswith("Time by")))
    total = (
        "[...document.querySelectorAll('.table th')].findIndex(h => /total/.test(h.textContent))"
    )
    column = page.js(f"return {total}")
    cells = (
        "return [...document.querySelectorAll('.table tbody tr')].map(r => r.cells[0].textContent)"
    )
    totals = cells.replace("cells[0]", f"cells[{column}]")  # names: equal totals keep their order
    down = page.js(totals)
    page.driver.find_elements("css selector", ".table th button")[column].click()
    assert page.js(totals) == down[::-1]
    assert page.find(f".table th:nth-child({column + 1})").get_attribute("aria-sort") == "ascending"
    page.js(
        "const f = document.querySelector('.table input[type=search]'); f.value = 'softmax';"
        "f.dispatchEvent(new Event('input'))"
    )
    assert page.js(cells) and all("softmax" in name for name in page.js(cells))
    csv = page.driver.execute_async_script(
        "const [done] = arguments; const make = URL.createObjectURL;"
        "URL.createObjectURL = blob => { blob.text().then(done); return make(blob); };"
        "[...document.querySelectorAll('.table button')]"
        ".find(b => b.textContent === 'Download CSV').click();"
    )
    head, *rows = csv.splitlines()
    assert "(seconds)" in head and len(rows) == len(page.js(cells))


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


def test_a_narrow_window_has_no_sideways_scrolling(window, report):
    window.driver.set_window_size(520, 800)
    try:
        window.open(report)
        for name in tabs(window):
            window.tab(name)
            wide = window.js("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, name
    finally:
        window.driver.set_window_size(1300, 900)


def test_pictures_remain_without_scripts(window, report, run, tmp_path):
    plain = re.sub(r"<script.*?</script>", "", report.read_text(), flags=re.DOTALL)
    path = tmp_path / "plain.html"
    path.write_text(plain)
    window.driver.get(path.as_uri())
    heights = window.js(
        "return [...document.querySelectorAll('#static svg')]"
        ".map(s => s.getBoundingClientRect().height)"
    )
    assert len(heights) == 6 and min(heights) > 50


def test_notebooks_hold_several_views(window, run, tmp_path):
    shown = run.compiled
    cells = [
        view._repr_mimebundle_()["text/html"] for view in (shown.graph, shown.trace, shown.graph)
    ]
    path = tmp_path / "notebook.html"
    path.write_text("<!DOCTYPE html><meta charset=utf-8>" + "".join(cells))
    window.log()
    window.driver.get(path.as_uri())
    frames = window.driver.find_elements("css selector", "iframe")
    assert len(frames) == 3
    for frame in frames:
        window.js("arguments[0].scrollIntoView()", frame)  # what is out of sight does not draw
        window.driver.switch_to.frame(frame)
        window.wait("document.documentElement.dataset.ready")
        window.wait("document.querySelector('canvas')?.width > 300")
        window.driver.switch_to.default_content()
    assert window.log() == []
    path.write_text(re.sub(r"<iframe.*?</iframe>", "", "".join(cells), flags=re.DOTALL))
    window.driver.get(path.as_uri())
    window.wait("[...document.images].every(i => i.complete)")
    assert all(window.js("return [...document.images].map(i => i.naturalWidth > 100)"))


def test_views_with_next_to_nothing_in_them(window, tmp_path):
    path = tmp_path / "smallest.html"
    path.write_text(make_page("smallest", bare.views()))
    window.open(path)
    for name in tabs(window):
        window.tab(name)
        window.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
    window.tab("graph")
    for key in ("\ue015", "\ue015", "\ue007", "f", "0", "+", "t"):
        window.press(CANVAS, key)
    window.tab("timeline")
    for key in (".", ",", "f", "w", "g", "0"):
        window.press(".timeline .canvas", key)
    assert window.log() == []
