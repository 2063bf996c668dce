"""What is known of an operator stands in its declaration: nobody else keeps lists of types."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dpexec
import viz
from dpexec.engine.ir import opdef

SOURCES = [Path(dpexec.__file__).parent, Path(viz.__file__).parent]
DECLARATIONS = (
    "dpexec/engine/ops/",
    "dpexec/engine/kernels/",
    "dpexec/layers/",
    "dpexec/contrib/layers/",
    "dpexec/onnx/",
)
"""Where operators are declared, have their kernels, are built by name, and written as ONNX."""

REASONS = {
    "dpexec/contrib/model_stat.py": "fluid's own formulas, of some operators",
    "dpexec/contrib/slim/quantization/graphs.py": "what the passes insert, and find again",
    "dpexec/contrib/slim/quantization/pairs.py": "fluid's defaults; a list that PaddleSlim reads",
    "dpexec/contrib/slim/quantization/post_training_quantization.py": "fluid's defaults",
    "dpexec/contrib/slim/quantization/transforming.py": "fluid's defaults",
    "dpexec/contrib/slim/quantization/weights.py": "fluid's defaults and list",
    "dpexec/engine/compile/plans/host_numbers.py": "a loop and its gradient run a block",
    "dpexec/engine/compile/regions/epilogues.py": "pairs for which lowerings take one more operand",
    "dpexec/engine/compile/regions/passing.py": "a second implementation, without a kernel's call",
    "dpexec/engine/parameter_server/remote.py": "operators without a kernel: what servers are sent",
    "dpexec/engine/passes/fuse_add_activation.py": "what the pass puts together",
    "dpexec/engine/passes/fuse_relu_depthwise_conv.py": "what the pass puts together",
}
"""Files that name several operators at one place, and why."""


def elements(node: ast.AST) -> list[str]:
    """The strings of a collection, or the words of a string."""
    match node:
        case ast.Constant(value=str(text)) if not re.search(r"[.,:`]", text):
            return text.split()
        case ast.Tuple(elts=found) | ast.List(elts=found) | ast.Set(elts=found):
            pass
        case ast.Dict(keys=found):
            pass
        case _:
            return []
    return [e.value for e in found if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def named(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Lines with several types of operators, of which most are nothing else."""
    types = opdef.registered().keys() - {"load", "mean", "save", "seed", "clip", "fetch"}
    exports = [n for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AugAssign))]
    names = [n.value for n in exports if ast.unparse(n).startswith("__all__")]
    skipped = {id(part) for value in names for part in ast.walk(value)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        found = elements(node)
        hits = [name for name in found if name in types]
        if len(hits) > 1 and 2 * len(hits) > len(found):
            yield getattr(node, "lineno", 0), hits


def listed(path: Path, root: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [f"{path.relative_to(root)}:{line}: {hits}" for line, hits in named(tree)]


def test_facts_about_operators_stand_in_their_declarations():
    found: dict[str, list[str]] = {}
    for top in SOURCES:
        for path in sorted(top.rglob("*.py")):
            name = path.relative_to(top.parent).as_posix()
            lists = [] if name.startswith(DECLARATIONS) else listed(path, top.parent)
            if lists:
                found[name] = lists
    assert {name: lists for name, lists in found.items() if name not in REASONS} == {}
    assert REASONS.keys() <= found.keys(), "reasons without lists"


def test_lists_are_found():
    tree = ast.parse('A = """\nrelu tanh mul\n"""\nB = {"relu": 1, "tanh": 2}\nC = ("relu", "no")')
    assert [hits for _, hits in named(tree)] == [["relu", "tanh", "mul"], ["relu", "tanh"]]


def test_facts_name_slots_that_there_are():
    for type, definition in opdef.registered().items():
        slots = {slot.name for slot in definition.inputs}
        forward = definition.forward
        shared = frozenset() if forward is None else forward.host_inputs
        assert definition.host_inputs - shared <= slots, type
        assert definition.shape_inputs <= slots, type


def test_one_declaration_is_all_that_an_operator_needs():
    script = Path(__file__).with_name("one_file.py")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
