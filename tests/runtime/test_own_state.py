"""What a replica does not have in common with all others."""

import pytest

import dpexec as fluid
from dpexec.runtime.own_state import own_names
from tests.runtime.nets import AllReduce, Reduce, classifier, strategies


def own(net, mode, devices=2):
    build, execution = strategies(mode)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(net.startup)
        engine = compiled._compile(fluid.global_scope(), fluid.CPUPlace())
        spec = engine.compilation.of(engine.program, engine.places, build, True, True)
    return own_names(spec.graph()[0])


def test_replicas_that_update_all_have_all_in_common():
    assert own(classifier(fluid.optimizer.Adam(0.1), dropout=0.5), AllReduce) == [set(), set()]


def test_owner_alone_has_the_moments():
    first, second = own(classifier(fluid.optimizer.Adam(0.1)), Reduce)
    moments = [name for name in first | second if "moment" in name]
    assert len(moments) == 2 * 4
    assert first.intersection(moments) and second.intersection(moments)
    assert not first & second & set(moments)
    assert not any(name.endswith((".w_0", ".b_0")) for name in first | second)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_statistics_are_of_single_replicas(mode):
    net = classifier(fluid.optimizer.SGD(0.1), batch_norm=True)
    statistics = {"batch_norm_0.w_1", "batch_norm_0.w_2"}
    assert all(statistics <= names for names in own(net, mode))
