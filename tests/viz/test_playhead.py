"""The playhead of the page in a headless browser: graph, timeline and memory at one moment."""

import pytest

from dpexec import viz
from tests.engine.run.nets import batches, classifier, train
from tests.viz.browser import BROWSER, DRIVER, MISSING, browser, tabs
from tests.viz.traces import straggling

pytest.importorskip("selenium", reason="no headless browser: selenium is not installed")
if not (BROWSER and DRIVER):
    pytest.skip(MISSING, allow_module_level=True)

# selenium leaves the pipes of its driver process to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

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


@pytest.fixture(scope="module")
def window():
    with browser() as found:
        yield found


@pytest.fixture
def page(window, tmp_path):
    """A report of hand-made steps of ten seconds; the test must leave the console clean."""
    yield window.open(viz.report(straggling(3)).save(tmp_path / "report.html"))
    assert window.log() == []


def go(page, share):
    """Drag the slider."""
    page.js(
        "const s = document.querySelector('.play-bar input'); s.value = 1000 * arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        share,
    )


def pixels(page, within, colour):
    return page.js(PIXELS, f"{within} canvas", colour)


def drawn(page, within, colour, at_least):
    """Wait until so much of a colour is there: canvases draw with the next frame."""
    page.js("window.count = (...given) => new Function(arguments[0])(...given)", PIXELS)
    page.wait(f"count('{within} canvas', {colour}) >= {at_least}")


def test_all_views_show_one_moment(page):
    assert page.js("return document.querySelector('.play-bar').offsetParent === null")
    page.tab(tabs(page)[1])
    page.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    before = pixels(page, ".graph .canvas >", ACCENT)
    go(page, 0.45)
    page.wait("document.querySelector('.play-said').textContent.startsWith('4.50 s')")
    assert page.text(SAID) == (
        "4.50 s · mul_grad on 1 · device 0 waits for device 1: forward_backward_dev1"
    )
    drawn(page, ".graph .canvas >", ACCENT, before + 300)
    page.tab("Timeline")
    drawn(page, ".timeline .canvas >", LINE, 300)
    assert page.text(SAID).startswith("4.50 s")
    page.tab("Time by type")
    assert page.js("return document.querySelector('.play-bar').offsetParent === null")


def test_keys_play_step_and_put_it_away(page):
    page.tab(tabs(page)[1])
    for key, time in (("]", "0"), ("]", "1.00 s"), ("]", "2.00 s"), ("[", "1.00 s")):
        page.press("body", key)
        page.wait(f"document.querySelector('{SAID}').textContent.startsWith('{time}')")
    page.press("body", "}")
    assert page.js("return document.querySelector('.play-bar select').value") == "2"
    go(page, 0.99)
    page.press("body", " ")
    assert "Pause" in page.text(".play-bar .play") or page.text(SAID).startswith("10.0")
    page.wait(f"document.querySelector('{SAID}').textContent.startsWith('10.0')")
    page.wait("document.querySelector('.play-bar .play').textContent.includes('Play')")
    page.press("body", "\ue00c")  # Escape
    assert page.text(SAID) == "step 1"


def test_a_real_run_with_memory(window, tmp_path):
    ran = train(classifier(), batches(3), devices=2, fuse_all_optimizer_ops=True, trace=True)
    page = window.open(viz.animate(ran.compiled).save(tmp_path / "step.html"))
    go(page, 0.5)
    page.tab("Memory")
    drawn(page, ".memory-chart", LINE, 100)
    assert " at " in page.text(".memory-chart .tip b")
    page.tab("Timeline")
    drawn(page, ".timeline .canvas >", LINE, 300)
    assert window.log() == []
