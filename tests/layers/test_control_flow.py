"""Control flow and ``py_func``: Paddle's recorded programs and values."""

import base64
import json
import pickle
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify
from tests.fixtures import control_flow_cases, describe

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "control_flow.json").read_text())
VALUES = np.load(FIXTURES / "control_flow.npz")
CASES = list(control_flow_cases.CASES)
OTHER_TEXTS = {
    "dynamic_rnn_in_a_dynamic_rnn": "the original's outer while_grad names a gradient of the inner",
}


def recorded(name, part):
    prefix = f"{name}/{part}"
    return {key[len(prefix) :]: VALUES[key] for key in VALUES.files if key.startswith(prefix)}


def assert_recorded_values(name, values, after):
    for step, fetched in enumerate(values):
        for number, value in enumerate(fetched):
            expected = VALUES[f"{name}/{step}/{number}"]
            assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-7)
    stored = recorded(name, "after/")
    assert set(stored) == set(after)
    for var, expected in stored.items():
        np.testing.assert_allclose(after[var], expected, rtol=2e-6, atol=1e-7, err_msg=var)


@pytest.mark.parametrize("name", CASES)
def test_program_and_values_are_the_recorded_ones(name):
    main, startup, values, after = control_flow_cases.run(fluid, name)
    verify(main)
    if name not in OTHER_TEXTS:
        assert describe.programs_record(main, startup) == RECORDED["texts"][name]
    assert_recorded_values(name, values, after)


@pytest.mark.parametrize("name", RECORDED["bytes"])
def test_programs_serialised_by_the_original_run(name):
    main, startup = (
        fluid.Program.parse_from_string(zlib.decompress(base64.b64decode(text)))
        for text in RECORDED["bytes"][name]
    )
    verify(main)
    texts = RECORDED["texts"][name]["main"]
    found = describe.program_record(main)
    assert found["ops"] == texts["ops"]
    assert [b["ops"] for b in found["blocks"]] == [b["ops"] for b in texts["blocks"]]
    fetch, feeds = control_flow_cases.CASES[name](fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        if startup.global_block().ops:
            executor.run(startup)
        control_flow_cases.programs.set_initial_values(fluid, main)
        names = [var if isinstance(var, str) else var.name for var in fetch]
        values = [executor.run(main, feed=feed, fetch_list=names) for feed in feeds]
        after = control_flow_cases.programs.state(fluid, main)
    assert_recorded_values(name, values, after)


def test_operator_of_a_with_block_has_its_line():
    flag = fluid.data("flag", [1], "bool")
    with fluid.layers.Switch() as switch, switch.case(flag):  # this line
        fluid.layers.fill_constant([1], "float32", 0.0)
    op = fluid.default_main_program().global_block().ops[-1]
    assert op.type == "conditional_block" and op.callsite.source.endswith("# this line")


def test_case_outside_switch_is_refused():
    flag = fluid.data("flag", [1], "bool")
    with pytest.raises(ValueError, match="inside with"):
        fluid.layers.Switch().case(flag)


def test_default_without_case_is_refused():
    with pytest.raises(ValueError, match="at least one condition"), fluid.layers.Switch() as switch:
        switch.default()


def test_condition_must_be_bool():
    number = fluid.data("number", [1], "float32")
    with pytest.raises(TypeError, match="bool"), fluid.layers.Switch() as switch:
        switch.case(number)


def test_condition_with_two_elements_is_refused():
    flags = fluid.data("flags", [2], "bool")
    with (
        pytest.raises(fluid.core.EnforceNotMet, match=r"conditional_block.*one element"),
        fluid.layers.Switch() as switch,
        switch.case(flags),
    ):
        fluid.layers.fill_constant([1], "float32", 0.0)


def test_inputs_of_a_conditional_block_are_variables():
    with pytest.raises(TypeError, match="Variables"):
        fluid.layers.control_flow.ConditionalBlock(["flag"])


def test_error_while_building_a_block_leaves_it():
    flag = fluid.data("flag", [1], "bool")
    with pytest.raises(KeyError), fluid.layers.Switch() as switch, switch.case(flag):
        raise KeyError("of the user")
    program = fluid.default_main_program()
    assert program.current_block() is program.global_block()
    assert program.global_block().ops == []
    assert program.num_blocks == 1


def function_of(x, function, shape=(-1, 3), dtype="float32", **options):
    block = fluid.default_main_program().current_block()
    out = block.create_var(name="made", shape=list(shape), dtype=dtype)
    return fluid.layers.py_func(function, x, out, **options)


def fed(*shape):
    return {"x": np.arange(np.prod(shape), dtype="float32").reshape(shape)}


def test_python_function_gets_its_part_of_the_batch_on_each_device():
    x = fluid.data("x", [None, 3], "float32")
    rows = function_of(x, lambda x: np.array([len(np.array(x))]), (1,), "int64")
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(compiled, feed=fed(5, 3), fetch_list=[rows], return_merged=False)
    assert [int(part) for part in found] == [3, 2]


def test_python_function_without_arguments_or_results():
    calls = []
    fluid.layers.py_func(lambda: calls.append(1), None, None)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_main_program())
    exe.run(fluid.default_main_program())
    assert calls == [1, 1]


def test_python_function_cannot_write_to_the_values_of_others():
    def spoil(value):
        array = np.asarray(value)
        array[:] = -1
        return array

    x = fluid.data("x", [None, 3], "float32")
    spoiled = function_of(x, spoil)
    later = fluid.layers.scale(x, 1.0)
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(feed=fed(2, 3), fetch_list=[spoiled, later])
    assert (found[0] == -1).all() and np.array_equal(found[1], fed(2, 3)["x"])


def test_result_of_a_python_function_may_be_its_argument():
    x = fluid.data("x", [None, 3], "float32")
    same = function_of(x, np.asarray)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=fed(2, 3), fetch_list=[same])
    assert np.array_equal(found, fed(2, 3)["x"])


def test_error_in_a_python_function_names_the_line():
    def fail(value):
        raise RuntimeError("of the user")

    function_of(fluid.data("x", [None, 3], "float32"), fail)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"py_func(.|\n)*of the user(.|\n)*made by"):
        fluid.Executor(fluid.CPUPlace()).run(feed=fed(2, 3))


@pytest.mark.parametrize("result", ["text", None, {"a": 1}, [np.array([None])]])
def test_results_of_a_python_function_are_numbers(result):
    """Paddle refuses them, too."""
    function_of(fluid.data("x", [None, 3], "float32"), lambda x: result)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"py_func(.|\n)*'made'(.|\n)*made by"):
        fluid.Executor(fluid.CPUPlace()).run(feed=fed(2, 3))


def test_unknown_python_function_is_explained():
    function_of(fluid.data("x", [None, 3], "float32"), np.tanh)
    program = fluid.default_main_program()
    program.global_block().ops[0]._set_attr("forward_callable_id", 10**6)
    with pytest.raises(fluid.core.EnforceNotMet, match="not known in this process"):
        fluid.Executor(fluid.CPUPlace()).run(feed=fed(2, 3))


def test_arguments_of_py_func():
    x = fluid.data("x", [None, 3], "float32")
    block = fluid.default_main_program().current_block()
    shapeless = block.create_var(name="shapeless", dtype="float32")
    with pytest.raises(ValueError, match="shapeless"):
        fluid.layers.py_func(np.tanh, x, shapeless)
    with pytest.raises(ValueError, match="shapeless"):
        function_of(x, np.tanh, backward_func=np.cosh, skip_vars_in_backward_input=shapeless)
    with pytest.raises(TypeError, match="must be a Python function"):
        fluid.layers.py_func(3, x, None)
    with pytest.raises(TypeError, match="X"):
        fluid.layers.py_func(np.tanh, "x", None)


def test_pickled_program_takes_importable_functions_along():
    function_of(fluid.data("x", [None, 3], "float32"), np.tanh)
    program = pickle.loads(pickle.dumps(fluid.default_main_program()))
    assert str(program) == str(fluid.default_main_program())
    number = program.global_block().ops[0].attr("forward_callable_id")
    assert fluid.layers.py_func.registered_func(number) is np.tanh
    assert number < fluid.layers.py_func.registered_func_num()


def test_pickling_a_program_with_a_local_function_is_refused():
    function_of(fluid.data("x", [None, 3], "float32"), lambda x: x)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(fluid.default_main_program())


def test_values_are_printed_as_the_original_prints_them(capsys):
    x = fluid.data("x", [None, 3], "float32")
    x.stop_gradient = False
    shown = fluid.layers.Print(x / 7.0, message="hi", summarize=4)
    plain = fluid.layers.Print(
        fluid.layers.cast(x, "int64"),
        print_tensor_name=False,
        print_tensor_type=False,
        print_tensor_shape=False,
        print_phase="forward",
    )
    loss = fluid.layers.mean(shown)
    fluid.backward.append_backward(loss)
    fluid.Executor(fluid.CPUPlace()).run(feed=fed(2, 3), fetch_list=[loss, plain])
    text = re.sub(r"^\d+\t", "", capsys.readouterr().out, flags=re.MULTILINE)
    assert text.split("\n") == [
        "hi\tThe place is:CPUPlace",
        f"Tensor[{shown.op.input('In')[0]}]",
        "\tshape: [2,3,]",
        "\tdtype: f",
        "\tdata: 0,0.142857,0.285714,0.428571,",
        "\tThe place is:CPUPlace",
        "\tdata: 0,1,2,3,4,5,",
        "hi\tThe place is:CPUPlace",
        f"Tensor[{shown.name}@GRAD]",
        "\tshape: [2,3,]",
        "\tdtype: f",
        "\tdata: 0.166667,0.166667,0.166667,0.166667,",
        "",
    ]


@pytest.mark.parametrize("wanted", [True, False])
def test_offsets_of_sequences_are_printed(wanted, capsys):
    x = fluid.data("x", [None, 1], lod_level=2)
    shown = fluid.layers.Print(x, print_tensor_lod=wanted)
    fed = fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[1, 1], [2, 1]], fluid.CPUPlace())
    fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[shown], return_numpy=False)
    assert ("\tLoD: [[ 0,1,2, ][ 0,2,3, ]]\n\tdata:" in capsys.readouterr().out) is wanted


def test_printing_ends_after_the_first_times(capsys):
    x = fluid.data("x", [None, 3], "float32")
    shown = fluid.layers.Print(x, first_n=2)
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(3):
        (found,) = exe.run(feed=fed(2, 3), fetch_list=[shown])
        assert np.array_equal(found, fed(2, 3)["x"])
    assert capsys.readouterr().out.count("The place is") == 2


# ---- loops


def test_shapes_may_grow_in_a_loop():
    number = fluid.layers.fill_constant([1], "float32", 0.0)
    rows = fluid.layers.fill_constant([1, 2], "float32", 1.0)
    _, grown = fluid.layers.while_loop(
        lambda n, r: n < 3.0,
        lambda n, r: [n + 1.0, fluid.layers.concat([r, r * 2.0], axis=0)],
        [number, rows],
    )
    total = fluid.layers.reduce_sum(grown, dim=1)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[total])
    assert found.tolist() == [2, 4, 4, 8, 4, 8, 8, 16]


def test_rounds_of_a_loop_draw_other_numbers():
    fluid.default_main_program().random_seed = 3
    number = fluid.layers.fill_constant([1], "float32", 0.0)
    ones = fluid.layers.fill_constant([1, 200], "float32", 1.0)
    rows = fluid.layers.fill_constant([1, 200], "float32", 0.0)
    _, rows, _ = fluid.layers.while_loop(
        lambda n, r, o: n < 2.0,
        lambda n, r, o: [n + 1.0, fluid.layers.concat([r, fluid.layers.dropout(o, 0.5)]), o],
        [number, rows, ones],
    )
    (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[rows])
    assert 40 < (found[1] != found[2]).sum() < 160


def test_arguments_of_loops():
    number = fluid.layers.fill_constant([1], "float32", 0.0)
    flags = fluid.data("flags", [2], "bool")
    for wrong in (3, number, flags):
        with pytest.raises(TypeError, match="condition"):
            fluid.layers.While(wrong)
    loop = fluid.layers.while_loop
    with pytest.raises(TypeError, match="cond in while_loop should be callable"):
        loop(3, lambda n: n, [number])
    with pytest.raises(TypeError, match="should be a list or tuple"):
        loop(lambda n: n < 1.0, lambda n: n, number)
    with pytest.raises(ValueError, match="not be empty"):
        loop(lambda: number < 1.0, lambda: None, [])
    with pytest.raises(TypeError, match="boolean"):
        loop(lambda n: n, lambda n: n, [number])
    with pytest.raises(ValueError, match="same arity"):
        loop(lambda n: n < 1.0, lambda n: [n, n], [number])


# ---- structures that branches return


def test_branches_return_structures():
    flag = fluid.data("flag", [1], "bool")

    def made(value):
        constant = fluid.layers.fill_constant([1], "float32", value)
        return {"a": [constant, (constant + 1.0,)], "b": constant * 2.0}

    found = fluid.layers.cond(flag, lambda: made(1.0), lambda: made(5.0))
    fetch = [found["a"][0], found["a"][1][0], found["b"]]
    exe = fluid.Executor(fluid.CPUPlace())
    for value, expected in ((True, [1, 2, 2]), (False, [5, 6, 10])):
        values = exe.run(feed={"flag": np.array([value])}, fetch_list=fetch)
        assert [v.item() for v in values] == expected


@pytest.mark.parametrize(
    ("true_fn", "false_fn", "problem"),
    [
        (lambda x: None, lambda x: x, "true_fn returns None"),
        (lambda x: x, lambda x: None, "false_fn returns None"),
        (lambda x: [x, x], lambda x: [x], "sequences of 1"),
        (lambda x: {"a": x}, lambda x: {"b": x}, "keys"),
        (lambda x: 3, lambda x: 3, "expected a Variable"),
    ],
)
def test_branches_that_differ_are_refused(true_fn, false_fn, problem):
    flag = fluid.data("flag", [1], "bool")
    x = fluid.layers.fill_constant([1], "float32", 1.0)
    with pytest.raises(ValueError, match=problem):
        fluid.layers.cond(flag, lambda: true_fn(x), lambda: false_fn(x))


@pytest.mark.parametrize("shape", [[2, 2], [4], [24]])
def test_branches_may_have_other_ranks(shape):
    layers = fluid.layers
    flag = fluid.data("flag", [1], "bool")
    few, many = layers.ones(shape, "float32"), layers.ones([2, 3, 4], "float32")
    found = layers.cond(flag, lambda: layers.scale(few, 2.0), lambda: layers.scale(many, 2.0))
    tripled = layers.scale(found, 1.5)
    exe = fluid.Executor(fluid.CPUPlace())
    for taken, expected in ((True, shape), (False, [2, 3, 4]), (True, shape)):
        (value,) = exe.run(feed={"flag": np.array([taken])}, fetch_list=[tripled])
        np.testing.assert_array_equal(value, np.full(expected, 3.0, "float32"))


def test_branches_may_return_nothing():
    flag = fluid.data("flag", [1], "bool")
    assert fluid.layers.cond(flag, lambda: None, lambda: None) is None
    assert fluid.layers.cond(flag) is None


def test_arguments_of_branches():
    flag = fluid.data("flag", [1], "bool")
    index = fluid.data("index", [1], "int32")
    layers = fluid.layers
    with pytest.raises(TypeError, match="true_fn in cond must be callable"):
        layers.cond(flag, 3)
    with pytest.raises(TypeError, match="bool"):
        layers.cond(index, lambda: None)
    for wrong in (3, [flag], [(flag, 3)], [(3, lambda: None)]):
        with pytest.raises(TypeError, match="pred"):
            layers.case(wrong)
    for wrong in (3, [(0, 3)], [(0.5, lambda: None)]):
        with pytest.raises(TypeError, match="branch_fns"):
            layers.switch_case(index, wrong)
    with pytest.raises(ValueError, match="unique"):
        layers.switch_case(index, [(1, lambda: None), (1, lambda: None)])
