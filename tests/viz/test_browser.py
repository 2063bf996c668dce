"""The interactive page in headless Chromium: features 6, 12, 14, 16 and 18, keyboard, colours."""

import re

import pytest
from dpexec.viz.pages.page import page as make_page

from dpexec import viz
from tests.viz import bare, big
from tests.viz.browser import search, show, tabs
from tests.viz.graphs import mlp

CANVAS = ".graph .canvas"
IMAGE = f"return document.querySelector('{CANVAS} > canvas').toDataURL()"

DIFFERENCES = """const seen = ['.graph .far', '.graph .minimap canvas'].map(name => {
  const canvas = document.querySelector(name);
  return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
});
const before = window.seen;
window.seen = seen;
const differs = k => (x, at) => Math.abs(x - seen[k][at]) > 64;
return before?.map((old, k) => old.filter(differs(k)).length);
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A page with 10,000 nodes and 100,000 slices."""
    folder = tmp_path_factory.mktemp("large")
    views = [viz.draw(big.graph()), viz.timeline(big.trace())]
    return viz.Report("large", views).save(folder / "large.html")


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


def test_what_a_playhead_changes_is_painted_as_if_all_were(window, large):
    window.open(large)
    show(window, "operators")
    said = "document.querySelector('.graph .summary').textContent"
    window.wait(f"{said}.startsWith('All 10,000 operators')", 20.0)
    window.button("Fit", ".graph")
    found = []
    for moves in ([300, 450, 500], [800, 500], [100]):  # going back paints everything
        for at in moves:
            window.js(
                "const s = document.querySelector('.play-bar [type=range]');"
                f"s.value = {at}; s.dispatchEvent(new Event('input'));"
                "return new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))"
            )
        found.append(window.js(DIFFERENCES))
    _, same, other = found
    assert all(2 * few < many for few, many in zip(same, other, strict=True)), "edges may differ"


def test_bad_expressions_say_so(page):
    page.tab(tabs(page)[1])
    hits, status = search(page, "/(/")
    assert hits == 0 and "Invalid regular expression" in status


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
        window.click_on(".theme")
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
    page.click_on(f".table th:nth-child({column + 1}) button")
    assert page.js(totals) == down[::-1]
    head = f"document.querySelector('.table th:nth-child({column + 1})')"
    assert page.js(f"return {head}.ariaSort") == "ascending"
    page.js(
        "const f = document.querySelector('.table input[type=search]'); f.value = 'softmax';"
        "f.dispatchEvent(new Event('input'))"
    )
    assert page.js(cells) and all("softmax" in name for name in page.js(cells))
    csv = page.js(
        "const make = URL.createObjectURL; return new Promise(done => {"
        "URL.createObjectURL = blob => { blob.text().then(done); return make(blob); };"
        "[...document.querySelectorAll('.table button')]"
        ".find(b => b.textContent === 'Download CSV').click(); })"
    )
    head, *rows = csv.splitlines()
    assert "(seconds)" in head and len(rows) == len(page.js(cells))


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
    window.go(path.as_uri())
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
    window.go(path.as_uri())
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
    window.go(path.as_uri())
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
