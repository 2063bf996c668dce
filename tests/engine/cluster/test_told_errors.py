"""Errors of operators show the user's call and the operator, and no frames of dpexec."""

import threading
import traceback

import pytest
from distributed import Client

import dpexec as fluid
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.core.errors import EnforceNotMet, mistake_behind
from tests.distributed.clusters import workers
from tests.engine.run.nets import batches, classifier, train, word_batches, words

FILES = 5  # of the executor, at most


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "processes": False, "dashboard_address": ":0"}
    with Client(**options, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def processes():
    """A client whose workers are processes of their own: errors travel."""
    with workers(2) as found:
        yield found.client


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


class TwoParts(Exception):
    """Cannot be made of what it says, as pickle would."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


class Locked(Exception):
    """Cannot travel to another process at all."""

    def __init__(self):
        super().__init__("locked")
        self.lock = threading.Lock()


FAILURES = {
    "ValueError: bad": lambda: ValueError("bad"),
    "KeyError: 'k'": lambda: KeyError("k"),
    "StopIteration: ": StopIteration,
    "TwoParts: 1 and 2": lambda: TwoParts(1, 2),
    "Locked: locked": Locked,
}


def of_function(failure, **options):
    """What a run raises where a function of the user fails."""

    def fails(x):
        raise failure()

    net = classifier()
    main = net.main.clone()
    with fluid.program_guard(main), fluid.unique_name.guard():
        out = main.global_block().create_var(name="out", dtype="float32", shape=[-1, 3])
        fluid.layers.py_func(fails, main.global_block().var(net.prediction.name), out)
    net.main = main
    with pytest.raises(EnforceNotMet) as caught:
        train(net, batches(1), 2, **options)
    return caught.value


@pytest.mark.parametrize("text", FAILURES)
@pytest.mark.parametrize("how", ["threads", "tasks", "gang"])
def test_functions_of_the_user_fail_by_the_class_of_their_error(request, how, text):
    options = {}
    if how != "threads":
        options = {"scheduler": request.getfixturevalue("processes"), "collectives": how}
    first = str(of_function(FAILURES[text], **options)).splitlines()[0]
    assert first.endswith(f": {text}") and "operator py_func on device" in first


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("how", ["tasks", "gang"])
def test_functions_that_end_their_process_end_no_worker(processes, how, error):
    found = of_function(lambda: error, scheduler=processes, collectives=how)
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    assert str(found).startswith(f"a function of the program ended its process: {text}")
    assert len(processes.nthreads()) == 2


def test_an_error_that_cannot_travel_is_not_logged_besides(caplog):
    try:
        raise EnforceNotMet("operator x") from Locked()
    except EnforceNotMet as error:
        told = copy_to_send(error)
    assert (type(told), str(told), told.__cause__) == (EnforceNotMet, "operator x", None)
    assert caplog.records == []
