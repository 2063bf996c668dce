"""What users see of an operator's error: their call and the operator, and nothing of the inside."""

import traceback

import pytest
from distributed import Client

import dpexec as fluid
from dpexec.errors import EnforceNotMet, mistake_behind
from tests.runtime.nets import train, word_batches, words

FILES = 5  # of the executor, at most


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "processes": False, "dashboard_address": ":0"}
    with Client(**options, set_as_default=False) as client:
        yield client


def failing_run(**options):
    """What a run raises that was fed a word which is too large."""
    (feed,) = word_batches(1)
    run = train(words(), [feed], 2, **options)
    with fluid.scope_guard(run.scope), pytest.raises(EnforceNotMet) as caught:
        fluid.Executor(fluid.CPUPlace()).run(run.compiled, feed={**feed, "x": feed["x"] + 50})
    return caught.value


def assert_short(error):
    assert len(traceback.extract_tb(error.__traceback__)) <= 1 + FILES
    text = "".join(traceback.format_exception(error))
    assert "direct cause" not in text and "During handling" not in text
    first = text[text.index("EnforceNotMet: ") :].splitlines()[0]
    assert "operator lookup_table_v2" in first and "expected >= 0 and < 12" in first
    assert "table = fluid.embedding(" in text


def test_errors_on_threads_show_the_call_and_the_operator():
    assert_short(failing_run())


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_errors_on_clusters_too_and_workers_log_none(client, caplog, collectives):
    assert_short(failing_run(scheduler=client, collectives=collectives))
    assert "Compute Failed" not in caplog.text
    with pytest.raises(ZeroDivisionError):
        client.submit(divmod, 1, 0, pure=False).result()
    assert "Compute Failed" in caplog.text  # of tasks of others


def test_mistakes_of_kernels_stay_to_be_seen():
    for cause, seen in ((ValueError("no such row"), False), (TypeError("a mistake"), True)):
        error = EnforceNotMet("operator x")
        error.__cause__ = cause
        assert (mistake_behind(error) is cause) is seen
