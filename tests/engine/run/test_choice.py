"""Which parts run a step, and the errors for parts that cannot be combined."""

import itertools

import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.run.choice import CANNOT, check_parts, why_not
from dpexec.engine.run.host_launch import HostLaunch
from dpexec.engine.run.orders import DaskOrder, Inline
from tests.engine.run.nets import batches, classifier, train

WORDS = sorted({word for pair in CANNOT for word in pair})


def runner_of(**options):
    return train(classifier(), batches(1), 2, **options).compiled._engine.runner


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(WORDS, 2)])
def test_pairs_are_refused_as_the_table_says(one, other):
    reason = CANNOT.get((one, other), "")
    assert why_not(one, other) == why_not(other, one) == reason
    if reason:
        with pytest.raises(EnforceNotMet, match=reason[:20]):
            check_parts(other, "host", one)
    else:
        check_parts(other, "host", one)


def test_pairs_of_the_table_are_in_order():
    assert all(list(pair) == sorted(pair) for pair in CANNOT)


def test_threads_have_whole_steps_of_code_and_what_shows_tasks_has_none():
    usual, shown, alone = (
        runner_of(),
        runner_of(use_experimental_executor=False),
        runner_of(scheduler="sync"),
    )
    assert usual.code is not None and usual.order.prepares
    assert shown.code is alone.code is None
    assert not shown.order.prepares and not alone.order.prepares
    assert all(isinstance(r.order, DaskOrder) for r in (usual, shown, alone))
    assert all(isinstance(r.launch, HostLaunch) and r.exchange is None for r in (usual, alone))


def test_a_plain_executor_works_inline():
    net = classifier()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(net.startup, scope=scope)
    (engine,) = exe._engines.values()
    assert isinstance(engine.runner.order, Inline)
