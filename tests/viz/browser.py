"""Headless browsers for the tests of the interactive page: a window with helper methods."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser import chromium


class Browser:
    """A window of any browser. Its kinds say how to load, run scripts, type and move the mouse."""

    def go(self, address: str) -> None:
        """Load an address."""
        raise NotImplementedError

    def js(self, script: str, *args: Any) -> Any:
        """Run a function's body on `arguments`; returns what it returns, also of a promise."""
        raise NotImplementedError

    def type(self, *keys: str) -> None:
        """Type into what has the focus."""
        raise NotImplementedError

    def drag(self, start: tuple[int, int], end: tuple[int, int], shift: bool = False) -> None:
        """Press the mouse at a pixel of the window and let it go at another."""
        raise NotImplementedError

    def log(self) -> list[str]:
        """What the console said since the last look: errors and warnings."""
        raise NotImplementedError

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened, its own file included."""
        raise NotImplementedError

    def open(self, path: Any) -> Browser:
        """Load a file and wait until its page has started."""
        self.log()
        self.requests()
        self.js("delete document.documentElement?.dataset.ready")  # of the page that was there
        self.go(path.as_uri())
        self.wait("document.documentElement?.dataset.ready")
        return self

    def wait(self, condition: str, seconds: float = 30.0) -> Any:
        """Wait until an expression is true; returns its value. Busy machines take their time."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(f"return {condition}")
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {condition}"
            time.sleep(0.02)

    def text(self, css: str) -> str:
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", css)

    def tab(self, name: str) -> None:
        """Open a tab by its name."""
        self.button(name, "[role=tablist]")

    def button(self, label: str, within: str = "body") -> None:
        """Click the visible button with this text."""
        self._click(
            "[...document.querySelector(arguments[0]).querySelectorAll('button')]"
            ".find(b => b.textContent.trim() === arguments[1] && b.offsetParent)",
            within,
            label,
        )

    def click_on(self, css: str) -> None:
        """Click the first element that a selector finds."""
        self._click("document.querySelector(arguments[0])", css)

    def _click(self, which: str, *args: str) -> None:
        """Click in the middle of an element, on whatever lies there."""
        place = self.js(
            f"const found = {which}; if (!found) return null; found.scrollIntoView({{block:"
            "'nearest'}); const box = found.getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2].map(Math.floor)",
            *args,
        )
        assert place, f"nothing to click on: {args}"
        self.click(*place)

    def click(self, x: int, y: int, shift: bool = False) -> None:
        """Click at a pixel of the window."""
        self.drag((x, y), (x, y), shift)

    def press(self, css: str, *keys: str) -> None:
        """Give an element the focus, or `body` if nothing is to have it, and type."""
        self.js("document.activeElement.blur(); document.querySelector(arguments[0]).focus()", css)
        self.type(*keys)


class Chromium(Browser):
    """Driven by selenium."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def go(self, address: str) -> None:
        self.driver.get(address)

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def type(self, *keys: str) -> None:
        self._actions().send_keys(*keys).perform()

    def drag(self, start: tuple[int, int], end: tuple[int, int], shift: bool = False) -> None:
        actions = self._actions()
        if shift:
            actions.key_down("\ue008")
        mouse = actions.w3c_actions.pointer_action
        mouse.move_to_location(*start).pointer_down().move_to_location(*end).pointer_up()
        actions.perform()
        if shift:
            self._actions().key_up("\ue008").perform()

    def _actions(self) -> Any:
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver, duration=0)

    def log(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
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
def browser() -> Iterator[Chromium]:
    """Start Chromium; it needs no display and no network."""
    with chromium(1300, 900, requests=True) as driver:
        yield Chromium(driver)


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


def track(page, does):
    """Press a button beside a track."""
    page.js(
        "document.querySelector(`.timeline [data-does='${arguments[0]}']`)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        does,
    )
