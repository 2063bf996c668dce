"""Other tools that show a graph in a browser: they get dpexec's graph in a format that they read.

Their own Python writes the file and serves it; Chromium opens the page and waits for boxes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from tests.browser import chromium

SECONDS = 90  # for a page

_GRAPH_DEF = """
import json, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.summary.writer.event_file_writer import EventFileWriter
graph = GraphDef()
for name, kind, inputs in json.load(open(sys.argv[1])):
    graph.node.add(name=name, op=kind).input.extend(inputs)
writer = EventFileWriter(sys.argv[2])
writer.add_event(Event(graph_def=graph.SerializeToString()))
writer.close()
"""
_ONNX = """
import json, sys
from onnx import helper, save
rows = json.load(open(sys.argv[1]))
nodes = [helper.make_node(kind.replace(" ", "_"), inputs, [name], name=name, domain="dpexec")
         for name, kind, inputs in rows]
graph = helper.make_graph(nodes, "chain", [], [])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("dpexec", 1)]), sys.argv[2])
"""
_NETRON = """
import sys, time, netron
netron.start(sys.argv[1], ("127.0.0.1", int(sys.argv[2])), browse=False)
time.sleep(1000)
"""
# Boxes may lie in shadow roots; before they are placed, all lie in one place.
_BOXES = """
const boxes = [];
const walk = root => {
  boxes.push(...root.querySelectorAll('g.node, g.graph-node'));
  for (const one of root.querySelectorAll('*')) if (one.shadowRoot) walk(one.shadowRoot);
};
walk(document);
const places = boxes.slice(0, 99).map(one => one.getBoundingClientRect());
const apart = new Set(places.filter(at => at.width).map(at => `${at.x} ${at.y}`)).size;
return apart > 1 ? boxes.length : 0;
"""
# Model Explorer draws on a canvas; when it has a graph, a column says what is in it.
_GRAPH_INFO = """
const text = document.body?.innerText ?? '';
const drawn = [...document.querySelectorAll('canvas')].some(one => one.width > 400);
return drawn && text.includes('GRAPH INFO') ? Number(/(\\d+) nodes/.exec(text)?.[1] ?? 0) : 0;
"""
# Netron asks before it goes on: returns the question, and presses the button below it.
_ANSWER = """
const button = document.querySelector('#message-button, .message-button');
if (!button || !button.offsetParent) return '';
const text = document.querySelector('#message-text, .message-text')?.textContent ?? '';
button.click();
return text.trim();
"""


def rows(graph: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Name, type and inputs of every operator; names have the scopes by which tools fold."""
    lane = ("device_{0}", "all_devices")
    names = {
        node["id"]: "/".join(
            (
                lane[node["device"] is None].format(node["device"]),
                node["layer"] or "none",
                f"{node['name'].replace(' ', '_')}_{node['id']}",
            )
        )
        for node in graph["nodes"]
    }
    writer = {var: node["id"] for node in graph["nodes"] for var in node["outputs"]}
    found = []
    for node in graph["nodes"]:
        before = dict.fromkeys(writer[var] for var in node["inputs"] if var in writer)
        inputs = [names[other] for other in before if other != node["id"]]
        found.append((names[node["id"]], node["name"], inputs))
    return found


def tensorboard(python: str, graph: Mapping[str, Any], folder: Path, port: int = 16006) -> str:
    """What TensorBoard's *Graphs* makes of it."""
    given, logs = folder / "rows.json", folder / "logs"
    given.write_text(json.dumps(rows(graph)))
    subprocess.run([python, "-c", _GRAPH_DEF, str(given), str(logs)], check=True)
    command = [python, "-m", "tensorboard.main", "--logdir", str(logs), "--port", str(port)]
    size = sum(file.stat().st_size for file in logs.iterdir())
    return f"{size / 1e6:.2f} MB, {_served(command, f'http://127.0.0.1:{port}/#graphs')}"


def netron(python: str, graph: Mapping[str, Any], folder: Path, port: int = 16007) -> str:
    """What Netron makes of it, as ONNX with operators of a domain of their own."""
    given, model = folder / "rows.json", folder / "chain.onnx"
    given.write_text(json.dumps(rows(graph)))
    subprocess.run([python, "-c", _ONNX, str(given), str(model)], check=True)
    command = [python, "-c", _NETRON, str(model), str(port)]
    return f"{model.stat().st_size / 1e6:.2f} MB, {_served(command, f'http://127.0.0.1:{port}/')}"


def model_explorer(python: str, graph: Mapping[str, Any], folder: Path, port: int = 16008) -> str:
    """What Model Explorer makes of it, in its own JSON."""
    given = folder / "chain.json"
    nodes = [
        {
            "id": name,
            "label": kind,
            "namespace": name.rpartition("/")[0],
            "incomingEdges": [
                {"sourceNodeId": other, "sourceNodeOutputId": "0", "targetNodeInputId": str(at)}
                for at, other in enumerate(inputs)
            ],
        }
        for name, kind, inputs in rows(graph)
    ]
    made = {"label": "chain", "graphs": [{"id": "chain", "nodes": nodes}]}
    given.write_text(json.dumps(made))
    program = str(Path(python).with_name("model-explorer"))
    options = ["--no_open_in_browser", "--skip_health_check", "--port", str(port)]
    models = quote(json.dumps({"models": [{"url": str(given)}]}))
    address = f"http://localhost:{port}/?data={models}"
    command = [program, str(given), *options]
    seen = _served(command, address, _GRAPH_INFO, "nodes in a graph")
    return f"{given.stat().st_size / 1e6:.2f} MB, {seen}"


def _served(command: list[str], address: str, look: str = _BOXES, what: str = "boxes") -> str:
    """Start a server, open its page, and say when boxes are seen or what is seen instead."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        with chromium(1400, 900) as driver:
            _listens(address)
            return _seen(driver, address, look, what)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _seen(driver: Any, address: str, look: str, what: str) -> str:
    """Open a page; how many boxes there are, and when; questions that were answered before."""
    start, asked = time.perf_counter(), []
    driver.get(address)
    while True:
        took = time.perf_counter() - start
        boxes = driver.execute_script(look)
        if boxes or took > SECONDS:
            break
        question = driver.execute_script(_ANSWER)
        if question:
            asked.append(f"; asked after {took:.1f} s: {question[:120]!r}")
        time.sleep(0.05)
    found = f"{boxes} {what} after {took:.1f} s" if boxes else f"no {what} in {took:.0f} s"
    return found + "".join(asked)


def _listens(address: str) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
