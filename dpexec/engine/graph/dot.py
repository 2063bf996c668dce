"""DOT files of ``BuildStrategy.debug_graphviz_path``, named and labelled as in fluid."""

from __future__ import annotations

from collections.abc import Iterable

from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode

__all__ = ["multi_devices_dot", "single_device_dot", "write_graphviz"]


def write_graphviz(path: str, original: SSAGraph, fused: SSAGraph, replicated: SSAGraph) -> None:
    """Write ``<path>_original_graph``, ``<path>_fused_graph`` and ``<path>_multi_devices_graph``.

    Args:
        path: prefix of the three files; its directory must exist.
        original: the program on one device, as it was built.
        fused: the same after the passes.
        replicated: the program on all devices.

    Raises:
        OSError: the directory does not exist or cannot be written.
    """
    for suffix, text in (
        ("_original_graph", single_device_dot(original)),
        ("_fused_graph", single_device_dot(fused)),
        ("_multi_devices_graph", multi_devices_dot(replicated)),
    ):
        with open(path + suffix, "w", encoding="utf-8") as file:
            file.write(text)


def _digraph(lines: Iterable[str]) -> str:
    return "\n".join(["digraph G {", *lines, "}", ""])


def single_device_dot(graph: SSAGraph) -> str:
    """The graph of one device: operators dark, persistable variables teal, the rest grey."""
    variables = graph.program.global_block().vars
    style = 'shape="box" style="rounded,filled,bold" fontname="Arial" fontcolor="#ffffff"'
    lines: list[str] = []
    number: dict[OpNode | VarNode, int] = {}

    def declare(node: OpNode | VarNode, label: str, color: str) -> None:
        number[node] = len(number)
        name = f"{label}({number[node]})"
        if isinstance(node, VarNode) and node.kind == "var":
            name += "\\n" + ",".join(map(str, node.shape))
        lines.append(f'  node_{number[node]}[label="{name}" {style} color="{color}"]')

    for op in graph.ops:
        scope = op.op.attrs.get("op_namescope", "/") if op.op else "/"
        declare(op, f"{scope}{op.name}", "#303A3A")
    for var in graph.vars:
        declared = variables.get(var.name)
        kept = declared is not None and declared.persistable
        declare(var, var.name or "dummy", "#148b97" if kept else "#dddddd")
    for op in graph.ops:
        lines += [f"  node_{number[var]} -> node_{number[op]}" for var in op.inputs]
        lines += [f"  node_{number[op]} -> node_{number[var]}" for var in op.outputs]
    return _digraph(lines)


def multi_devices_dot(graph: SSAGraph) -> str:
    """The replicated graph: variables with place, scope and version; operators as rectangles."""
    lines = []
    for var in graph.vars:
        if var.kind == "dummy":
            label = "dummy"
        else:
            place = graph.places[var.device]
            label = f"{var.name}\\n{place}\\nscope: {var.device}\\nv{var.version}"
        lines.append(f'var_{var.id} [label="{label}"]')
    for op in graph.ops:
        lines.append(f'op_{op.id} [label="{op.name}", shape=rect]')
        lines += [f"var_{var.id} -> op_{op.id}" for var in op.inputs]
        lines += [f"op_{op.id} -> var_{var.id}" for var in op.outputs]
    return _digraph(lines)
