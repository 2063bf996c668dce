"""Modules of PyTorch as programs, where PyTorch is installed."""

import importlib.util

import numpy as np
import pytest

import dpexec as fluid

torch = pytest.importorskip("torch")

EXPORTERS = ["script", *(["dynamo"] if importlib.util.find_spec("onnxscript") else [])]


def module():
    torch.manual_seed(0)
    made = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.BatchNorm2d(2),
        torch.nn.BatchNorm2d(2),  # its parameters have the numbers of the one before
        torch.nn.Flatten(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 3),
    )
    made[0].bias.requires_grad = False
    return made


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_weights_have_their_names_and_move_both_ways(exporter):
    net, x = module(), torch.randn(4, 1, 4, 4)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.from_torch(net, x, names=["image"], exporter=exporter)
        assert feeds == ["image"] and net.training
        trained = {p.name for p in program.all_parameters() if p.trainable}
        assert trained == {n for n, p in net.named_parameters() if p.requires_grad}
        exe = fluid.Executor(fluid.CPUPlace())
        [made] = exe.run(program, feed={"image": x.numpy()}, fetch_list=fetches)
        np.testing.assert_allclose(made, net.eval()(x).detach().numpy(), atol=1e-5)
        startup = fluid.Program()
        with fluid.program_guard(program, startup):
            fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fetches[0]))
        exe.run(startup)
        exe.run(program, feed={"image": x.numpy()})
        state, scope = net.state_dict(), fluid.global_scope()
        for name in filter(scope.find_var, state):
            array = np.array(scope.find_var(name).get_tensor())
            state[name] = torch.from_numpy(array).reshape(state[name].shape)
        net.load_state_dict(state)
        test = program.clone(for_test=True)._prune(fetches)
        [made] = exe.run(test, feed={"image": x.numpy()}, fetch_list=fetches)
        np.testing.assert_allclose(made, net(x).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_any_number_of_arguments(exporter):
    class Total(torch.nn.Module):
        def forward(self, first, *more):
            return first + sum(more)

    with fluid.scope_guard(fluid.Scope()):
        examples = tuple(torch.randn(2, 3) for _ in range(3))
        program, feeds, fetches = fluid.from_torch(Total(), examples, exporter=exporter)
        feed = {name: np.ones((5, 3), "float32") for name in feeds}
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetches)
    assert made.tolist() == [[3, 3, 3]] * 5


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("zeros", [True, False])
def test_rows_of_padding_are_not_trained(exporter, zeros):
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(6, 2, padding_idx=1)
            self.back = torch.nn.Linear(2, 6, bias=False)
            self.back.weight = self.table.weight  # of which the row of padding is trained

        def forward(self, ids):
            return self.table(ids), self.back(self.table(ids).sum(1))

    net, ids = Words(), torch.tensor([[1, 2], [1, 1], [5, 2]])
    with torch.no_grad():
        net.table.weight[1] = 0 if zeros else 3
    wanted = net(ids)
    (wanted[0].square().sum() + wanted[1].sum()).backward()
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.from_torch(net, ids, exporter=exporter)
        with fluid.program_guard(program):
            loss = fluid.layers.reduce_sum(fluid.layers.square(fetches[0]))
            loss += fluid.layers.reduce_sum(fetches[1])
            [(_, slope)] = fluid.backward.append_backward(loss)
        made = fluid.Executor(fluid.CPUPlace()).run(
            program, feed={feeds[0]: ids.numpy()}, fetch_list=[*fetches, slope]
        )
    for array, tensor in zip(made, [*wanted, net.table.weight.grad], strict=True):
        np.testing.assert_allclose(array, tensor.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_lengths_may_be_open(exporter):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4, batch_first=True)
            self.score = torch.nn.Linear(4, 1)

        def forward(self, steps, mask):
            states, _ = self.rnn(steps)
            scores = self.score(states)[..., 0].masked_fill(~mask, -1e9)
            return torch.einsum("bt,btd->bd", scores.softmax(1), states)

    net = Attention()
    example = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
    axes = {name: {0: "batch", 1: "length"} for name in ("steps", "mask")}
    steps, mask = torch.randn(3, 8, 3), torch.arange(8)[None] < torch.tensor([[8], [2], [5]])
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.from_torch(
            net, example, names=["steps", "mask"], dynamic_axes=axes, exporter=exporter
        )
        exe = fluid.Executor(fluid.CPUPlace())
        feed = dict(zip(feeds, (steps.numpy(), mask.numpy()), strict=True))
        [made] = exe.run(program, feed=feed, fetch_list=fetches)
    np.testing.assert_allclose(made, net(steps, mask).detach().numpy(), atol=1e-5)


def test_tables_that_loops_read_have_their_names():
    net, ids = torch.nn.EmbeddingBag(5, 3), torch.tensor([[1, 2], [0, 4]])
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.from_torch(net, ids, exporter="script")
        assert [p.name for p in program.all_parameters()] == ["weight"]
        exe = fluid.Executor(fluid.CPUPlace())
        [made] = exe.run(program, feed={feeds[0]: ids.numpy()}, fetch_list=fetches)
    np.testing.assert_allclose(made, net(ids).detach().numpy(), atol=1e-6)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="exporter must be"):
        fluid.from_torch(module(), torch.randn(2, 1, 4, 4), exporter="onnx")
    with pytest.raises(ValueError, match="2 names"):
        fluid.from_torch(module(), torch.randn(2, 1, 4, 4), names=["a", "b"])
    for axes, problem in (({"y": {0: "n"}}, r"has \['y'\]"), ({"x0": {4: "n"}}, "4 dimensions")):
        with pytest.raises(ValueError, match=problem):
            fluid.from_torch(module(), torch.randn(2, 1, 4, 4), dynamic_axes=axes)
