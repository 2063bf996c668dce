"""Eager execution is missing, but packages that support both modes import and run programs."""

import pytest

import dpexec as fluid
from dpexec.commands.paddle_alias import paddle_is_dpexec


def test_names_can_be_imported_and_derived_from_and_say_so_when_called():
    with paddle_is_dpexec():
        from paddle.fluid import dygraph
        from paddle.fluid.dygraph.base import to_variable

    class Net(dygraph.Layer):
        def __init__(self):
            super().__init__("net")

    for name, refused in (("Net", Net), ("to_variable", lambda: to_variable(1.0))):
        with pytest.raises(
            RuntimeError, match=rf"fluid\.dygraph\.{name} is not supported: .*eager"
        ):
            refused()
    with pytest.raises(RuntimeError, match=r"fluid\.dygraph\.Env is not supported"):
        fluid.dygraph.parallel.Env()


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match=r"'dpexec\.dygraph' has no attribute 'gard'"):
        fluid.dygraph.gard  # noqa: B018


def test_eager_mode_is_off_and_stays_off():
    fluid.disable_dygraph()
    assert not fluid.dygraph.enabled()
    with pytest.raises(RuntimeError, match=r"fluid\.enable_dygraph is not supported"):
        fluid.enable_dygraph(fluid.CPUPlace())
    assert not fluid.in_dygraph_mode()
