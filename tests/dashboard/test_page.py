"""The live page in a browser: it follows training, without errors in its log."""

import threading

import pytest

from dpexec import dashboard
from tests.browser import chromium, complaints
from tests.dashboard.test_monitor import Trainer

TEXT = """
const found = [];
const walk = node => {
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node.classList && node.classList.contains("dpl")) found.push(node.innerText);
  node.childNodes.forEach(walk);
};
walk(document.body);
return found.join("\\n");
"""
WIDTHS = """
const found = [];
const walk = node => {
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node.classList && node.classList.contains("dpl")) found.push(node.clientWidth);
  node.childNodes.forEach(walk);
};
walk(document.body);
return found;
"""
OVERLAPS = """
const found = [];
const walk = node => {
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node.tagName == "text" && node.textContent.trim())
    found.push([node.textContent, node.getBoundingClientRect()]);
  node.childNodes.forEach(walk);
};
walk(document.body);
const bad = [];
found.forEach(([a, p], i) => found.slice(i + 1).forEach(([b, q]) => {
  if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
    bad.push(a + " / " + b);
}));
return bad;
"""


@pytest.fixture(scope="module")
def training():
    """A page that shows a net which trains until the tests are over."""
    trainer = Trainer()
    over = threading.Event()

    def train():
        number = 0
        while not over.wait(0.01):
            trainer.step(number)
            number += 1

    with dashboard.serve(trainer.compiled) as server:
        thread = threading.Thread(target=train)
        thread.start()
        yield server
        over.set()
        thread.join()


def until(driver, condition):
    """Wait until a condition holds: on a busy machine the page comes late, training does not."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60).until(condition)


def shown(driver, condition):
    """The text of the panels as soon as it fulfils a condition."""
    until(driver, lambda driver: condition(driver.execute_script(TEXT)))
    return driver.execute_script(TEXT)


def test_page_follows_training_without_complaints(training):
    with chromium() as driver:
        driver.get(training.url)
        text = shown(driver, lambda text: "Step " in text and "CURVE" not in text)
        for part in ("forward + backward", "all-reduce", "device 1", "samples/s", "Loss", "Memory"):
            assert part in text
        steps = text.split("steps\n")[1].split("\n")[0]
        shown(driver, lambda text: text.split("steps\n")[1].split("\n")[0] != steps)
        until(driver, lambda driver: driver.execute_script(OVERLAPS) == [])
        driver.set_window_size(520, 900)
        until(driver, lambda driver: min(driver.execute_script(WIDTHS)) > 400)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 520
        assert complaints(driver) == []


def test_panel_page_in_the_dark(training):
    with chromium(600, 500, dark=True) as driver:
        driver.get(training.url.replace("/dpexec", "/individual-dpexec-lanes"))
        shown(driver, lambda text: "The latest recorded step" in text)
        background = "return getComputedStyle(document.body).backgroundColor"
        assert driver.execute_script(background) == "rgb(20, 25, 31)"
        assert complaints(driver) == []
