"""Source text of operators: the user's statements, and functions."""

import dpexec as fluid
from dpexec.engine.graph.listings import Listings, Statements, python_listing, texts_of
from dpexec.engine.ir import opdef
from dpexec.engine.ir.callsite import CallSite

SOURCE = """\
def net(x):
    for _ in range(2):
        x = fc(
            x,
            8,
        )
    with block(
        x
    ):
        return x
"""


def site(path, line):
    return CallSite(str(path), line, "net")


def test_a_statement_of_several_lines_is_told_whole(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(SOURCE)
    statements = Statements()
    for line in (3, 4, 6):
        assert statements.text(site(path, line)) == "x = fc(\n    x,\n    8,\n)"
    assert statements.text(site(path, 2)) == "for _ in range(2):"
    assert statements.text(site(path, 8)) == "with block(\n    x\n):"  # its body has its own


def test_a_line_of_what_is_no_python_is_told_alone(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text("%matplotlib inline\nx = fc(x, 8)\n")
    assert Statements().text(site(path, 2)) == "x = fc(x, 8)"
    assert Statements().text(site(path, 9)) == ""
    assert Statements().text(site(tmp_path / "gone.py", 1)) == ""


def test_long_statements_are_cut(tmp_path):
    path = tmp_path / "long.py"
    path.write_text("x = [\n" + "    1,\n" * 50 + "]\n")
    assert len(Statements().text(site(path, 30)).splitlines()) == 12


def test_every_text_is_there_once():
    listings = Listings()
    relu = python_listing(opdef.get("relu").kernel, "declaration")
    assert listings.number(relu) == 0 and listings.number(dict(relu)) == 0
    assert relu["name"] == "dpexec.engine.ops.relu.relu"
    assert relu["source"].startswith('@op(\n    "relu"') and "xp.maximum(x, 0)" in relu["source"]
    assert python_listing(max)["source"] == ""
    assert listings.number(python_listing(max)) == 1


def test_lines_of_two_files_with_one_name_are_told_of_neither(tmp_path):
    main, scope = fluid.Program(), {"fluid": fluid}
    text = "def net():\n    return fluid.layers.fill_constant([{}], 'float32', 0)\n"
    with fluid.program_guard(main), fluid.unique_name.guard():
        for number, folder in enumerate("ab", 1):
            path = tmp_path / folder / "nets.py"
            path.parent.mkdir()
            path.write_text(text.format(number))
            exec(compile(path.read_text(), path, "exec"), scope)
            scope["net"]()
    ops = main.global_block().ops
    assert texts_of(ops[:1], [])["lines"] == {
        "nets.py:2": "return fluid.layers.fill_constant([1], 'float32', 0)"
    }
    assert texts_of(ops, [])["lines"] == {"nets.py:2": ""}
