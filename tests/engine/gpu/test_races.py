"""Each synchronisation of streams is needed: without it the simulated GPU reports a race."""

import dataclasses

import pytest

import dpexec as fluid
from dpexec.engine.gpu.schedule import StreamSchedule
from dpexec.engine.gpu.streams import Streams
from dpexec.engine.run.stream_launch import StreamLaunch
from tests.engine.gpu.programs import regression, trained, without_labels
from tests.engine.run.nets import AllReduce, Reduce
from tests.fakes.cupy import install
from tests.fakes.streams import Race


def no_waits(monkeypatch):
    made = StreamSchedule.of.__func__

    def without(cls, plan):
        schedule = made(cls, plan)
        return dataclasses.replace(schedule, waits=[() for _ in schedule.waits])

    monkeypatch.setattr(StreamSchedule, "of", classmethod(without))


def no_hold_of_what_is_exchanged(monkeypatch):
    monkeypatch.setattr(StreamLaunch, "_hold", lambda self, envs, variables: None)


def no_hold_of_feeds(monkeypatch):
    place = StreamLaunch.feed

    def forget(self, *args):
        made = place(self, *args)
        self._late.clear()
        return made

    monkeypatch.setattr(StreamLaunch, "feed", forget)


def feeds_do_not_wait(monkeypatch):
    monkeypatch.setattr(Streams, "wait", lambda self, kind, event: None)


def steps_are_not_joined(monkeypatch):
    monkeypatch.setattr(Streams, "join", lambda self, kinds: self.record(("compute", 0)))


OMISSIONS = [no_waits, no_hold_of_what_is_exchanged, no_hold_of_feeds, feeds_do_not_wait]


@pytest.mark.parametrize(
    ("omit", "mode"),
    [*((omit, AllReduce) for omit in OMISSIONS), (steps_are_not_joined, Reduce)],
)
def test_race_is_found_without_it(monkeypatch, omit, mode):
    install(monkeypatch, 2)
    omit(monkeypatch)
    gpus = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    feeds = without_labels(40)  # whether memory is free again in time differs from step to step
    with pytest.raises(
        (Race, fluid.core.EnforceNotMet), match=r"no event orders them|is used again while"
    ):
        trained(regression(), gpus, mode, feeds, fetch=False, task_granularity="op")
