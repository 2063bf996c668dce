"""Second gradients, compared with finite differences on the operators' samples."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.autodiff import gradients
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import opdef
from tests.engine.ops.calls import SampleCall, run, samples, spec_of

STEP = 1e-5


def twice_differentiable(type):
    """Whether the operator has samples, and a gradient operator of its own that has a gradient."""
    gradient = opdef.find(type + "_grad")
    return samples(type) and gradient is not None and gradient.make_grad is not None


TYPES = [type for type in opdef.registered() if twice_differentiable(type)]


class Twice:
    """First-order gradients of one call in a program, and those of a weighted sum of them."""

    def __init__(self, call, wanted, rng):
        self.call, self.values = call, dict(call.forward())
        self.sources, block = list(wanted), call.block
        for name in (name for names in call.outputs.values() for name in names):
            block.var(name).set_spec(spec_of(self.values[name]))
        flows = {
            output: self._variable(f"flow_{output}", rng.standard_normal(self.values[output].shape))
            for output in call.read_output_grads(wanted)
        }
        self.sources += [flow.name for flow in flows.values()]
        self.first = gradients(
            [block.var(name) for name in flows],
            [block.var(name) for name in wanted],
            list(flows.values()),
        )
        self.forward_ops = list(block.ops)
        self.run(self.forward_ops, self.values)
        self.weights = {
            var.name: rng.standard_normal(self.values[var.name].shape) for var in self.first
        }
        given = [self._variable(f"weight_{name}", w) for name, w in self.weights.items()]
        self.second = gradients(self.first, [block.var(name) for name in self.sources], given)
        self.run(block.ops[len(self.forward_ops) :], self.values)

    def _variable(self, name, value):
        var = self.call.block.create_var(name=name)
        var.set_spec(spec_of(value))
        self.values[name] = value
        return var

    @staticmethod
    def run(ops, values):
        for op in ops:
            run(op, values)

    def total(self, directions, step):
        """The weighted sum of first-order gradients at a point nearby."""
        values = dict(self.values)
        values.update({name: values[name] + step * d for name, d in directions.items()})
        self.run(self.forward_ops, values)
        return sum(float((values[name] * w).sum()) for name, w in self.weights.items())


@pytest.mark.parametrize("type", TYPES)
def test_gradient_of_gradient_matches_finite_differences(type):
    checked = 0
    for number, sample in enumerate(samples(type)):
        call = SampleCall(type, sample, np.float64)
        wanted = call.wanted_inputs(sample)
        if not wanted or not sample.smooth:
            continue
        rng = np.random.default_rng(number)
        try:
            twice = Twice(call, wanted, rng)
        except EnforceNotMet as error:
            if "which is repeated" in str(error):  # elementwise_div
                continue
            raise
        directions = {n: rng.standard_normal(twice.values[n].shape) for n in twice.sources}
        analytic = sum(
            float((twice.values[grad.name] * directions[name]).sum())
            for name, grad in zip(twice.sources, twice.second, strict=True)
            if grad is not None
        )
        up, down = (twice.total(directions, step) for step in (STEP, -STEP))
        assert np.isclose(analytic, (up - down) / (2 * STEP), rtol=1e-5, atol=1e-6), (
            f"sample {number} of {type} {dict(sample.attrs)}"
        )
        checked += 1
    assert checked, f"no sample of {type} checks its second gradient"


def test_every_second_gradient_is_checked():
    made = {type.removesuffix("_grad_grad") for type in opdef.registered() if "_grad_grad" in type}
    assert made <= set(TYPES)


def test_parts_that_no_gradient_flows_into_are_zeros():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, constant = fluid.data("x", [2, 3]), fluid.data("constant", [2, 1])
        x.stop_gradient = False
        whole = fluid.layers.concat([constant, x], axis=1)
        (slope,) = fluid.gradients(fluid.layers.reduce_sum(whole * whole), x)
        (bend,) = fluid.gradients(fluid.layers.reduce_sum(slope * slope), x)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3), "constant": np.ones((2, 1), "f4")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[bend])
    assert np.array_equal(found, 8 * feed["x"])
