"""Objects at the end of a notebook cell show themselves, without Graphviz, network or scripts."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from dpexec.viz.pages.page import fitting

import dpexec as fluid
from dpexec import viz
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.trace import Trace
from tests.engine.run.nets import batches, classifier, train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compiled():
    return train(classifier(), batches(1), devices=2, trace=True).compiled


def shown(compiled, what):
    sources = {"program": compiled._program, "graph": compiled.graph, "plan": compiled.plan}
    return {**sources, "trace": compiled.trace}[what]._repr_mimebundle_()


@pytest.mark.parametrize("what", ["program", "graph", "plan", "trace"])
def test_a_cell_ends_with_a_picture(compiled, monkeypatch, what):
    monkeypatch.setenv("PATH", "")
    bundle = shown(compiled, what)
    assert bundle["text/plain"]
    picture = ElementTree.fromstring(bundle["image/svg+xml"])
    assert picture.find("{http://www.w3.org/2000/svg}title").text
    assert "<iframe" in bundle["text/html"]


def test_a_picture_remains_without_scripts(compiled):
    html = viz.draw(compiled.graph).html
    plain = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert viz.draw(compiled.graph).svg in plain
    bundle = shown(compiled, "graph")
    assert '<img style="max-width:100%"' in bundle["text/html"]


def test_pictures_take_the_width_that_a_page_has(compiled):
    wide, narrow = shown(compiled, "trace"), shown(compiled, "program")
    assert re.search(r'^<svg [^>]* width="100%" style="max-width:1180px" v', wide["image/svg+xml"])
    assert " height=" not in wide["image/svg+xml"].partition(">")[0]
    assert fitting(narrow["image/svg+xml"]) == narrow["image/svg+xml"]
    small = '<svg width="300" height="20" viewBox="0 0 300 20"><rect width="900"/></svg>'
    assert fitting(small) == small
    large = small.replace("300", "1300")
    fits = fitting(large)
    assert fits.endswith('viewBox="0 0 1300 20"><rect width="900"/></svg>') and "height" not in fits


def test_nothing_is_fetched(compiled):
    for text in shown(compiled, "graph").values():
        addresses = set(re.findall(r"https?://[\w./]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}


def test_ipython_finds_the_picture(compiled):
    pytest.importorskip("IPython")
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(compiled.graph)
    assert "text/html" in data and "image/svg+xml" in data


def test_what_is_empty_is_its_text():
    for empty in (fluid.Program(), Trace()):
        assert list(empty._repr_mimebundle_()) == ["text/plain"]


def test_the_one_line_form(compiled, tmp_path):
    page = viz.draw(compiled.graph).save(tmp_path / "graph.html").read_text()
    assert page.startswith("<!DOCTYPE html>")


def test_an_executor_tells_of_its_run():
    net = classifier()
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(net.startup)
        build = fluid.ExecutionStrategy()
        build.trace = True
        pe = fluid.ParallelExecutor(False, net.loss.name, net.main, exec_strategy=build)
        for view in ("graph", "plan", "trace"):
            with pytest.raises(EnforceNotMet, match="run it once before"):
                getattr(pe, view)
        with pytest.raises(EnforceNotMet, match="run it once before"):
            viz.draw(pe)
        pe.run([net.loss.name], feed=batches(1)[0])
    assert viz.draw(pe).svg == viz.draw(pe.graph).svg
    assert viz.draw(pe.trace).data["tasks"] == pe.plan.to_json()["tasks"]


def test_dpexec_itself_needs_no_pictures():
    code = (
        "import sys, dpexec; sys.exit(any(name.startswith('dpexec.viz') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
