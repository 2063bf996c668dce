"""The streams of tasks, and the events that tasks wait for."""

import pytest

import dpexec as fluid
from dpexec.engine.gpu.schedule import StreamSchedule
from tests.engine.gpu.programs import regression, without_labels
from tests.engine.run.nets import AllReduce, Reduce
from tests.fakes.cupy import install


def planned(gpus, mode, monkeypatch):
    install(monkeypatch, 2)
    net, build = regression(), fluid.BuildStrategy()
    build.reduce_strategy = mode
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(net.startup)
        places = [fluid.CUDAPlace(gpu) for gpu in gpus]
        program = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, places=places
        )
        exe.run(program, without_labels(1)[0], [net.loss])
    return program.plan


def test_one_gpu_needs_no_events(monkeypatch):
    plan = planned([0], AllReduce, monkeypatch)
    schedule = StreamSchedule.of(plan)
    assert {lane for lanes in schedule.lanes for lane in lanes} == {("compute", 0)}
    assert not any(schedule.waits) and not schedule.signals


@pytest.mark.parametrize(("gpus", "exchanges"), [([0, 1], {0, 1}), ([0, 0], {0})])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_tasks_wait_for_those_on_other_streams_alone(monkeypatch, mode, gpus, exchanges):
    plan = planned(gpus, mode, monkeypatch)
    schedule = StreamSchedule.of(plan)
    for task, lanes, waits in zip(plan.tasks, schedule.lanes, schedule.waits, strict=True):
        if task.is_collective:
            assert set(lanes) == {("exchange", gpu) for gpu in exchanges}
        else:
            assert lanes == (("compute", task.device),)
        assert set(waits) == {
            number for number in task.after if set(schedule.lanes[number]) - set(lanes)
        }
    assert schedule.signals == {number for waits in schedule.waits for number in waits}
    assert any(schedule.waits)
    text = schedule.describe(plan)
    assert len(text.splitlines()) == len(plan.tasks) and "on exchange 0" in text
