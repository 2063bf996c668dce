"""Headless Chromium for the tests of the interactive page."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MISSING = (
    "no headless browser: chromium and chromedriver are not installed "
    "(Debian: apt-get install chromium chromium-driver)"
)


class Browser:
    """A window, with what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Any) -> Browser:
        """Load a file and wait until its page has started."""
        self.log()
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.wait("document.documentElement.dataset.ready")
        return self

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def wait(self, condition: str, seconds: float = 5.0) -> Any:
        """Wait until an expression is true; returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(f"return {condition}")
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {condition}"
            time.sleep(0.02)

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def text(self, css: str) -> str:
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", css)

    def tab(self, name: str) -> None:
        """Open a tab by its name."""
        for tab in self.driver.find_elements("css selector", "[role=tab]"):
            if tab.text == name:
                return tab.click()
        raise AssertionError(f"no tab {name!r}")

    def press(self, css: str, *keys: str) -> None:
        """Send keys to an element."""
        self.find(css).send_keys(*keys)

    def button(self, label: str, within: str = "body") -> None:
        """Press the visible button with this text."""
        found = self.js(
            "return [...document.querySelector(arguments[0]).querySelectorAll('button')]"
            ".find(b => b.textContent.trim() === arguments[1] && b.offsetParent)",
            within,
            label,
        )
        assert found, f"no button {label!r}"
        found.click()

    def click(self, x: int, y: int, shift: bool = False) -> None:
        """Click at a pixel of the window."""
        self.drag((x, y), (x, y), shift)

    def drag(self, start: tuple[int, int], end: tuple[int, int], shift: bool = False) -> None:
        """Press the mouse at a pixel of the window and let it go at another."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver, duration=0)
        if shift:
            actions.key_action.key_down("\ue008")
        actions.pointer_action.move_to_location(*start).pointer_down().move_to_location(*end)
        actions.pointer_action.pointer_up()
        actions.perform()
        if shift:
            actions.key_action.key_up("\ue008")
            actions.perform()

    def log(self) -> list[str]:
        """What the console said since the last look: errors and warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened, its own file included."""
        rows = (json.loads(row["message"])["message"] for row in self.driver.get_log("performance"))
        sent = (row for row in rows if row["method"] == "Network.requestWillBeSent")
        return [row["params"]["request"]["url"] for row in sent]

    @contextmanager
    def media(self, name: str, value: str) -> Iterator[None]:
        """Emulate a media feature, e.g. ("prefers-color-scheme", "dark")."""
        command = "Emulation.setEmulatedMedia"
        features = [{"name": name, "value": value}]
        self.driver.execute_cdp_cmd(command, {"features": features})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(command, {"features": []})


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium; it needs no display and no network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    options.add_argument("--window-size=1300,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def tabs(page):
    return page.js("return [...document.querySelectorAll('[role=tab]')].map(t => t.textContent)")


def search(page, query, within=".graph"):
    """Type a query; returns the number of hits shown, and what the status says."""
    return page.js(
        "const field = document.querySelector(`${arguments[0]} input[type=search]`);"
        "field.value = arguments[1];"
        "field.dispatchEvent(new Event('input'));"
        "const hits = field.parentElement.querySelectorAll('[role=option]').length;"
        "const status = field.parentElement.querySelector('.status').textContent;"
        "return [hits, status]",
        within,
        query,
    )


def show(page, level):
    """Choose what the graph shows: stages, ..., operators."""
    page.js(
        "const s = document.querySelector('.graph select');"
        "s.value = [...s.options].find(o => o.text === arguments[0]).value;"
        "s.dispatchEvent(new Event('change'))",
        level,
    )


def hovered(page, of, within=".graph .canvas"):
    """The first pixel, from the top left, at which the tip says something."""
    return page.js(
        "const host = document.querySelector(arguments[1]);"
        "const box = host.getBoundingClientRect(), tip = host.querySelector('.tip');"
        "for (let y = 60; y < box.height; y += 5) for (let x = 160; x < box.width; x += 5) {"
        " const at = {clientX: box.left + x, clientY: box.top + y};"
        " host.dispatchEvent(new PointerEvent('pointermove', at));"
        " if (!tip.hidden && tip.textContent.includes(arguments[0]))"
        " return [Math.round(at.clientX), Math.round(at.clientY)] }",
        of,
        within,
    )


def drawn(page):
    page.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
