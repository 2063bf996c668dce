"""Fixtures of the tests of the interactive page: a window, a run, its report."""

import pytest

from dpexec import viz
from tests.engine.run.nets import batches, classifier, train
from tests.viz.browser import browser


@pytest.fixture(scope="module")
def window():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def run():
    return train(classifier(), batches(3), devices=2, fuse_all_optimizer_ops=True, trace=True)


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    return viz.report(run.compiled).save(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(window, report):
    """The report, freshly opened; the test must leave the console clean."""
    yield window.open(report)
    assert window.log() == []
