"""Transpiled programs, compared with those of the real Paddle."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from tests.fixtures import pserver_cases as cases

RECORDED = json.loads((Path(cases.__file__).parent / "pservers.json").read_text())
TABLE = "embedding_0.w_0"


def programs(name):
    """What the transpiler makes of a case, as the fixture has it."""
    main, startup, _ = cases.build(fluid, name)
    made = cases.transpiler(fluid, name, main, startup)
    servers = [made.get_pserver_programs(endpoint) for endpoint in cases.SERVERS]
    return {
        "servers": [[cases.described(program) for program in pair] for pair in servers],
        "trainer": cases.described(made.get_trainer_program()),
        "startup": cases.described(startup),
    }


def plain(blocks, without=("op_role_var",)):
    """Blocks with empty lists and some attributes left out."""
    return [
        [
            [kind, ins, outs, {k: v for k, v in attrs.items() if v != [] and k not in without}]
            for kind, ins, outs, attrs in block
        ]
        for block in blocks
    ]


@pytest.mark.parametrize("name", sorted(set(cases.CASES) - {"sparse"}))
def test_programs_are_those_of_paddle(name):
    made, recorded = programs(name), RECORDED[name]
    assert plain(made["trainer"], ()) == plain(recorded["trainer"], ())
    # making a server's startup program, Paddle writes shapes of blocks into the trainer's
    assert plain(made["startup"], "shape") == plain(recorded["startup"], "shape")
    for mine, theirs in zip(made["servers"], recorded["servers"], strict=True):
        assert [plain(blocks) for blocks in mine] == [plain(blocks) for blocks in theirs]


def test_sparse_tables_are_cut_like_paddle_s_and_received():
    made, recorded = programs("sparse"), RECORDED["sparse"]
    for mine, theirs in zip(made["servers"], recorded["servers"], strict=True):
        assert [plain(blocks) for blocks in mine] == [plain(blocks) for blocks in theirs]
    mine, theirs = (
        [op for op in blocks["trainer"][0] if TABLE not in str(op) and op[0] != "fetch_barrier"]
        for blocks in (made, recorded)
    )
    assert plain([mine]) == plain([theirs])
    (receives,) = [op for op in made["trainer"][0] if op[0] == "recv" and TABLE in str(op[2])]
    assert receives[3]["epmap"] == cases.SERVERS


def transpiled(build, options=(), servers=cases.SERVERS, trainers=2):
    """The transpiler, after it divided what ``build`` builds; the programs of its trainer."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    config = fluid.DistributeTranspilerConfig()
    made = fluid.DistributeTranspiler(config)
    config.min_block_size = 8
    for key, value in dict(options).items():
        setattr(config, key, value)
    made.transpile(0, main, ",".join(servers), trainers, startup_program=startup)
    return made, main, startup


def sgd():
    cases.minimize_sgd(fluid, cases.dense(fluid))


def clipped():
    loss = cases.dense(fluid)
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)


def test_trainers_clip_and_servers_update():
    made, main, _ = transpiled(clipped)
    server = made.get_pserver_program(cases.SERVERS[0])
    assert {op.type for block in server.blocks[1:] for op in block.ops} == {"sum", "scale", "sgd"}
    types = [op.type for op in made.get_trainer_program().global_block().ops]
    assert "sgd" not in types and "sqrt" in types and types.index("sqrt") < types.index("send")
    sent = [op.input("X")[0] for op in main.global_block().ops if op.type == "send"]
    assert not any(name.startswith("fc_0.b_0@GRAD") for name in sent), "not clipped"


def test_optimizers_that_look_at_norms_keep_parameters_whole():
    made, _, _ = transpiled(lambda: fluid.optimizer.LambOptimizer(0.1).minimize(cases.dense(fluid)))
    assert "split_byref" not in [op.type for op in made.get_trainer_program().global_block().ops]


def test_blocks_of_values_given_as_arrays_are_cut_out_of_the_whole():
    values = list(range(20))

    def build():
        start = fluid.initializer.NumpyArrayInitializer(
            np.array(values, dtype="float32").reshape(10, 2)
        )
        x = fluid.layers.data("x", [10])
        out = fluid.layers.fc(x, 2, param_attr=fluid.ParamAttr(initializer=start), bias_attr=False)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))

    made, _, _ = transpiled(build)
    found = {}
    for endpoint in cases.SERVERS:
        program, startup = made.get_pserver_programs(endpoint)
        scope = fluid.Scope()
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        for name in program.global_block().vars:
            if name.startswith("fc_0.w_0.block") and "GRAD" not in name:
                found[name] = np.array(scope.find_var(name).get_tensor()).ravel().tolist()
    assert found == {"fc_0.w_0.block0": values[:10], "fc_0.w_0.block1": values[10:]}


def test_hash_name_is_the_same_in_all_processes():
    options = {"split_method": fluid.transpiler.HashName}
    made, _, _ = transpiled(sgd, options)
    chosen = {
        op.attr("op_role_var")[0]: op.attr("epmap")
        for op in made.get_trainer_program().global_block().ops
        if op.type == "send"
    }
    first, second = cases.SERVERS
    assert chosen == {
        "fc_0.w_0": [first, second],
        "fc_0.b_0": [second],
        "fc_1.w_0": [first],
        "fc_1.b_0": [second],
    }


def test_a_clone_for_testing_exchanges_nothing():
    _, main, _ = transpiled(sgd)
    types = [op.type for op in main.clone(for_test=True).global_block().ops]
    assert types[-1] == "mean" and "send" not in types


class OneServer(fluid.transpiler.RoundRobin):
    """A way to choose servers that cannot be."""

    def dispatch(self, varlist):
        return [self.eps[0] for _ in varlist]


def test_what_is_not_supported_is_refused():
    for build, options, message in (
        (lambda: cases.dense(fluid), {}, "no optimizer"),
        (sgd, {"completely_not_async": True}, "sync_mode = True says the same"),
        (sgd, {"enable_dc_asgd": True}, "servers that wait for nobody"),
        (sgd, {"geo_sgd_mode": True, "geo_sgd_need_push_nums": 0}, "number of steps, not 0"),
        (sgd, {"split_method": OneServer}, "OneServer puts two blocks of parameter fc_0.w_0"),
    ):
        with pytest.raises(EnforceNotMet, match=message):
            transpiled(build, options)
    made, _, _ = transpiled(sgd)
    with pytest.raises(EnforceNotMet, match=r"127\.0\.0\.1:1 is none of the parameter servers"):
        made.get_pserver_program("127.0.0.1:1")
    with pytest.raises(EnforceNotMet, match="call transpile"):
        fluid.DistributeTranspiler().get_trainer_program()


def distributed(optimizer=fluid.optimizer.SGD, is_sparse=True, tied=False):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    options = {"is_sparse": is_sparse, "is_distributed": True, "param_attr": TABLE}
    rows = fluid.layers.embedding(ids, [12, 4], **options)
    if tied:
        table = fluid.default_main_program().global_block().var(TABLE)
        rows = fluid.layers.matmul(rows, table, transpose_y=True)
    optimizer(0.1).minimize(fluid.layers.mean(rows))


def test_tables_are_on_the_servers_alone():
    made, main, startup = transpiled(distributed, {"slice_var_up": False})
    for endpoint, block in zip(cases.SERVERS, ("block0", "block1"), strict=True):
        program, first = made.get_pserver_programs(endpoint)
        assert program.global_block().var(f"{TABLE}.{block}").shape == (6, 4)
        assert [op.type for op in first.global_block().ops][-1] == "uniform_random"
    types = [op.type for op in made.get_trainer_program().global_block().ops]
    assert "send" in types and "recv" not in types
    assert not main.global_block().var(TABLE).persistable
    assert not startup.global_block().has_var(TABLE)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({"tied": True}, {}, "matmul.*it reads a table with is_distributed=True"),
        ({"is_sparse": False}, {}, "is_distributed=True needs is_sparse=True"),
        ({"optimizer": fluid.optimizer.LambOptimizer}, {}, "lamb.*needs the whole of a table"),
        ({}, {"geo_sgd_mode": True}, "is not for geo_sgd_mode"),
    ],
)
def test_tables_that_cannot_be_on_servers_alone_are_refused(arguments, options, message):
    with pytest.raises(EnforceNotMet, match=f"(?s){message}"):
        transpiled(lambda: distributed(**arguments), options)


def test_config_keeps_fluid_s_rules():
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(ValueError, match="sync_mode = False"):
        config.runtime_split_send_recv = True
    config.sync_mode = False
    config.runtime_split_send_recv = True
    with pytest.raises(ValueError, match="runtime_split_send_recv = False"):
        config.sync_mode = True
    config.min_block_size = 10
    with pytest.raises(AssertionError, match="at least 8192"):
        fluid.DistributeTranspiler(config)
