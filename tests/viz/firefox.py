"""Headless Firefox, driven by the WebDriver BiDi that it has built in: no geckodriver is needed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.viz.browser import Browser
from tests.waiting import until

SECONDS = 60  # for an answer
CALL = """async (given) => {
  const answer = await (function () { BODY }).apply(null, JSON.parse(given));
  return JSON.stringify(answer ?? null);
}"""


class Firefox(Browser):
    """A tab at the end of a WebSocket that takes commands and reports events as JSON."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._sent = 0
        self._events: list[dict[str, Any]] = []
        self.command("session.new", capabilities={})
        self._tab = {"context": self.command("browsingContext.getTree")["contexts"][0]["context"]}
        events = ["log.entryAdded", "network.beforeRequestSent"]
        self.command("session.subscribe", events=events, contexts=[self._tab["context"]])
        size = {"width": 1300, "height": 900}
        self.command("browsingContext.setViewport", **self._tab, viewport=size)

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result; events that come meanwhile are kept."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv())
            if said.get("id") == self._sent:
                assert said["type"] == "success", f"{method}: {said}"
                return said["result"]
            self._events.append(said)

    def go(self, address: str) -> None:
        self.command("browsingContext.navigate", **self._tab, url=address, wait="complete")

    def js(self, script: str, *args: Any) -> Any:
        said = self.command(
            "script.callFunction",
            functionDeclaration=CALL.replace("BODY", script),
            arguments=[{"type": "string", "value": json.dumps(args)}],
            target=self._tab,
            awaitPromise=True,
        )
        assert said["type"] == "success", said["exceptionDetails"]["text"]
        return json.loads(said["result"]["value"])

    def type(self, *keys: str) -> None:
        actions = [
            {"type": kind, "value": key}
            for text in keys
            for key in text
            for kind in ("keyDown", "keyUp")
        ]
        self._perform({"type": "key", "id": "keys", "actions": actions})

    def drag(self, start: tuple[int, int], end: tuple[int, int], shift: bool = False) -> None:
        actions = [
            {"type": "pointerMove", "x": start[0], "y": start[1]},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "x": end[0], "y": end[1]},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "actions": actions}
        if shift:
            self._perform(_shift("keyDown"))
        self._perform(mouse)
        if shift:
            self._perform(_shift("keyUp"))

    def _perform(self, source: dict[str, Any]) -> None:
        self.command("input.performActions", **self._tab, actions=[source])

    def log(self) -> list[str]:
        rows = [row["params"] for row in self._taken("log.entryAdded")]
        return [row["text"] for row in rows if row["level"] in ("warn", "error")]

    def requests(self) -> list[str]:
        rows = self._taken("network.beforeRequestSent")
        return [row["params"]["request"]["url"] for row in rows]

    def _taken(self, method: str) -> list[dict[str, Any]]:
        """Events of a kind that nobody has asked for yet."""
        self.js("")  # what the page did before has been reported when this answers
        found = [event for event in self._events if event["method"] == method]
        self._events = [event for event in self._events if event["method"] != method]
        return found


def _shift(kind: str) -> dict[str, Any]:
    return {"type": "key", "id": "keys", "actions": [{"type": kind, "value": "\ue008"}]}


@contextmanager
def firefox() -> Iterator[Firefox]:
    """Start Firefox with a profile of its own; where there is none, tests are skipped."""
    websocket = pytest.importorskip("websocket", reason="needs websocket-client (extra: test)")
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("needs Firefox (Debian: apt-get install firefox-esr)")
    with TemporaryDirectory(prefix="firefox", ignore_cleanup_errors=True) as profile:
        command = [program, "--headless", "--no-remote", "--remote-debugging-port=0"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*command, "--profile", profile], stdout=quiet, stderr=quiet)
        try:
            where = Path(profile, "WebDriverBiDiServer.json")  # written when it listens
            until(lambda: where.exists() and where.read_text().endswith("}"), SECONDS)
            address = "ws://{ws_host}:{ws_port}".format(**json.loads(where.read_text()))
            socket = websocket.create_connection(
                f"{address}/session", timeout=SECONDS, suppress_origin=True
            )
            window = Firefox(socket)
            yield window
            window.command("browser.close")
            socket.close()
        finally:
            process.kill()
            process.wait()
