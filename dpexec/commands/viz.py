"""``dpexec viz``: figures of a trace or graph as text or JSON, and its pages."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpexec.commands import SCRIPT_ERROR, CommandError, count, model_files

if TYPE_CHECKING:
    from dpexec.engine.trace import Trace

__all__ = ["add_options", "show"]

NOTES = """\
FILE is a trace (dpexec run --trace, ExecutionStrategy.trace, fluid.profiler), a graph
(pe.graph.save), or a model: a directory of save_inference_model, __model__, *.pdmodel, *.onnx. Of a
trace it prints where the time went and what to change, the critical path, the peak of the memory,
and a table of operators.

examples:
  dpexec viz trace.json
  dpexec viz trace.json --report out.html          everything in one page that needs no network
  dpexec viz trace.json --report step.gif          a film of the typical step
  dpexec viz trace.json --step 3 --by layer
  dpexec viz new.json --compare old.json           what became slower or faster, and why
  dpexec viz new.json --compare old.json --gate 3% exit with 1 if steps are slower by more than 3%
  dpexec viz trace.json --simulate 8 --bandwidth 1e9 --latency 5e-5
  dpexec viz model/ --report net.svg
  dpexec viz model.onnx --report net.html
"""
_ROWS = 20
_MODELS = (".onnx", ".pdparams", ".pdopt", ".safetensors", ".npz")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace, graph or model")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="PAGE",
        help="write the views instead of printing figures (.html, .svg, .png, .pdf; .gif: a film)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--step", type=_number, metavar="K", help="look at this step alone")
    parser.add_argument(
        "--by",
        choices=("type", "node", "layer", "task", "role"),
        help="what a row of the table stands for (default: type)",
    )
    parser.add_argument("--compare", type=Path, metavar="OLD", help="the trace of an earlier run")
    parser.add_argument(
        "--gate",
        type=_percent,
        metavar="P%",
        help="with --compare: exit with 1 if steps are slower by more than P%%, beyond noise",
    )
    parser.add_argument(
        "--simulate", type=count, metavar="N", help="replay the trace on N devices instead"
    )
    parser.add_argument(
        "--mode", choices=("allreduce", "reduce"), help="how the simulated devices aggregate"
    )
    parser.add_argument(
        "--bandwidth",
        type=float,
        metavar="B",
        help="bandwidth of the simulated link, bytes per second",
    )
    parser.add_argument(
        "--latency", type=float, metavar="L", help="latency of that link, in seconds (default: 0)"
    )
    parser.add_argument(
        "--cores", type=count, metavar="C", help="number of cores that the devices share"
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a step")
    return int(text)


def _percent(text: str) -> float:
    number = text.removesuffix("%")
    if not number.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a share in percent, such as 3%")
    return float(number) / 100


def show(options: argparse.Namespace) -> int:
    """Print or write the requested views; returns the exit code: 1 if a gate was not passed.

    Args:
        options: the command line's options.
    """
    if options.compare and options.simulate:
        raise CommandError("choose one of --compare and --simulate")
    if options.gate is not None and not options.compare:
        raise CommandError("--gate needs --compare OLD: the trace to be compared with")
    _require_effect(options)
    try:
        view = _view(options)
        gate = None if options.gate is None else view.gate(options.gate)
        if options.report is not None:
            view.save(options.report)
        elif options.json:
            figures = view.to_json()
            print(
                json.dumps(figures if gate is None else {**figures, "gate": asdict(gate)}),
                flush=True,
            )
        else:
            print(view, flush=True)
    except (ValueError, RuntimeError) as error:  # FileError is a ValueError
        raise CommandError(str(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{error.filename or options.file}: {reason}") from error
    if gate is None:
        return 0
    print(f"dpexec viz: {'passed' if gate.passed else 'failed'}: {gate.text}", file=sys.stderr)
    return 0 if gate.passed else SCRIPT_ERROR


def _require_effect(options: argparse.Namespace) -> None:
    """Refuse options that would change nothing."""
    for name in ("mode", "bandwidth", "latency", "cores"):
        if getattr(options, name) is not None and not options.simulate:
            raise CommandError(f"--{name} needs --simulate N: the number of devices")
    if options.report is not None and options.json:
        raise CommandError("choose one of --report PAGE and --json")
    for name in ("report", "compare", "simulate"):
        if options.by is not None and getattr(options, name) is not None:
            raise CommandError(f"--by is for the printed table of a trace, and not for --{name}")


def _view(options: argparse.Namespace) -> Any:
    """The object to save or print: a view, or figures, which can only be printed."""
    from dpexec import viz

    source = _load(options.file)
    if isinstance(source, dict):
        for name in ("compare", "simulate", "step", "by"):
            if getattr(options, name) is not None:
                raise CommandError(f"--{name} needs a trace; {options.file.name} is a graph")
        if _is_film(options.report):
            raise CommandError(f"a film (.gif) needs a trace; {options.file.name} is a graph")
        return viz.draw(source) if options.report is not None else _GraphFigures(source)
    trace = source if options.step is None else _only(source, options.step)
    if options.compare is not None:
        other = _load(options.compare)
        if isinstance(other, dict):
            raise CommandError(f"{options.compare.name} is a graph; --compare needs a trace")
        other = other if options.step is None else _only(other, options.step)
        return viz.compare(other, trace, names=_names(options.compare, options.file))
    if options.simulate is not None:
        return viz.simulate(
            trace,
            devices=options.simulate,
            mode={"allreduce": "all_reduce", "reduce": "reduce", None: None}[options.mode],
            latency=options.latency or 0.0,
            bandwidth=options.bandwidth,
            cores=options.cores,
        )
    if _is_film(options.report):
        return viz.animate(trace)
    if options.report is not None:
        return viz.report(trace, title=f"dpexec viz {options.file.name}")
    return _TraceFigures(trace, options.by or "type")


def _is_film(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() == ".gif"


def _names(*paths: Path) -> list[str]:
    """The runs' names: their file names, with the folder if file names are equal."""
    names = [path.name for path in paths]
    return names if len({*names}) == len(names) else [str(path) for path in paths]


def _load(path: Path) -> Any:
    """Load a trace, or the content of a graph file."""
    from dpexec.engine.core.errors import EnforceNotMet
    from dpexec.engine.graph.describe import FORMAT
    from dpexec.engine.ir.program import Program
    from dpexec.engine.trace.files import unpacked
    from dpexec.viz.pages.load import FileError, as_graph, as_trace

    if path.is_dir() or path.suffix.lower() in _MODELS:
        return as_graph(model_files.program_of(path))
    data = unpacked(path)
    if not data.strip():
        raise CommandError(f"{path.name} is empty")
    if data.lstrip()[:1] not in (b"{", b"["):
        try:
            return as_graph(Program.parse_from_string(data))
        except EnforceNotMet as error:
            reason = str(error).strip().splitlines()[-1]
            raise CommandError(
                f"{path.name} is no trace, graph or program of dpexec ({reason})"
            ) from error
    try:
        content = json.loads(data)
        if isinstance(content, dict) and content.get("format") == FORMAT:
            return as_graph(content)
        return as_trace(path)
    except FileError as error:
        text = str(error)
        raise CommandError(text if path.name in text else f"{path.name}: {text}") from error
    except ValueError as error:
        raise CommandError(f"{path.name} is damaged, or was cut off: {error}") from error


def _only(trace: Trace, step: int) -> Trace:
    """One step of a trace; memory is kept for all steps, since it builds up over them."""
    from dataclasses import replace

    from dpexec.viz.measured.schedule import Schedule

    events = tuple(piece.event for piece in Schedule(trace, [step]).slices)
    return replace(trace, events=tuple(sorted(events, key=lambda e: (e.start, -e.stop))))


class _TraceFigures:
    """The printable figures of a trace."""

    def __init__(self, trace: Trace, by: Any) -> None:
        from dpexec import viz

        self.findings = viz.analyse(trace)
        self.memory = viz.memory(trace) if trace.memory else None
        self.table = viz.table(trace, by=by)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        devices = self.memory.devices if self.memory else ()
        return {
            "analysis": self.findings.to_json(),
            "memory": [used.to_json() for used in devices],
            "table": self.table.to_json(),
        }

    def __str__(self) -> str:
        from dpexec import viz

        shown = viz.Table(self.table.rows[:_ROWS], self.table.title)
        rest = len(self.table.rows) - _ROWS
        more = [f"and {rest} other rows (--json has all)"] if rest > 0 else []
        parts = [str(self.findings)]
        if self.memory:
            parts.append(f"{self.memory.title}\n{self.memory}")
        parts.append("\n".join([shown.title, str(shown), *more]))
        return "\n\n".join(parts)


class _GraphFigures:
    """The printable figures of a graph."""

    def __init__(self, graph: dict[str, Any]) -> None:
        from dpexec.viz.measured.graph_facts import GraphFacts

        facts = GraphFacts(graph)
        roles: dict[str, int] = {}
        for node in facts.nodes:
            roles[node["role"]] = roles.get(node["role"], 0) + 1
        moved = [facts.output_bytes(n["id"]) for n in facts.nodes if n["role"] == "collective"]
        kept = {
            (var["name"], var["device"]): var["bytes"] or 0
            for var in facts.vars
            if var["persistable"]
        }
        self.figures = {
            "title": graph["title"],
            "mode": graph["mode"],
            "devices": [device["place"] for device in graph["devices"]],
            "operators": len(facts.nodes),
            "roles": roles,
            "tasks": len(facts.tasks),
            "aggregated_bytes": sum(moved),
            "persistable_bytes": sum(kept.values()),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return self.figures

    def __str__(self) -> str:
        from dpexec.viz.pages.units import bytes_text

        figures = self.figures
        places = ", ".join(sorted(set(figures["devices"])))
        roles = ", ".join(f"{number} {role}" for role, number in figures["roles"].items())
        return "\n".join(
            [
                figures["title"],
                f"devices      {len(figures['devices'])} ({places})",
                f"mode         {figures['mode']}",
                f"operators    {figures['operators']} ({roles})",
                f"tasks        {figures['tasks'] or 'not planned yet'}",
                f"aggregated   {bytes_text(figures['aggregated_bytes'])} per device and step",
                f"parameters   {bytes_text(figures['persistable_bytes'])} on all devices",
            ]
        )
