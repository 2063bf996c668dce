"""Runs of programs with ``ParallelDo``: devices, threads, copies, errors."""

import pickle
import threading

import numpy as np
import pytest
from dpexec.viz import draw

import dpexec as fluid
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.feeds.splitting import single_feed
from dpexec.engine.ir.verify import verify
from dpexec.engine.run import host_launch
from tests.engine.run.parallel_do_programs import (
    CPU,
    built,
    dense,
    graph_of,
    normal,
    parallel_do,
    train,
)

layers = fluid.layers


def test_same_bits_on_every_scheduler_and_number_of_threads():
    build, feed = dense(13)
    main, startup, loss, _ = built(build, 4)
    found = []
    for options in ({}, {"num_threads": 2}, {"num_threads": 9}, {"scheduler": "sync"}):
        scope, strategy = fluid.Scope(), fluid.ExecutionStrategy()
        for name, value in options.items():
            setattr(strategy, name, value)
        fluid.Executor(CPU).run(startup, scope=scope)
        engine = Engine(main, [CPU], scope, execution_strategy=strategy)
        feeds = single_feed(main.global_block(), feed)
        found.append([engine.run([feeds], [loss.name])[0].tobytes() for _ in range(4)])
    assert all(losses == found[0] for losses in found)


def test_plain_executor_runs_the_bodies_on_threads(monkeypatch):
    """Two places meet: neither goes on before the other is there."""
    meet, threads = threading.Barrier(2, timeout=20), set()
    original = host_launch.run_steps

    def run_steps(steps, *arguments):
        if steps[0].node.device in (1, 2):
            threads.add(threading.get_ident())
            meet.wait()
        original(steps, *arguments)

    monkeypatch.setattr(host_launch, "run_steps", run_steps)
    build, feed = dense(8)
    main, startup, loss, _ = built(build, 2)
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    exe.run(startup, scope=scope)
    exe.run(main, feed, [loss], scope=scope)
    assert len(threads) >= 2


def test_graph_has_a_device_per_place_and_one_around():
    build, _ = dense(4)
    main, *_ = built(build, 3)
    graph = graph_of(main)
    assert len(graph.places) == 4 and list(graph.replicas) == [0]
    kinds = [(node.kind, node.device) for node in graph.ops if node.is_collective]
    assert kinds.count(("split", 0)) == 2 and kinds.count(("merge", 0)) == 2
    assert kinds.count(("reduce", 0)) == 4 and len(kinds) == 8  # and no copies of parameters
    types = [node.name for node in graph.ops if node.device == 2]
    assert types == [
        *("mul", "elementwise_add", "tanh", "mul", "elementwise_add"),
        *("elementwise_add_grad", "mul_grad", "tanh_grad", "elementwise_add_grad", "mul_grad"),
    ]


def test_independent_blocks_share_devices():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        for places in (2, 2, 3):
            pd = parallel_do(places)
            with pd.do():
                pd.write_output(layers.fc(pd.read_input(x), 1))
        again = parallel_do(2)
        with again.do():
            again.write_output(layers.relu(again.read_input(pd())))
    assert graph_of(main).bodies == {1: [1, 2], 2: [1, 2], 3: [3, 4, 5], 4: [1, 2]}


def test_picture_shows_places_and_what_crosses_them():
    main, *_ = built(dense(4)[0], 2)
    drawing = draw(graph_of(main))
    assert drawing.diagram.title.endswith("merge + reduce + split")
    across = [(b.label, b.reaches) for b in drawing.diagram.boxes if b.device is None]
    assert across[:3] == [("split", (1, 2)), ("merge", (0,)), ("split", (1, 2))]
    for name in ("device 0 · CPUPlace", "device 1 · ParallelDo · CPUPlace"):
        assert name in drawing.svg and name in drawing.dot.source


def test_kept_parameters_are_updated_on_every_device():
    build, _ = dense(4, keep_parameters=True)
    main, *_ = built(build, 3)
    graph = graph_of(main)
    kinds = [node.kind for node in graph.ops if node.is_collective]
    assert kinds.count("all_reduce") == 4 and not {"reduce", "broadcast"} & set(kinds)
    updates = [
        [n.op.role_var[0] for n in graph.ops if n.name == "sgd" and n.device == device]
        for device in range(4)
    ]
    assert (
        updates[1] == updates[2] == updates[3] == ["fc_1.b_0", "fc_1.w_0", "fc_2.b_0", "fc_2.w_0"]
    )
    assert sorted(updates[0]) == sorted([*updates[1], "fc_0.w_0", "fc_0.b_0"])


def test_kept_parameters_stay_equal_with_random_updates():
    build, feed = dense(5, keep_parameters=True)
    noisy = lambda: fluid.optimizer.Dpsgd(0.1, clip=0.9, batch_size=5.0, sigma=0.5)  # noqa: E731
    main, startup, loss, _ = built(build, 3, noisy)
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    exe.run(startup, scope=scope)
    for _ in range(3):
        exe.run(main, feed, [loss], scope=scope)
    engine = exe._engine_for(main, scope)
    for name in ("fc_1.w_0", "fc_2.w_0"):
        first, *others = (np.array(s.find_var(name).get_tensor()) for s in engine.replicas.scopes)
        assert len(others) == 3 and all(np.array_equal(first, other) for other in others)


# ---- copies of the program


def run_for_test(program, feed, fetch, scope):
    return fluid.Executor(CPU).run(program, feed, [fetch], scope=scope)[0]


def test_copies_for_testing_and_on_disk(tmp_path):
    feed = {"img": normal(5, 1, 8, 8), "label": np.arange(5).reshape(5, 1) % 3}
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        img, label = fluid.data("img", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
        pd = parallel_do(2)
        with pd.do():
            conv = layers.batch_norm(layers.conv2d(pd.read_input(img), 4, 3))
            pd.write_output(layers.fc(layers.dropout(conv, 0.3), 3, act="softmax"))
        prediction = pd()
        loss = layers.mean(layers.cross_entropy(prediction, label))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
    late_test = main.clone(for_test=True)
    assert [op.type for op in late_test.global_block().ops] == [
        op.type for op in test.global_block().ops
    ]
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    with fluid.scope_guard(scope):
        exe.run(startup)
        exe.run(main, feed, [loss])
        fluid.io.save_inference_model(str(tmp_path), ["img"], [prediction], exe, main)
        expected = run_for_test(test, feed, prediction, scope)
    assert expected.shape == (5, 3)
    with fluid.scope_guard(fluid.Scope()):
        loaded, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        (found,) = exe.run(loaded, {feeds[0]: feed["img"]}, fetches)
    np.testing.assert_array_equal(found, expected)
    copies = [
        late_test,
        pickle.loads(pickle.dumps(test)),
        fluid.Program.parse_from_string(test.desc.serialize_to_string()),
    ]
    for copy in copies:
        verify(copy)
        np.testing.assert_array_equal(run_for_test(copy, feed, prediction.name, scope), expected)


def test_program_with_gradients_survives_its_desc():
    build, feed = dense(5, keep_parameters=True)
    main, startup, loss, _ = built(build, 3)
    copy = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    verify(copy)
    losses = []
    for program in (main, main.clone(), copy, fluid.CompiledProgram(main)):
        scope, exe = fluid.Scope(), fluid.Executor(CPU)
        exe.run(startup, scope=scope)
        losses.append([exe.run(program, feed, [loss.name], scope=scope)[0] for _ in range(3)])
    for others in losses[1:]:
        np.testing.assert_array_equal(losses[0], others)


# ---- what goes wrong


@pytest.mark.parametrize("keep", [False, True])
def test_failed_step_changes_nothing(keep):
    def build(places):
        x, ids = fluid.data("x", [None, 4]), fluid.data("ids", [None, 1], "int64")
        pd = parallel_do(places, keep_parameters=keep)
        with pd.do():
            rows = layers.embedding(pd.read_input(ids), size=[10, 4], is_sparse=True)
            hidden = layers.batch_norm(layers.elementwise_add(pd.read_input(x), rows))
            pd.write_output(layers.fc(hidden, 1))
        return layers.mean(pd()), []

    main, startup, loss, _ = built(build, 2)
    scope, exe = fluid.Scope(), fluid.Executor(CPU)
    exe.run(startup, scope=scope)

    def stored():
        names = [v.name for v in main.list_vars() if v.persistable]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names}

    feed = {"x": normal(4, 4), "ids": np.array([[1], [2], [3], [4]])}
    exe.run(main, feed, [loss], scope=scope)
    before = stored()
    with pytest.raises(EnforceNotMet, match="device 2"):
        exe.run(main, {**feed, "ids": np.array([[1], [2], [3], [40]])}, [loss], scope=scope)
    for name, value in stored().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    exe.run(main, feed, [loss], scope=scope)


def test_inputs_of_different_lengths_are_named():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 4])
        pd = parallel_do(2)
        with pd.do():
            pd.write_output(layers.elementwise_add(pd.read_input(x), pd.read_input(y)))
        total = layers.reduce_sum(pd())
    feed = {"x": normal(4, 4), "y": normal(6, 4)}
    with pytest.raises(EnforceNotMet, match=r"(x has 4 and y has 6|y has 6 and x has 4)"):
        fluid.Executor(CPU).run(main, feed, [total])
    with pytest.raises(EnforceNotMet, match="y is not initialized: feed it"):
        fluid.Executor(CPU).run(main, {"x": feed["x"]}, [total])


def test_refusals():
    build, _ = dense(4)
    main, _, loss, _ = built(build, 2)
    with pytest.raises(EnforceNotMet, match="with_data_parallel is not for ParallelDo"):
        fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)

    def run(places, **options):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()):
            x = fluid.data("x", [None, 4])
            pd = layers.ParallelDo(places(), **options)
            with pd.do():
                pd.write_output(layers.relu(pd.read_input(x)))
            return fluid.Executor(CPU).run(program, {"x": normal(4, 4)}, [pd()])

    with pytest.raises(EnforceNotMet, match="NCCL only supports cuda place"):
        run(lambda: layers.get_places(2), use_nccl=True)
    if not fluid.is_compiled_with_cuda():
        with pytest.raises(RuntimeError, match=r"CUDAPlace\(0\) does not exist"):
            run(lambda: layers.get_places(2, "CUDA"))
    (found,) = run(lambda: [CPU, CPU, CPU])
    assert found.shape == (4, 4)


def test_places_are_counted_when_the_program_is_compiled(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    main, rows = fluid.Program(), normal(9, 4)
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        pd = layers.ParallelDo(layers.get_places())
        with pd.do():
            pd.write_output(layers.mean(pd.read_input(x)))
        means = pd()
    for number in (3, 5):
        monkeypatch.setenv("CPU_NUM", str(number))
        (found,) = fluid.Executor(CPU).run(main, {"x": rows}, [means])
        parts = np.array_split(rows, number)
        np.testing.assert_allclose(found, [part.mean() for part in parts], rtol=1e-6)
    monkeypatch.setenv("CPU_NUM", "0")
    with pytest.raises(EnforceNotMet, match="Cannot indicate CPU device count"):
        fluid.Executor(CPU).run(main, {"x": rows}, [means])


def test_graph_on_gpus_copies_parameters_to_them(monkeypatch):
    monkeypatch.setattr("dpexec.engine.core.places.get_cuda_device_count", lambda: 2)

    def graph(keep):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 4])
            feature = layers.fc(x, 3)
            pd = layers.ParallelDo(
                layers.get_places(device_type="CUDA"), use_nccl=True, keep_parameters=keep
            )
            with pd.do():
                pd.write_output(layers.fc(pd.read_input(feature), 1))
            fluid.optimizer.SGD(0.1).minimize(layers.mean(pd()))
        spec = Compilation.of(main, [CPU], None, False)
        assert not spec.options.shared_memory
        return spec.graph()[0]

    mixed = graph(keep=False)
    assert mixed.places == [CPU, fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    copied = [n.inputs[0].name for n in mixed.ops if n.kind == "broadcast"]
    assert sorted(copied) == ["fc_1.b_0", "fc_1.w_0"]
    assert {n.device for n in mixed.ops if n.name == "sgd"} == {0}
    kept = graph(keep=True)
    assert not [n for n in kept.ops if n.kind in ("broadcast", "reduce")]
    assert sum(n.name == "sgd" and n.device == 2 for n in kept.ops) == 2


def test_mixed_precision_around_the_block():
    """The block works in float32 on what comes in float16."""

    def decorated():
        return fluid.contrib.mixed_precision.decorate(
            fluid.optimizer.SGD(0.1), init_loss_scaling=8.0, use_dynamic_loss_scaling=False
        )

    build, feed = dense(6)
    (half, _), (single, _) = (
        train(build, feed, 2, steps=5, optimizer=o) for o in (decorated, None)
    )
    assert half[-1][0].item() < 0.5 * half[0][0].item()
    assert half[-1][0].item() == pytest.approx(single[-1][0].item(), rel=0.02)


def test_error_clip_in_the_block_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        pd = parallel_do(2)
        with pd.do():
            hidden = layers.fc(pd.read_input(x), 3)
            hidden.set_error_clip(fluid.clip.ErrorClipByValue(1.0))
            pd.write_output(hidden)
        loss = layers.mean(pd())
        with pytest.raises(NotImplementedError, match="error_clip inside of the block"):
            fluid.optimizer.SGD(0.1).minimize(loss)
