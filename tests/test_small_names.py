"""Small helpers of fluid's modules."""

import importlib
import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec import annotations, default_scope_funcs, framework, wrapped_decorator
from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.layers import distributions, layer_function_generator, utils


def test_scopes_lie_in_each_other_and_threads_have_their_own():
    default_scope_funcs.var("outer")
    seen = []

    def inside():
        default_scope_funcs.var("inner")
        seen.append(default_scope_funcs.find_var("outer") is not None)

    default_scope_funcs.scoped_function(inside)
    thread = threading.Thread(target=lambda: seen.append(default_scope_funcs.find_var("outer")))
    thread.start()
    thread.join()
    assert seen == [True, None]
    assert default_scope_funcs.find_var("inner") is None
    with pytest.raises(IndexError, match="no scope around"):
        default_scope_funcs.leave_local_scope()


def test_decorators_decorate(capsys):
    def twice(function):
        return lambda value: 2 * function(value)

    @wrapped_decorator.wrap_decorator(twice)
    def successor(value):
        """The next number."""
        return value + 1

    assert (successor(1), successor.__doc__) == (4, "The next number.")

    @wrapped_decorator.signature_safe_contextmanager
    def around():
        yield 5

    with around() as value:
        assert value == 5

    @annotations.deprecated("1.8", "new", "It is better.")
    def old():
        """Old."""
        return 7

    assert old() == 7
    said = "API old is deprecated since 1.8. Please use new instead.\nIt is better.\n"
    assert capsys.readouterr().err == said
    assert "Please use new" in old.__doc__


def test_layers_of_users_are_decorated():
    @layer_function_generator.templatedoc("relu")
    @layer_function_generator.autodoc("Before. ")
    def layer(x):
        """After."""

    assert layer.__doc__ == "Before. After."

    @layer_function_generator.deprecated
    def old(x):
        return x

    with pytest.warns(DeprecationWarning, match="API old is deprecated"):
        assert old(3) == 3
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        layer_function_generator.generate_activation_fn("tanh")(x)
        assert x.block.ops[-1].type == "tanh"
        with pytest.raises(fluid.errors.MissingKernelError):
            layer_function_generator.generate_activation_fn("tank")


def test_numbers_become_lists():
    assert utils.convert_to_list(3, 2, "stride") == [3, 3]
    assert utils.convert_to_list((1, 2), 2, "stride") == [1, 2]
    for value in ([1, 2, 3], None, ["a", 1]):
        with pytest.raises(ValueError, match="The stride's type must be list or tuple of 2"):
            utils.convert_to_list(value, 2, "stride")


def test_constants_and_types_are_told():
    assert framework.dtype_is_floating("float16")
    assert not framework.dtype_is_floating(fluid.core.VarDesc.VarType.INT64)
    assert framework._dygraph_tracer() is framework._current_expected_place() is None
    assert fluid.unique_name.generate_with_ignorable_key is fluid.unique_name.generate


def test_tools_ask_the_core():
    core, scope = fluid.core, fluid.Scope()
    kinds = core.VarDesc.VarType
    assert [core.size_of_dtype(kind) for kind in (kinds.FP32, kinds.INT64)] == [4, 8]
    assert (core.is_compiled_with_dist(), core.is_compiled_with_brpc()) == (True, False)
    assert not core.is_compiled_with_mkldnn()
    scope.var("a").get_tensor().set(np.ones(2, "float32"))
    assert np.array(core.get_variable_tensor(scope, "a")).tolist() == [1.0, 1.0]
    with pytest.raises(fluid.core.EnforceNotMet, match="there is no variable b"):
        core.get_variable_tensor(scope, "b")


def test_clips_of_users_are_called():
    class Halved(fluid.clip.GradientClipBase):
        def _static_clip(self, params_grads):
            return [(param, fluid.layers.scale(grad, 0.5)) for param, grad in params_grads]

    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        one = fluid.initializer.Constant(1.0)
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=one, bias_attr=False))
        fluid.optimizer.SGD(1.0, grad_clip=Halved()).minimize(loss)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    exe.run(main, {"x": np.full((1, 2), 0.5, "float32")}, [loss], scope=scope)
    found = np.array(scope.find_var("fc_0.w_0").get_tensor())
    np.testing.assert_allclose(found, np.full((2, 1), 0.75))


def test_initializers_of_users_know_what_a_weight_connects():
    class Var:
        shape = (8, 3, 5, 5)

    assert fluid.initializer.Initializer()._compute_fans(Var()) == (75, 200)


def test_distributions_say_what_they_do_not_have():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        logits = fluid.layers.fill_constant([3], "float32", 0.5)
        made = fluid.layers.Categorical(logits)
    assert isinstance(made, distributions.Distribution)
    with pytest.raises(NotImplementedError, match="Categorical has no sample"):
        made.sample()
    with pytest.raises(NotImplementedError, match="Categorical has no log_prob"):
        made.log_prob(logits)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("paddle.reader.decorator", "shuffle"),
        ("paddle.fluid.dataloader.batch_sampler", "BatchSampler"),
        ("paddle.fluid.contrib.reader.distributed_reader", "distributed_batch_reader"),
        ("paddle.fluid.layer_helper_base", "LayerHelperBase"),
        ("paddle.fluid.layers.device", "get_places"),
        ("paddle.fluid.optimizer", "append_regularization_ops"),
        ("paddle.version", "mkl"),
        ("paddle.compat", "int_type"),
    ],
)
def test_modules_lie_where_fluid_has_them(module, name):
    with paddle_is_dpexec():
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(
    ("module", "name", "why"),
    [
        ("fluid.contrib", "HDFSClient", "for fsspec"),
        ("fluid.core", "get_pass", "dpexec.engine.graph and dpexec.engine.passes"),
        ("fluid.layers.control_flow", "WhileGuard", "built by layers"),
    ],
)
def test_missing_names_say_what_to_use(module, name, why):
    with paddle_is_dpexec():
        found = importlib.import_module("paddle." + module)
        with pytest.raises(AttributeError, match=why):
            getattr(found, name)


def test_modules_that_are_not_imported_say_how(monkeypatch):
    for name in ("viz", "checkpoint", "onnx"):
        monkeypatch.delattr(fluid, name, raising=False)
        with pytest.raises(
            AttributeError, match=f"before it is imported: from dpexec import {name}"
        ):
            getattr(fluid, name)
