"""Asynchronous trainers in a fixed order: GEO-SGD and DC-ASGD, compared with NumPy."""

import contextlib

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from tests.engine.parameter_server.runs import Server, Trainer, free_endpoints, train, values
from tests.fixtures import pserver_cases as cases

RATE = 0.1


@contextlib.contextmanager
def taking_turns(name, servers=2):
    """Trainers whose steps the test calls; they have the parameters of the servers."""
    endpoints = free_endpoints(servers)
    team = [Trainer(name, number, endpoints, 0) for number in range(2)]
    serving = [Server(team[0].transpiler, endpoint) for endpoint in endpoints]
    for member in team:
        member.executor = fluid.Executor(fluid.CPUPlace())
        member.executor.run(member.startup, scope=member.scope)
    try:
        yield team
    finally:
        for member in team:
            member.executor.close()
    for member in serving:
        member.join()


def make_step(trainer, step, program=None, fetch=()):
    """A step of a trainer, or of another program in its scope."""
    name = trainer.name_of_case
    feed = cases.batch(name, step, trainer.number)
    executor, program = trainer.executor, program or trainer.program
    return executor.run(program, feed, [trainer.loss.name, *fetch], scope=trainer.scope)[1:]


class Alone:
    """A trainer of the reference: a plain program, and parameters that the test sets."""

    def __init__(self, name, number):
        self.name_of_case, self.number = name, number
        self.program, startup, self.loss = cases.build(fluid, name)
        self.scope, self.executor = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)

    @property
    def parameters(self):
        return values(self.program, self.scope)

    def put(self, parameters):
        for name, value in parameters.items():
            self.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())


def geo(monkeypatch, network=cases.dense, every=2):
    options = {"geo_sgd_mode": True, "geo_sgd_need_push_nums": every}
    minimize = cases.minimize_sgd
    monkeypatch.setitem(cases.CASES, "geo", (network, minimize, 2, options, False))


def geo_by_hand(schedule, every):
    """What both trainers and the servers have after trainers made steps in an order."""
    team = [Alone("geo", number) for number in range(2)]
    server = team[0].parameters
    known, steps = [dict(server), dict(server)], [0, 0]
    for number in schedule:
        make_step(team[number], steps[number])
        steps[number] += 1
        if steps[number] % every:
            continue
        own = team[number].parameters
        for name, before in known[number].items():
            change = (own[name] - before) / 2
            server[name] = server[name] + change
            own[name] += server[name] - (before + change)
            known[number][name] = server[name]
        team[number].put(own)
    return [member.parameters for member in team]


@pytest.mark.parametrize("network", [cases.dense, cases.sparse])
def test_geo_trainers_share_what_they_have_changed(monkeypatch, network):
    geo(monkeypatch, network)
    schedule = [0, 1, 0, 0, 1, 1, 0, 1, 1, 1]
    steps = [0, 0]
    with taking_turns("geo") as team:
        for number in schedule:
            make_step(team[number], steps[number])
            steps[number] += 1
        found = [values(member.main, member.scope) for member in team]
    for mine, expected in zip(found, geo_by_hand(schedule, 2), strict=True):
        for name, value in expected.items():
            np.testing.assert_allclose(mine[name], value, rtol=2e-6, atol=1e-7, err_msg=name)


def test_geo_trainers_update_themselves_between_exchanges(monkeypatch):
    geo(monkeypatch, every=3)
    alone = Alone("geo", 0)
    with taking_turns("geo") as (first, _):
        for step in range(2):
            make_step(first, step)
            make_step(alone, step)
        found = values(first.main, first.scope)
        (fetched,) = make_step(first, 2, fetch=["fc_0.w_0"])
        np.testing.assert_array_equal(fetched, values(first.main, first.scope)["fc_0.w_0"])
    for name, value in alone.parameters.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("devices", [None, 2])
def test_geo_trainers_learn_what_all_of_them_see(monkeypatch, devices):
    geo(monkeypatch, every=5)
    team = train("geo", steps=100, batches=1, devices=devices)
    assert np.mean([m.losses[-1] for m in team]) < 0.5 * np.mean([m.losses[0] for m in team])


def test_gradients_are_corrected_for_what_has_changed_since(monkeypatch):
    options = {"enable_dc_asgd": True}
    monkeypatch.setitem(cases.CASES, "dc", (cases.dense, cases.minimize_sgd, 2, options, False))
    schedule = [0, 0, 1, 0, 1, 1]
    steps = [0, 0]
    with taking_turns("dc") as team:
        for number in schedule:
            make_step(team[number], steps[number])
            steps[number] += 1
        found = [values(member.main, member.scope) for member in team]
    reference = [Alone("dc", number) for number in range(2)]
    server, steps = reference[0].parameters, [0, 0]
    seen = [dict(server), dict(server)]
    for number in schedule:
        gradients = [f"{name}@GRAD" for name in server]
        fetched = make_step(reference[number], steps[number], fetch=gradients)
        steps[number] += 1
        for name, gradient in zip(list(server), fetched, strict=True):
            delay = server[name] - seen[number][name]
            server[name] = server[name] - RATE * (gradient + delay * gradient * gradient)
        seen[number] = dict(server)
        reference[number].put(server)
    for mine, expected in zip(found, seen, strict=True):
        for name, value in expected.items():
            np.testing.assert_allclose(mine[name], value, rtol=2e-6, atol=1e-7, err_msg=name)


def test_corrections_are_for_dense_gradients(monkeypatch):
    options = {"enable_dc_asgd": True}
    monkeypatch.setitem(cases.CASES, "dc", (cases.sparse, cases.minimize_sgd, 2, options, False))
    main, startup, _ = cases.build(fluid, "dc")
    with pytest.raises(EnforceNotMet, match=r"that of embedding_0\.w_0 is sparse"):
        cases.transpiler(fluid, "dc", main, startup)
