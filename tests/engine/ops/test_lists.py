"""All facts about an operator stand in its declaration: no other file lists operator types."""

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import dpexec
import viz
from dpexec.engine.ir import opdef
from tests.engine.ops.without_files import GONE

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
    "dpexec/contrib/mixed_precision/fp16_utils.py": "what its pass inserts, and finds again",
    "dpexec/contrib/model_stat.py": "fluid's own formulas, of some operators",
    "dpexec/contrib/slim/quantization/graphs.py": "what the passes insert, and find again",
    "dpexec/contrib/slim/quantization/pairs.py": "fluid's defaults; a list that PaddleSlim reads",
    "dpexec/contrib/slim/quantization/post_training_quantization.py": "fluid's defaults",
    "dpexec/contrib/slim/quantization/transforming.py": "fluid's defaults",
    "dpexec/contrib/slim/quantization/weights.py": "fluid's defaults and list",
    "dpexec/engine/autodiff/conditional_block.py": "its gradient, made with the chain rule",
    "dpexec/engine/autodiff/parallel_do.py": "its gradient, made with the chain rule",
    "dpexec/engine/autodiff/recurrent.py": "its gradient, made with the chain rule",
    "dpexec/engine/autodiff/while_loop.py": "its gradient, made with the chain rule",
    "dpexec/engine/compile/regions/epilogues.py": "pairs for which lowerings take one more operand",
    "dpexec/engine/graph/lods.py": "an operator without a kernel: what graphs make of ParallelDo",
    "dpexec/engine/graph/parallel_do.py": "an operator without a kernel: what graphs make of it",
    "dpexec/engine/graph/unpadding.py": "the two operators that the rewrite is for",
    "dpexec/engine/ir/desc.py": "operators without a kernel: inputs and results of saved programs",
    "dpexec/engine/ir/prune.py": "operators without a kernel, which fluid's pruning looks for",
    "dpexec/engine/ir/verify.py": "operators without a kernel: feed and fetch",
    "dpexec/engine/parameter_server/remote.py": "operators without a kernel: what servers are sent",
    "dpexec/engine/parameter_server/update.py": "operators of the transpiler's server programs",
    "dpexec/engine/passes/addto.py": "what the pass divides",
    "dpexec/engine/passes/constant_folding.py": "what the pass reads, and makes",
    "dpexec/engine/passes/fuse_add_activation.py": "what the pass puts together",
    "dpexec/engine/passes/fuse_relu_depthwise_conv.py": "what the pass puts together",
    "dpexec/engine/passes/fuse_softmax_cross_entropy.py": "what the pass puts together",
    "dpexec/engine/passes/prediction/convolutions.py": "what the passes put together",
    "dpexec/engine/passes/prediction/eight_bits.py": "what the passes replace",
    "dpexec/engine/passes/prediction/layers.py": "what the pass puts together",
    "dpexec/engine/passes/sync_batch_norm.py": "what the pass replaces",
    "dpexec/engine/run/trainers/rings.py": "operators without a kernel, of startup programs",
    "dpexec/io/inference.py": "what fluid warns of",
}
"""Files that ask for operators by their types, or list several, and why."""


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


def is_export(node: ast.AST) -> bool:
    """Whether a statement sets ``__all__``, or adds to it."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def named(nodes: Sequence[ast.AST], types: Set[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines with several types of operators, of which most are nothing else."""
    types = types - {"load", "mean", "save", "seed", "clip", "fetch"}
    exports = [node for node in nodes if is_export(node)]
    skipped = {id(part) for export in exports for part in ast.walk(export)}
    for node in nodes:
        if id(node) in skipped:
            continue
        found = elements(node)
        hits = [name for name in found if name in types]
        if len(hits) > 1 and 2 * len(hits) > len(found):
            yield getattr(node, "lineno", 0), hits


def asked(nodes: Sequence[ast.AST], types: Set[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines that ask for one type: ``op.type == "relu"``, ``opdef.get("relu")``."""
    for node in nodes:
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if not any(
                    isinstance(side, ast.Attribute) and side.attr == "type" for side in sides
                ):
                    continue
                hits = [name for side in sides for name in elements(side) if name in types]
            case ast.Match(subject=ast.Attribute(attr="type"), cases=cases):
                values = [part for case in cases for part in ast.walk(case.pattern)]
                hits = [n for v in values for n in elements(getattr(v, "value", v)) if n in types]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="opdef")), args=args):
                hits = [name for side in args for name in elements(side) if name in types]
            case _:
                continue
        if hits:
            yield node.lineno, hits


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def listed(path: Path, root: Path, types: Set[str]) -> list[str]:
    nodes = nodes_of(path)
    found = dict([*named(nodes, types), *asked(nodes, types)])
    return [f"{path.relative_to(root)}:{line}: {hits}" for line, hits in found.items()]


def test_facts_about_operators_stand_in_their_declarations():
    found: dict[str, list[str]] = {}
    types = opdef.registered().keys()
    for top in SOURCES:
        for path in sorted(top.rglob("*.py")):
            name = path.relative_to(top.parent).as_posix()
            lists = [] if name.startswith(DECLARATIONS) else listed(path, top.parent, types)
            if lists:
                found[name] = lists
    assert {name: lists for name, lists in found.items() if name not in REASONS} == {}
    assert REASONS.keys() <= found.keys(), "reasons without lists"


def test_lists_are_found():
    types = opdef.registered().keys()
    tree = ast.parse('A = """\nrelu tanh mul\n"""\nB = {"relu": 1, "tanh": 2}\nC = ("relu", "no")')
    nodes = [*ast.walk(tree)]
    assert [hits for _, hits in named(nodes, types)] == [["relu", "tanh", "mul"], ["relu", "tanh"]]


def test_facts_name_slots_that_there_are():
    for type, definition in opdef.registered().items():
        slots = {slot.name for slot in definition.inputs}
        forward = definition.forward
        shared = frozenset() if forward is None else forward.host_inputs
        assert definition.host_inputs - shared <= slots, type
        assert definition.shape_inputs <= slots, type


def output_of(script: str) -> str:
    """What a script beside this file prints, in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = [sys.executable, "-W", "error", str(Path(__file__).with_name(script))]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_declaration_is_all_that_an_operator_needs():
    output_of("one_file.py")


def mentions(types: set[str]) -> Iterator[str]:
    """Where the engine and the pictures name types outside of declarations and kernels."""
    for top in (SOURCES[0] / "engine", SOURCES[0] / "dashboard", SOURCES[1]):
        for path in sorted(top.rglob("*.py")):
            name = path.relative_to(SOURCES[0].parent).as_posix()
            if name.startswith((*DECLARATIONS, "dpexec/engine/passes/")) or name in REASONS:
                continue  # a pass is for the operators that it names
            for node in nodes_of(path):
                if isinstance(node, ast.Constant) and node.value in types:
                    yield f"{name}:{node.lineno}: {node.value}"


def test_files_of_operators_can_be_deleted():
    """All else loads and trains, and nothing mentions what they declared."""
    left = set(json.loads(output_of("without_files.py")))
    gone = opdef.registered().keys() - left
    files = {Path(opdef.get(type).kernel.__code__.co_filename).stem for type in gone}
    assert files >= GONE
    assert list(mentions(gone)) == []
