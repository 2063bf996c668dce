"""A headless Chromium for tests of pages; without it, these tests are skipped with a message."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["chromium", "complaints"]


@contextmanager
def chromium(
    width: int = 1400, height: int = 1000, dark: bool = False, requests: bool = False
) -> Iterator[Any]:
    """A browser that keeps its console; it asks for nothing outside of this machine.

    Args:
        width: of the window.
        height: of the window.
        dark: whether the reader prefers a dark page.
        requests: whether it keeps a log of its requests, too, as ``performance``.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (extra: test)")
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    kept = ("browser", "performance") if requests else ("browser",)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(kept, "ALL"))
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
    try:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()


def complaints(driver: Any) -> list[str]:
    """What the browser's console says that is worse than information."""
    rows = driver.get_log("browser")
    return [row["message"] for row in rows if row["level"] in ("WARNING", "SEVERE")]
