"""What the tests of passes share."""

import pytest

import dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph


@pytest.fixture
def replicated():
    """Makes the graph of a program on CPU devices."""

    def build(program, devices=2, mode="all_reduce", shared=True):
        options = ReplicationOptions(mode=mode, shared_memory=shared)
        return build_ssa_graph(program, [fluid.CPUPlace()] * devices, options)

    return build
